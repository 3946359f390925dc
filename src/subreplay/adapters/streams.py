"""A source of any size: its files are read one by one, and what they hold is folded as streams of sorted rows.

An adapter says how as a ``Streamed``: what a file holds, then stage by stage what belongs together, in which order, and
what is made of it. Everything is a pure function over Arrow batches, so Spark's tasks can do it
(``engine.spark.adapters``) and one process as well. A stage that computes by whole groups finds the same however the
stream is cut.
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

from subreplay.adapters.base import FileCount, Ingested, Rejected
from subreplay.adapters.blocks import BLOCKS, Order, Sorter, merged, ordered, with_groups
from subreplay.failures import of_system
from subreplay.rows.model.columns import ROWS
from subreplay.rows.model.tables import INPUTS, QUARANTINE

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
    a column has a value (``only``): those with the same values in columns ``by`` together (``blocks``), in the order of
    columns ``then``, which are whole numbers. It may have a part of all groups only.
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


@dataclass(frozen=True)
class Work:
    """What a task does: it makes rows of what it is given, counts them, and makes blocks of those that later stages
    want, of which ``orders`` has the kind, the condition and the order, by the kind of their blocks."""

    make: Callable[[Any], Rows]
    rows: Shape
    known: Shape
    orders: Mapping[str, tuple[str, tuple[str, str] | None, Order]]
    buckets: int

    @property
    def shape(self) -> Shape:
        """The kinds of its rows."""
        wanted = {kind for kind, _, _ in self.orders.values()}
        left = {kind: schema for kind, schema in self.rows.items() if kind not in wanted}
        return {**left, **self.known, **dict.fromkeys(self.orders, BLOCKS), COUNTED: _COUNTS}

    def __call__(self, given: Any) -> Rows:
        sorters = {to: Sorter(order, self.buckets) for to, (_, _, order) in self.orders.items()}
        wanted = {kind for kind, _, _ in self.orders.values()}
        for kind, table in self.make(given):
            for to, (of, only, _) in self.orders.items():
                if of == kind:
                    mine = table if only is None else table.filter(pc.equal(table[only[0]], only[1]))
                    yield from ((to, blocks) for blocks in sorters[to].take(mine))
            if kind not in wanted:
                yield kind, table
            if kind in self.rows and len(table):
                yield COUNTED, _counts(kind, table)
        for to, sorter in sorters.items():
            yield from ((to, blocks) for blocks in sorter.finish())


class Flow(NamedTuple):
    """A stage whose rows come as blocks of a kind (``of``)."""

    stage: Stage
    of: str
    order: Order

    def folding(self, known: Known) -> Callable[[Batches], Rows]:
        """The function of blocks in the order of their buckets and first keys."""
        return partial(_of_blocks, self.stage.fold(known), self.order)


def size_of(files: Iterable[Path]) -> int:
    """The bytes of files. Raises ``EnvironmentFailed`` where one cannot be looked at."""
    try:
        return sum(path.stat().st_size for path in files)
    except OSError as error:
        raise of_system(error, error.filename, "read") from error


def flows_of(source: Streamed) -> list[Flow]:
    """The stages of a source."""
    schemas = dict(source.rows)
    found = []
    for number, stage in enumerate(source.stages):
        found.append(Flow(stage, f"to_{number}", Order(schemas[stage.of], stage.by, stage.then)))
        schemas.update(stage.rows)
    return found


def work(make: Callable[[Any], Rows], rows: Shape, known: Shape, later: Sequence[Flow], buckets: int) -> Work:
    """The work of a stage, or of reading a part, before others."""
    orders = {flow.of: (flow.stage.of, flow.stage.only, flow.order) for flow in later if flow.stage.of in rows}
    return Work(make, rows, known, orders, buckets)


def whole(source: Streamed) -> Ingested:
    """The same where one process holds all rows."""
    shapes = {**source.rows, **source.known}
    found: dict[str, list[pa.Table]] = {}

    def made(kind: str) -> pa.Table:
        return pa.concat_tables([shapes[kind].empty_table(), *found.get(kind, ())])

    def keep(rows: Rows) -> None:
        for kind, table in rows:
            found.setdefault(kind, []).append(table.cast(shapes[kind]))

    def known() -> Known:
        return {
            kind: made(kind) for kind in (*source.known, *(kind for stage in source.stages for kind in stage.known))
        }

    for stage in source.stages:
        shapes.update({**stage.rows, **stage.known})
    for part in source.parts:
        keep(source.scan(part))
    for flow in flows_of(source):
        of, only = flow.stage.of, flow.stage.only
        given = made(of) if only is None else made(of).filter(pc.equal(made(of)[only[0]], only[1]))
        keep(flow.stage.fold(known())(ordered(with_groups(given, flow.order), flow.order).to_batches()))
    rejected = made(REJECTED)
    end = source.end(known(), Counter(rejected["file"].to_pylist()))
    tables = {name: made(name) for name in INPUTS if name in shapes} | dict(end.tables)
    told = tuple(map(Rejected.of, rejected.to_pylist()))
    return Ingested(tables, told, end.counts, end.run, end.others, end.notes)


def _of_blocks(fold: Callable[[Batches], Rows], order: Order, blocks: Batches) -> Rows:
    return fold(merged(blocks, order))


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


def whole_groups(batches: Iterable[pa.RecordBatch], by: Sequence[str], rows: int = ROWS) -> Iterator[pa.Table]:
    """Batches in which rows of one group follow each other, as tables of whole groups: of at least ``rows`` rows, but
    for the last. Groups have the same values in columns ``by``; null is one. The largest group has to fit memory."""
    held: list[pa.RecordBatch] = []
    count, enough = 0, rows
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= enough:
            together = pa.Table.from_batches(held).combine_chunks()
            begins = np.flatnonzero(changes(together, by))
            end = int(begins[-1]) + 1 if len(begins) else 0
            if end:
                yield together.slice(0, end)
            held = together.slice(end).to_batches()
            count -= end
            enough = max(rows, 2 * count)  # a group that grows is looked at as often as it doubles
    if count:
        yield pa.Table.from_batches(held).combine_chunks()


def changes(rows: pa.Table, by: Sequence[str]) -> NDArray[np.bool_]:
    """Between which neighbours any of these columns differs: one less than rows."""
    found = np.zeros(max(len(rows) - 1, 0), np.bool_)
    for name in by:
        values = rows[name].combine_chunks()
        before, after = values[:-1], values[1:]
        differ = pc.coalesce(pc.not_equal(before, after), pc.xor(pc.is_null(before), pc.is_null(after)))
        found |= differ.to_numpy(zero_copy_only=False)
    return found
