"""Batches of a source as canonical rows: each row is valid, or rejected with every reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.source.contract import Breach, breaches
from subreplay.adapters.source.encoded import Mask, mask_of
from subreplay.adapters.source.mapping import INSTANTS
from subreplay.adapters.source.plan import Plan, Taken
from subreplay.contracts import PARTITION, shortened

NO_ROW: Final = -1
"""The number of rows that have none, as those of a table."""
_MOST_OF_A_VALUE: Final = 200
_DAY: Final = 86_400_000_000  # µs
_TWO_PARTITIONS: Final = "what tells of a partition tells of one"


class Converted(NamedTuple):
    """``rows`` are valid and have ``Plan.schema``; with ``rejected`` they are all rows of the batch."""

    rows: pa.RecordBatch
    rejected: tuple[Rejected, ...]


def convert(batch: pa.RecordBatch, plan: Plan, file: str | pa.Array = "", first_row: int = NO_ROW) -> Converted:
    """The rows of a batch as those of the plan's table, in order.

    ``file`` is the path of the batch's file, or of the file of each row, relative to the folder of the source: paths are
    taken apart by it, and it names where a rejected row is. ``first_row`` is the number of the first row there, from 1.
    """
    return _Batch(batch, plan, file, first_row).converted()


class _Batch:
    """One batch on its way."""

    def __init__(self, batch: pa.RecordBatch, plan: Plan, file: str | pa.Array, first_row: int) -> None:
        self.plan = plan
        self.count = batch.num_rows
        self.files = pa.repeat(pa.scalar(file, pa.string()), self.count) if isinstance(file, str) else file
        self.first_row = first_row
        self.given = [(each, self.files if each.column is None else each.column.of(batch)) for each in plan.taken]
        self.broken: list[tuple[str, Mask, str, str]] = []  # our column, rows, rule, remedy
        self.columns: dict[str, pa.Array] = {}

    def converted(self) -> Converted:
        schema = self.plan.schema
        for taken, values in self.given:
            self._take(taken, values)
        for name, value in self.plan.values.items():
            self.columns[name] = pa.repeat(value, self.count)
        for field in schema:
            if field.name not in self.columns:
                self.columns[field.name] = pa.array([None] * self.count, field.type)
        self.columns["date"] = self._dates()
        lacks = {*self.plan.lacks, "date"}
        for breach in breaches(self.plan.table, self.columns, lacks):
            self._judge(breach)
        bad = np.zeros(self.count, np.bool_)
        for _, rows, _, _ in self.broken:
            bad |= rows
        valid = pa.array(~bad)
        rows = [self._narrow(self.columns[field.name], field, valid, bad) for field in schema]
        return Converted(pa.RecordBatch.from_arrays(rows, schema=schema), tuple(self._rejected(bad)))

    def _take(self, taken: Taken, values: pa.Array) -> None:
        outcome = taken.apply(values)
        for broken in outcome.broken:
            self.broken.append((taken.fills[0], broken.rows, broken.rule, broken.remedy))
        for name in taken.fills:
            part = pc.struct_field(outcome.values, name) if taken.parts else outcome.values
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
        for fills, rows in [(self._filled_with(name), rows) for name, rows, _, _ in self.broken]:
            if breach.column in fills:
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

    def _rejected(self, bad: Mask) -> Iterable[Rejected]:
        rows = np.flatnonzero(bad)
        reasons: dict[int, list[Reason]] = {row: [] for row in rows.tolist()}
        shown = {id(taken): _Shown(taken, values) for taken, values in self.given}
        by_column = {name: shown[id(taken)] for taken, _ in self.given for name in taken.fills}
        for name, broken, rule, remedy in self.broken:
            value = by_column.get(name)
            for row in np.flatnonzero(broken).tolist():
                told = "null" if value is None else value.text(row)
                reasons[row].append(Reason(name if value is None else value.name, told, rule, remedy))
        for row, why in reasons.items():
            raw = {each.name: each.text(row) for each in shown.values() if each.of_row}
            number = NO_ROW if self.first_row == NO_ROW else self.first_row + row
            yield Rejected(self.plan.table, self.files[row].as_py() or "", number,
                           shortened(json.dumps(raw, ensure_ascii=False)), tuple(why))  # fmt: skip


class _Shown:
    """The values of a column as they may leave: of keys and payloads their length only."""

    def __init__(self, taken: Taken, values: pa.Array) -> None:
        self.name = taken.theirs
        self.of_row = taken.column is not None
        self._secret = taken.secret
        text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        self._text = text
        # text of a source may be no text
        self._values = values.cast(pa.large_binary()) if text else values

    def text(self, row: int) -> str:
        try:
            value: Any = self._values[row].as_py()
        except (ValueError, OverflowError):  # a time that Python cannot have, bytes in a struct that are no text
            return "(unreadable)"
        if value is None:
            return "null"
        if self._secret and isinstance(value, bytes):
            return f"({len(value):,} bytes)"
        if isinstance(value, bytes):
            value = value.decode(errors="replace") if self._text else base64.b64encode(value).decode()
        return shortened(str(value), _MOST_OF_A_VALUE)
