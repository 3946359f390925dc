"""An engine of one process that holds all rows: it cuts and deals them out as a real one may."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast
from unittest.mock import patch

import pyarrow as pa

from subreplay.config.run import Location
from subreplay.engine.interface import Dataset, Engine, NewRows, Output, Splitter, Step, Tables, TableSource
from subreplay.rows import sorted_blocks
from subreplay.rows.conditions import Condition
from subreplay.rows.sorted_blocks import Order, external_merge, shuffle_blocks


class Cuts(NamedTuple):
    """Into how many tasks rows are dealt, and how many rows a batch of them has."""

    tasks: int = 2
    rows: int = 1_000


Task = list[pa.RecordBatch]
T = TypeVar("T")


def _moved(value: T) -> T:
    """As another process is given it."""
    given: T = pickle.loads(pickle.dumps(value))  # noqa: S301 - ours
    return given


def _named(step: Step, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    return (("", batch) for batch in step(batches))


@dataclass
class Rows(Dataset):
    """The batches of each task."""

    schema: pa.Schema
    tasks: list[Task]
    cuts: Cuts

    def where(self, condition: Condition) -> Dataset:
        return Rows(self.schema, [[*map(condition.of, task)] for task in self.tasks], self.cuts)

    def select(self, columns: Sequence[str]) -> Dataset:
        schema = pa.schema([self.schema.field(name) for name in columns])
        return Rows(schema, [[batch.select(columns) for batch in task] for task in self.tasks], self.cuts)

    def map(self, step: Step, schema: pa.Schema) -> Dataset:
        return self.split(partial(_named, step), {"": schema})[""]

    def split(self, step: Splitter, outputs: Mapping[str, Output]) -> Mapping[str, Dataset]:
        made: dict[str, list[Task]] = {name: [[] for _ in self.tasks] for name in outputs}
        for number, task in enumerate(self.tasks):
            for name, batch in _moved(step)(iter(task)):
                output = outputs[name]
                schema = output.schema if isinstance(output, Order) else output
                schema = schema.columns if isinstance(schema, NewRows) else schema
                assert batch.schema.names == schema.names, name
                made[name][number].append(batch.cast(schema))
        found: dict[str, Dataset] = {}
        for name, output in outputs.items():
            if isinstance(output, NewRows):
                cast(Any, output).rows += [batch for task in made[name] for batch in task]
            else:
                schema = output.schema if isinstance(output, Order) else output
                found[name] = Rows(schema, made[name], self.cuts)
        return found

    def to_table(self, limit: int | None = None) -> pa.Table:
        return pa.Table.from_batches([batch for task in self.tasks for batch in task], self.schema).slice(0, limit)

    def is_empty(self) -> bool:
        return not self.to_table().num_rows


@dataclass
class Written(NewRows):
    """Rows that are to be committed."""

    name: str
    columns: pa.Schema
    where: Mapping[str, str]
    rows: Task = field(default_factory=list)


class Kept(Tables):
    """Tables that are not written."""

    def __init__(self, cuts: Cuts) -> None:
        self.cuts = cuts
        self.kept: dict[str, dict[tuple[tuple[str, str], ...], pa.Table]] = {}

    def begin_write(self, name: str, columns: pa.Schema, where: Mapping[str, str]) -> NewRows:
        return Written(name, columns, where)

    def commit(self, rows: NewRows) -> None:
        written = cast(Written, rows)
        self.put(rows.name, pa.Table.from_batches(written.rows, rows.columns), rows.where)

    def put(self, name: str, rows: pa.Table, where: Mapping[str, str]) -> None:
        assert not {*where} & {*rows.column_names}
        self.kept.setdefault(name, {})[tuple(sorted(where.items()))] = rows

    def flush(self) -> None:
        """All is there."""

    @property
    def written(self) -> Mapping[str, Dataset]:
        return {name: dataset for name in self.kept if (dataset := self.find(name)) is not None}

    def find(self, name: str) -> Dataset | None:
        if name not in self.kept:
            return None
        parts = []
        for where, rows in self.kept[name].items():
            for column, value in where:
                rows = rows.append_column(column, pa.repeat(value, len(rows)))
            parts.append(rows)
        found = pa.concat_tables(parts)
        return Rows(found.schema, [found.to_batches()], self.cuts)


class InProcess(Engine):
    """The engine. Steps are pickled and read again, as if they went to another process."""

    name, version, cores = "in process", "1", 1

    def __init__(self, cuts: Cuts | None = None) -> None:
        self.cuts = cuts or Cuts()

    def scan(self, source: TableSource) -> Dataset:
        raise NotImplementedError

    def create_dataset(self, rows: pa.Table) -> Dataset:
        return Rows(rows.schema, [rows.to_batches(max_chunksize=self.cuts.rows)], self.cuts)

    def read_parts(
        self, parts: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]], schema: pa.Schema
    ) -> Dataset:
        return Rows(schema, [[*_moved(read)(part)] for part in _moved([*parts])], self.cuts)

    def concat(self, datasets: Sequence[Dataset]) -> Dataset:
        schemas = {dataset.schema for dataset in datasets}
        assert len(schemas) == 1
        return Rows(schemas.pop(), [task for dataset in datasets for task in cast(Rows, dataset).tasks], self.cuts)

    def sort(self, datasets: Sequence[Dataset], order: Order) -> Dataset:
        with patch.multiple(sorted_blocks, SORT_ROWS=4 * self.cuts.rows, ROWS=self.cuts.rows):
            tasks = [task for dataset in datasets for task in cast(Rows, dataset).tasks]
            blocks = sorted(
                (block for task in tasks for block in shuffle_blocks(task, order, 2_000)),
                key=lambda block: (block.scope, block.first_key),
            )
            scopes = sorted({block.scope for block in blocks})
            dealt = [{*scopes[number :: self.cuts.tasks]} for number in range(self.cuts.tasks)]
            return Rows(
                order.schema,
                [[*self._cut(external_merge((b for b in blocks if b.scope in mine), order))] for mine in dealt],
                self.cuts,
            )

    def _cut(self, batches: Iterable[pa.RecordBatch]) -> Task:
        return [
            batch.slice(begin, self.cuts.rows)
            for batch in batches
            for begin in range(0, batch.num_rows, self.cuts.rows)
        ]

    def open_tables(self, location: Location | None, prefix: str = "", format: str = "delta") -> Tables:
        return Kept(self.cuts)

    def interrupt(self) -> None:
        """Nothing goes on beside this process."""

    def close(self) -> None:
        """Nothing is kept."""
