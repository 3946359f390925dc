"""Sum how long consumers waited in a dispatch replay, and which consumer they waited for.

Waits at the same time count once: a group of waits is ``blocked`` as long as any of them lasts. The ``total`` of a
scenario is how long anything waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.kernels.inlining import operation
from subreplay.rows.groups import Accumulator, sort_table
from subreplay.rows.model.columns import Ints, gather_batches, ints
from subreplay.rows.sorted_blocks import add_groups, make_group_order
from subreplay.whatif.dispatch_replay import PREDICTED
from subreplay.whatif.grouped_sums import GroupedSum, Rows, find_run_starts, name_batches

EVERY, EVERY_PLACE, BY_HOLDER, BY_PLACE = 0, 1, 2, 3
"""Levels of groups.

``EVERY``: all waits of a scenario. ``EVERY_PLACE``: those of a hash, or ended by a rebalance. ``BY_HOLDER``: waits by
consumer and holder. ``BY_PLACE``: waits of a hash or a rebalance by consumer, holder, partition, hash and rebalance.
"""
_GROUP: Final = ("level", "scenario", "topic", "partition", "consumer", "holder", "hash", "generation")
_COLUMNS: Final = {
    BY_HOLDER: ("scenario", "consumer", "holder"),
    BY_PLACE: ("scenario", "topic", "partition", "consumer", "holder", "hash", "generation"),
}
_LEVEL: Final = pa.field("level", pa.int8())
_GROUPS: Final = [_LEVEL, *(pa.field(name, PREDICTED.field(name).type) for name in _GROUP[1:])]
WAITS: Final = make_group_order(
    pa.schema([*_GROUPS, ("at", pa.int64()), ("until", pa.int64()), ("entries", pa.int64()), ("by_hash", pa.int64())]),
    ("at", "until"),
)
"""Waits in order of time, at each level."""
_BLOCKED: Final = GroupedSum(
    pa.schema(
        [*_GROUPS, *((n, pa.int64()) for n in ("since", "until", "blocked", "stretches", "messages", "by_hash"))]
    ),
    _GROUP,
    minimums=("since",),
    maximums=("until", "by_hash"),
)
_COUNTED: Final = GroupedSum(
    pa.schema([_LEVEL, ("scenario", pa.string()), ("of", pa.int64()), ("total", pa.int64())]), ("level", "scenario")
)
LONGEST: Final = _BLOCKED.schema
"""The groups that waited longest."""
COUNTED: Final = _COUNTED.schema
"""The number of groups at each level, and how long they waited."""


def build_wait_levels(rows: pa.Table) -> pa.Table:
    """Turn ``WAITED`` rows into ``WAITS`` rows."""
    in_place = pc.or_(rows["hash"].is_valid(), rows["generation"].is_valid())
    places = rows.filter(in_place)
    rows_by_level = {EVERY: rows, EVERY_PLACE: places, BY_HOLDER: rows, BY_PLACE: places}
    tables = []
    for level, selected in rows_by_level.items():
        values: dict[str, Any] = {"level": pa.repeat(level, len(selected)), "by_hash": selected["hash"].is_valid()}
        kept = ("scenario", "at", "until", "entries", *_COLUMNS.get(level, ()))
        values |= {name: selected[name] for name in kept}
        schema = WAITS.schema
        columns = [f for f in schema if f.name in (*_GROUP, "at", "until", "entries", "by_hash")]
        arrays = [values[f.name].cast(f.type) if f.name in values else pa.nulls(len(selected), f.type) for f in columns]
        tables.append(pa.table(arrays, schema=pa.schema(columns)))
    return add_groups(pa.concat_tables(tables).combine_chunks(), _GROUP)


@dataclass(frozen=True)
class SumWaits:
    """Splits ordered ``WAITS`` rows into ``longest`` and ``counted``.

    ``longest`` (``LONGEST``) has the ``most`` groups of each scenario and level that waited longest; ``counted``
    (``COUNTED``) counts the groups.
    """

    most: int

    def __call__(self, waits: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        longest, counted = Accumulator(self._keep_longest), _COUNTED.start_adding()
        longest.add(LONGEST.empty_table())
        for groups in _sum_groups(waits):
            longest.add(groups)
            group_columns = [groups["level"], groups["scenario"], pa.repeat(1, len(groups)), groups["blocked"]]
            counted.add(pa.table(group_columns, schema=COUNTED))
        for name, adding in (("longest", longest), ("counted", counted)):
            yield from name_batches(name, adding.compute_sum())

    def _keep_longest(self, groups: pa.Table) -> pa.Table:
        places = groups.filter(pc.greater_equal(groups["level"], BY_HOLDER))
        return rank_groups(places, self.most).drop_columns(["rank"])


def rank_groups(groups: pa.Table, most: int) -> pa.Table:
    """Keep the ``most`` groups of each level and scenario that waited longest, with their ``rank``.

    Null sorts first.
    """
    ordered = sort_table(groups, "level", "scenario", ("blocked", "descending"), *_GROUP[2:])
    starts = find_run_starts(ordered, ("level", "scenario"))
    numbers = np.arange(len(ordered))
    rank = numbers - np.maximum.accumulate(np.where(starts, numbers, 0)) + 1
    return ordered.append_column("rank", pa.array(rank, pa.int64())).filter(pa.array(rank <= most))


def build_wait_rows(level: int, longest: pa.Table, counted: pa.Table, most: int) -> Rows:
    """Return the longest waits of each scenario at a level, from the results of the tasks.

    ``of`` is the number of all groups at that level.
    """
    selected = rank_groups(longest.filter(pc.equal(longest["level"], level)), most).to_pylist()
    total_level = {BY_HOLDER: EVERY, BY_PLACE: EVERY_PLACE}[level]
    sums = {(row["level"], row["scenario"]): row for row in _COUNTED.build_rows(counted)}
    return [
        {name: row[name] for name in (*_COLUMNS[level], "since", "until", "blocked", "stretches", "messages")}
        | {"by_hash": bool(row["by_hash"]), "rank": row["rank"]}
        | {"of": sums[level, row["scenario"]]["of"], "total": sums[total_level, row["scenario"]]["total"]}
        for row in selected
    ]


def _sum_groups(waits: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield ``LONGEST`` rows of all groups, each once."""
    last: pa.Table | None = None
    covered_until = 0
    for rows in gather_batches(waits):
        starts = find_run_starts(rows, _GROUP)
        if last is not None:
            starts[0] = rows.select(_GROUP).slice(0, 1).to_pylist() != last.select(_GROUP).to_pylist()
        at, until = ints(rows, "at"), ints(rows, "until")
        blocked = np.empty_like(at)
        covered_until = int(_measure_uncovered(starts, at, until, covered_until, blocked))
        values = {"since": rows["at"], "blocked": pa.array(blocked), "stretches": pa.repeat(1, len(rows)),
                 "messages": rows["entries"]}  # fmt: skip
        parts = [pa.table([values[f.name] if f.name in values else rows[f.name] for f in LONGEST], schema=LONGEST)]
        groups = _BLOCKED.add_up(pa.concat_tables([last, *parts] if last is not None else parts)).combine_chunks()
        last = groups.slice(len(groups) - 1)
        yield groups.slice(0, len(groups) - 1)
    if last is not None:
        yield last


@operation
def _measure_uncovered(
    starts: np.ndarray, at: Ints, until: Ints, covered_until: int, blocked: Ints
) -> int:  # pragma: no cover - compiled
    """Measure how much of each wait was not covered by earlier waits of its group.

    ``covered_until`` is how far the earlier waits reached. The function returns how far the last group reached.
    """
    for i in range(len(at)):
        if starts[i]:
            covered_until = at[i]
        blocked[i] = max(until[i] - max(at[i], covered_until), 0)
        covered_until = max(covered_until, until[i])
    return covered_until
