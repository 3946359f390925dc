"""Check Arrow arrays against the contract of the input tables (``rows.model.contracts``): which rows break which
rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, is_present, mask_of
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import LEDGER_ENTRY, LEGAL, Legal, TextValues
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.table_columns import Columns

_DAY: Final = 86_400_000_000  # µs


class Breach(NamedTuple):
    """Rows whose column breaks a rule. ``part`` is the field of a struct, or of the structs of a list."""

    column: str
    rows: Mask
    rule: str
    remedy: str
    part: str = ""


def find_valid(table: str, batch: pa.RecordBatch) -> Mask | None:
    """Return which rows satisfy the contract of their table; None: all. Columns that the table lacks are null."""
    columns = Columns(table, batch)
    lacks = {f.name for f in INPUTS[table] if f.nullable and f.name not in batch.schema.names}
    bad = np.zeros(batch.num_rows, np.bool_)
    for breach in find_breaches(table, columns, lacks, unknown=True):
        bad |= breach.rows
    return ~bad if bad.any() else None


def find_illegal(values: pa.Array, legal: Legal) -> Mask:
    """Return which rows are neither null nor legal; numbers, times or text, according to ``legal``."""
    if isinstance(legal, TextValues):
        known = pc.is_in(values, pa.array(legal.known)) if legal.known else pc.not_equal(values, "")
        if known.true_count + values.null_count == len(values):
            return np.zeros(len(values), np.bool_)
        return mask_of(values.is_valid()) & ~mask_of(known)
    numbers = values.cast(pa.int64())
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= legal.least and most <= legal.most):
        return np.zeros(len(values), np.bool_)
    return mask_of(pc.or_(pc.less(numbers, legal.least), pc.greater(numbers, legal.most)))


def find_breaches(
    table: str, columns: Mapping[str, pa.Array], lacks: set[str], unknown: bool = False
) -> Iterator[Breach]:
    """Yield the rules that rows of a table break: required columns except ``lacks``, ranges, and conditions on several
    columns.

    ``unknown``: a condition that a null leaves undecided is broken, too, and so is a null within a struct.
    """
    for field in INPUTS[table]:
        if not field.nullable and field.name not in lacks and columns[field.name].null_count:
            absent = ~mask_of(columns[field.name].is_valid())
            yield Breach(field.name, absent, "the column is required", "fill it at the source")
    for name, legal in LEGAL[table].items():
        column, _, part = name.partition(".")
        if column not in lacks:
            bad = (
                _find_illegal_within(columns[column], part, legal, unknown)
                if part
                else find_illegal(columns[column], legal)
            )
            if bad.any():
                yield Breach(column, bad, legal.rule, legal.remedy, part)
    for together in _ROW_CONDITIONS[table]:
        if together.column == "date" and "date" in lacks:
            continue
        broken = together.breaks(columns)
        if unknown and broken.null_count:
            broken = pc.fill_null(broken, True)
        if broken.true_count:
            yield Breach(together.column, mask_of(broken), together.rule, together.remedy)


def check_nested(kind: pa.DataType, values: pa.Array) -> Outcome:
    """Check structs, or lists of them, whose fields must not be null."""
    of_list = pa.types.is_list(values.type)
    inner = pc.list_flatten(values) if of_list else values
    empty = np.zeros(len(inner), np.bool_)
    for at in range(inner.type.num_fields):
        empty |= ~mask_of(pc.struct_field(inner, at).is_valid())
    bad = np.zeros(len(values), np.bool_)
    bad[_get_parent_rows(values)[empty] if of_list else empty & is_present(values)] = True
    broken = (Broken(bad, "no field of the value is null", "fill it at the source"),) if bad.any() else ()
    known = pa.array(~bad & is_present(values))
    if not of_list:
        parts = [_fill_nulls(pc.struct_field(inner, at)) for at in range(inner.type.num_fields)]
        return Outcome(pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=pc.invert(known)), broken)
    return Outcome(pc.if_else(known, values, None).cast(kind), broken)


def _fill_nulls(values: pa.Array) -> pa.Array:
    """Replace nulls, which the enclosing struct hides."""
    return pc.fill_null(values, pa.scalar("" if pa.types.is_string(values.type) else 0, values.type))


def _find_illegal_within(values: pa.Array, part: str, legal: Legal, unknown: bool) -> Mask:
    """Return which rows have an illegal field in their struct, or in any struct of their list; ``unknown``: or a null
    one."""
    of_list = pa.types.is_list(values.type)
    structs = pc.list_flatten(values) if of_list else values
    fields = pc.struct_field(structs, part)
    bad = find_illegal(fields, legal)
    if unknown and fields.null_count:
        bad = bad | (~mask_of(fields.is_valid()) & (True if of_list else mask_of(structs.is_valid())))
    if not of_list:
        return bad
    found = np.zeros(len(values), np.bool_)
    found[_get_parent_rows(values)[bad]] = True
    return found


def _get_parent_rows(lists: pa.Array) -> Ints:
    """Return the row of each element of lists."""
    return np.asarray(pc.list_parent_indices(lists), np.int64)


class _RowCondition(NamedTuple):
    """A condition on several columns. ``breaks`` returns which rows break it; null if a null leaves it undecided."""

    column: str
    breaks: Callable[[Mapping[str, pa.Array]], pa.Array]
    rule: str
    remedy: str


def _is_beyond_ledger(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.and_kleene(pc.not_equal(columns["ledger"], 0), pc.greater(columns["entry"], LEDGER_ENTRY.most))


def _is_outside_batch(columns: Mapping[str, pa.Array]) -> pa.Array:
    size = columns["batch_size"]
    return pc.and_kleene(size.is_valid(), pc.greater_equal(columns["batch_index"], size))


def _is_no_chunk(columns: Mapping[str, pa.Array]) -> pa.Array:
    number, count = columns["chunk_id"], columns["chunk_count"]
    return pc.or_(pc.xor(number.is_null(), count.is_null()), pc.fill_null(pc.greater_equal(number, count), False))


def _is_since_later(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.and_kleene(columns["since"].is_valid(), pc.greater(columns["since"], columns["at"]))


def _has_reversed_range(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return which rows have a range that ends before it starts; null for rows with an unknown end and no such
    range."""
    ranges = columns["ranges"]
    start, end = (pc.struct_field(pc.list_flatten(ranges), name) for name in ("start", "end"))
    turned, rows = pc.greater(start, end), _get_parent_rows(ranges)
    found, open_ = (np.zeros(len(ranges), np.bool_) for _ in range(2))
    found[rows[mask_of(turned)]] = True
    open_[rows[~mask_of(turned.is_valid())]] = True
    return pa.array(found, mask=open_ & ~found)


