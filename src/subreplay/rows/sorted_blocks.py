"""How rows travel between the passes of an audit: as blocks of sorted rows.

Spark moves and sorts rows one by one, and converts each of their columns on the way to Python and back, which costs
more than all rules together. So rows travel as blocks: many rows of one topic partition as one binary value, with the
sort key of the first of them. An engine brings the blocks in order of their first keys, and the pass that reads them
merges those that overlap: rows before the first key of the blocks to come are complete.

So a pass holds of each run that was sorted at a time a block, and rows that come early: a hot topic partition costs
time, not memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from tempfile import TemporaryFile
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.key_identity import compute_key_identities
from subreplay.rows.model.columns import MOST_BYTES, ROWS, UNKNOWN, Ints, column, gather_batches, ints, measure_batch
from subreplay.rows.model.tables import FACTS, LOG

SORT_ROWS: Final = 1 << 17  # rows sorted at a time
BLOCK_BYTES: Final = 1 << 16  # bytes of a block that goes to Spark, if rows are of a size
SPILL_BLOCK_BYTES: Final = 1 << 18  # of one that only waits
KEY_COLUMNS: Final = 4  # columns of an order that make a key

_SCOPE: Final = ("topic", "partition")
_BUCKET: Final = ("(all)", "(bucket)")


class Order(NamedTuple):
    """Rows of ``schema`` sorted by ``scope``, a text and an integer, and by ``columns``, which are integers, of which
    null is the least; rows alike in all of these by those in ``last``, which are words."""

    schema: pa.Schema
    columns: tuple[str, ...]
    last: tuple[str, ...] = ()
    scope: tuple[str, str] = _SCOPE


GROUP: Final = "(group)"
"""The column of hashes: 64 bits, of one whole number alone each its own."""
BUCKETS: Final = 64  # of groups; a task has several


def make_group_order(schema: pa.Schema, then: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> Order:
    """Make the order of rows of ``schema`` with ``GROUP`` (``add_groups``): by group, then by ``then`` and ``last``."""
    scope = [pa.field(_BUCKET[0], pa.string(), nullable=False), pa.field(_BUCKET[1], pa.int32(), nullable=False)]
    fields = [*scope, pa.field(GROUP, pa.int64(), nullable=False), *schema]
    return Order(pa.schema(fields), (GROUP, *then), last, _BUCKET)


def add_groups(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Add the columns of ``make_group_order``. Rows with equal values in columns ``by`` (whole numbers, texts or bytes)
    get the same group. Rarely, different values have the same hash, so the reader of a group compares the values again,
    or adds them to ``last``."""
    found = np.zeros(len(rows), np.uint64)
    for name in by:
        found = _mix_bits(found * np.uint64(0x9E3779B97F4A7C15) + _hash_values(rows, name).view(np.uint64))
    buckets = pa.array((found % np.uint64(BUCKETS)).astype(np.int32))
    given = {_BUCKET[0]: pa.repeat("", len(rows)), _BUCKET[1]: buckets, GROUP: pa.array(found.view(np.int64))}
    for name, values in reversed(given.items()):
        rows = rows.add_column(0, pa.field(name, values.type, nullable=False), values)
    return rows


def _hash_values(rows: pa.Table, name: str) -> Ints:
    """Return an integer for each value: the value itself, or a hash of a text or of bytes."""
    values = column(rows, name)
    if pa.types.is_integer(values.type):
        return np.asarray(values.cast(pa.int64()).fill_null(np.iinfo(np.int64).min))
    return np.where(np.asarray(values.is_valid()), compute_key_identities(values), np.int64(0))


