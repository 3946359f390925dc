"""Findings that are not about one delivery: of a topic, of a subscription's ranges, of its dead letters.

They are few, so they are plain rows; those about deliveries are bits of columns (``judge``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from subreplay.audit.attribution import attributed
from subreplay.audit.codes import Code, Excuse, Rule
from subreplay.rows.model.rows import Scope, Standing
from subreplay.rows.model.tables import VIOLATIONS

NO_MESSAGE = (-1, -1, -1)
DELAYED, CHUNK, UNOWNED, SEPARATOR = "delayed", "chunk", "unowned", ", "
"""What column ``circumstances`` of table ``violations`` says of the finding's message, and what is between two."""


@dataclass(frozen=True)
class Finding:
    """One finding. ``at`` (ns) is when it began; ``position`` the message it is about, ``key`` in words,
    ``circumstances`` what is particular about that message (``explain.incidents``)."""

    code: Code
    scope: Scope
    at: int
    explanation: str
    cause: str
    position: tuple[int, int, int] = NO_MESSAGE
    consumer: str | None = None
    key: str | None = None
    slot: int = -1
    epoch: int = -1
    witness: tuple[str, ...] = ()
    circumstances: tuple[str, ...] = ()
    excuse: Excuse = Excuse.NONE

    def row(self, subscription: str, rule: Rule, standing: Standing) -> dict[str, Any]:
        """The row of table ``violations``."""
        ledger, entry, batch_index = self.position
        return {
            "date": datetime.fromtimestamp(self.at // 1_000_000_000, timezone.utc).date(),
            "subscription": subscription,
            "topic": self.scope.topic,
            "partition": self.scope.partition,
            "ledger": ledger,
            "entry": entry,
            "batch_index": batch_index,
            "code": self.code.name,
            "verdict": str(rule.verdict(standing, self.excuse)),
            "excuse": self.excuse.sentence or None,
            "consumer": self.consumer,
            "moment": self.at // 1_000,
            "at": self.at // 1_000,
            "key": self.key,
            "slot": self.slot,
            "epoch": self.epoch,
            "cause": self.cause,
            "witness": list(self.witness),
            "explanation": self.explanation + (f"; {self.excuse.sentence}" if self.excuse else ""),
            "circumstances": SEPARATOR.join(self.circumstances) or None,
            "attribution": attributed(self.code, self.excuse),
            "waited": None,
        }


def violations_of(
    findings: Iterable[Finding], subscription: str, rules: Mapping[Code, Rule], standings: Mapping[Code, Standing]
) -> pa.Table:
    """Findings as table ``violations``; what is not looked for is left out."""
    applicable = [f for f in findings if standings[f.code].looks]
    rows = [f.row(subscription, rules[f.code], standings[f.code]) for f in applicable]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)
