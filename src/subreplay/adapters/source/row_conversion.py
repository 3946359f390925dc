"""Convert batches of a source to canonical rows: each row is valid, or rejected with all its reasons."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.source.column_mapping import INSTANT_COLUMNS
from subreplay.adapters.source.mapping_plan import MappingPlan, PlannedColumn
from subreplay.adapters.source.sample_contents import ABSENT
from subreplay.rows.check import Breach, find_breaches
from subreplay.rows.encoded import Mask, as_bytes, mask_of
from subreplay.rows.model.contracts import PARTITION, shorten
from subreplay.rows.model.tables import INPUTS, REJECTED

FILE_COLUMN, LINE_COLUMN, BROKEN_COLUMN = "subreplay_file", "subreplay_line", "subreplay_broken"
HIDDEN_COLUMNS: Final = (FILE_COLUMN, LINE_COLUMN, BROKEN_COLUMN)
"""The columns besides those of a source: the file and line of a row, and why the line could not be read."""
NO_ROW_NUMBER: Final = -1
"""The row number of rows without numbers, as in a table."""
UNSET_TIMES: Final = (-1_000_000, 0)
"""The range (µs) of times that mean a missing time in optional columns: 0 or -1, in any unit."""
_MAX_VALUE_LENGTH: Final = 200
_MAX_MILLIS: Final = 2**53
_DAY: Final = 86_400_000_000  # µs
_LINE: Final = "(line)"
_TWO_PARTITIONS: Final = "the columns with the partition must agree"


class ConvertedBatch(NamedTuple):
    """``rows`` are the valid rows with ``MappingPlan.schema``; with ``rejected`` they are all rows of the batch."""

    rows: pa.RecordBatch
    rejected: tuple[RejectedRow, ...]


def convert_batch(
    batch: pa.RecordBatch, plan: MappingPlan, file: str | pa.Array = "", first_row: int = NO_ROW_NUMBER
) -> ConvertedBatch:
    """Convert the rows of a batch to rows of the plan's table, in order.

    ``file`` is the path of the batch's file, or of each row's file, relative to the folder of the source. A mapping's
    ``path`` reads it, and rejected rows name it. ``first_row`` is the number of the first row in its file, from 1. The
    columns ``HIDDEN_COLUMNS`` of the batch take precedence over both.
    """
    return _BatchConversion(batch, plan, file, first_row).convert()


def build_canonical(batch: pa.RecordBatch, plan: MappingPlan, file: str = "") -> pa.RecordBatch:
    """Convert all rows of a batch to nullable columns of the plan's table, with column ``rejected``.

    Rows that break the contract are rejected (``tables.REJECTED``) and come last. Where a plan keeps all values and the
    batch has no ``HIDDEN_COLUMNS`` columns, only unreadable rows are rejected, and integers beyond a column's range
    become its ends. A later check then finds the rows that break the contract.
    """
    return _BatchConversion(batch, plan, file, NO_ROW_NUMBER).canonical(
        plan.keeps_values and not {*HIDDEN_COLUMNS} & {*batch.schema.names}
    )


def build_canonical_schema(table: str) -> pa.Schema:
    """Build the schema of the canonical rows of a table."""
    return pa.schema([*(field.with_nullable(True) for field in INPUTS[table]), pa.field("rejected", REJECTED)])


class _BatchConversion:
    """One batch during its conversion."""

    def __init__(self, batch: pa.RecordBatch, plan: MappingPlan, file: str | pa.Array, first_row: int) -> None:
        self.plan = plan
        self.count = batch.num_rows
        there = {name: batch.column(name) for name in HIDDEN_COLUMNS if name in batch.schema.names}
        file = there.get(FILE_COLUMN, file)
        one = isinstance(file, str)
        self.files = pa.repeat(pa.scalar(file, pa.string()), self.count) if one else file.cast(pa.string())
        numbers = (
            np.arange(self.count) + first_row if first_row != NO_ROW_NUMBER else np.full(self.count, NO_ROW_NUMBER)
        )
        self.numbers = there.get(LINE_COLUMN, pa.array(numbers))
        self.unread = there.get(BROKEN_COLUMN, pa.nulls(self.count, pa.string()))
        self.source_columns = [
            (each, self.files if each.column is None else each.column.read(batch)) for each in plan.taken
        ]
        self.breaches_found: list[tuple[str, Mask, str, str]] = []  # target column, rows, rule, remedy
        self.columns: dict[str, pa.Array] = {}
        if (breaches_found := mask_of(self.unread.is_valid())).any():
            self.breaches_found.append(
                (_LINE, breaches_found, "the line must be readable", "correct the line, or remove it")
            )

    def convert(self) -> ConvertedBatch:
        bad = self._build_and_check()
        valid = pa.array(~bad)
        columns = [self._select_valid(self.columns[field.name], field, valid, bad) for field in self.plan.schema]
        return ConvertedBatch(
            pa.RecordBatch.from_arrays(columns, schema=self.plan.schema), tuple(self._build_rejected(bad))
        )

    def with_rejected(self, keeps_values: bool) -> tuple[pa.RecordBatch, Mask | None]:
        bad = self._build_and_check()
        schema = pa.schema([field.with_nullable(True) for field in self.plan.schema])
        columns = [self.columns[name] for name in schema.names]
        if bad.any() and not keeps_values:
            kept = pa.array(np.arange(self.count), mask=bad)
            columns = [values.take(kept) for values in columns]
        whole = [
            values if values.type == field.type else values.cast(field.type, safe=False)
            for values, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(whole, schema=schema), ~bad if bad.any() else None

    def canonical(self, keeps_values: bool) -> pa.RecordBatch:
        schema = build_canonical_schema(self.plan.table)
        if keeps_values:
            self.source_columns = [(taken, _clip_millis(taken, values)) for taken, values in self.source_columns]
            bad = self._build()
        else:
            bad = self._build_and_check()
        valid = pa.array(~bad)
        columns = [_cast_clipped(self.columns[name], schema.field(name).type) for name in self.plan.schema.names]
        if not bad.any():
            rejected = pa.nulls(self.count, REJECTED)
            return pa.RecordBatch.from_arrays([*columns, rejected], schema=schema)
        rejected_rows = [_build_rejected_row(each) for each in self._build_rejected(bad)]
        columns = [pa.concat_arrays([of.filter(valid), _build_nulls(of.type, len(rejected_rows))]) for of in columns]
        rejected = pa.array([None] * (self.count - len(rejected_rows)) + rejected_rows, REJECTED)
        return pa.RecordBatch.from_arrays([*columns, rejected], schema=schema)

    def _build_and_check(self) -> Mask:
        """Build and check all columns, and mark the rejected rows."""
        self._build()
        lacks = {*self.plan.lacks, "date"}
        for breach in find_breaches(self.plan.table, self.columns, lacks):
            self._add_breach(breach)
        return self._mark_bad()

    def _build(self) -> Mask:
        """Build all columns, and mark the unreadable rows."""
        for taken, values in self.source_columns:
            self._fill(taken, values)
        for name, value in self.plan.values.items():
            self.columns[name] = pa.repeat(value, self.count)
        for field in self.plan.schema:
            if field.name not in self.columns:
                self.columns[field.name] = self._nulls(field.type)
        self.columns["date"] = self._build_dates()
        return self._mark_bad()

    def _mark_bad(self) -> Mask:
        bad = np.zeros(self.count, np.bool_)
        for _, rows, _, _ in self.breaches_found:
            bad |= rows
        return bad

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return _build_nulls(kind, self.count)

    def _fill(self, taken: PlannedColumn, values: pa.Array) -> None:
        field = INPUTS[self.plan.table].field(taken.fills[0])
        optional = field.nullable and pa.types.is_timestamp(field.type)
        if optional and pa.types.is_string(values.type):
            nothing = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values)), pa.array(ABSENT))
            values = pc.if_else(nothing, None, values)
        outcome = taken.apply(values)
        if optional and pa.types.is_timestamp(outcome.values.type):
            micros = outcome.values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            unset = pc.and_(pc.greater_equal(micros, UNSET_TIMES[0]), pc.less_equal(micros, UNSET_TIMES[1]))
            outcome = outcome._replace(values=pc.if_else(unset, None, outcome.values))
        for breaches_found in outcome.broken:
            self.breaches_found.append(
                (taken.fills[0], breaches_found.rows, breaches_found.rule, breaches_found.remedy)
            )
        for name in taken.fills:
            part = pc.struct_field(outcome.values, name) if taken.parts else outcome.values
            if pa.types.is_null(part.type):
                part = self._nulls(INPUTS[self.plan.table].field(name).type)
            before = self.columns.get(name)
            self.columns[name] = part if before is None else self._merge_partitions(before, part)

    def _merge_partitions(self, one: pa.Array, other: pa.Array) -> pa.Array:
        """Merge the partition from two parts of the source, of which either may be missing."""
        both = pc.and_(pc.not_equal(one, PARTITION.least), pc.not_equal(other, PARTITION.least))
        differ = mask_of(pc.and_(both, pc.not_equal(one, other)))
        if differ.any():
            self.breaches_found.append(
                ("partition", differ, _TWO_PARTITIONS, "map partition, or state it under values")
            )
        return pc.max_element_wise(one, other)

    def _build_dates(self) -> pa.Array:
        """Return the UTC date of each row's instant; null where it has none."""
        times = [self.columns[name] for name in INSTANT_COLUMNS[self.plan.table]]
        micros = pc.coalesce(*times).cast(pa.int64())
        days = np.asarray(pc.fill_null(micros, 0)) // _DAY
        return pa.array(days.astype(np.int32), mask=~mask_of(micros.is_valid())).cast(pa.date32())

    def _add_breach(self, breach: Breach) -> None:
        """Record a breach, except for rows whose value could not be read."""
        unread = np.zeros(self.count, np.bool_)
        for name, rows, _, _ in self.breaches_found:
            if name == _LINE or breach.column in self._find_fills(name):
                unread |= rows
        if (rows := breach.rows & ~unread).any():
            self.breaches_found.append((breach.column, rows, breach.rule, breach.remedy))

    def _find_fills(self, target: str) -> tuple[str, ...]:
        return next((taken.fills for taken in self.plan.taken if target in taken.fills), (target,))

    def _select_valid(self, values: pa.Array, field: pa.Field, valid: pa.Array, bad: Mask) -> pa.Array:
        """Select the values of valid rows and cast them to the type of their column."""
        if bad.any():
            values = values.filter(valid)
        return values if values.type == field.type else values.cast(field.type)

    def _build_rejected(self, bad: Mask) -> Iterator[RejectedRow]:
        if not bad.any():
            return
        rows = np.flatnonzero(bad)
        at = np.cumsum(bad) - 1  # the index of each row among the rejected rows
        texts = {taken: _format_values(taken, values.take(pa.array(rows))) for taken, values in self.source_columns}
        by_column = {name: taken for taken, _ in self.source_columns for name in taken.fills}
        reasons: list[list[Reason]] = [[] for _ in rows]
        files, numbers, unread = (of.take(pa.array(rows)).to_pylist() for of in (self.files, self.numbers, self.unread))
        for name, breaches_found, rule, remedy in self.breaches_found:
            taken = by_column.get(name)
            for one in at[breaches_found].tolist():
                shown = ("null", name) if taken is None else (texts[taken][one], taken.source_name)
                if name == _LINE:
                    shown = f"line {numbers[one]}: {unread[one]}", name
                reasons[one].append(Reason(shown[1], shown[0], rule, remedy))
        columns = {taken.source_name: text for taken, text in texts.items() if taken.column is not None}
        for one in range(len(rows)):
            raw = json.dumps({name: text[one] for name, text in columns.items()}, ensure_ascii=False)
            raw = raw if unread[one] is None else f"({unread[one]})"
            yield RejectedRow(self.plan.table, files[one] or "", numbers[one], shorten(raw), tuple(reasons[one]))


