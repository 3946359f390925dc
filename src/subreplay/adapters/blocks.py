"""How rows travel between the stages of a stream: as blocks of sorted rows, many in one binary value.

Spark moves and sorts rows one by one and converts each of their columns on the way to Python and back, which costs more
than what is computed. So it gets blocks, with the key of their first row, and brings them in the order of these keys.
Where they are read, those that overlap are merged: rows before the first key of the blocks to come are complete. So a
task holds a block of each run that was sorted at a time.

The key of a row is a hash of what it belongs to, and then whole numbers. Rows of a group are of one hash; a function
that is given all rows of a hash is given whole groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple, TypeAlias

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.rows.model.columns import ROWS, UNKNOWN, Ints, ints

GROUP: Final = "(group)"
"""The column of hashes: 64 bits, of one whole number alone each its own."""
BLOCKS: Final = pa.schema([("bucket", pa.int32()), ("first_key", pa.list_(pa.int64())), ("size", pa.int64()),
                           ("rows", pa.binary())])  # fmt: skip
"""Sorted rows of groups of one bucket, compressed; ``size`` is that of them before (bytes)."""
_Words: TypeAlias = NDArray[np.uint64]
RUN: Final = 1 << 17  # rows sorted at a time
_BLOCK: Final = 1 << 17  # bytes of a block before it is compressed, if rows are of a size
_CODEC: Final = "lz4_raw"


class Order(NamedTuple):
    """Rows of ``schema`` that have the same values in columns ``by`` together, in the order of columns ``then``, which
    are whole numbers."""

    schema: pa.Schema
    by: tuple[str, ...]
    then: tuple[str, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of a key."""
        return GROUP, *self.then

    @property
    def grouped(self) -> pa.Schema:
        """The columns of rows with their hashes."""
        return self.schema.append(pa.field(GROUP, pa.int64()))


class Sorter:
    """Takes rows in any order and gives ``BLOCKS`` for so many ``buckets``."""

    def __init__(self, order: Order, buckets: int) -> None:
        self._order, self._buckets = order, buckets
        self._held: list[pa.Table] = []
        self._rows = 0

    def take(self, rows: pa.Table) -> Iterator[pa.Table]:
        self._held.append(rows)
        self._rows += len(rows)
        if self._rows >= RUN:
            yield from self.finish()

    def finish(self) -> Iterator[pa.Table]:
        """Blocks of what is held."""
        if self._rows:
            yield _blocks(pa.concat_tables(self._held), self._order, self._buckets)
        self._held, self._rows = [], 0


def merged(batches: Iterable[pa.RecordBatch], order: Order) -> Iterator[pa.RecordBatch]:
    """``BLOCKS`` in the order of their buckets and first keys -> their rows in order, with ``GROUP``."""
    told = (row for batch in batches for row in zip(*batch.columns, strict=True))
    for _, mine in groupby(told, key=lambda row: row[0].as_py()):
        held: list[pa.Table] = []
        rows, enough = 0, ROWS
        for _, first_key, size, block in mine:
            if rows >= enough:
                together = ordered(pa.concat_tables(held), order)
                complete = _before(together, first_key.as_py(), order)
                yield from together.slice(0, complete).to_batches()
                held, rows = [together.slice(complete)], rows - complete
                enough = ROWS + 2 * rows  # what stays is sorted again when as much has come
            held.append(_opened(block.as_buffer(), size.as_py(), order))
            rows += len(held[-1])
        yield from ordered(pa.concat_tables(held), order).to_batches()


def with_groups(rows: pa.Table, order: Order) -> pa.Table:
    """Rows with ``GROUP``."""
    found = np.zeros(len(rows), np.uint64)
    for name in order.by:
        found = _mixed(found * np.uint64(0x9E3779B97F4A7C15) + _hashes(rows, name).view(np.uint64))
    return pa.table([*rows.columns, pa.array(found.view(np.int64))], schema=order.grouped)


def ordered(rows: pa.Table, order: Order) -> pa.Table:
    """Rows in order."""
    positions = np.lexsort(_keys(rows, order)[::-1])
    return rows.take(pa.array(positions)).combine_chunks()


def _keys(rows: pa.Table, order: Order) -> list[Ints]:
    return [ints(rows, name, UNKNOWN) for name in order.key]


def _blocks(rows: pa.Table, order: Order, buckets: int) -> pa.Table:
    rows = with_groups(rows, order).combine_chunks()
    bucket = ints(rows, GROUP).view(np.uint64) % np.uint64(buckets)
    positions = np.lexsort([*_keys(rows, order)[::-1], bucket])
    rows, bucket = rows.take(pa.array(positions)).combine_chunks(), bucket[positions]
    size = max(1, _BLOCK * len(rows) // max(1, rows.nbytes))
    begins = np.union1d(np.arange(0, len(rows), size), np.flatnonzero(np.diff(bucket)) + 1)
    first_keys = np.stack([key[begins] for key in _keys(rows, order)], axis=1).tolist()
    (batch,) = rows.to_batches()
    cut = [batch.slice(begin, end - begin).serialize() for begin, end in pairwise([*begins.tolist(), len(rows)])]
    columns = [
        pa.array(bucket[begins], pa.int32()),
        pa.array(first_keys, pa.list_(pa.int64())),
        pa.array([block.size for block in cut], pa.int64()),
        pa.array([pa.compress(block, _CODEC, asbytes=True) for block in cut], pa.binary()),
    ]
    return pa.table(columns, schema=BLOCKS)


def _opened(block: pa.Buffer, size: int, order: Order) -> pa.Table:
    rows = pa.decompress(block, size, _CODEC)
    return pa.Table.from_batches([pa.ipc.read_record_batch(rows, order.grouped)])


def _before(rows: pa.Table, first_key: Sequence[int], order: Order) -> int:
    """How many of sorted rows come before a key."""
    begin, end = 0, len(rows)
    for key, value in zip(_keys(rows, order), first_key, strict=True):
        here = key[begin:end]
        begin, end = (begin + int(np.searchsorted(here, value, side)) for side in ("left", "right"))
    return begin


def _hashes(rows: pa.Table, name: str) -> Ints:
    """A whole number for each value: itself, or a hash of a text."""
    if pa.types.is_integer(rows[name].type):
        return ints(rows, name, UNKNOWN)
    coded = pc.dictionary_encode(rows[name].combine_chunks())
    hashes = np.array([mmh3.hash64(text)[0] for text in coded.dictionary.to_pylist()] + [0], np.int64)
    found: Ints = hashes[np.asarray(coded.indices.fill_null(len(hashes) - 1))]
    return found


def _mixed(values: _Words) -> _Words:
    """Each 64 bits as others, all of which depend on all (the finalizer of SplitMix64, a bijection)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)), np.uint64)
