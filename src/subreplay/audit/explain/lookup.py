"""Select the rows for a trace: the latest judged rows, counts, the log of some messages, and the deliveries that
blocked messages.

Each step works on any number of rows. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.rows.groups import Accumulator
from subreplay.rows.model.columns import UNKNOWN, column, flags, gather_batches, ints
from subreplay.rows.model.entry_keys import own_keys
from subreplay.rows.model.tables import AUDITED, DELIVERY, JUDGED, LOG, MESSAGE

Row = Mapping[str, Any]
POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")
"""The columns that identify a message."""
ROWS: Final = pa.schema([AUDITED.field(field.name) for field in JUDGED if field.name in AUDITED.names])
"""Judged rows as table ``audited`` stores them."""
COUNTS: Final = pa.schema(
    [pa.field(name, pa.int64()) for name in ("messages", "deliveries", "redelivered", *(code.name for code in Code))]
)
"""Counts of messages, deliveries and findings."""
OUTLINE: Final = {"latest": ROWS, "counts": COUNTS}
"""The outputs of ``Outline``."""
WAITING: Final = pa.schema(
    [
        *(LOG.field(name) for name in POSITION),
        *(pa.field(name, pa.int64()) for name in ("slot", "session", "before", "since", "until")),
    ]
)
"""Messages that waited (``Trace.find_waiting``)."""
HOLDERS: Final = pa.schema(
    [
        pa.field("waiting", pa.int64()),  # its number among ``WAITING`` rows
        *(pa.field(name, pa.int64()) for name in POSITION[2:]),
        pa.field("consumer", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("at", "until", "seq", "session", "of")),
    ]
)
"""The delivery that blocked a waiting message longest, and the number of blocking deliveries (``of``)."""
PARTITIONS: Final = pa.schema([pa.field("partition", pa.int32())])
NUMBER: Final = pa.schema([pa.field("rows", pa.int64())])
_AFTER_POSITION: Final = ("partition", "seq", "nth", "consumer")
_HOLDER_COLUMNS: Final = (
    "delivered",
    "partition",
    "slot",
    "session",
    "at",
    "held_until",
    "seq",
    "consumer",
    *POSITION[2:],
)
_LAST_FIRST: Final = (
    ("waiting", "ascending"), ("until", "descending"), ("at", "descending"),
    *((name, "ascending") for name in (*POSITION[2:], "seq", "session")),
)  # fmt: skip


@dataclass(frozen=True)
class Outline:
    """A splitter: rows of table ``audited`` -> the ``last`` latest rows, and counts of all rows (``OUTLINE``)."""

    last: int

    def __call__(self, audited: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        latest, counts = ROWS.empty_table(), []
        for rows in gather_batches(audited):
            rows = rows.select(ROWS.names).cast(ROWS)
            counts.append(count_findings(rows))
            latest = take_latest(pa.concat_tables([latest, rows]), self.last)
        yield from (("latest", batch) for batch in latest.combine_chunks().to_batches())
        if counts:
            yield from (("counts", batch) for batch in add_counts(pa.concat_tables(counts)).to_batches())


def take_latest(rows: pa.Table, last: int) -> pa.Table:
    """Return the latest rows, the last one first."""
    when = pc.if_else(rows["delivered"], rows["at"], rows["published"])
    by = pa.table({"when": when} | {name: rows[name] for name in (*POSITION[2:], *_AFTER_POSITION)})
    order = [(name, "ascending" if name in _AFTER_POSITION else "descending") for name in by.column_names]
    return rows.take(pc.sort_indices(by, order)[:last])


def count_findings(rows: pa.Table) -> pa.Table:
    """Count the messages, deliveries and findings of rows (``COUNTS``)."""
    nth, delivered, codes = ints(rows, "nth"), flags(rows, "delivered"), ints(rows, "codes")
    counts = {
        "messages": np.count_nonzero((nth == 0) | ~delivered),
        "deliveries": np.count_nonzero(delivered),
        "redelivered": np.count_nonzero(nth > 0),
        **{code.name: np.count_nonzero(codes & code.bit) for code in Code},
    }
    return pa.table({name: [int(value)] for name, value in counts.items()}, schema=COUNTS)


def add_counts(counts: pa.Table) -> pa.Table:
    """Add up ``COUNTS`` into one row."""
    return pa.table({name: [pc.sum(counts[name]).as_py() or 0] for name in COUNTS.names}, schema=COUNTS)


def count_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the rows of a task, as a step."""
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]}, NUMBER)


