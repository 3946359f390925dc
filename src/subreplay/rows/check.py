"""The contract of the input tables (``rows.model.contracts``) on Arrow arrays: which rows break which rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, mask_of, present
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import LEGAL, OF_A_LEDGER, Legal, Words
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan.rows import Columns

_DAY: Final = 86_400_000_000  # µs


class Breach(NamedTuple):
    """Rows whose column breaks a rule; ``part`` is the field of a struct, or of the structs of a list."""

    column: str
    rows: Mask
    rule: str
    remedy: str
    part: str = ""


def valid(table: str, batch: pa.RecordBatch) -> Mask | None:
    """Which rows keep the contract of their table; None: all do. Columns that the table lacks are null."""
    columns = Columns(table, batch)
    lacks = {f.name for f in INPUTS[table] if f.nullable and f.name not in batch.schema.names}
    bad = np.zeros(batch.num_rows, np.bool_)
    for breach in breaches(table, columns, lacks, unknown=True):
        bad |= breach.rows
    return ~bad if bad.any() else None


def illegal(values: pa.Array, legal: Legal) -> Mask:
    """Rows that are not null and not legal; numbers, times or text as ``legal`` is for."""
    if isinstance(legal, Words):
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


def breaches(table: str, columns: Mapping[str, pa.Array], lacks: set[str], unknown: bool = False) -> Iterator[Breach]:
    """What rows of a table break: required columns but for those in ``lacks``, ranges, and conditions on several
    columns. ``unknown``: a condition that a null leaves open is broken, too, and so is a null within a struct."""
    for field in INPUTS[table]:
        if not field.nullable and field.name not in lacks and columns[field.name].null_count:
            absent = ~mask_of(columns[field.name].is_valid())
            yield Breach(field.name, absent, "the column is required", "fill it at the source")
    for name, legal in LEGAL[table].items():
        column, _, part = name.partition(".")
        if column not in lacks:
            bad = _illegal_within(columns[column], part, legal, unknown) if part else illegal(columns[column], legal)
            if bad.any():
                yield Breach(column, bad, legal.rule, legal.remedy, part)
    for together in _TOGETHER[table]:
        if together.column == "date" and "date" in lacks:
            continue
        broken = together.breaks(columns)
        if unknown and broken.null_count:
            broken = pc.fill_null(broken, True)
        if broken.true_count:
            yield Breach(together.column, mask_of(broken), together.rule, together.remedy)


def nested(kind: pa.DataType, values: pa.Array) -> Outcome:
    """Structs, or lists of them, as a type whose fields must not be null."""
    of_list = pa.types.is_list(values.type)
    inner = pc.list_flatten(values) if of_list else values
    empty = np.zeros(len(inner), np.bool_)
    for at in range(inner.type.num_fields):
        empty |= ~mask_of(pc.struct_field(inner, at).is_valid())
    bad = np.zeros(len(values), np.bool_)
    bad[_rows_of(values)[empty] if of_list else empty & present(values)] = True
    broken = (Broken(bad, "no part of it is null", "fill it at the source"),) if bad.any() else ()
    known = pa.array(~bad & present(values))
    if not of_list:
        parts = [_filled(pc.struct_field(inner, at)) for at in range(inner.type.num_fields)]
        return Outcome(pa.StructArray.from_arrays(parts, fields=list(kind.fields), mask=pc.invert(known)), broken)
    return Outcome(pc.if_else(known, values, None).cast(kind), broken)


def _filled(values: pa.Array) -> pa.Array:
    """Values with something in place of null, which the struct around them hides."""
    return pc.fill_null(values, pa.scalar("" if pa.types.is_string(values.type) else 0, values.type))


def _illegal_within(values: pa.Array, part: str, legal: Legal, unknown: bool) -> Mask:
    """Rows with an illegal field in their struct, or in any struct of their list; ``unknown``: or with none."""
    of_list = pa.types.is_list(values.type)
    structs = pc.list_flatten(values) if of_list else values
    fields = pc.struct_field(structs, part)
    bad = illegal(fields, legal)
    if unknown and fields.null_count:
        bad = bad | (~mask_of(fields.is_valid()) & (True if of_list else mask_of(structs.is_valid())))
    if not of_list:
        return bad
    found = np.zeros(len(values), np.bool_)
    found[_rows_of(values)[bad]] = True
    return found


def _rows_of(lists: pa.Array) -> Ints:
    return np.asarray(pc.list_parent_indices(lists), np.int64)


class _Together(NamedTuple):
    """``breaks`` tells which rows break a condition; null where a null leaves it open."""

    column: str
    breaks: Callable[[Mapping[str, pa.Array]], pa.Array]
    rule: str
    remedy: str


def _beyond_a_ledger(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.and_kleene(pc.not_equal(columns["ledger"], 0), pc.greater(columns["entry"], OF_A_LEDGER.most))


def _outside_its_batch(columns: Mapping[str, pa.Array]) -> pa.Array:
    size = columns["batch_size"]
    return pc.and_kleene(size.is_valid(), pc.greater_equal(columns["batch_index"], size))


def _no_chunk(columns: Mapping[str, pa.Array]) -> pa.Array:
    number, count = columns["chunk_id"], columns["chunk_count"]
    return pc.or_(pc.xor(number.is_null(), count.is_null()), pc.fill_null(pc.greater_equal(number, count), False))


def _since_later(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.and_kleene(columns["since"].is_valid(), pc.greater(columns["since"], columns["at"]))


def _turned(columns: Mapping[str, pa.Array]) -> pa.Array:
    """Rows with a range that ends before it starts; null: with one of which an end is not known, and else none."""
    ranges = columns["ranges"]
    start, end = (pc.struct_field(pc.list_flatten(ranges), name) for name in ("start", "end"))
    turned, rows = pc.greater(start, end), _rows_of(ranges)
    found, open_ = (np.zeros(len(ranges), np.bool_) for _ in range(2))
    found[rows[mask_of(turned)]] = True
    open_[rows[~mask_of(turned.is_valid())]] = True
    return pa.array(found, mask=open_ & ~found)


def _nothing_happened(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.invert(pc.coalesce(columns["delivered_at"], columns["received_at"], columns["acked_at"]).is_valid())


def _nacked_before(columns: Mapping[str, pa.Array]) -> pa.Array:
    return pc.fill_null(pc.greater(columns["delivered_at"], columns["nacked_at"]), False)


def _of_another_day(*times: str) -> Callable[[Mapping[str, pa.Array]], pa.Array]:
    """Whether ``date`` is another day (UTC) than the first of these times that is not null."""

    def breaks(columns: Mapping[str, pa.Array]) -> pa.Array:
        at, date = pc.coalesce(*(columns[name] for name in times)), columns["date"]
        days = np.floor_divide(np.asarray(pc.fill_null(at.cast(pa.int64()), 0)), _DAY)
        differ = np.asarray(pc.fill_null(date.cast(pa.int32()), 0)) != days
        if at.null_count or date.null_count:
            differ &= mask_of(pc.and_(at.is_valid(), date.is_valid()))
        return pa.array(differ)

    return breaks


_OF_A_LEDGER: Final = _Together("entry", _beyond_a_ledger, OF_A_LEDGER.rule, OF_A_LEDGER.remedy)
_TOGETHER: Final[dict[str, tuple[_Together, ...]]] = {
    "messages": (
        _OF_A_LEDGER,
        _Together(
            "batch_index",
            _outside_its_batch,
            "a batch index is less than the size of its batch",
            "correct batch_size, or write null",
        ),
        _Together(
            "chunk_id",
            _no_chunk,
            "a chunk has a number, less than the count of chunks",
            "map chunk_id and chunk_count",
        ),
        _Together(
            "date",
            _of_another_day("publish_time"),
            "date is the UTC day of publish_time",
            "derive it from publish_time",
        ),
    ),
    "membership": (
        _Together(
            "since",
            _since_later,
            "time runs backwards: asked for after it was complete",
            "correct the clock, or leave since null",
        ),
        _Together("ranges", _turned, "a range starts before it ends", "swap its ends"),
        _Together("date", _of_another_day("at"), "date is the UTC day of the event", "derive it from at"),
    ),
    "deliveries": (
        _OF_A_LEDGER,
        _Together(
            "delivered_at",
            _nothing_happened,
            "a delivery happened, or at least its receipt or its ack did",
            "leave the row out",
        ),
        _Together(
            "nacked_at",
            _nacked_before,
            "time runs backwards: redelivery asked for before the delivery",
            "correct the clock, or leave nacked_at null",
        ),
        _Together(
            "date",
            _of_another_day("delivered_at", "received_at", "acked_at"),
            "date is the UTC day of the delivery, else of its receipt, else of its ack",
            "derive it from delivered_at",
        ),
    ),
}
