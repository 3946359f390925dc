"""Read a source of any size file by file, and fold its content as streams of sorted rows.

An adapter describes this as a ``SourceStream``: what one file contains, and the stages that follow. Each stage names
the rows that belong together, their order and the function that folds them. Every function is pure and works on Arrow
batches; an engine runs them (``pipeline.adapter_sources``). A stage that works on whole groups returns the same result
however the stream is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import FileCount, RejectedRow
from subreplay.failures import describe_os_error
from subreplay.rows.model.tables import QUARANTINE
from subreplay.rows.sorted_blocks import Order, add_groups, make_group_order

Rows: TypeAlias = Iterator[tuple[str, pa.Table]]
"""Tables, each with its kind."""
Schemas: TypeAlias = Mapping[str, pa.Schema]
"""The columns of each kind of rows."""
SmallTables: TypeAlias = Mapping[str, pa.Table]
"""The small tables that all earlier stages produced, by kind."""
Batches: TypeAlias = Iterable[pa.RecordBatch]

REJECTED: Final = "rejected"
"""The kind of quarantined rows (``QUARANTINE``)."""
COUNTED: Final = "counted"
"""The kind of row counts: rows of each other kind, and quarantined rows by file."""
_COUNTS: Final = pa.schema([("kind", pa.string()), ("file", pa.string()), ("rows", pa.int64())])


class Stage(NamedTuple):
    """A stage that produces ``rows`` of any number, and small tables (``small``) that later stages can use.

    ``fold`` receives the small tables of earlier stages and returns the function that folds a stream. The stream has
    the rows of kind ``input_kind``, with column ``GROUP``. ``where`` keeps only rows with that value in that column.
    Rows with equal values in the columns ``group_by`` arrive together, in the order of the integer columns
    ``order_by``. A stream may contain only some of the groups.
    """

    fold: Callable[[SmallTables], Callable[[Batches], Rows]]
    rows: Schemas
    small: Schemas
    input_kind: str
    group_by: tuple[str, ...]
    order_by: tuple[str, ...]
    where: tuple[str, str] | None = None


class StreamResult(NamedTuple):
    """The result of a source: its small tables, and the parts of ``base.SourceSummary``."""

    tables: Mapping[str, pa.Table]
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceStream:
    """How to read a source. Its files have ``size`` bytes in total.

    ``scan`` reads one of the ``parts`` and produces ``rows`` and small tables (``small``); the ``stages`` follow.
    Several of them may produce rows of the same kind. A kind with the name of a canonical table is that table.
    ``finish`` receives the small tables and the number of rejected rows by file.
    """

    size: int
    parts: Sequence[Any]
    scan: Callable[[Any], Rows]
    rows: Schemas
    small: Schemas
    stages: tuple[Stage, ...]
    finish: Callable[[SmallTables, Counter[str]], StreamResult]


class StageInput(NamedTuple):
    """The rows that a stage reads: output ``name`` of the tasks before it.

    They are rows of kind ``input_kind`` that pass ``where``. Rows with equal values in ``group_by`` come together, in
    ``order``.
    """

    name: str
    input_kind: str
    where: tuple[str, str] | None
    group_by: tuple[str, ...]
    order: Order

    def select_rows(self, rows: pa.Table) -> pa.Table:
        """Select the input rows among others of their kind, and add their groups."""
        selected = rows if self.where is None else rows.filter(pc.equal(rows[self.where[0]], self.where[1]))
        return add_groups(selected, self.group_by)


@dataclass(frozen=True)
class StageTask:
    """The work of one task: make rows from its batches, count them, and route them to the ``inputs`` of later
    stages."""

    make: Callable[[Batches], Rows]
    rows: Schemas
    small: Schemas
    inputs: tuple[StageInput, ...]

    @property
    def outputs(self) -> dict[str, pa.Schema | Order]:
        """The schema or order of each kind of rows that this task writes."""
        wanted = {stage_input.input_kind for stage_input in self.inputs}
        unused = {kind: schema for kind, schema in self.rows.items() if kind not in wanted}
        return {**unused, **self.small, COUNTED: _COUNTS} | {each.name: each.order for each in self.inputs}

    def __call__(self, batches: Batches) -> Iterator[tuple[str, pa.RecordBatch]]:
        wanted = {stage_input.input_kind for stage_input in self.inputs}
        for kind, made in self.make(batches):
            rows = made.cast((self.rows if kind in self.rows else self.small)[kind])
            for stage_input in self.inputs:
                if stage_input.input_kind == kind:
                    yield from ((stage_input.name, batch) for batch in stage_input.select_rows(rows).to_batches())
            if kind not in wanted:
                yield from ((kind, batch) for batch in rows.to_batches())
            if kind in self.rows and len(rows):
                yield from ((COUNTED, batch) for batch in _count_rows(kind, rows).to_batches())


def sum_file_sizes(files: Iterable[Path]) -> int:
    """Return the total bytes of files. Raises ``EnvironmentFailed`` where a file cannot be inspected."""
    try:
        return sum(path.stat().st_size for path in files)
    except OSError as error:
        raise describe_os_error(error, error.filename, "read") from error


def list_stage_inputs(source: SourceStream) -> list[StageInput]:
    """List the rows that the stages of a source read, by stage number."""
    schemas = dict(source.rows)
    found = []
    for number, stage in enumerate(source.stages):
        order = make_group_order(schemas[stage.input_kind], stage.order_by)
        found.append(StageInput(f"to_{number}", stage.input_kind, stage.where, stage.group_by, order))
        schemas.update(stage.rows)
    return found


def plan_scan(source: SourceStream, inputs: Sequence[StageInput]) -> StageTask:
    """Plan the task that reads parts (``PART_NUMBERS``)."""
    return StageTask(
        partial(read_parts, tuple(source.parts), source.scan),
        source.rows,
        source.small,
        _select_inputs(inputs, source.rows),
    )


def plan_stage(stage: Stage, small: SmallTables, later: Sequence[StageInput]) -> StageTask:
    """Plan the task of a stage that folds its sorted input rows."""
    return StageTask(stage.fold(small), stage.rows, stage.small, _select_inputs(later, stage.rows))


def _select_inputs(inputs: Sequence[StageInput], rows: Schemas) -> tuple[StageInput, ...]:
    return tuple(stage_input for stage_input in inputs if stage_input.input_kind in rows)


PART_NUMBERS: Final = pa.schema([pa.field("part", pa.int32(), nullable=False)])
"""The schema of part numbers: each is the index of a part of a source."""


def number_parts(parts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the numbers of parts as one batch (``PART_NUMBERS``)."""
    yield pa.RecordBatch.from_pydict({"part": [*parts]}, PART_NUMBERS)