def _build_nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Build an array of nulls. For a struct, ``pa.nulls`` would leave required fields null."""
    return pa.array([None], kind).take(pa.array(np.zeros(rows, np.int64)))


def _clip_millis(taken: PlannedColumn, values: pa.Array) -> pa.Array:
    """Clip numbers of ms to the range of a timestamp; beyond it they are illegal in any case."""
    if taken.how != "epoch_ms":
        return values
    return pc.max_element_wise(
        pc.min_element_wise(values, _MAX_MILLIS, skip_nulls=False), -_MAX_MILLIS, skip_nulls=False
    )


def _cast_clipped(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type, and clip integers to its range."""
    if values.type == kind:
        return values
    if pa.types.is_signed_integer(kind) and kind.bit_width < values.type.bit_width:
        most = 2 ** (kind.bit_width - 1) - 1
        values = pc.max_element_wise(pc.min_element_wise(values, most, skip_nulls=False), -most - 1, skip_nulls=False)
    return values.cast(kind)


def _build_rejected_row(rejected: RejectedRow) -> dict[str, Any]:
    reasons = [reason._asdict() for reason in rejected.reasons]
    return {"file": rejected.file, "row": rejected.row, "raw": rejected.raw, "reasons": reasons}


def _format_values(taken: PlannedColumn, values: pa.Array) -> list[str]:
    """Format values for quarantine; of keys and payloads only the length."""
    kind = values.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text:
        values = as_bytes(values)  # text of a source may be invalid UTF-8
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())  # includes times that Python cannot represent
    try:
        plain = values.to_pylist()
    except ValueError:  # a struct contains invalid text
        return ["(unreadable)"] * len(values)
    return [_format_value(value, text, taken.secret) for value in plain]


def _format_value(value: Any, text: bool, secret: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        if secret:
            return f"({len(value):,} bytes)"
        value = value.decode(errors="replace") if text else base64.b64encode(value).decode()
    return shorten(str(value), _MAX_VALUE_LENGTH) or "(empty)"
