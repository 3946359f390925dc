"""The Spark engine: Spark's tasks run the steps, and Spark sorts the blocks.

It uses only the DataFrame API, so it runs on classic sessions, Spark Connect and serverless compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any, Final, cast

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.run import Location
from subreplay.engine.interface import Batches, Dataset, Engine, NewRows, Output, Splitter, Step, Tables, TableSource
from subreplay.engine.spark import frame_tables, scans
from subreplay.engine.spark.datasets import BlocksDataset, PackedDataset, SparkDataset, pack
from subreplay.engine.spark.packing import FAILED, SORTED, BlockMerger, raise_first
from subreplay.engine.spark.partitioning import MAX_TASKS, distribute_round_robin
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.engine.spark.session import (
    DEFAULT_PARTITIONS,
    FrameCache,
    count_cores,
    count_partitions,
    require_package,
    restore_batch_sizes,
)
from subreplay.engine.spark.settings import read_setting
from subreplay.engine.spark.tables import NewFrame, SparkTables, TemporaryFrames
from subreplay.rows.sorted_blocks import Order

_TASKS_PER_CORE: Final = 2
"""Tasks per core for rows with an unknown number of scopes."""
_MAX_TASKS_PER_CORE: Final = 4
"""Tasks per core for many topic partitions: they differ in size, and a task costs little."""


class SparkEngine(Engine):
    """Runs steps in the tasks of a session.

    The session caches the outputs of steps until ``close``. If the platform does not allow a cache, outputs are
    recomputed on each access.
    """

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        require_package(session)
        self.session = session
        self.version = session.version
        self.cores = _count_cores(session)
        self.limit = limit_tasks(count_partitions(session), self.cores)
        self.cache = FrameCache()
        self._tables: list[SparkTables] = []

    def scan(self, source: TableSource) -> Dataset:
        return self.wrap_frame(scans.open_source(self.session, source))

    def restore_settings(self) -> AbstractContextManager[None]:
        return restore_batch_sizes(self.session)

    def wrap_frame(self, frame: DataFrame) -> SparkDataset:
        """Create a dataset from a DataFrame."""
        return SparkDataset(self, lambda: frame, arrow_schema(frame.schema))

    def create_dataset(self, rows: pa.Table) -> Dataset:
        return SparkDataset(self, lambda: frame_tables.create_frame(self.session, rows).coalesce(1), rows.schema)

    def read_parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        n = len(parts)
        return SparkDataset(
            self, lambda: self.session.range(0, n, 1, max(1, n)), schema, (_PartReader(tuple(parts), read),)
        )

    def concat(self, datasets: Sequence[Dataset]) -> Dataset:
        if len(datasets) == 1:
            return datasets[0]
        frames = [each.frame for each in datasets]
        return SparkDataset(self, lambda: reduce(DataFrame.unionByName, frames), datasets[0].schema)

    def sort(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        parts, scopes = [], 0
        for each in datasets:
            if isinstance(each, BlocksDataset) and each.order == order:
                parts.append(each.mine)
                scopes += each.scopes
            else:
                mine = each.unpack() if isinstance(each, PackedDataset) else cast(SparkDataset, each)
                parts.append(mine.pack_rows(order))
                scopes += _TASKS_PER_CORE * self.cores or self.limit
        tasks = max(1, min(self.limit, scopes))

        def source() -> DataFrame:
            blocks = reduce(DataFrame.unionAll, (part.select("output", *SORTED) for part in parts))
            return distribute_round_robin(blocks, tasks, "partition").sortWithinPartitions(*SORTED)

        return SparkDataset(self, source, order.schema, (BlockMerger(order),))

    def split(
        self, source: DataFrame, steps: tuple[Step, ...], step: Splitter, outputs: Mapping[str, Output]
    ) -> Mapping[str, Dataset]:
        """Apply a step to the rows of a DataFrame once, and cache its outputs."""
        kinds = {name: _get_packed_form(each) for name, each in outputs.items()}
        packed = self.cache.keep(pack(source, steps, step, kinds), StorageLevel.DISK_ONLY)
        counted = packed.groupBy("output", "topic", "partition").agg(
            F.sum("count").alias("count"), F.max(F.when(F.col("output") == FAILED, F.col("rows"))).alias("failed")
        )
        rows = [row.asDict() for row in counted.collect()]
        raise_first(bytes(row["failed"]) for row in rows if row["output"] == FAILED)
        found: dict[str, Dataset] = {}
        for name, output in outputs.items():
            mine, kind = [row for row in rows if row["output"] == name], kinds[name]
            count = sum(row["count"] for row in mine)
            if isinstance(kind, Order):
                found[name] = BlocksDataset(self, packed, name, kind.schema, count, kind, len(mine))
            else:
                found[name] = PackedDataset(self, packed, name, kind, count)
            if isinstance(output, NewRows):
                cast(NewFrame, output).parts.append(found[name])
        return found

    def open_tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        if location is None:
            return TemporaryFrames(self)
        self._tables.append(SparkTables(self, location, prefix, format))
        return self._tables[-1]

    def interrupt(self) -> None:
        self.session.interruptAll()

    def close(self) -> None:
        while self._tables:
            self._tables.pop().close()
        self.cache.release()


@dataclass(frozen=True)
class _PartReader:
    parts: tuple[Any, ...]
    read: Callable[[Any], Batches]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield from self.read(self.parts[number])


def _get_packed_form(output: Output) -> pa.Schema | Order:
    return output.columns if isinstance(output, NewRows) else output


def limit_tasks(configured: int, cores: int) -> int:
    """Return how many tasks at most share the topic partitions: the configured number, else a few for each core.

    ``configured`` is the session's number of shuffle partitions. Spark's default (200) is nobody's choice.
    """
    if configured != DEFAULT_PARTITIONS or not cores:
        return configured
    return min(MAX_TASKS, _MAX_TASKS_PER_CORE * cores)


def _count_cores(session: SparkSession) -> int:
    """Count the cores that run a session's tasks; 0 if their number changes during the run."""
    master = read_setting(session, "spark.master") or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        return count_cores(master)
    values = [read_setting(session, f"spark.executor.{name}") or "" for name in ("instances", "cores")]
    if all(value.isdigit() for value in values):
        return int(values[0]) * int(values[1])
    if read_setting(session, "spark.dynamicAllocation.enabled") == "true":
        return 0
    # a range has as many partitions as the executors have cores
    return session.range(MAX_TASKS).select(F.spark_partition_id()).distinct().count()
