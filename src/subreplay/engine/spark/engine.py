"""The engine of Spark: its tasks run the steps, and it brings sorted blocks together. DataFrame API only, so that it
runs on classic sessions, on Spark Connect and serverless."""

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
from subreplay.engine.spark import lake, scans
from subreplay.engine.spark.datasets import BlocksDataset, PackedDataset, SparkDataset, pack
from subreplay.engine.spark.packing import FAILED, SORTED, Merge, raise_first
from subreplay.engine.spark.partitioning import dealt
from subreplay.engine.spark.schemas import arrow_schema
from subreplay.engine.spark.session import KeptRows, as_it_was, cores, partitions, require_package
from subreplay.engine.spark.tables import KeptFrames, NewFrame, SparkTables
from subreplay.rows.sorted_blocks import Order

_A_CORE: Final = 2
"""Tasks a core, of rows of which nobody knows how many scopes they have."""


class SparkEngine(Engine):
    """Runs steps in the tasks of a session. What steps leave, the session keeps until ``close``, where it may; where
    the platform refuses, it is computed each time it is looked at."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        require_package(session)
        self.session = session
        self.version = session.version
        self.cores = _cores(session)
        self.kept = KeptRows()
        self._tables: list[SparkTables] = []

    def scan(self, source: TableSource) -> Dataset:
        return self.of_frame(scans.opened(self.session, source))

    def unchanged(self) -> AbstractContextManager[None]:
        return as_it_was(self.session)

    def of_frame(self, frame: DataFrame) -> SparkDataset:
        """The rows of a frame."""
        return SparkDataset(self, lambda: frame, arrow_schema(frame.schema))

    def of(self, rows: pa.Table) -> Dataset:
        return SparkDataset(self, lambda: lake.of_arrow(self.session, rows).coalesce(1), rows.schema)

    def parts(self, parts: Sequence[Any], read: Callable[[Any], Batches], schema: pa.Schema) -> Dataset:
        n = len(parts)
        return SparkDataset(self, lambda: self.session.range(0, n, 1, max(1, n)), schema, (_Parts(tuple(parts), read),))

    def together(self, datasets: Sequence[Dataset]) -> Dataset:
        if len(datasets) == 1:
            return datasets[0]
        frames = [each.frame for each in datasets]
        return SparkDataset(self, lambda: reduce(DataFrame.unionByName, frames), datasets[0].schema)

    def sorted(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        parts, scopes = [], 0
        for each in datasets:
            if isinstance(each, BlocksDataset) and each.order == order:
                parts.append(each.mine)
                scopes += each.scopes
            else:
                mine = each._unpacked() if isinstance(each, PackedDataset) else cast(SparkDataset, each)
                parts.append(mine.packed(order))
                scopes += _A_CORE * self.cores or partitions(self.session)
        tasks = max(1, min(partitions(self.session), scopes))

        def source() -> DataFrame:
            blocks = reduce(DataFrame.unionAll, (part.select("output", *SORTED) for part in parts))
            return dealt(blocks, tasks, "partition").sortWithinPartitions(*SORTED)

        return SparkDataset(self, source, order.schema, (Merge(order),))

    def split(
        self, source: DataFrame, steps: tuple[Step, ...], step: Splitter, outputs: Mapping[str, Output]
    ) -> Mapping[str, Dataset]:
        """What a step makes of a frame's rows, computed once, and kept."""
        kinds = {name: _as_packed(each) for name, each in outputs.items()}
        packed = self.kept.keep(pack(source, steps, step, kinds), StorageLevel.DISK_ONLY)
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

    def tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        if location is None:
            return KeptFrames(self)
        self._tables.append(SparkTables(self, location, prefix, format))
        return self._tables[-1]

    def interrupt(self) -> None:
        self.session.interruptAll()

    def close(self) -> None:
        while self._tables:
            self._tables.pop().close()
        self.kept.release()


@dataclass(frozen=True)
class _Parts:
    parts: tuple[Any, ...]
    read: Callable[[Any], Batches]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield from self.read(self.parts[number])


def _as_packed(output: Output) -> pa.Schema | Order:
    return output.columns if isinstance(output, NewRows) else output


def _cores(session: SparkSession) -> int:
    """How many cores a session has, as far as its settings tell; else 0."""
    master = str(session.conf.get("spark.master", "") or "")
    if master.startswith("local") and not master.startswith("local-cluster"):
        return cores(master)
    asked = [session.conf.get(f"spark.executor.{name}", None) for name in ("instances", "cores")]
    return int(asked[0]) * int(asked[1]) if all(str(value).isdigit() for value in asked) else 0  # type: ignore[arg-type]
