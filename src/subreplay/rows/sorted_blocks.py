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
from functools import cache
from operator import attrgetter
from tempfile import TemporaryFile
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.hashing.identity import key_identity
from subreplay.rows.model.columns import ROWS, UNKNOWN, Ints, column, gathered, ints
from subreplay.rows.model.tables import FACTS, LOG

RUN: Final = 1 << 17  # rows sorted at a time
BLOCK: Final = 1 << 16  # bytes of a block that goes to Spark, if rows are of a size
WAITING_BLOCK: Final = 1 << 18  # of one that only waits
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


def grouped(schema: pa.Schema, then: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> Order:
    """Rows of ``schema``, of any scope, with ``GROUP`` (``with_groups``): those of one group together, in order of
    ``then`` and ``last``."""
    scope = [pa.field(_BUCKET[0], pa.string(), nullable=False), pa.field(_BUCKET[1], pa.int32(), nullable=False)]
    fields = [*scope, pa.field(GROUP, pa.int64(), nullable=False), *schema]
    return Order(pa.schema(fields), (GROUP, *then), last, _BUCKET)


def with_groups(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Rows with the columns that ``grouped`` adds: rows alike in columns ``by``, which are whole numbers, texts or
    bytes, are of one group. Groups of several values may have the same hash, if hardly ever: who is given a group looks
    at the values once more (or adds them to ``last``)."""
    found = np.zeros(len(rows), np.uint64)
    for name in by:
        found = _mixed(found * np.uint64(0x9E3779B97F4A7C15) + _hashes(rows, name).view(np.uint64))
    buckets = pa.array((found % np.uint64(BUCKETS)).astype(np.int32))
    given = {_BUCKET[0]: pa.repeat("", len(rows)), _BUCKET[1]: buckets, GROUP: pa.array(found.view(np.int64))}
    for name, values in reversed(given.items()):
        rows = rows.add_column(0, pa.field(name, values.type, nullable=False), values)
    return rows


def _hashes(rows: pa.Table, name: str) -> Ints:
    """A whole number for each value: itself, or a hash of a text or of bytes."""
    values = column(rows, name)
    if pa.types.is_integer(values.type):
        return np.asarray(values.cast(pa.int64()).fill_null(np.iinfo(np.int64).min))
    return np.where(np.asarray(values.is_valid()), key_identity(values), np.int64(0))


def _mixed(values: np.ndarray) -> np.ndarray:
    """Each 64 bits as others, all of which depend on all (the finalizer of SplitMix64, a bijection)."""
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


def shuffle_blocks(batches: Iterable[pa.RecordBatch], order: Order, block: int = BLOCK) -> Iterator[ShuffleBlock]:
    """Rows in any order as sorted runs, in blocks of ``block`` bytes; columns that may be null may be missing."""
    for run in gathered(batches, RUN):
        yield from _blocks(run, order, block)


def sorted_on_disk(blocks: Iterable[ShuffleBlock], folder: str | None = None) -> Iterator[ShuffleBlock]:
    """Blocks, those of a topic partition together, in order of their first keys; rows wait in a file in ``folder``."""
    for scope, mine in itertools.groupby(blocks, key=attrgetter("scope")):
        with TemporaryFile(dir=folder) as file:
            found: list[tuple[Sequence[int], int, int, int, int]] = []
            for block in mine:
                found.append((block.first_key, len(found), block.columns, file.tell(), len(block.rows)))
                file.write(block.rows)
            for first_key, _, columns, begin, size in sorted(found):
                file.seek(begin)
                yield ShuffleBlock(scope, first_key, columns, file.read(size))


def external_merge(blocks: Iterable[ShuffleBlock], order: Order) -> Iterator[pa.RecordBatch]:
    """Blocks sorted by topic, partition and first key -> their rows, in order."""
    for scope, mine in itertools.groupby(blocks, key=attrgetter("scope")):
        held: list[pa.Table] = []
        rows, enough = 0, ROWS
        for block in mine:
            if rows >= enough:
                together = _together(held, order)
                complete = _before(together, block.first_key, order)
                yield from _whole(together.slice(0, complete), scope, order)
                held, rows = [together.slice(complete)], rows - complete
                enough = ROWS + 2 * rows  # what stays is sorted again when as much has come
            held.append(_opened(block, order))
            rows += held[-1].num_rows
        yield from _whole(_together(held, order), scope, order)


def _blocks(rows: pa.Table, order: Order, block: int) -> Iterator[ShuffleBlock]:
    there = [f.name for f in order.schema if f.name in rows.column_names and rows[f.name].null_count < len(rows)]
    of_text, of_number = order.scope
    words, partitions = _ranks(rows, of_text), rows[of_number].to_numpy()
    positions = _sorted_positions(rows, order, words, partitions)
    rows, words, partitions = _at(rows.select(there), positions), words[positions], partitions[positions]
    scopes = np.flatnonzero((np.diff(words) != 0) | (np.diff(partitions) != 0)) + 1
    content = rows.drop_columns(list(order.scope))
    columns = sum(1 << order.schema.get_field_index(name) for name in content.column_names)
    size = max(1, block * len(rows) // max(1, content.nbytes))
    begins = np.union1d(np.arange(0, len(rows), size), scopes)
    begin_at = np.zeros((len(begins), KEY_COLUMNS), np.int64)
    for number, name in enumerate(order.columns[:KEY_COLUMNS]):
        begin_at[:, number] = _numbers(rows, name)[begins]
    of = zip(column(rows, of_text).take(pa.array(begins)).to_pylist(), partitions[begins].tolist(), strict=True)
    (batch,) = content.to_batches()
    cuts = itertools.pairwise([*begins.tolist(), len(rows)])
    for (begin, end), first_key, scope in zip(cuts, begin_at.tolist(), of, strict=True):
        yield ShuffleBlock(scope, first_key, columns, batch.slice(begin, end - begin).serialize())


def _opened(block: ShuffleBlock, order: Order) -> pa.Table:
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(block.rows), _schema(block.columns, order))])


def _together(held: list[pa.Table], order: Order) -> pa.Table:
    rows = pa.concat_tables(held, promote_options="default").combine_chunks()
    return _at(rows, _sorted_positions(rows, order))


@cache
def _schema(columns: int, order: Order) -> pa.Schema:
    return pa.schema([field for index, field in enumerate(order.schema) if columns >> index & 1])


def _whole(rows: pa.Table, scope: tuple[str, int], order: Order) -> Iterator[pa.RecordBatch]:
    """Rows of one scope with all columns."""
    n = len(rows)
    whose = pa.repeat(scope[0], n), pa.repeat(pa.scalar(scope[1], pa.int32()), n)
    given = dict(zip(order.scope, whose, strict=True))
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


def _before(rows: pa.Table, first_key: Sequence[int], order: Order) -> int:
    """How many of sorted rows come before a key."""
    begin, end = 0, len(rows)
    for name, value in zip(order.columns, first_key, strict=False):
        here = _numbers(rows, name)[begin:end]
        begin, end = (begin + int(np.searchsorted(here, value, side)) for side in ("left", "right"))
    return begin


def _at(rows: pa.Table, positions: Ints) -> pa.Table:
    """The rows at those positions; as they are where they stand so already."""
    return rows if (positions[1:] > positions[:-1]).all() else rows.take(pa.array(positions))


def _sorted_positions(rows: pa.Table, order: Order, *scope: np.ndarray) -> Ints:
    """The positions of rows in order: of columns that tell the topic partition, and then their own."""
    columns = [*scope, *(_numbers(rows, name) for name in order.columns)]
    if not columns:
        return np.arange(len(rows))
    condensed = _condensed(columns)
    positions = np.lexsort(condensed[::-1])
    alike = np.logical_and.reduce([np.diff(values[positions]) == 0 for values in condensed])
    words = [name for name in order.last if name in rows.column_names]
    if words and alike.any():
        positions = np.lexsort([*(_ranks(rows, name) for name in reversed(words)), *condensed[::-1]])
    return positions


def _numbers(rows: pa.Table, name: str) -> np.ndarray:
    """A column of integers; null is the least, and so is a column that is missing."""
    if name not in rows.column_names:
        return np.full(len(rows), UNKNOWN)
    values = column(rows, name)
    return ints(rows, name) if values.null_count else values.to_numpy()


def _condensed(columns: Sequence[np.ndarray]) -> list[Ints]:
    """As few integer columns as possible, at least one, by which rows are in the same order."""
    condensed = [np.zeros(len(columns[0]), np.int64)]
    room = 1
    for values in columns:
        values = values.astype(np.int64, copy=False)
        least, span = int(values.min()), int(values.max()) - int(values.min()) + 1
        if span == 1:
            continue
        if room * span < 1 << 63:
            condensed[-1] = condensed[-1] * span + (values - least)
            room *= span
        else:
            condensed.append(values - least if span < 1 << 63 else values)
            room = span
    return condensed


def _ranks(rows: pa.Table, name: str) -> Ints:
    """Words as integers of the same order; null is the least."""
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
