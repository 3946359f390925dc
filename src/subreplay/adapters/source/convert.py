"""Batches of a source as canonical rows: each row is valid, or rejected with every reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.source.contents import ABSENT
from subreplay.adapters.source.mapping import INSTANTS
from subreplay.adapters.source.plan import Plan, Taken
from subreplay.rows.check import Breach, breaches
from subreplay.rows.encoded import Mask, as_bytes, mask_of
from subreplay.rows.model.contracts import PARTITION, shortened
from subreplay.rows.model.tables import INPUTS, REJECTED

FILE, LINE, BROKEN = "subreplay_file", "subreplay_line", "subreplay_broken"
HIDDEN: Final = (FILE, LINE, BROKEN)
"""Columns beside those of a source: a row's file and line, and why the line could not be read."""
NO_ROW: Final = -1
"""The number of rows that have none, as those of a table."""
UNSET: Final = (-1_000_000, 0)
"""From when to when (µs) times of columns that may be null stand for none: 0 or -1, in any unit."""
_MOST_OF_A_VALUE: Final = 200
_MOST_MS: Final = 2**53
_DAY: Final = 86_400_000_000  # µs
_LINE: Final = "(line)"
_TWO_PARTITIONS: Final = "what tells of a partition tells of one"


class Converted(NamedTuple):
    """``rows`` are valid and have ``Plan.schema``; with ``rejected`` they are all rows of the batch."""

    rows: pa.RecordBatch
    rejected: tuple[Rejected, ...]


def convert(batch: pa.RecordBatch, plan: Plan, file: str | pa.Array = "", first_row: int = NO_ROW) -> Converted:
    """The rows of a batch as those of the plan's table, in order.

    ``file`` is the path of the batch's file, or of the file of each row, relative to the folder of the source: it is
    what ``path`` of a mapping takes apart, and where a rejected row is. ``first_row`` is the number of the first row
    there, from 1. Columns ``HIDDEN`` of the batch go before both.
    """
    return _Batch(batch, plan, file, first_row).converted()


def canonical(batch: pa.RecordBatch, plan: Plan, file: str = "") -> pa.RecordBatch:
    """All rows of a batch as those of the plan's table, of which any column may be null, with column ``rejected``
    (``tables.REJECTED``): rows that break the contract are rejected, and stand behind the others. Where a plan has all
    values as they are, and the batch none of ``HIDDEN``, only rows that cannot be read are rejected, and whole numbers
    beyond a column's ends become these: what breaks the contract is still to be found."""
    return _Batch(batch, plan, file, NO_ROW).canonical(plan.as_they_are and not {*HIDDEN} & {*batch.schema.names})


def canonical_schema(table: str) -> pa.Schema:
    """The columns of ``canonical``."""
    return pa.schema([*(field.with_nullable(True) for field in INPUTS[table]), pa.field("rejected", REJECTED)])