def _mix_bits(values: np.ndarray) -> np.ndarray:
    """Mix the bits of each number, so that every result bit depends on all 64 (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


BY_POSITION: Final = Order(LOG, ("ledger", "entry", "batch_index", "kind", "at", "seq"), ("consumer", "instance"))
BY_TIME: Final = Order(FACTS, ("at", "seq", "ledger", "entry", "batch_index", "nth"), ("consumer",))


class ShuffleBlock(NamedTuple):
    """Sorted rows of one scope, as a topic partition is."""

    scope: tuple[str, int]
    first_key: Sequence[int]  # of the first row
    columns: int  # bit per column of the schema: those that have values
    rows: bytes | pa.Buffer


def shuffle_blocks(batches: Iterable[pa.RecordBatch], order: Order, block: int = BLOCK_BYTES) -> Iterator[ShuffleBlock]:
    """Yield rows in any order as sorted runs, in blocks of ``block`` bytes. Nullable columns may be missing."""
    for run in gather_batches(batches, SORT_ROWS):
        yield from _blocks(run, order, block)


def sorted_rows(batches: Iterable[pa.RecordBatch], order: Order, folder: str | None = None) -> Iterator[pa.RecordBatch]:
    """Sort rows that are grouped by topic partition but in any order within one.

    ``SORT_ROWS`` rows are sorted at a time. A larger topic partition spills sorted blocks to a file in ``folder``.
    """
    pending: list[pa.RecordBatch] = []
    number = size = 0
    with _TopicSpill(order, folder) as spilled:
        for batch in batches:
            pending.append(batch)
            number, size = number + batch.num_rows, size + measure_batch(batch)
            if number >= SORT_ROWS or size >= MOST_BYTES:
                rows = pa.Table.from_batches(pending).combine_chunks()
                last = int(_find_scope_starts(rows, order)[-1])
                if last or not spilled.accepts(rows):
                    yield from spilled.merge_with(rows.slice(0, last))
                    rows = rows.slice(last)
                if last == 0 or len(rows) >= SORT_ROWS or rows.nbytes >= MOST_BYTES:
                    spilled.add(rows)
                    rows = rows.slice(len(rows))
                pending = rows.to_batches()
                number, size = len(rows), sum(map(measure_batch, pending))
        if number or spilled.scope is not None:
            rows = pa.Table.from_batches(pending, order.schema) if pending else order.schema.empty_table()
            yield from spilled.merge_with(rows.combine_chunks())


class _TopicSpill:
    """Sorted blocks of one topic partition (``scope``) in a spill file."""

    def __init__(self, order: Order, folder: str | None) -> None:
        self._order, self._folder = order, folder
        self._places: list[tuple[Sequence[int], int, int, int, int]] = []
        self.scope: tuple[str, int] | None = None

    def __enter__(self) -> _TopicSpill:
        self._open = ExitStack()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def accepts(self, rows: pa.Table) -> bool:
        """Return whether rows begin with the spilled topic partition, or nothing is spilled."""
        return self.scope in (None, tuple(rows[name][0].as_py() for name in self._order.scope))

    def add(self, rows: pa.Table) -> None:
        """Spill rows of the topic partition."""
        if self.scope is None:
            self._file = self._open.enter_context(TemporaryFile(dir=self._folder))  # noqa: SIM115
        for block in _blocks(rows, self._order, SPILL_BLOCK_BYTES):
            self.scope = block.scope
            place = block.first_key, len(self._places), block.columns, self._file.tell(), len(block.rows)
            self._places.append(place)
            self._file.write(block.rows)

    def merge_with(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield in order the spilled rows, then ``rows`` of whole topic partitions; the first may be spilled."""
        if self.scope is not None:
            if len(rows) and self.accepts(rows):
                end = [*_find_scope_starts(rows, self._order).tolist(), len(rows)][1]
                self.add(rows.slice(0, end))
                rows = rows.slice(end)
            yield from external_merge(self._blocks(self.scope), self._order)
            self._open.close()
            self._places, self.scope = [], None
        if len(rows):
            yield from _take_rows(
                rows, _sort_positions(rows, self._order, *_rank_scopes(rows, self._order))
            ).to_batches()

    def _blocks(self, scope: tuple[str, int]) -> Iterator[ShuffleBlock]:
        for first_key, _, columns, begin, size in sorted(self._places):
            self._file.seek(begin)
            yield ShuffleBlock(scope, first_key, columns, self._file.read(size))


