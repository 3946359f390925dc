"""The contract of the input tables (``subreplay.rows.model.contracts``) on Arrow arrays: which rows break which rule.

``engine.spark.read.contracts`` says the same in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, mask_of, present
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import LEGAL, OF_A_LEDGER, Legal, Words
from subreplay.rows.model.tables import INPUTS

Columns = Mapping[str, pa.Array]


class Breach(NamedTuple):
    """Rows whose column breaks a rule."""

    column: str
    rows: Mask
    rule: str
    remedy: str


def illegal(values: pa.Array, legal: Legal) -> Mask:
    """Rows that are not null and not legal; numbers, times or text as ``legal`` is for."""
    if isinstance(legal, Words):
        known = pc.is_in(values, pa.array(legal.known)) if legal.known else pc.not_equal(values, "")
        return mask_of(values.is_valid()) & ~mask_of(known)
    numbers = values.cast(pa.int64())
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= legal.least and most <= legal.most):
        return np.zeros(len(values), np.bool_)
    return mask_of(pc.or_(pc.less(numbers, legal.least), pc.greater(numbers, legal.most)))


def breaches(table: str, columns: Columns, lacks: set[str]) -> Iterator[Breach]:
    """What rows of a table break: required columns but for those in ``lacks``, ranges, and conditions on several."""
    for field in INPUTS[table]:
        if not field.nullable and field.name not in lacks and columns[field.name].null_count:
            absent = ~mask_of(columns[field.name].is_valid())
            yield Breach(field.name, absent, "the column is required", "fill it at the source")
    for name, legal in LEGAL[table].items():
        column, _, inner = name.partition(".")
        if column not in lacks:
            bad = _illegal_within(columns[column], inner, legal) if inner else illegal(columns[column], legal)
            if bad.any():
                yield Breach(column, bad, legal.rule, legal.remedy)
    for together in _TOGETHER[table]:
        bad = together.breaks(columns)
        if bad.any():
            yield Breach(together.column, bad, together.rule, together.remedy)


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


def _illegal_within(values: pa.Array, inner: str, legal: Legal) -> Mask:
    """Rows with an illegal field in their struct, or in any struct of their list."""
    if not pa.types.is_list(values.type):
        return illegal(pc.struct_field(values, inner), legal)
    found = np.zeros(len(values), np.bool_)
    found[_rows_of(values)[illegal(pc.struct_field(pc.list_flatten(values), inner), legal)]] = True
    return found


def _rows_of(lists: pa.Array) -> Ints:
    return np.asarray(pc.list_parent_indices(lists), np.int64)


class _Together(NamedTuple):
    column: str
    breaks: Callable[[Columns], Mask]
    rule: str
    remedy: str


def _later(first: str, second: str) -> Callable[[Columns], Mask]:
    return lambda columns: mask_of(pc.greater(columns[first], columns[second]))


def _beyond_a_ledger(columns: Columns) -> Mask:
    return mask_of(pc.and_(pc.not_equal(columns["ledger"], 0), pc.greater(columns["entry"], OF_A_LEDGER.most)))


def _outside_its_batch(columns: Columns) -> Mask:
    return mask_of(pc.greater_equal(columns["batch_index"], columns["batch_size"]))


def _no_chunk(columns: Columns) -> Mask:
    number, count = columns["chunk_id"], columns["chunk_count"]
    return mask_of(pc.xor(number.is_null(), count.is_null())) | mask_of(pc.greater_equal(number, count))


def _turned(columns: Columns) -> Mask:
    ranges = columns["ranges"]
    found = np.zeros(len(ranges), np.bool_)
    start, end = (pc.struct_field(pc.list_flatten(ranges), name) for name in ("start", "end"))
    found[_rows_of(ranges)[mask_of(pc.greater(start, end))]] = True
    return found


def _nothing_happened(columns: Columns) -> Mask:
    return ~mask_of(pc.coalesce(columns["delivered_at"], columns["received_at"], columns["acked_at"]).is_valid())


_OF_A_LEDGER: Final = _Together("entry", _beyond_a_ledger, OF_A_LEDGER.rule, OF_A_LEDGER.remedy)
_TOGETHER: Final[dict[str, tuple[Any, ...]]] = {
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
    ),
    "membership": (
        _Together(
            "since",
            _later("since", "at"),
            "time runs backwards: asked for after it was complete",
            "correct the clock, or leave since null",
        ),
        _Together("ranges", _turned, "a range starts before it ends", "swap its ends"),
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
            _later("delivered_at", "nacked_at"),
            "time runs backwards: redelivery asked for before the delivery",
            "correct the clock, or leave nacked_at null",
        ),
    ),
}
