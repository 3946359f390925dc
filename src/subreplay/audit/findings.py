"""Findings that are not about one delivery: about a topic, the ranges of a subscription, or its dead letters.

There are few of them, so they are plain rows. Findings about deliveries are bits of columns (``judge``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from subreplay.audit.attribution import find_party
from subreplay.audit.codes import Code, Exemption, Rule
from subreplay.rows.model.rows import RuleStatus, Scope
from subreplay.rows.model.tables import VIOLATIONS

NO_MESSAGE = (-1, -1, -1)
DELAYED, CHUNK, NO_OWNER, SEPARATOR = "delayed", "chunk", "unowned", ", "
"""The values of column ``circumstances`` of table ``violations``, and the separator between them."""


@dataclass(frozen=True)
class Finding:
    """One finding. ``at`` (ns) is when it began, ``position`` its message, ``key`` the masked key, and
    ``circumstances`` what is special about the message (``explain.upstream_faults``)."""

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
    evidence: tuple[str, ...] = ()
    circumstances: tuple[str, ...] = ()
    exemption: Exemption = Exemption.NONE

    def make_row(self, subscription: str, rule: Rule, rule_status: RuleStatus) -> dict[str, Any]:
        """Return the row of table ``violations``."""
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
            "verdict": str(rule.verdict(rule_status, self.exemption)),
            "excuse": self.exemption.sentence or None,
            "consumer": self.consumer,
            "moment": self.at // 1_000,
            "at": self.at // 1_000,
            "key": self.key,
            "slot": self.slot,
            "epoch": self.epoch,
            "cause": self.cause,
            "witness": list(self.evidence),
            "explanation": self.explanation + (f"; {self.exemption.sentence}" if self.exemption else ""),
            "circumstances": SEPARATOR.join(self.circumstances) or None,
            "attribution": find_party(self.code, self.exemption),
            "waited": None,
        }


def make_violations(
    findings: Iterable[Finding], subscription: str, rules: Mapping[Code, Rule], rule_statuses: Mapping[Code, RuleStatus]
) -> pa.Table:
    """Convert findings to table ``violations``, without the rules that are not evaluated."""
    applicable = [f for f in findings if rule_statuses[f.code].is_evaluated]
    rows = [f.make_row(subscription, rules[f.code], rule_statuses[f.code]) for f in applicable]
    return pa.Table.from_pylist(rows, schema=VIOLATIONS)
