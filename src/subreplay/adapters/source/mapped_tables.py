"""Tables of many rows whose columns are somebody else's, on the disk of this machine: their rows become ours as they
are read, a piece by each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from subreplay.adapters.source.convert import BROKEN, with_rejected
from subreplay.adapters.source.foreign_tables import Theirs
from subreplay.adapters.source.plan import Plan
from subreplay.rows.encoded import Mask, mask_of
from subreplay.rows.model.columns import MOST_BYTES
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.files import BATCH, WIDE, Files, Piece, width

_VALID: Final = "subreplay_valid"


@dataclass(frozen=True, kw_only=True)
class Mapped(Files):
    """Such a table, whose ``schema`` has its columns as Spark reads them, and ``plan`` what makes ours of them.

    A row that is rejected may be of any run, or, where rejected rows are told ``as_they_are``, of those that ask for
    what it says: as Spark has it, where it makes our columns by itself."""

    schema: pa.Schema
    plan: Plan
    as_they_are: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Our columns that its rows get."""
        return tuple(name for name in INPUTS[self.table].names if name in self.plan.given)

    @cached_property
    def fragments(self) -> tuple[ds.ParquetFileFragment, ...]:
        """All row groups: which of them have rows that are asked for is known when these are made."""
        return tuple(part for file in self.dataset.get_fragments() for part in file.split_by_row_group())

    def count(self) -> int:
        """How many rows are asked for, valid or not."""
        return sum(rows.num_rows for rows, _ in self.checked(self.fragments))

    @cached_property
    def widest(self) -> float:
        """Bytes that a row has in the file in the columns that are read, on average of the worst row group."""
        return max((width(part, self.plan.read) for part in self.fragments), default=0.0)

    def batches(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a piece that are asked for, with those of ``columns`` that they get. Raises as ``Files.batches``
        does."""
        there = [name for name in columns if name in self.plan.given]
        return (rows.select(there) for rows, _ in self.checked(piece))

    def checked(self, piece: Piece) -> Iterator[tuple[pa.RecordBatch, Mask | None]]:
        """The rows of a piece that are asked for, and which are valid; None: all are."""
        return self._converted(piece, self.plan)

    def values(self, column: str) -> set[str]:
        """The distinct values of a text column among the rows that are asked for, by their topic or subscription.
        Others are not looked at where a rejected row has a topic all the same."""
        plan = self.plan.only({column, "subscription", "topic"}) if self.as_they_are else self.plan
        found: set[str] = set()
        for rows, _ in self._converted(self.fragments, plan):
            found.update(value for value in rows.column(column).unique().to_pylist() if value is not None)
        return found

    def _converted(self, piece: Piece, plan: Plan) -> Iterator[tuple[pa.RecordBatch, Mask | None]]:
        read = list(plan.read) or [min(self.schema.names, key=lambda name: max(width(part, [name]) for part in piece))]
        read += [BROKEN] if BROKEN in self.schema.names else []
        schema = pa.schema([self.schema.field(name) for name in read])
        names = [name for name in INPUTS[self.table].names if name in plan.given]
        for part in piece:
            at_a_time = max(1, int(min(BATCH, MOST_BYTES / max(1.0, width(part, read)))))
            batches = part.scanner(
                schema=self.dataset.schema, columns=read, batch_size=at_a_time, batch_readahead=0,
                fragment_readahead=0, use_threads=False,
            ).to_batches()  # fmt: skip
            for batch in batches:
                for theirs in pa.Table.from_batches([batch]).cast(schema).to_batches():
                    rows, valid = with_rejected(theirs, plan, as_they_are=self.as_they_are)
                    found = self._asked_for(rows, valid, names)
                    if found[0].num_rows:
                        yield found

    def _asked_for(
        self, rows: pa.RecordBatch, valid: Mask | None, names: Sequence[str]
    ) -> tuple[pa.RecordBatch, Mask | None]:
        if self.asked is None:
            return rows.select(names), valid
        if valid is None:
            return rows.filter(self.asked).select(names), None
        found = rows.append_column(_VALID, pa.array(valid)).filter(self.asked)
        return found.select(names), mask_of(found.column(_VALID))


def mapped(theirs: Theirs, plan: Plan, *, as_they_are: bool) -> Mapped | None:
    """A table of somebody else as ``plan`` makes it ours. None where Spark has to look: rows are so wide that only few
    may be read at a time, the file of a row tells something, messages are numbered, or
    no row has what it must have."""
    lacks = any(not INPUTS[plan.table].field(name).nullable for name in plan.lacks)
    if lacks or plan.by_path or plan.by_time:
        return None
    found = Mapped(plan.table, theirs.dataset, schema=theirs.schema, plan=plan, as_they_are=as_they_are)
    return found if found.widest <= WIDE else None