class _Batch:
    """One batch on its way."""

    def __init__(self, batch: pa.RecordBatch, plan: Plan, file: str | pa.Array, first_row: int) -> None:
        self.plan = plan
        self.count = batch.num_rows
        there = {name: batch.column(name) for name in HIDDEN if name in batch.schema.names}
        file = there.get(FILE, file)
        one = isinstance(file, str)
        self.files = pa.repeat(pa.scalar(file, pa.string()), self.count) if one else file.cast(pa.string())
        numbers = np.arange(self.count) + first_row if first_row != NO_ROW else np.full(self.count, NO_ROW)
        self.numbers = there.get(LINE, pa.array(numbers))
        self.unread = there.get(BROKEN, pa.nulls(self.count, pa.string()))
        self.given = [(each, self.files if each.column is None else each.column.of(batch)) for each in plan.taken]
        self.broken: list[tuple[str, Mask, str, str]] = []  # our column, rows, rule, remedy
        self.columns: dict[str, pa.Array] = {}
        if (broken := mask_of(self.unread.is_valid())).any():
            self.broken.append((_LINE, broken, "the line cannot be read", "correct the line, or leave it out"))

    def converted(self) -> Converted:
        bad = self._judged()
        valid = pa.array(~bad)
        columns = [self._narrow(self.columns[field.name], field, valid, bad) for field in self.plan.schema]
        return Converted(pa.RecordBatch.from_arrays(columns, schema=self.plan.schema), tuple(self._rejected(bad)))

    def with_rejected(self, as_they_are: bool) -> tuple[pa.RecordBatch, Mask | None]:
        bad = self._judged()
        schema = pa.schema([field.with_nullable(True) for field in self.plan.schema])
        columns = [self.columns[name] for name in schema.names]
        if bad.any() and not as_they_are:
            kept = pa.array(np.arange(self.count), mask=bad)
            columns = [values.take(kept) for values in columns]
        whole = [
            values if values.type == field.type else values.cast(field.type, safe=False)
            for values, field in zip(columns, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(whole, schema=schema), ~bad if bad.any() else None

    def canonical(self, as_they_are: bool) -> pa.RecordBatch:
        schema = canonical_schema(self.plan.table)
        if as_they_are:
            self.given = [(taken, _in_time(taken, values)) for taken, values in self.given]
            bad = self._made()
        else:
            bad = self._judged()
        valid = pa.array(~bad)
        columns = [_within(self.columns[name], schema.field(name).type) for name in self.plan.schema.names]
        if not bad.any():
            rejected = pa.nulls(self.count, REJECTED)
            return pa.RecordBatch.from_arrays([*columns, rejected], schema=schema)
        lost = [_as_row(each) for each in self._rejected(bad)]
        columns = [pa.concat_arrays([of.filter(valid), _nulls(of.type, len(lost))]) for of in columns]
        rejected = pa.array([None] * (self.count - len(lost)) + lost, REJECTED)
        return pa.RecordBatch.from_arrays([*columns, rejected], schema=schema)

    def _judged(self) -> Mask:
        """Make all columns; which rows are rejected."""
        self._made()
        lacks = {*self.plan.lacks, "date"}
        for breach in breaches(self.plan.table, self.columns, lacks):
            self._judge(breach)
        return self._bad()

    def _made(self) -> Mask:
        """Make all columns; which rows could not be read."""
        for taken, values in self.given:
            self._take(taken, values)
        for name, value in self.plan.values.items():
            self.columns[name] = pa.repeat(value, self.count)
        for field in self.plan.schema:
            if field.name not in self.columns:
                self.columns[field.name] = self._nulls(field.type)
        self.columns["date"] = self._dates()
        return self._bad()

    def _bad(self) -> Mask:
        bad = np.zeros(self.count, np.bool_)
        for _, rows, _, _ in self.broken:
            bad |= rows
        return bad

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return _nulls(kind, self.count)

    def _take(self, taken: Taken, values: pa.Array) -> None:
        field = INPUTS[self.plan.table].field(taken.fills[0])
        optional = field.nullable and pa.types.is_timestamp(field.type)
        if optional and pa.types.is_string(values.type):
            nothing = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(values)), pa.array(ABSENT))
            values = pc.if_else(nothing, None, values)
        outcome = taken.apply(values)
        if optional and pa.types.is_timestamp(outcome.values.type):
            micros = outcome.values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            unset = pc.and_(pc.greater_equal(micros, UNSET[0]), pc.less_equal(micros, UNSET[1]))
            outcome = outcome._replace(values=pc.if_else(unset, None, outcome.values))
        for broken in outcome.broken:
            self.broken.append((taken.fills[0], broken.rows, broken.rule, broken.remedy))
        for name in taken.fills:
            part = pc.struct_field(outcome.values, name) if taken.parts else outcome.values
            if pa.types.is_null(part.type):
                part = self._nulls(INPUTS[self.plan.table].field(name).type)
            before = self.columns.get(name)
            self.columns[name] = part if before is None else self._same_partition(before, part)

    def _same_partition(self, one: pa.Array, other: pa.Array) -> pa.Array:
        """The partition that two parts of the source tell, of which either may know none."""
        both = pc.and_(pc.not_equal(one, PARTITION.least), pc.not_equal(other, PARTITION.least))
        differ = mask_of(pc.and_(both, pc.not_equal(one, other)))
        if differ.any():
            self.broken.append(("partition", differ, _TWO_PARTITIONS, "map partition, or state it under values"))
        return pc.max_element_wise(one, other)

    def _dates(self) -> pa.Array:
        """The UTC day of each row's instant; null where it has none."""
        times = [self.columns[name] for name in INSTANTS[self.plan.table]]
        micros = pc.coalesce(*times).cast(pa.int64())
        days = np.asarray(pc.fill_null(micros, 0)) // _DAY
        return pa.array(days.astype(np.int32), mask=~mask_of(micros.is_valid())).cast(pa.date32())

    def _judge(self, breach: Breach) -> None:
        """Note a breach, but for rows whose value could not even be read."""
        unread = np.zeros(self.count, np.bool_)
        for name, rows, _, _ in self.broken:
            if name == _LINE or breach.column in self._filled_with(name):
                unread |= rows
        if (rows := breach.rows & ~unread).any():
            self.broken.append((breach.column, rows, breach.rule, breach.remedy))

    def _filled_with(self, ours: str) -> tuple[str, ...]:
        return next((taken.fills for taken in self.plan.taken if ours in taken.fills), (ours,))

    def _narrow(self, values: pa.Array, field: pa.Field, valid: pa.Array, bad: Mask) -> pa.Array:
        """The values of valid rows as their column has them."""
        if bad.any():
            values = values.filter(valid)
        return values if values.type == field.type else values.cast(field.type)

    def _rejected(self, bad: Mask) -> Iterator[Rejected]:
        if not bad.any():
            return
        rows = np.flatnonzero(bad)
        at = np.cumsum(bad) - 1  # of each row among the rejected ones
        texts = {taken: _shown(taken, values.take(pa.array(rows))) for taken, values in self.given}
        by_column = {name: taken for taken, _ in self.given for name in taken.fills}
        reasons: list[list[Reason]] = [[] for _ in rows]
        files, numbers, unread = (of.take(pa.array(rows)).to_pylist() for of in (self.files, self.numbers, self.unread))
        for name, broken, rule, remedy in self.broken:
            taken = by_column.get(name)
            for one in at[broken].tolist():
                given = ("null", name) if taken is None else (texts[taken][one], taken.theirs)
                if name == _LINE:
                    given = f"line {numbers[one]}: {unread[one]}", name
                reasons[one].append(Reason(given[1], given[0], rule, remedy))
        columns = {taken.theirs: text for taken, text in texts.items() if taken.column is not None}
        for one in range(len(rows)):
            raw = json.dumps({name: text[one] for name, text in columns.items()}, ensure_ascii=False)
            raw = raw if unread[one] is None else f"({unread[one]})"
            yield Rejected(self.plan.table, files[one] or "", numbers[one], shortened(raw), tuple(reasons[one]))


