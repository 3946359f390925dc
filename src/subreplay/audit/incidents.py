"""Group failing findings into incidents.

Tasks sum failing findings into parts (``PARTS``): one for each window, rule, partition, consumer and cause. The driver
groups parts that overlap in time and share a cause, a consumer or a partition.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.explain.causes import HOLDER_PATTERN, UNEXPLAINED
from subreplay.rows.groups import Accumulator, sort_table, with_columns
from subreplay.rows.model.columns import ints

DETAILS: Final = ("partition", "consumer", "cause")
LEVELS: Final = ((1, 0), (4, 0), (16, 0), (16, 1), (16, 2), (16, 3))
"""The levels of detail: how many windows a part covers, and how many of its ``DETAILS`` are null."""
MOST_PARTS: Final = 1 << 12
MOST_INCIDENTS: Final = 40
"""If there are more incidents, those that are near in time become one."""
MOST_STRETCHES: Final = 3
"""If a cause has findings in more separate stretches of time, it is one incident that recurs."""
PARTS: Final = pa.schema(
    [
        pa.field("level", pa.int64(), nullable=False),  # of ``LEVELS``
        pa.field("window", pa.int64(), nullable=False),  # start, ns
        pa.field("code", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("attribution", pa.string()),
        pa.field("partition", pa.int64()),
        pa.field("consumer", pa.string()),  # the one that blocks others, if a rule names it
        pa.field("cause", pa.string()),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),  # the earliest finding, or the start of its wait, ns
        pa.field("last", pa.int64(), nullable=False),  # the latest one, or the end of its wait, ns
        pa.field("waited", pa.int64()),  # the longest wait, ns; null: the rule is not about waiting
        pa.field("open", pa.bool_(), nullable=False),  # a message still waits when the data end
    ]
)
_KEYS: Final = PARTS.names[: PARTS.names.index("count")]
_SUMS: Final = [("count", "sum"), ("first", "min"), ("last", "max"), ("waited", "max"), ("open", "max")]


def count_parts(found: pa.Table, width: int) -> pa.Table:
    """Sum the failing rows of table ``violations`` into ``PARTS`` by windows of ``width`` ns."""
    failing = found.filter(pc.not_equal(found["verdict"], "valid"))
    moment = ints(failing, "moment") * 1_000
    waited = pc.multiply(failing["waited"], 1_000)
    wait = np.asarray(pc.fill_null(waited, 0))
    delivered = np.asarray(failing["at"].is_valid())
    rows = {
        "level": pa.repeat(0, len(failing)),
        "window": moment - moment % width,
        **{name: failing[name] for name in ("code", "verdict", "attribution", "cause")},
        "partition": failing["partition"].cast(pa.int64()),
        "consumer": find_actors(failing),
        "count": pa.repeat(1, len(failing)),
        "first": np.where(delivered, moment - wait, moment),
        "last": np.where(delivered, moment, moment + wait),
        "waited": waited,
        "open": pa.array(~delivered & np.asarray(waited.is_valid())),
    }
    return _add_up(pa.table([rows[name] for name in PARTS.names], schema=PARTS))


def find_actors(found: pa.Table) -> pa.ChunkedArray:
    """Find the consumer that causes each finding: the one that blocks others if the cause names it, else its own."""
    holder = pc.struct_field(pc.extract_regex(found["cause"], HOLDER_PATTERN), "holder")
    return pc.coalesce(holder, found["consumer"])


def find_actor(finding: Mapping[str, Any]) -> str | None:
    """Apply ``find_actors`` to one row."""
    holder = re.match(HOLDER_PATTERN, finding["cause"])
    consumer: str | None = holder["holder"] if holder else finding["consumer"]
    return consumer


def _add_up(parts: pa.Table) -> pa.Table:
    summed = parts.group_by(_KEYS, use_threads=False).aggregate(_SUMS)
    names = {f"{name}_{how}": name for name, how in _SUMS}
    return (
        summed.rename_columns([names.get(name, name) for name in summed.column_names]).select(PARTS.names).cast(PARTS)
    )


class IncidentParts:
    """Sums parts by windows of ``width`` ns, with fewer details if there are too many.

    A task has at most as many parts as all tasks together, so the sum does not depend on the tasks.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._level = 0
        self._sums = Accumulator(_add_up)
        self._sums.add(PARTS.empty_table())

    def add(self, parts: pa.Table) -> None:
        """Add parts of a task, or of some rows."""
        while self._level < (pc.max(parts["level"]).as_py() or 0):
            self._reduce_detail(self._sums.compute_sum())
        self._sums.add(self._coarsen(parts))
        for grown in self._sums.take_sums(MOST_PARTS):
            self._reduce_detail(grown)

    def compute_sum(self) -> pa.Table:
        """Return the sorted sum of all parts."""
        while len(parts := self._sums.compute_sum()) > MOST_PARTS and self._level < len(LEVELS) - 1:
            self._reduce_detail(parts)
        return sort_table(parts, "window", "first", *_KEYS[2:])

    def _reduce_detail(self, parts: pa.Table) -> None:
        """Start anew with the sum of ``parts`` at the next level."""
        self._level = min(self._level + 1, len(LEVELS) - 1)
        self._sums = Accumulator(_add_up)
        self._sums.add(self._coarsen(parts))

    def _coarsen(self, parts: pa.Table) -> pa.Table:
        """Convert parts to the current level."""
        if not self._level:
            return parts
        windows, dropped = LEVELS[self._level]
        window = ints(parts, "window")
        columns: dict[str, Any] = {name: pa.nulls(len(parts), PARTS.field(name).type) for name in DETAILS[:dropped]}
        columns |= {"level": pa.repeat(self._level, len(parts)), "window": window - window % (self._width * windows)}
        return with_columns(parts, columns)


