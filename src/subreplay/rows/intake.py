"""Read an input table: one scan checks its rows and computes everything that a run needs before it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.rows import rejects
from subreplay.rows.encoded import Mask
from subreplay.rows.model.columns import MOST_BYTES, gather_batches
from subreplay.rows.model.tables import INPUTS, LOG, QUARANTINE
from subreplay.rows.quarantine import REJECTED, find_valid_rows, make_quarantine
from subreplay.rows.scan import counts
from subreplay.rows.scan.log_rows import make_log_rows, select_log_columns
from subreplay.rows.scan.selection import IngestSelection
from subreplay.rows.scan.table_columns import Columns

LOGGED: Final = ("messages", "deliveries")
"""The tables whose rows form the log."""
NUMBERS: Final = pa.schema([pa.field("valid", pa.bool_()), pa.field("count", pa.int64())])
"""The counts of other tables: valid rows, and others."""
_MOST_PENDING: Final = 1 << 16  # rows of small tables that are added up at a time


@dataclass(frozen=True)
class Profiling:
    """How messages are profiled: ``make`` makes ``schema`` from batches with ``columns`` of the log, of at most
    ``rows`` messages at a time."""

    make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    columns: tuple[str, ...]
    rows: int
    schema: pa.Schema


@dataclass(frozen=True)
class Intake:
    """Splits the rows of an input ``table``, in canonical columns and perhaps with ``rejected``, into outputs:

    - ``log``: valid messages or deliveries as rows of the log, if ``log``;
    - ``valid``: valid rows in canonical columns, if ``valid``;
    - ``profile``: what ``profiling`` makes of valid messages;
    - ``counts``: ``counts.build_count_schema(table)`` of messages and deliveries if ``by_ledger``, else ``NUMBERS``;
    - ``quarantine``, ``rejects``, ``reasons``: rejected rows, what they could be about, and why they were rejected.

    The counts, ``rejects`` and ``reasons`` of a task are added up; those of several tasks are to be added up once more.
    """

    table: str
    log: bool = False
    valid: bool = False
    by_ledger: bool = False
    profiling: Profiling | None = None

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The schema of each output."""
        found = {
            "counts": counts.build_count_schema(self.table) if self.by_ledger else NUMBERS,
            "quarantine": QUARANTINE,
            "rejects": rejects.REJECTS,
            "reasons": rejects.REASONS,
        }
        if self.log:
            found["log"] = LOG
        if self.valid:
            found["valid"] = pa.schema([field.with_nullable(True) for field in INPUTS[self.table]])
        if self.profiling is not None:
            found["profile"] = self.profiling.schema
        return found

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        sums = {
            "counts": _Sum(self._add_counts),
            "rejects": _Sum(rejects.merge_rejects),
            "reasons": _Sum(rejects.add_reasons),
        }
        profile = None if self.profiling is None else _Profile(self.profiling)
        for rows in gather_batches(batches):
            (batch,) = rows.to_batches()
            keeps = find_valid_rows(self.table, batch)
            canonical = batch.drop_columns([REJECTED]) if REJECTED in batch.schema.names else batch
            sums["counts"].add(self._count_rows(canonical, keeps))
            if keeps is not None:
                lost = make_quarantine(self.table, batch, keeps)
                yield "quarantine", lost
                sums["rejects"].add(rejects.build_rejects(self.table, canonical, keeps))
                sums["reasons"].add(rejects.build_reasons(lost))
                canonical = canonical.filter(pa.array(keeps))
            if canonical.num_rows:
                yield from self._emit_valid(canonical)
                if profile is not None:
                    yield from profile.add(canonical)
        if profile is not None:
            yield from profile.finish()
        for name, of in sums.items():
            yield from ((name, batch) for batch in of.total().to_batches())

    def _emit_valid(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the outputs of valid rows."""
        if self.log:
            yield "log", make_log_rows(self.table, batch)
        if self.valid:
            columns = Columns(self.table, batch)
            schema = self.outputs["valid"]
            yield "valid", pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)

    def _count_rows(self, batch: pa.RecordBatch, keeps: Mask | None) -> pa.Table:
        """Count the rows of a batch."""
        if self.by_ledger:
            return counts.count_rows(self.table, batch, keeps)
        valid = batch.num_rows if keeps is None else int(np.count_nonzero(keeps))
        return _make_numbers({True: valid, False: batch.num_rows - valid})

    def _add_counts(self, parts: Iterable[pa.Table]) -> pa.Table:
        """Add up counts."""
        return counts.merge_counts(self.table, parts) if self.by_ledger else add_numbers(parts)


@dataclass(frozen=True)
class IngestIntake:
    """Splits the rows of table ``quarantine`` that an ingest wrote, if they may belong to a topic, into outputs
    ``counts`` (``NUMBERS``), ``rejects`` and ``reasons``."""

    topic: str

    @property
    def outputs(self) -> Mapping[str, pa.Schema]:
        """The schema of each output."""
        return {"counts": NUMBERS, "rejects": rejects.REJECTS, "reasons": rejects.REASONS}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        sums = {
            "counts": _Sum(add_numbers),
            "rejects": _Sum(rejects.merge_rejects),
            "reasons": _Sum(rejects.add_reasons),
        }
        of_topic = IngestSelection(self.topic)
        for rows in gather_batches(batches):
            lost = of_topic.of(rows.to_batches()[0])
            sums["counts"].add(_make_numbers({False: lost.num_rows}))
            sums["rejects"].add(rejects.make_ingest_rejects(lost))
            sums["reasons"].add(rejects.build_reasons(lost, "ingest: "))
        for name, of in sums.items():
            yield from ((name, batch) for batch in of.total().to_batches())


def add_numbers(parts: Iterable[pa.Table]) -> pa.Table:
    """Add up ``NUMBERS``."""
    rows = pa.concat_tables([NUMBERS.empty_table(), *parts])
    sums = rows.group_by("valid", use_threads=False).aggregate([("count", "sum")])
    return sums.select(["valid", "count_sum"]).rename_columns(NUMBERS.names).sort_by("valid").cast(NUMBERS)


def _make_numbers(found: Mapping[bool, int]) -> pa.Table:
    """Make ``NUMBERS``."""
    return pa.Table.from_pylist([{"valid": valid, "count": n} for valid, n in found.items() if n], NUMBERS)


class _Sum:
    """Adds up small tables as they arrive, some at a time."""

    def __init__(self, add: Callable[[Iterable[pa.Table]], pa.Table]) -> None:
        self._add = add
        self._pending: list[pa.Table] = []
        self._rows, self._enough = 0, _MOST_PENDING

    def add(self, part: pa.Table) -> None:
        self._pending.append(part)
        self._rows += len(part)
        if self._rows >= self._enough:
            self._pending = [self.total()]
            self._rows = len(self._pending[0])
            self._enough = max(_MOST_PENDING, 2 * self._rows)

    def total(self) -> pa.Table:
        return self._add(self._pending)


class _Profile:
    """Collects messages that are profiled together."""

    def __init__(self, profiling: Profiling) -> None:
        self._profiling = profiling
        self._pending: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, messages: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        self._pending.append(select_log_columns(messages, self._profiling.columns))
        self._rows, self._bytes = self._rows + messages.num_rows, self._bytes + self._pending[-1].nbytes
        if self._rows >= self._profiling.rows or self._bytes >= MOST_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._pending:
            yield from (("profile", block) for block in self._profiling.make(self._pending))
        self._pending = []
        self._rows = self._bytes = 0
