"""Arrow files in which Spark's tasks leave rows for who comes after them, where all are on one machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from subreplay.engine.spark.schemas import spark_schema


@contextmanager
def new_file(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatchFileWriter]:
    """A file of ``schema``, which is there when all of it is: a task may be run twice."""
    unfinished = f"{path}.{os.getpid()}"
    with pa.OSFile(unfinished, "wb") as file, pa.ipc.new_file(file, schema) as written:
        yield written
    os.replace(unfinished, path)


def opened(path: str) -> pa.RecordBatchFileReader:
    """The rows of a file, of which none is read before it is asked for."""
    return pa.ipc.open_file(pa.memory_map(path))


def frame_of(spark: SparkSession, paths: Sequence[str], schema: pa.Schema) -> DataFrame:
    """The rows of files as a frame, read by a task each."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            rows = opened(paths[number])
            yield from map(rows.get_batch, range(rows.num_record_batches))

    return spark.range(0, len(paths), 1, max(1, len(paths))).mapInArrow(read, spark_schema(schema))
