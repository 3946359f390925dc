"""Pack rows of several outputs into one frame, many rows as one binary value.

So few, large values pass through Java, and all outputs of a step are computed at once. Rows to sort are packed as
sorted blocks (``rows.sorted_blocks``), other rows as Arrow streams. A user error is a row too, because Spark would wrap
it in an error of its own.
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
from subreplay.rows.sorted_blocks import KEY_COLUMNS, SORT_ROWS, Order, ShuffleBlock, external_merge, shuffle_blocks

PACKED: Final = pa.schema(
    [
        pa.field("output", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("first_key", pa.list_(pa.int64()), nullable=False),  # key of the first row of a block
        pa.field("columns", pa.int64(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),  # rows; 1 for a block
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
SORTED: Final = ("topic", "partition", "first_key", "columns", "rows")
"""The sort order of blocks. It contains all columns, so that the result is the same in every run."""
FAILED: Final = "(failed)"
_ERROR_TYPES: Final = {kind.__name__: kind for kind in (ConfigError, EnvironmentFailed, InputError, NoMatchingRows)}
_BATCH_BYTES: Final = 1 << 24  # sent to Spark together
_VALUE_BYTES: Final = 1 << 17  # approximate size of a value


class _PackedValue(NamedTuple):
    """A row of ``PACKED``. Rows that are not sorted are a block without a key."""

    output: str
    size: int  # rows; 1 for a block
    block: ShuffleBlock


@dataclass(frozen=True)
class Packer:
    """Applies steps to the rows of a task, splits the result into outputs, and packs these as ``PACKED``."""

    steps: tuple[Step, ...]
    splitter: Splitter
    outputs: Mapping[str, pa.Schema | Order]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return _combine_values(self._pack_with_errors(batches))

    def _pack_with_errors(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_PackedValue]:
        try:
            yield from self._pack_outputs(batches)
        except SubreplayError as error:
            text = f"{type(error).__name__}\n{error}".encode()
            yield _PackedValue(FAILED, 1, ShuffleBlock(("", 0), _NO_KEY, 0, text))

    def _pack_outputs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_PackedValue]:
        for step in self.steps:
            batches = step(batches)
        pending: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        rows: dict[str, int] = defaultdict(int)
        size: dict[str, int] = defaultdict(int)
        for name, batch in self.splitter(batches):
            if not batch.num_rows:
                continue
            output = self.outputs[name]
            pending[name].append(batch if isinstance(output, Order) else as_schema(batch, output))
            rows[name], size[name] = rows[name] + batch.num_rows, size[name] + batch.nbytes
            if rows[name] >= (SORT_ROWS if isinstance(output, Order) else ROWS) or size[name] >= MOST_BYTES:
                yield from self._pack_output(name, pending.pop(name))
                rows[name] = size[name] = 0
        for name in [*pending]:
            yield from self._pack_output(name, pending.pop(name))

    def _pack_output(self, name: str, batches: list[pa.RecordBatch]) -> Iterator[_PackedValue]:
        output = self.outputs[name]
        if isinstance(output, Order):
            yield from (_PackedValue(name, 1, block) for block in shuffle_blocks(batches, output))
            return
        (batch,) = pa.Table.from_batches(batches, output).combine_chunks().to_batches() or (None,)
        assert batch is not None  # batches are not empty
        each = max(1, batch.num_rows * _VALUE_BYTES // max(1, batch.nbytes))
        for begin in range(0, batch.num_rows, each):
            mine = batch.slice(begin, each)
            yield _PackedValue(name, mine.num_rows, ShuffleBlock(("", 0), _NO_KEY, 0, mine.serialize()))


_NO_KEY: Final = (0,) * KEY_COLUMNS


def _combine_values(values: Iterable[_PackedValue]) -> Batches:
    pending: list[_PackedValue] = []
    size = 0
    for each in values:
        pending.append(each)
        size += len(each.block.rows)
        if size >= _BATCH_BYTES:
            yield _build_batch(pending)
            pending, size = [], 0
    if pending:
        yield _build_batch(pending)


def _build_batch(values: list[_PackedValue]) -> pa.RecordBatch:
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
class Unpacker:
    """Unpacks values of one schema. Raises the user error that a task had."""

    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        for batch in batches:
            _raise_failed(batch)
            for value in batch.column("rows"):
                yield pa.ipc.read_record_batch(value.as_buffer(), self.schema)


@dataclass(frozen=True)
class BlockMerger:
    """Merges the rows of packed blocks, which arrive sorted."""

    order: Order

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Batches:
        return external_merge(_read_blocks(batches), self.order)


def _read_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[ShuffleBlock]:
    for batch in batches:
        _raise_failed(batch)
        for topic, partition, first_key, columns, rows in zip(*(batch.column(name) for name in SORTED), strict=True):
            yield ShuffleBlock((topic.as_py(), partition.as_py()), first_key.as_py(), columns.as_py(), rows.as_buffer())


def _raise_failed(batch: pa.RecordBatch) -> None:
    raise_first(
        rows.as_py() for name, rows in zip(batch["output"].to_pylist(), batch["rows"], strict=True) if name == FAILED
    )


def raise_first(failed: Iterable[bytes]) -> None:
    """Raise the user error that a task had, if there is one. Of several errors the same is raised in every run."""
    for text in sorted(failed):
        kind, _, message = text.decode().partition("\n")
        raise _ERROR_TYPES.get(kind, EnvironmentFailed)(message)
