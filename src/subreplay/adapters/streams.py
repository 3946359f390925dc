"""A source of any size: its files are read one by one, and what they hold is folded as streams of sorted rows.

An adapter says how as a ``Streamed``: what a file holds, then stage by stage what belongs together, in which order, and
what is made of it. Everything is a pure function over Arrow batches, which an engine runs (``pipeline.sources``). A
stage that computes by whole groups finds the same however the stream is cut.
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

from subreplay.adapters.base import FileCount, Rejected
from subreplay.failures import describe_os_error
from subreplay.rows.model.tables import QUARANTINE
from subreplay.rows.sorted_blocks import Order, grouped, with_groups

Rows: TypeAlias = Iterator[tuple[str, pa.Table]]
"""Rows, each table with its kind."""
Shape: TypeAlias = Mapping[str, pa.Schema]
"""The columns of each kind of rows."""
Known: TypeAlias = Mapping[str, pa.Table]
"""What all earlier stages made known, by kind."""
Batches: TypeAlias = Iterable[pa.RecordBatch]

REJECTED: Final = "rejected"
"""The kind of rows in quarantine (``QUARANTINE``)."""
COUNTED: Final = "counted"
"""The kind of counts: of the rows of each other kind, and of those in quarantine by file."""
_COUNTS: Final = pa.schema([("kind", pa.string()), ("file", pa.string()), ("rows", pa.int64())])


class Stage(NamedTuple):
    """Makes ``rows`` of any number, and what is ``known`` to the stages after it, which is small.

    ``fold`` is given what is known, and makes the function of a stream. The stream is the rows of kind ``of`` in which
    a column has a value (``only``), with ``GROUP``: those with the same values in columns ``by`` together, in the order
    of columns ``then``, which are whole numbers. It may have a part of all groups only.
    """

    fold: Callable[[Known], Callable[[Batches], Rows]]
    rows: Shape
    known: Shape
    of: str
    by: tuple[str, ...]
    then: tuple[str, ...]
    only: tuple[str, str] | None = None


class End(NamedTuple):
    """What is told at the end: tables that are small, and the parts of ``base.Told``."""

    tables: Mapping[str, pa.Table]
    counts: tuple[FileCount, ...]
    run: dict[str, Any]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Streamed:
    """How a source is read, of which the files have ``size`` bytes. ``scan`` reads one of its ``parts``, and gives
    ``rows`` and what is ``known``; ``stages`` follow. Rows of a kind may come from several of them. Kinds that are
    named as a canonical table are that table. ``end`` is given what is known, and how many rows are rejected, by
    file."""

    size: int
    parts: Sequence[Any]
    scan: Callable[[Any], Rows]
    rows: Shape
    known: Shape
    stages: tuple[Stage, ...]
    end: Callable[[Known, Counter[str]], End]


class Flow(NamedTuple):
    """The rows that a stage wants, as output ``name`` of those before it: rows of kind ``of`` in which a column has a
    value (``only``), those alike in columns ``by`` together, in ``order``."""

    name: str
    of: str
    only: tuple[str, str] | None
    by: tuple[str, ...]
    order: Order

    def take(self, rows: pa.Table) -> pa.Table:
        """Its rows among others of its kind, with their groups."""
        mine = rows if self.only is None else rows.filter(pc.equal(rows[self.only[0]], self.only[1]))
        return with_groups(mine, self.by)


@dataclass(frozen=True)
class Work:
    """What a task does: it makes rows of its batches, counts them, and gives those that later stages want to the
    ``flows`` into them."""

    make: Callable[[Batches], Rows]
    rows: Shape
    known: Shape
    flows: tuple[Flow, ...]

    @property
    def outputs(self) -> dict[str, pa.Schema | Order]:
        """The kinds of its rows."""
        wanted = {flow.of for flow in self.flows}
        left = {kind: schema for kind, schema in self.rows.items() if kind not in wanted}
        return {**left, **self.known, COUNTED: _COUNTS} | {flow.name: flow.order for flow in self.flows}

    def __call__(self, batches: Batches) -> Iterator[tuple[str, pa.RecordBatch]]:
        wanted = {flow.of for flow in self.flows}
        for kind, made in self.make(batches):
            rows = made.cast((self.rows if kind in self.rows else self.known)[kind])
            for flow in self.flows:
                if flow.of == kind:
                    yield from ((flow.name, batch) for batch in flow.take(rows).to_batches())
            if kind not in wanted:
                yield from ((kind, batch) for batch in rows.to_batches())
            if kind in self.rows and len(rows):
                yield from ((COUNTED, batch) for batch in _counts(kind, rows).to_batches())


def size_of(files: Iterable[Path]) -> int:
    """The bytes of files. Raises ``EnvironmentFailed`` where one cannot be looked at."""
    try:
        return sum(path.stat().st_size for path in files)
    except OSError as error:
        raise describe_os_error(error, error.filename, "read") from error


def flows_of(source: Streamed) -> list[Flow]:
    """What the stages of a source want, by their number."""
    schemas = dict(source.rows)
    found = []
    for number, stage in enumerate(source.stages):
        order = grouped(schemas[stage.of], stage.then)
        found.append(Flow(f"to_{number}", stage.of, stage.only, stage.by, order))
        schemas.update(stage.rows)
    return found


def scanning(source: Streamed, flows: Sequence[Flow]) -> Work:
    """The work that reads parts (of ``NUMBERS``)."""
    return Work(
        partial(read_parts, tuple(source.parts), source.scan), source.rows, source.known, _into(flows, source.rows)
    )


def folding(stage: Stage, known: Known, later: Sequence[Flow]) -> Work:
    """The work of a stage on the rows that it wants, in order."""
    return Work(stage.fold(known), stage.rows, stage.known, _into(later, stage.rows))


def _into(flows: Sequence[Flow], rows: Shape) -> tuple[Flow, ...]:
    return tuple(flow for flow in flows if flow.of in rows)


NUMBERS: Final = pa.schema([pa.field("part", pa.int32(), nullable=False)])
"""Parts of a source, by their numbers."""


def number_rows(parts: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The numbers of parts as ``NUMBERS``."""
    yield pa.RecordBatch.from_pydict({"part": [*parts]}, NUMBERS)


