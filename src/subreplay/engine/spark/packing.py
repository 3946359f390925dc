"""Rows of several outputs in one frame: many of them as one binary value each, so that few and large values go through
Java, and all outputs of a step are computed at once.

Rows that are to be sorted go as sorted blocks (``rows.sorted_blocks``), others as streams of Arrow. An error that is
for the user is a row, too: Spark would tell of it in its own way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from subreplay.engine.interface import Batches, Splitter, Step
from subreplay.engine.steps import as_schema
from subreplay.errors import ConfigError, EnvironmentFailed, InputError, NoMatchingRows, SubreplayError
from subreplay.rows.model.columns import MOST_BYTES, ROWS
from subreplay.rows.sorted_blocks import KEY_COLUMNS, RUN, Order, ShuffleBlock, external_merge, shuffle_blocks

PACKED: Final = pa.schema(
    [
        pa.field("output", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_key", pa.list_(pa.int64()), nullable=False),  # of the first row of a block
        pa.field("columns", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),  # of rows; of a block 1
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
SORTED: Final = ("topic", "partition", "first_key", "columns", "rows")
"""By what blocks are in order: by all columns, so that what is computed together is the same in every run."""
FAILED: Final = "(failed)"
_KNOWN: Final = {kind.__name__: kind for kind in (ConfigError, EnvironmentFailed, InputError, NoMatchingRows)}
_AT_ONCE: Final = 1 << 24  # bytes that go to Spark at a time
_VALUE: Final = 1 << 17  # bytes of a value, about


class _Value(NamedTuple):
    """One of ``PACKED``; other rows than those to be sorted are a block without a key."""

    output: str
    size: int  # in rows; of a block 1
    block: ShuffleBlock


@dataclass(frozen=True)
class Pack:
    """``PACKED`` rows of what steps make of the rows of a task, and of them ``split`` the outputs."""

    steps: tuple[Step, ...]
    split: Splitter
    outputs: Mapping[str, pa.Schema | Order]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return _together(self._failing(batches))

    def _failing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Value]:
        try:
            yield from self._blocks(batches)
        except SubreplayError as error:
            text = f"{type(error).__name__}\n{error}".encode()
            yield _Value(FAILED, 1, ShuffleBlock(("", 0), _NO_KEY, 0, text))

    def _blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Value]:
        for step in self.steps:
            batches = step(batches)
        held: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        rows: dict[str, int] = defaultdict(int)
        size: dict[str, int] = defaultdict(int)
        for name, batch in self.split(batches):
            if not batch.num_rows:
                continue
            output = self.outputs[name]
            held[name].append(batch if isinstance(output, Order) else as_schema(batch, output))
            rows[name], size[name] = rows[name] + batch.num_rows, size[name] + batch.nbytes
            if rows[name] >= (RUN if isinstance(output, Order) else ROWS) or size[name] >= MOST_BYTES:
                yield from self._packed(name, held.pop(name))
                rows[name] = size[name] = 0
        for name in [*held]:
            yield from self._packed(name, held.pop(name))

    def _packed(self, name: str, batches: list[pa.RecordBatch]) -> Iterator[_Value]:
        output = self.outputs[name]
        if isinstance(output, Order):
            yield from (_Value(name, 1, block) for block in shuffle_blocks(batches, output))
            return
        (batch,) = pa.Table.from_batches(batches, output).combine_chunks().to_batches() or (None,)
        assert batch is not None  # no batch is empty
        each = max(1, batch.num_rows * _VALUE // max(1, batch.nbytes))
        for begin in range(0, batch.num_rows, each):
            mine = batch.slice(begin, each)
            yield _Value(name, mine.num_rows, ShuffleBlock(("", 0), _NO_KEY, 0, mine.serialize()))


_NO_KEY: Final = (0,) * KEY_COLUMNS


def _together(values: Iterable[_Value]) -> Batches:
    held: list[_Value] = []
    size = 0
    for each in values:
        held.append(each)
        size += len(each.block.rows)
        if size >= _AT_ONCE:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(values: list[_Value]) -> pa.RecordBatch:
    columns = {
        "output": [value.output for value in values],
        "topic": [value.block.scope[0] for value in values],
        "partition": [value.block.scope[1] for value in values],
        "first_key": [value.block.first_key for value in values],
        "columns": [value.block.columns for value in values],
        "count": [value.size for value in values],
        "rows": [bytes(value.block.rows) for value in values],
    }
    return pa.RecordBatch.from_pydict(columns, PACKED)


@dataclass(frozen=True)
class Unpack:
    """The rows of packed values of one schema. Raises the error for the user that a task had."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            _raise_failed(batch)
            for value in batch.column("rows"):
                yield pa.ipc.read_record_batch(value.as_buffer(), self.schema)


@dataclass(frozen=True)
class Merge:
    """The rows of packed blocks, which come in order, in order."""

    order: Order

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return external_merge(_blocks_of(batches), self.order)


def _blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[ShuffleBlock]:
    for batch in batches:
        _raise_failed(batch)
        for topic, partition, first_key, columns, rows in zip(*(batch.column(name) for name in SORTED), strict=True):
            yield ShuffleBlock((topic.as_py(), partition.as_py()), first_key.as_py(), columns.as_py(), rows.as_buffer())


def _raise_failed(batch: pa.RecordBatch) -> None:
    raise_first(
        rows.as_py() for name, rows in zip(batch["output"].to_pylist(), batch["rows"], strict=True) if name == FAILED
    )


def raise_first(failed: Iterable[bytes]) -> None:
    """Raise the error for the user that a task had, if one had any: the same, whichever task comes first."""
    for text in sorted(failed):
        kind, _, message = text.decode().partition("\n")
        raise _KNOWN.get(kind, EnvironmentFailed)(message)