@dataclass(frozen=True, eq=False)
class MessageLogFilter:
    """A step: select the ``LOG`` rows of some messages, without their deliveries before ``since``. ``positions`` has
    the columns ``POSITION``."""

    positions: pa.Table
    since: int

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        late = (pc.field("kind") == MESSAGE) | (pc.field("at") >= self.since) | (pc.field("at") == UNKNOWN)
        for rows in gather_batches(log):
            found = rows.filter(late & (pc.field("kind") <= DELIVERY))
            numbered = found.select(POSITION).append_column("row", pa.array(np.arange(len(found))))
            selected = numbered.join(self.positions, [*POSITION], join_type="left semi", use_threads=False)
            yield from found.take(np.sort(selected["row"])).to_batches()


@dataclass(frozen=True)
class KeyPartitionFinder:
    """A step: ``LOG`` rows of messages -> the partitions that contain a key."""

    key: bytes

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: set[int] = set()
        for rows in KeyMessageFilter((self.key,))(messages):
            found.update(rows["partition"].unique().to_pylist())
        yield pa.RecordBatch.from_pydict({"partition": sorted(found)}, PARTITIONS)


@dataclass(frozen=True)
class KeyMessageFilter:
    """A step: ``LOG`` rows of messages -> the messages that have one of some keys."""

    keys: tuple[bytes, ...]

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = pa.array(self.keys, pa.binary())
        for batch in messages:
            selected = pc.is_in(own_keys(pa.Table.from_batches([batch])), keys)
            if selected.true_count:
                yield batch.filter(selected)


@dataclass(frozen=True, eq=False)
class HolderFinder:
    """A step: rows of table ``audited`` -> ``HOLDERS`` of ``WAITING`` messages among the rows of one task."""

    waiting: pa.Table

    def __call__(self, audited: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = Accumulator(keep_last_holders)
        found.add(HOLDERS.empty_table())
        waiting = self.waiting.to_pylist()
        slots = None if any(row["slot"] is None for row in waiting) else self.waiting["slot"]
        for batch in audited:
            rows = pa.Table.from_batches([batch]).select(_HOLDER_COLUMNS)
            deliveries = rows.filter(rows["delivered"])
            deliveries = deliveries.filter(
                pc.is_in(deliveries["partition"], self.waiting["partition"].combine_chunks())
            )
            if slots is not None:
                deliveries = deliveries.filter(pc.is_in(deliveries["slot"], slots.combine_chunks()))
            if len(deliveries):
                found.add(keep_last_holders(pa.concat_tables(_find_holders(deliveries, waiting))))
        yield from found.compute_sum().combine_chunks().to_batches()


def _find_holders(deliveries: pa.Table, waiting: Sequence[Row]) -> Iterator[pa.Table]:
    """Yield the ``HOLDERS`` among delivered rows of table ``audited``."""
    names = ("partition", "slot", "session", "at", "held_until", "seq")
    partition, slot, session, at, until, seq = (ints(deliveries, name) for name in names)
    for number, row in enumerate(waiting):
        selected = (partition == row["partition"]) & (session != row["session"])
        if row["slot"] is not None:
            selected &= slot == row["slot"]
        selected &= (at < row["before"]) & (until <= row["until"]) & (until > np.maximum(row["since"], at))
        indices = np.flatnonzero(selected)
        given = {"waiting": np.full(len(indices), number), "of": np.ones(len(indices), np.int64)}
        given |= {"at": at[indices], "until": until[indices], "seq": seq[indices], "session": session[indices]}
        given |= {name: ints(deliveries, name)[indices] for name in POSITION[2:]}
        consumer = column(deliveries, "consumer").take(pa.array(indices))
        yield pa.table({name: given.get(name, consumer) for name in HOLDERS.names}, schema=HOLDERS)


def keep_last_holders(holders: pa.Table) -> pa.Table:
    """Keep the holder of each waiting message that ended last, and add up their number."""
    holders = holders.take(pc.sort_indices(holders, [*_LAST_FIRST])).combine_chunks()
    numbers = ints(holders, "waiting")
    first = np.flatnonzero(np.diff(numbers, prepend=-1))
    counts = np.add.reduceat(ints(holders, "of"), first) if len(first) else np.zeros(0, np.int64)
    found = holders.take(pa.array(first))
    return found.set_column(found.schema.get_field_index("of"), HOLDERS.field("of"), pa.array(counts))


def describe_waits(waiting: pa.Table, holders: pa.Table) -> tuple[Row, ...]:
    """Describe what blocked messages, as ``Trace`` needs it, from their ``HOLDERS``."""
    waiting_rows = waiting.to_pylist()
    found = []
    for holder in keep_last_holders(holders).to_pylist():
        row = waiting_rows[holder["waiting"]]
        wait = {name: row[name] for name in POSITION} | {"holder": {name: holder[name] for name in POSITION[2:]}}
        wait |= {"consumer": holder["consumer"], "since": max(row["since"], holder["at"])}
        found.append(wait | {"until": holder["until"], "of": holder["of"]})
    return tuple(sorted(found, key=lambda wait: tuple(wait[name] for name in POSITION)))