def read_parts(parts: Sequence[Any], read: Callable[[Any], Rows], numbers: Batches) -> Rows:
    """What reading those of some parts gives whose ``NUMBERS`` a task has."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read(parts[number])


def as_batches(rows: Rows, shape: Shape) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows as batches of the columns of their kind."""
    for kind, table in rows:
        yield from ((kind, batch) for batch in table.cast(shape[kind]).to_batches())


def split_parts(
    parts: Sequence[Any], read: Callable[[Any], Rows], shape: Shape, numbers: Batches
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What reading those of some parts gives whose ``NUMBERS`` a task has, as batches."""
    return as_batches(read_parts(parts, read, numbers), shape)


def _counts(kind: str, table: pa.Table) -> pa.Table:
    by = table.select(["file"]) if kind == REJECTED else pa.table({"file": pa.nulls(len(table), pa.string())})
    sums = by.group_by("file").aggregate([([], "count_all")])
    return pa.table([pa.repeat(kind, len(sums)), *sums.columns], schema=_COUNTS)


def totals(counts: Iterable[pa.Table]) -> tuple[Counter[str], Counter[str]]:
    """The rows of each kind, and those in quarantine by file."""
    kinds, lost = Counter[str](), Counter[str]()
    for row in (row for table in counts for row in table.to_pylist()):
        kinds[row["kind"]] += row["rows"]
        if row["kind"] == REJECTED:
            lost[row["file"]] += row["rows"]
    return kinds, lost


def quarantine(rejected: Iterable[Rejected]) -> pa.Table:
    """Rejected rows as rows of table ``quarantine``."""
    rows = [row._asdict() | {"reasons": [reason._asdict() for reason in row.reasons]} for row in rejected]
    return pa.Table.from_pylist(rows, schema=QUARANTINE)


def changes(rows: pa.Table, by: Sequence[str]) -> NDArray[np.bool_]:
    """Between which neighbours any of these columns differs: one less than rows."""
    found = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for name in by:
        values = rows[name].combine_chunks()
        before, after = values[:-1], values[1:]
        differ = pc.coalesce(pc.not_equal(before, after), pc.xor(pc.is_null(before), pc.is_null(after)))
        found |= differ.to_numpy(zero_copy_only=False)
    return found
