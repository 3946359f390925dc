"""Select the log of other days: their entries that the run of a day reads again.

A run judges the log of its day. It needs whole entries of earlier days: those that an earlier run left open, those with
deliveries on this day, and those at or after the day's first message. Positions increase with time except for the clock
differences of producers. From the next day it needs the messages that were delivered on this day, because their
producers' clocks were ahead.

Candidates and open positions take part in the exchange that sorts the day's log. Only ``keep_wanted`` decides after it;
``EntryFilter`` drops rows before the exchange that it would drop.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date as Date
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.audit.checkpoint import CARRY, OPEN, make_checkpoints, make_open_table, unpack_array
from subreplay.audit.judge import split_whole_entries
from subreplay.audit.scoped_rows import iterate_scopes
from subreplay.rows.model.columns import UNKNOWN, Ints, column, flags, gather_batches
from subreplay.rows.model.tables import DELIVERY, LOG, MESSAGE, OPEN_POSITIONS
from subreplay.rows.quarantine import find_valid_rows
from subreplay.rows.scan.log_rows import make_log_rows
from subreplay.rows.sorted_blocks import GROUP, add_groups

WAS_OPEN: Final = -2
"""The kind of a ``LOG`` row about a position that an earlier run left open; ``judged``: its message still waits."""
MOST_ENTRIES: Final = 1 << 17
"""The largest number of entries that ``EntryFilter`` names one by one; a megabyte in each task."""

ENTRY: Final = ("partition", "ledger", "entry")
ENTRIES: Final = pa.schema([LOG.field(name) for name in ENTRY])
HASHES: Final = pa.schema([pa.field(GROUP, pa.int64(), nullable=False)])
STATE_ROWS: Final = pa.schema(
    [LOG.field(n) for n in ("topic", "partition", "ledger", "entry", "batch_index", "kind", "at", "seq", "checkpoint")]
)
OPEN_ROWS: Final = pa.schema([*(field for field in STATE_ROWS if field.name != "checkpoint"), LOG.field("judged")])

Bound = tuple[int, int]
"""Ledger and entry."""


def read_open_positions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of table ``state`` with array ``open`` to ``OPEN_POSITIONS``."""
    for batch in batches:
        selected = pa.Table.from_batches([batch]).filter(pc.equal(batch.column("name"), OPEN))
        parts = zip(*(selected[name].to_pylist() for name in ("data", "rows", "width")), strict=True)
        arrays = [unpack_array(*part) for part in parts]
        if arrays:
            of = pa.array(np.repeat(np.arange(len(selected)), [len(array) for array in arrays]))
            topics, partitions = (column(selected, name).take(of) for name in ("topic", "partition"))
            yield from make_open_table(np.concatenate(arrays), topics, partitions).to_batches()


def make_open_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of table ``state`` to ``OPEN_ROWS`` of the log, from which ``keep_wanted`` learns the open
    positions."""
    for batch in read_open_positions(batches):
        given = {"kind": WAS_OPEN, "at": 0, "seq": 0}
        columns = {n: pa.repeat(pa.scalar(value, LOG.field(n).type), len(batch)) for n, value in given.items()}
        columns |= {"judged": batch.column("waiting")} | {n: batch.column(n) for n in OPEN_POSITIONS.names[:5]}
        yield pa.RecordBatch.from_arrays([columns[name] for name in OPEN_ROWS.names], schema=OPEN_ROWS)


def make_carried_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of table ``state``, except array ``open``, to ``STATE_ROWS`` of the log, which come first in a topic
    partition."""
    given = {"kind": CARRY, "ledger": UNKNOWN, "entry": 0, "batch_index": 0, "at": 0, "seq": 0}
    for batch in batches:
        selected = pa.Table.from_batches([batch]).filter(pc.not_equal(batch.column("name"), OPEN))
        columns = {n: pa.repeat(pa.scalar(value, LOG.field(n).type), len(selected)) for n, value in given.items()}
        columns |= {n: column(selected, n) for n in ("topic", "partition")} | {"checkpoint": make_checkpoints(selected)}
        yield pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in STATE_ROWS], schema=STATE_ROWS)