def external_merge(blocks: Iterable[ShuffleBlock], order: Order) -> Iterator[pa.RecordBatch]:
    """Merge blocks that are sorted by topic, partition and first key, and yield their rows in order.

    A batch has ``ROWS`` rows or more, or ``MOST_BYTES``, of one or many topic partitions.
    """
    scopes: list[tuple[str, int]] = []
    pending: list[pa.Table] = []
    numbers: list[Ints] = []  # of the scopes of rows
    rows, enough = 0, ROWS
    size, most = 0, MOST_BYTES
    for block in blocks:
        if not scopes or scopes[-1] != block.scope:
            scopes.append(block.scope)
        if rows >= enough or size >= most:
            together, of_each = _sort_together(pending, numbers, order)
            complete = _count_before(together, of_each, len(scopes) - 1, block.first_key, order)
            yield from _restore_columns(together.slice(0, complete), of_each[:complete], scopes, order)
            pending, numbers, rows = [together.slice(complete)], [of_each[complete:]], rows - complete
            enough = ROWS + 2 * rows  # what stays is sorted again when as much has come
            size = pending[0].nbytes
            most = MOST_BYTES + 2 * size
        pending.append(_read_block(block, order))
        numbers.append(np.full(pending[-1].num_rows, len(scopes) - 1))
        rows, size = rows + pending[-1].num_rows, size + len(block.rows)
    if pending:
        together, of_each = _sort_together(pending, numbers, order)
        yield from _restore_columns(together, of_each, scopes, order)