def _nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Nothing but nulls: of a struct, ``pa.nulls`` would leave fields null that must not be."""
    return pa.array([None], kind).take(pa.array(np.zeros(rows, np.int64)))


def _in_time(taken: Taken, values: pa.Array) -> pa.Array:
    """The values of a column, of ms those that a time can hold: what no time can be becomes one that is legal
    nowhere."""
    if taken.how != "epoch_ms":
        return values
    return pc.max_element_wise(pc.min_element_wise(values, _MOST_MS, skip_nulls=False), -_MOST_MS, skip_nulls=False)


def _within(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a type that holds them; whole numbers beyond its ends become these."""
    if values.type == kind:
        return values
    if pa.types.is_signed_integer(kind) and kind.bit_width < values.type.bit_width:
        most = 2 ** (kind.bit_width - 1) - 1
        values = pc.max_element_wise(pc.min_element_wise(values, most, skip_nulls=False), -most - 1, skip_nulls=False)
    return values.cast(kind)


def _as_row(rejected: Rejected) -> dict[str, Any]:
    reasons = [reason._asdict() for reason in rejected.reasons]
    return {"file": rejected.file, "row": rejected.row, "raw": rejected.raw, "reasons": reasons}


def _shown(taken: Taken, values: pa.Array) -> list[str]:
    """Values as they may leave: of keys and payloads their length only."""
    kind = values.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if text:
        values = as_bytes(values)  # text of a source may be no text
    elif pa.types.is_timestamp(kind):
        values = values.cast(pa.int64())  # one that Python cannot have, too
    try:
        plain = values.to_pylist()
    except ValueError:  # text in a struct that is none
        return ["(unreadable)"] * len(values)
    return [_as_text(value, text, taken.secret) for value in plain]


def _as_text(value: Any, text: bool, secret: bool) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        if secret:
            return f"({len(value):,} bytes)"
        value = value.decode(errors="replace") if text else base64.b64encode(value).decode()
    return shortened(str(value), _MOST_OF_A_VALUE) or "(empty)"