def make_part_key(finding: Mapping[str, Any], level: int, width: int) -> Hashable:
    """Return what identifies the part of a finding: its window, rule and details. ``finding`` names an ``actor``."""
    windows, dropped = LEVELS[level]
    window = finding["window"] - finding["window"] % (width * windows)
    details = {**finding, "consumer": finding["actor"]}
    return (window, finding["code"], *(details[name] for name in DETAILS[dropped:]))


def find_incidents(parts: Sequence[Mapping[str, Any]], gap: int) -> list[list[int]]:
    """Group rows of ``PARTS`` into incidents: the numbers of their rows, in order of time.

    Two parts are one incident if at most ``gap`` ns separate them and they share a cause, or an attribution and a
    consumer or a partition. All parts of a cause are one incident if it recurs (``MOST_STRETCHES``).

    If there are more than ``MOST_INCIDENTS``, the gap is doubled until there are not, or the gap is as long as the run.
    """
    length = max((part["last"] for part in parts), default=0) - min((part["first"] for part in parts), default=0)
    groups = _group_by_links(parts, gap)
    while len(groups) > MOST_INCIDENTS and gap < length:
        gap *= 2
        groups = _group_by_links(parts, gap)
    return groups


def _group_by_links(rows: Sequence[Mapping[str, Any]], gap: int) -> list[list[int]]:
    """Join rows with a common link that are at most ``gap`` ns apart."""
    parent = list(range(len(rows)))

    def find_root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    by_link: dict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for number in sorted(range(len(rows)), key=lambda number: (rows[number]["first"], number)):
        for link in _list_links(rows[number]):
            by_link[link].append(number)
    for link, linked in by_link.items():
        ends = accumulate((rows[number]["last"] for number in linked), max)
        near = [rows[number]["first"] <= end + gap for end, (_, number) in zip(ends, pairwise(linked), strict=False)]
        recurs = link[0] == "cause" and near.count(False) >= MOST_STRETCHES
        for joined, (before, number) in zip(near, pairwise(linked), strict=True):
            if joined or recurs:
                first, second = sorted((find_root(before), find_root(number)))
                parent[second] = first
    groups: dict[int, list[int]] = defaultdict(list)
    for number in range(len(rows)):
        groups[find_root(number)].append(number)
    return list(groups.values())


def _list_links(row: Mapping[str, Any]) -> Iterator[tuple[Hashable, ...]]:
    """List what joins a part to others."""
    cause = row["cause"]
    yield ("cause", row["code"]) if cause in (None, UNEXPLAINED) else ("cause", cause)
    for name in ("consumer", "partition"):
        if row[name] is not None:
            yield (name, row[name], row["attribution"])