def _has_no_time(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.invert(pc.coalesce(columns["delivered_at"], columns["received_at"], columns["acked_at"]).is_valid())


def _is_nacked_before_delivery(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.fill_null(pc.greater(columns["delivered_at"], columns["nacked_at"]), False)


def _make_day_check(*times: str) -> Callable[[Mapping[str, pa.Array]], pa.Array]:
    """Return a check that ``date`` is the day (UTC) of the first of these times that is not null."""

    def breaks(columns: Mapping[str, pa.Array]) -> pa.Array:
        at, date = pc.coalesce(*(columns[name] for name in times)), columns["date"]
        days = np.floor_divide(np.asarray(pc.fill_null(at.cast(pa.int64()), 0)), _DAY)
        differ = np.asarray(pc.fill_null(date.cast(pa.int32()), 0)) != days
        if at.null_count or date.null_count:
            differ &= mask_of(pc.and_(at.is_valid(), date.is_valid()))
        return pa.array(differ)

    return breaks


_LEDGER_ENTRY: Final = _RowCondition("entry", _is_beyond_ledger, LEDGER_ENTRY.rule, LEDGER_ENTRY.remedy)
_ROW_CONDITIONS: Final[dict[str, tuple[_RowCondition, ...]]] = {
    "messages": (
        _LEDGER_ENTRY,
        _RowCondition(
            "batch_index",
            _is_outside_batch,
            "a batch index is less than the size of its batch",
            "correct batch_size, or write null",
        ),
        _RowCondition(
            "chunk_id",
            _is_no_chunk,
            "a chunk id is less than the chunk count",
            "map chunk_id and chunk_count",
        ),
        _RowCondition(
            "date",
            _make_day_check("publish_time"),
            "date is the UTC day of publish_time",
            "derive it from publish_time",
        ),
    ),
    "membership": (
        _RowCondition(
            "since",
            _is_since_later,
            "time runs backwards: requested after it was complete",
            "correct the clock, or leave since null",
        ),
        _RowCondition("ranges", _has_reversed_range, "a range starts before it ends", "swap its ends"),
        _RowCondition("date", _make_day_check("at"), "date is the UTC day of the event", "derive it from at"),
    ),
    "deliveries": (
        _LEDGER_ENTRY,
        _RowCondition(
            "delivered_at",
            _has_no_time,
            "a row has the time of a delivery, a receipt or an acknowledgement",
            "leave the row out",
        ),
        _RowCondition(
            "nacked_at",
            _is_nacked_before_delivery,
            "time runs backwards: redelivery requested before the delivery",
            "correct the clock, or leave nacked_at null",
        ),
        _RowCondition(
            "date",
            _make_day_check("delivered_at", "received_at", "acked_at"),
            "date is the UTC day of the delivery, else of its receipt, else of its acknowledgement",
            "derive it from delivered_at",
        ),
    ),
}
