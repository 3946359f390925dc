"""Trivial steps, by which engines are tested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.errors import InputError
from subreplay.kernels.compiled import compiled

NUMBERS = pa.schema([pa.field("n", pa.int64()), pa.field("word", pa.string())])


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch["n"], 2), batch["word"]], schema=NUMBERS)


def evens_and_sums(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    total = 0
    for batch in batches:
        total += pc.sum(batch["n"]).as_py() or 0
        yield "even", batch.filter(pc.equal(pc.bit_wise_and(batch["n"], 1), 0))
        yield "rows", batch
    yield "sum", pa.RecordBatch.from_pydict({"total": [total]})


def fails(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise InputError("row 7: this is bad input; correct it")
    yield from ()


def scopes_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each run of one partition in a batch, with whether it is in order."""
    for batch in batches:
        n, partitions = batch["n"].to_numpy(), batch["partition"].to_numpy()
        ends = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(n)]
        runs = [n[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        yield pa.RecordBatch.from_pydict(
            {
                "partition": [int(partitions[end - 1]) for end in ends],
                "rows": [len(run) for run in runs],
                "in_order": [bool((run[1:] >= run[:-1]).all()) for run in runs],
            },
            schema=RUNS,
        )


RUNS = pa.schema([("partition", pa.int32()), ("rows", pa.int64()), ("in_order", pa.bool_())])


def read_part(part: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"n": [part, part + 1], "word": ["a", None]}, schema=NUMBERS)


@compiled
def _triple(values: Any) -> Any:
    for at in range(len(values)):
        values[at] *= 3
    return values


def tripled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each number three times as large, by a compiled loop."""
    for batch in batches:
        values = pa.array(_triple(np.array(batch.column(0))))
        yield pa.RecordBatch.from_arrays([values, batch.column(1)], schema=NUMBERS)