@dataclass(frozen=True, eq=False)
class EntryFilter:
    """Drops rows of earlier days that ``keep_wanted`` would drop.

    These are the rows before the bound of their partition, for the ``partitions`` that have one, unless the hash of
    their entry is among ``hashes``. It may keep too many rows.
    """

    partitions: Ints  # in order
    ledgers: Ints
    entries: Ints
    hashes: Ints  # in order

    @classmethod
    def of(cls, bounds: Mapping[int, Bound], hashes: Ints | None = None) -> EntryFilter:
        """Build from ``bounds`` by partition and ``hashes`` of ``hash_entries``."""
        of_each = np.array([(partition, *bounds[partition]) for partition in sorted(bounds)], np.int64).reshape(-1, 3)
        named = np.empty(0, np.int64) if hashes is None else np.unique(hashes)
        return cls(of_each[:, 0], of_each[:, 1], of_each[:, 2], named)

    def is_behind(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows are at or after the bound of their partition."""
        if not len(self.partitions):
            return np.zeros(len(rows), np.bool_)
        partition, ledger, entry = (np.asarray(rows.column(name)) for name in ENTRY)
        index = np.minimum(np.searchsorted(self.partitions, partition), len(self.partitions) - 1)
        first = self.ledgers[index]
        behind = (ledger > first) | ((ledger == first) & (entry >= self.entries[index]))
        found: NDArray[np.bool_] = behind & (self.partitions[index] == partition)
        return found

    def keep(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return which rows of earlier days may be needed."""
        kept = self.is_behind(rows)
        if len(self.hashes) and not kept.all():
            found = _hash_entries(rows)
            at = np.minimum(np.searchsorted(self.hashes, found), len(self.hashes) - 1)
            kept |= self.hashes[at] == found
        return kept


def hash_entries(batches: Iterable[pa.RecordBatch], before: EntryFilter) -> Iterator[pa.RecordBatch]:
    """Hash the entries before the bounds of a filter, from rows with the columns of ``ENTRY``, as ``HASHES``. After
    ``MOST_ENTRIES`` it stops."""
    number = 0
    for rows in gather_batches(select_entries_before(batches, before)):
        found = np.unique(_hash_entries(rows.to_batches()[0]))
        yield pa.RecordBatch.from_arrays([pa.array(found)], schema=HASHES)
        number += len(found)
        if number > MOST_ENTRIES:
            return


def find_lowest_entries(batches: Iterable[pa.RecordBatch], before: EntryFilter) -> Iterator[pa.RecordBatch]:
    """Find the lowest entry of each partition before the bounds of a filter, from rows with the columns of ``ENTRY``,
    as ``ENTRIES``."""
    lowest = np.empty((3, 0), np.int64)
    for rows in gather_batches(select_entries_before(batches, before)):
        together = np.hstack([lowest, np.array([rows[name].to_numpy() for name in ENTRY], np.int64)])
        together = together[:, np.lexsort(together[::-1])]
        lowest = together[:, np.diff(together[0], prepend=together[0][0] - 1) != 0]
    yield pa.RecordBatch.from_arrays(
        [pa.array(c).cast(f.type) for c, f in zip(lowest, ENTRIES, strict=True)], schema=ENTRIES
    )


def select_entries_before(batches: Iterable[pa.RecordBatch], before: EntryFilter) -> Iterator[pa.RecordBatch]:
    """Select the rows before the bounds of a filter, in the columns of ``ENTRY``."""
    for batch in batches:
        selected = batch.select([*ENTRY])
        yield selected.filter(pa.array(~before.is_behind(selected)))


def _hash_entries(rows: pa.RecordBatch) -> Ints:
    """Hash entries."""
    of_each: Ints = add_groups(pa.Table.from_batches([rows.select(ENTRY)]), ENTRY)[GROUP].to_numpy()
    return of_each


def select_messages_of_other_days(
    batches: Iterable[pa.RecordBatch], day: Date, kept: EntryFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Convert ``messages`` of the days before and after ``day`` to rows of the log for ``keep_wanted``. ``judged`` is
    null where that decides it."""
    for batch in _select_valid("messages", batches):
        early = pc.greater(batch.column("date"), pa.scalar(day))
        rows = _replace_column(
            make_log_rows("messages", batch), "judged", pc.if_else(early, False, pa.scalar(None, pa.bool_()))
        )
        yield from _select_of_other_days(rows, kept, np.asarray(early))


def select_deliveries_of_other_days(
    batches: Iterable[pa.RecordBatch], kept: EntryFilter | None = None
) -> Iterator[pa.RecordBatch]:
    """Convert ``deliveries`` of earlier days to rows of the log for ``keep_wanted``."""
    for batch in _select_valid("deliveries", batches):
        yield from _select_of_other_days(make_log_rows("deliveries", batch), kept)


def _select_valid(table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Select the canonical rows that were not rejected on their own day."""
    for batch in batches:
        keeps = find_valid_rows(table, batch)
        yield batch if keeps is None else batch.filter(pa.array(keeps))


def _select_of_other_days(
    rows: pa.RecordBatch, kept: EntryFilter | None, anyway: NDArray[np.bool_] | None = None
) -> Iterator[pa.RecordBatch]:
    rows = _replace_column(rows, "before", pa.repeat(True, len(rows)))
    if kept is not None:
        selected = kept.keep(rows)
        rows = rows.filter(pa.array(selected if anyway is None else selected | anyway))
    if len(rows):
        yield rows


def keep_wanted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Keep the rows that the run of a day judges: of other days, only the entries that it needs. The rows are ``LOG``
    in order of position, with candidates of other days and ``OPEN_ROWS``. A message of an earlier day is ``judged`` if
    it is waiting."""
    for _, parts in itertools.groupby(iterate_scopes(split_whole_entries(batches)), key=operator.itemgetter(0)):
        begun = False
        for _, rows in parts:
            wanted, begun = _select_wanted(rows, begun)
            yield from wanted.to_batches()


def _select_wanted(rows: pa.Table, begun: bool) -> tuple[pa.Table, bool]:
    """Select from whole entries of one topic partition. Also returns whether a message of the day came before, or is
    among them."""
    kind, before = rows["kind"].to_numpy(), flags(rows, "before")
    of_day = (kind >= MESSAGE) & ~before
    messages = np.flatnonzero(of_day & (kind == MESSAGE))
    open_ = kind == WAS_OPEN
    if not (before.any() or open_.any()):
        return rows, begun or len(messages) > 0
    ledger, entry, index = (rows[name].to_numpy() for name in ("ledger", "entry", "batch_index"))
    new_entry = np.concatenate([[True], (np.diff(ledger) != 0) | (np.diff(entry) != 0)])
    of_entry = np.cumsum(new_entry) - 1
    of_position = np.cumsum(new_entry | np.concatenate([[True], np.diff(index) != 0])) - 1
    is_served = _has_any(of_entry, of_day & (kind >= DELIVERY))
    is_open = _has_any(of_entry, open_)
    first = of_entry[messages[0]] if len(messages) else len(rows)
    behind = np.full(len(rows), True) if begun else of_entry >= first
    early = before & (kind == MESSAGE) & np.asarray(rows["judged"].is_valid())
    wanted = ~before | is_served | (~early & (behind | is_open))
    waiting = _has_any(of_position, open_ & flags(rows, "judged"))
    decided = before & ~early & (kind == MESSAGE)
    judged = pc.if_else(pa.array(decided), pa.array(waiting), rows["judged"])
    rows = rows.set_column(rows.schema.get_field_index("judged"), LOG.field("judged"), judged)
    return rows.filter(pa.array(wanted & ~open_)), begun or len(messages) > 0


def _has_any(of: Ints, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether any row with the same number is one of ``which``."""
    found = np.zeros(int(of[-1]) + 1, np.bool_)
    found[of[which]] = True
    return found[of]


def _replace_column(rows: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """Replace the values of a column in rows of the log."""
    present = dict(zip(rows.schema.names, rows.columns, strict=True)) | {name: values}
    fields = [field for field in LOG if field.name in present]
    return pa.RecordBatch.from_arrays([present[f.name].cast(f.type) for f in fields], schema=pa.schema(fields))