def _blocks(rows: pa.Table, order: Order, block: int) -> Iterator[ShuffleBlock]:
    present = [f.name for f in order.schema if f.name in rows.column_names and rows[f.name].null_count < len(rows)]
    rows = _take_rows(rows.select(present), _sort_positions(rows, order, *_rank_scopes(rows, order)))
    of_text, of_number = order.scope
    partitions = rows[of_number].to_numpy()
    content = rows.drop_columns(list(order.scope))
    columns = sum(1 << order.schema.get_field_index(name) for name in content.column_names)
    size = max(1, block * len(rows) // max(1, content.nbytes))
    begins = np.union1d(np.arange(0, len(rows), size), _find_scope_starts(rows, order))
    begin_at = np.zeros((len(begins), KEY_COLUMNS), np.int64)
    for number, name in enumerate(order.columns[:KEY_COLUMNS]):
        begin_at[:, number] = _to_numbers(rows, name)[begins]
    of = zip(column(rows, of_text).take(pa.array(begins)).to_pylist(), partitions[begins].tolist(), strict=True)
    (batch,) = content.to_batches()
    cuts = itertools.pairwise([*begins.tolist(), len(rows)])
    for (begin, end), first_key, scope in zip(cuts, begin_at.tolist(), of, strict=True):
        yield ShuffleBlock(scope, first_key, columns, batch.slice(begin, end - begin).serialize())


def _read_block(block: ShuffleBlock, order: Order) -> pa.Table:
    return pa.Table.from_batches(
        [pa.ipc.read_record_batch(pa.py_buffer(block.rows), _select_schema(block.columns, order))]
    )


def _sort_together(pending: list[pa.Table], scopes: list[Ints], order: Order) -> tuple[pa.Table, Ints]:
    """Sort rows, and return them with the numbers of their scopes."""
    rows, numbers = pa.concat_tables(pending, promote_options="default").combine_chunks(), np.concatenate(scopes)
    positions = _sort_positions(rows, order, numbers)
    return _take_rows(rows, positions), numbers[positions]


def _rank_scopes(rows: pa.Table, order: Order) -> tuple[Ints, Ints]:
    """Return the topic and the partition of each row as integers of the same order."""
    of_text, of_number = order.scope
    return _rank_words(rows, of_text), rows[of_number].to_numpy()


def _find_scope_starts(rows: pa.Table, order: Order) -> Ints:
    """Return the positions where the rows of a topic partition begin."""
    words, partitions = _rank_scopes(rows, order)
    return np.flatnonzero(np.append(len(rows) > 0, (np.diff(words) != 0) | (np.diff(partitions) != 0)))


@cache
def _select_schema(columns: int, order: Order) -> pa.Schema:
    return pa.schema([field for index, field in enumerate(order.schema) if columns >> index & 1])


def _restore_columns(
    rows: pa.Table, numbers: Ints, scopes: list[tuple[str, int]], order: Order
) -> Iterator[pa.RecordBatch]:
    """Restore all columns; ``numbers`` are the indices of the rows' ``scopes``."""
    n = len(rows)
    distinct, which = np.unique(numbers, return_inverse=True)
    selected = [scopes[number] for number in distinct.tolist()]
    scope_columns = (
        pa.array([text for text, _ in selected], pa.string()),
        pa.array([part for _, part in selected], pa.int32()),
    )
    given = {name: values.take(pa.array(which)) for name, values in zip(order.scope, scope_columns, strict=True)}
    columns = [
        given[f.name]
        if f.name in given
        else column(rows, f.name)
        if f.name in rows.column_names
        else pa.nulls(n, f.type)
        for f in order.schema
    ]
    if n:
        yield pa.RecordBatch.from_arrays(columns, schema=order.schema)


def _count_before(rows: pa.Table, numbers: Ints, scope: int, first_key: Sequence[int], order: Order) -> int:
    """Count the sorted rows before a key of a scope."""
    begin, end = (int(np.searchsorted(numbers, scope, side)) for side in ("left", "right"))
    for name, value in zip(order.columns, first_key, strict=False):
        here = _to_numbers(rows, name)[begin:end]
        begin, end = (begin + int(np.searchsorted(here, value, side)) for side in ("left", "right"))
    return begin


def _take_rows(rows: pa.Table, positions: Ints) -> pa.Table:
    """Return the rows at the positions, without a copy if they are in that order already."""
    return rows if (positions[1:] > positions[:-1]).all() else rows.take(pa.array(positions))


def _sort_positions(rows: pa.Table, order: Order, *scope: np.ndarray) -> Ints:
    """Return the positions of rows in order: by the scope columns, then by the order's columns."""
    columns = [*scope, *(_to_numbers(rows, name) for name in order.columns)]
    if not columns:
        return np.arange(len(rows))
    condensed = _condense(columns)
    positions = np.lexsort(condensed[::-1])
    alike = np.logical_and.reduce([np.diff(values[positions]) == 0 for values in condensed])
    words = [name for name in order.last if name in rows.column_names]
    if words and alike.any():
        positions = np.lexsort([*(_rank_words(rows, name) for name in reversed(words)), *condensed[::-1]])
    return positions


def _to_numbers(rows: pa.Table, name: str) -> np.ndarray:
    """Return a column of integers, where null and a missing column are the smallest value."""
    if name not in rows.column_names:
        return np.full(len(rows), UNKNOWN)
    values = column(rows, name)
    return ints(rows, name) if values.null_count else values.to_numpy()


def _condense(columns: Sequence[np.ndarray]) -> list[Ints]:
    """Combine columns into as few integer columns as possible that give the same order."""
    condensed = [np.zeros(len(columns[0]), np.int64)]
    combined = 1
    for values in columns:
        values = values.astype(np.int64, copy=False)
        least, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span == 1:
            continue
        if combined * span < 1 << 63:
            condensed[-1] = condensed[-1] * span + (values - least)
            combined *= span
        else:
            condensed.append(values - least if span < 1 << 63 else values)
            combined = span
    return condensed


def _rank_words(rows: pa.Table, name: str) -> Ints:
    """Return texts as integers of the same order; null is the smallest."""
    words = column(rows, name)
    if not words.null_count and pc.all(pc.equal(words, words[0])).as_py():  # as topics mostly are
        return np.zeros(len(words), np.int64)
    words = words.dictionary_encode()
    known = words.dictionary.cast(pa.binary())
    rank = np.empty(len(known) + 1, np.int64)
    rank[np.asarray(pc.sort_indices(known))] = np.arange(len(known))
    rank[-1] = -1
    ranks: Ints = rank[np.asarray(words.indices.fill_null(-1))]
    return ranks