def read_parts(parts: Sequence[Any], read: Callable[[Any], Rows], numbers: Batches) -> Rows:
    """Read the parts whose ``PART_NUMBERS`` a task received."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read(parts[number])


def split_into_batches(rows: Rows, shape: Schemas) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split tables into batches with the columns of their kind."""
    for kind, table in rows:
        yield from ((kind, batch) for batch in table.cast(shape[kind]).to_batches())


def read_part_batches(
    parts: Sequence[Any], read: Callable[[Any], Rows], shape: Schemas, numbers: Batches
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read the parts whose ``PART_NUMBERS`` a task received, as batches."""
    return split_into_batches(read_parts(parts, read, numbers), shape)


def _count_rows(kind: str, table: pa.Table) -> pa.Table:
    by = table.select(["file"]) if kind == REJECTED else pa.table({"file": pa.nulls(len(table), pa.string())})
    sums = by.group_by("file").aggregate([([], "count_all")])
    return pa.table([pa.repeat(kind, len(sums)), *sums.columns], schema=_COUNTS)


def sum_counts(counts: Iterable[pa.Table]) -> tuple[Counter[str], Counter[str]]:
    """Sum the rows of each kind, and the quarantined rows by file."""
    kinds, lost = Counter[str](), Counter[str]()
    for row in (row for table in counts for row in table.to_pylist()):
        kinds[row["kind"]] += row["rows"]
        if row["kind"] == REJECTED:
            lost[row["file"]] += row["rows"]
    return kinds, lost


def build_quarantine(rejected: Iterable[RejectedRow]) -> pa.Table:
    """Build table ``quarantine`` from rejected rows."""
    rows = [row._asdict() | {"reasons": [reason._asdict() for reason in row.reasons]} for row in rejected]
    return pa.Table.from_pylist(rows, schema=QUARANTINE)


def find_changes(rows: pa.Table, by: Sequence[str]) -> NDArray[np.bool_]:
    """Mark the neighbouring rows that differ in any of these columns: one value fewer than rows."""
    found = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for name in by:
        values = rows[name].combine_chunks()
        before, after = values[:-1], values[1:]
        differ = pc.coalesce(pc.not_equal(before, after), pc.xor(pc.is_null(before), pc.is_null(after)))
        found |= differ.to_numpy(zero_copy_only=False)
    return found
