"""What is asked of few judged rows to explain some of them; ``engine.spark.trace`` asks it of many. Times are in ns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.audit.explain.position import Position
from subreplay.rows.model.columns import UNKNOWN, flags, ints
from subreplay.rows.model.tables import DELIVERY, LOG, MESSAGE
from subreplay.rows.model.words import KeyWords

Row = Mapping[str, Any]
POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
"""What tells a message from others."""


@dataclass(frozen=True)
class FewRows:
    """Table ``audited`` of a run, without sums, state and commits, its log, table by table, and how it tells keys."""

    audited: pa.Table
    parts: Sequence[pa.Table]
    words: KeyWords

    def of_message(self, position: Position) -> pa.Table:
        """The rows of a message, or of a whole entry."""
        inside = {} if position.batch_index is None else {"batch_index": position.batch_index}
        at = {"partition": position.scope.partition, "ledger": position.ledger, "entry": position.entry} | inside
        mine = self.audited
        for name, value in at.items():
            mine = mine.filter(pc.field(name) == value)
        return mine

    def of_key(self, key: bytes) -> pa.Table:
        """The rows of messages of a key."""
        return self.audited.filter(pc.field("key") == self.words.word(key))

    def latest(self, mine: pa.Table, last: int) -> list[dict[str, Any]]:
        """Some rows, the latest first."""
        when = pc.if_else(mine["delivered"], mine["at"], mine["published"])
        by = pa.table({"when": when} | {name: mine[name] for name in POSITION[2:]})
        found: list[dict[str, Any]] = mine.take(
            pc.sort_indices(by, [(name, "descending") for name in by.column_names])[:last]
        ).to_pylist()
        return found

    def counts(self, mine: pa.Table) -> Row:
        """Messages, deliveries and findings of some rows."""
        nth, delivered, codes = ints(mine, "nth"), flags(mine, "delivered"), ints(mine, "codes")
        return {
            "messages": int(np.count_nonzero((nth == 0) | ~delivered)),
            "deliveries": int(np.count_nonzero(delivered)),
            "redelivered": int(np.count_nonzero(nth > 0)),
            **{code.name: int(np.count_nonzero(codes & code.bit)) for code in Code},
        }

    def log(self, positions: Iterable[tuple[Any, ...]], since: int) -> pa.Table:
        """The ``LOG`` rows of some messages, but not their deliveries before a time."""
        shape = pa.schema([LOG.field(name) for name in POSITION])
        asked = pa.Table.from_pylist([dict(zip(POSITION, position, strict=True)) for position in positions], shape)
        mine = (part.join(asked, [*POSITION], join_type="left semi") for part in self.parts)
        found = pa.concat_tables([LOG.empty_table(), *mine], promote_options="default")
        late = (pc.field("kind") == MESSAGE) | (pc.field("at") >= since) | (pc.field("at") == UNKNOWN)
        return found.filter(late & (pc.field("kind") <= DELIVERY))

    def waits(self, waiting: Sequence[Row]) -> tuple[Row, ...]:
        """Of what held each of these messages back (``Trace.waiting``), the delivery elsewhere that ended last."""
        held = self.audited.filter(pc.field("delivered"))
        names = ("partition", "slot", "session", "at", "held_until", *POSITION[2:])
        partition, slot, session, at, until, *position = (ints(held, name) for name in names)
        order = np.lexsort([*reversed(position), -at, -until])
        found = []
        for row in sorted(waiting, key=lambda row: tuple(row[name] for name in POSITION)):
            there = (partition == row["partition"]) & (session != row["session"])
            if row["slot"] is not None:
                there &= slot == row["slot"]
            then = (at < row["before"]) & (until <= row["until"]) & (until > np.maximum(row["since"], at))
            mine = order[(there & then)[order]]
            if len(mine):
                first = int(mine[0])
                found.append(
                    {name: row[name] for name in POSITION}
                    | {
                        "holder": {name: int(of[first]) for name, of in zip(POSITION[2:], position, strict=True)},
                        "consumer": held["consumer"][first].as_py(),
                        "since": max(row["since"], int(at[first])),
                        "until": int(until[first]),
                        "of": len(mine),
                    }
                )
        return tuple(found)
