"""How long consumers waited in a dispatch replay, and for whom.

What waits at the same time counts once: a group of waits is ``blocked`` for as long as any of them lasts, and the
``total`` of a scenario is how long anything waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.kernels.inlining import operation
from subreplay.rows.groups import AddingUp, in_order
from subreplay.rows.model.columns import Ints, gathered, ints
from subreplay.rows.sorted_blocks import grouped, with_groups
from subreplay.whatif.dispatch_replay import PREDICTED
from subreplay.whatif.grouped_sums import Rows, Sum, begins, named

EVERY, EVERY_PLACE, BY_HOLDER, BY_PLACE = 0, 1, 2, 3
"""Levels of groups: all waits of a scenario; those of them that are of a hash, or ended by a rebalance; waits by
consumer and holder; and those of a hash or a rebalance by these, partition, hash and rebalance."""
_GROUP: Final = ("level", "scenario", "topic", "partition", "consumer", "holder", "hash", "generation")
_COLUMNS: Final = {
    BY_HOLDER: ("scenario", "consumer", "holder"),
    BY_PLACE: ("scenario", "topic", "partition", "consumer", "holder", "hash", "generation"),
}
_LEVEL: Final = pa.field("level", pa.int8())
_GROUPS: Final = [_LEVEL, *(pa.field(name, PREDICTED.field(name).type) for name in _GROUP[1:])]
WAITS: Final = grouped(
    pa.schema([*_GROUPS, ("at", pa.int64()), ("until", pa.int64()), ("entries", pa.int64()), ("by_hash", pa.int64())]),
    ("at", "until"),
)
"""Waits in order of time, at each level."""
_BLOCKED: Final = Sum(
    pa.schema(
        [*_GROUPS, *((n, pa.int64()) for n in ("since", "until", "blocked", "stretches", "messages", "by_hash"))]
    ),
    _GROUP,
    least=("since",),
    most=("until", "by_hash"),
)
_COUNTED: Final = Sum(
    pa.schema([_LEVEL, ("scenario", pa.string()), ("of", pa.int64()), ("total", pa.int64())]), ("level", "scenario")
)
LONGEST: Final = _BLOCKED.schema
"""The groups that waited longest."""
COUNTED: Final = _COUNTED.schema
"""How many groups there are at each level, and how long they waited."""


def waits_to_sum(rows: pa.Table) -> pa.Table:
    """``WAITED`` rows as ``WAITS``."""
    named = pc.or_(rows["hash"].is_valid(), rows["generation"].is_valid())
    places = rows.filter(named)
    of_level = {EVERY: rows, EVERY_PLACE: places, BY_HOLDER: rows, BY_PLACE: places}
    found = []
    for level, mine in of_level.items():
        given: dict[str, Any] = {"level": pa.repeat(level, len(mine)), "by_hash": mine["hash"].is_valid()}
        kept = ("scenario", "at", "until", "entries", *_COLUMNS.get(level, ()))
        given |= {name: mine[name] for name in kept}
        schema = WAITS.schema
        columns = [f for f in schema if f.name in (*_GROUP, "at", "until", "entries", "by_hash")]
        arrays = [given[f.name].cast(f.type) if f.name in given else pa.nulls(len(mine), f.type) for f in columns]
        found.append(pa.table(arrays, schema=pa.schema(columns)))
    return with_groups(pa.concat_tables(found).combine_chunks(), _GROUP)


@dataclass(frozen=True)
class SumWaits:
    """Splits ``WAITS`` rows in order into ``longest`` (``LONGEST``), the ``most`` groups that waited longest of each
    scenario and level, and ``counted`` (``COUNTED``)."""

    most: int

    def __call__(self, waits: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        longest, counted = AddingUp(self._longest), _COUNTED.adding()
        longest.add(LONGEST.empty_table())
        for groups in _groups(waits):
            longest.add(groups)
            of_each = [groups["level"], groups["scenario"], pa.repeat(1, len(groups)), groups["blocked"]]
            counted.add(pa.table(of_each, schema=COUNTED))
        for name, adding in (("longest", longest), ("counted", counted)):
            yield from named(name, adding.together())

    def _longest(self, groups: pa.Table) -> pa.Table:
        places = groups.filter(pc.greater_equal(groups["level"], BY_HOLDER))
        return ranked(places, self.most).drop_columns(["rank"])


def ranked(groups: pa.Table, most: int) -> pa.Table:
    """The ``most`` groups of each level and scenario that waited longest, and their ``rank``; null is the least."""
    ordered = in_order(groups, "level", "scenario", ("blocked", "descending"), *_GROUP[2:])
    starts = begins(ordered, ("level", "scenario"))
    numbers = np.arange(len(ordered))
    rank = numbers - np.maximum.accumulate(np.where(starts, numbers, 0)) + 1
    return ordered.append_column("rank", pa.array(rank, pa.int64())).filter(pa.array(rank <= most))


def wait_rows(level: int, longest: pa.Table, counted: pa.Table, most: int) -> Rows:
    """The longest waits of each scenario at a level, ``of`` how many; from what tasks found."""
    mine = ranked(longest.filter(pc.equal(longest["level"], level)), most).to_pylist()
    every = {BY_HOLDER: EVERY, BY_PLACE: EVERY_PLACE}[level]
    sums = {(row["level"], row["scenario"]): row for row in _COUNTED.rows(counted)}
    return [
        {name: row[name] for name in (*_COLUMNS[level], "since", "until", "blocked", "stretches", "messages")}
        | {"by_hash": bool(row["by_hash"]), "rank": row["rank"]}
        | {"of": sums[level, row["scenario"]]["of"], "total": sums[every, row["scenario"]]["total"]}
        for row in mine
    ]


def _groups(waits: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """``LONGEST`` rows of all groups, each once."""
    last: pa.Table | None = None
    reached = 0
    for rows in gathered(waits):
        starts = begins(rows, _GROUP)
        if last is not None:
            starts[0] = rows.select(_GROUP).slice(0, 1).to_pylist() != last.select(_GROUP).to_pylist()
        at, until = ints(rows, "at"), ints(rows, "until")
        blocked = np.empty_like(at)
        reached = int(_not_covered(starts, at, until, reached, blocked))
        given = {"since": rows["at"], "blocked": pa.array(blocked), "stretches": pa.repeat(1, len(rows)),
                 "messages": rows["entries"]}  # fmt: skip
        parts = [pa.table([given[f.name] if f.name in given else rows[f.name] for f in LONGEST], schema=LONGEST)]
        groups = _BLOCKED.add_up(pa.concat_tables([last, *parts] if last is not None else parts)).combine_chunks()
        last = groups.slice(len(groups) - 1)
        yield groups.slice(0, len(groups) - 1)
    if last is not None:
        yield last


@operation
def _not_covered(
    starts: np.ndarray, at: Ints, until: Ints, reached: int, blocked: Ints
) -> int:  # pragma: no cover - compiled
    """How much of each wait was not covered by those of its group that had begun before it; ``reached`` is how far
    these went, and what is returned how far the last group went."""
    for i in range(len(at)):
        if starts[i]:
            reached = at[i]
        blocked[i] = max(until[i] - max(at[i], reached), 0)
        reached = max(reached, until[i])
    return reached
