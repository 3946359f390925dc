"""Format whole Arrow columns as ``subreplay.rows.model.text_format`` formats single values.

A test compares the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from string import Formatter
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import DAY, NEVER

NO_TEXT: Final = pa.scalar(None, pa.string())


def join_text(*parts: pa.Array | pa.Scalar | str) -> pa.Array:
    """Concatenate parts row by row; null if one of them is null."""
    return pc.binary_join_element_wise(*parts, "")


def fill_missing_text(column: pa.Array, word: str) -> pa.Array:
    """Replace missing and empty texts with a word."""
    return pc.if_else(pc.fill_null(pc.not_equal(column, ""), False), column, word)


def format_numbers(column: pa.Array) -> pa.Array:
    """Format numbers."""
    return column.cast(pa.string())


def format_known_numbers(column: pa.Array, word: str) -> pa.Array:
    """Format numbers, with a word for negative ones."""
    return pc.if_else(pc.less(column, 0), word, format_numbers(column))


def format_clocks(at: pa.Array, dates: bool = False) -> pa.Array:
    """Format times in ns as ``text_format.format_clock`` does."""
    nanos, kind = np.asarray(at.fill_null(0), np.int64), pa.timestamp("us") if dates else pa.time64("us")
    micros = (nanos if dates else nanos % DAY) // 1_000
    return pc.if_else(at.is_valid(), pa.array(micros, kind).cast(pa.string()), NO_TEXT)


def format_known_clocks(at: pa.Array, unknown: str = "", dates: bool = False) -> pa.Array:
    """Format the times that lie between the epoch and ``NEVER``, with a text for others."""
    known = pc.and_(pc.greater(at, 0), pc.less(at, NEVER))
    return pc.if_else(known, format_clocks(at, dates), unknown)


def format_positions(ledger: pa.Array, entry: pa.Array, batch_index: pa.Array) -> pa.Array:
    """Format positions as ``text_format.format_position`` does."""
    inside = pc.if_else(pc.less(batch_index, 0), "", join_text("[", format_numbers(batch_index), "]"))
    return join_text(format_numbers(ledger), ":", format_numbers(entry), inside)


def format_position_structs(message: pa.StructArray) -> pa.Array:
    """Format structs of ledger, entry and batch index; null for a null struct."""
    return format_positions(*(pc.struct_field(message, name) for name in ("ledger", "entry", "batch_index")))


def describe_stuck_owners(holder: pa.StructArray, dates: bool = False) -> pa.Array:
    """Describe the message that the owners of a partition receive repeatedly without getting past it."""
    owners, at = pc.negate(pc.struct_field(holder, "held")), pc.struct_field(holder, "at")
    who = pc.if_else(pc.equal(owners, 1), "its owner", join_text(format_numbers(owners), " owners in turn"))
    return join_text(
        format_position_structs(holder), ", which ", who, " did not get past since ", format_clocks(at, dates)
    )


def format_seconds(nanos: pa.Array) -> pa.Array:
    """Format durations in ns, which are not negative, as seconds with three digits."""
    millis = pc.divide(pc.add(nanos, 500_000), 1_000_000)
    whole = pc.divide(millis, 1_000)
    fraction = pc.subtract(millis, pc.multiply(whole, 1_000))
    return join_text(format_numbers(whole), ".", pc.utf8_lpad(format_numbers(fraction), 3, "0"))


def format_durations(nanos: pa.Array) -> pa.Array:
    """Format durations in their two largest units, ``8 min 12 s``; below a minute as seconds with three digits."""
    whole = pc.divide(pc.add(nanos, 500_000_000), 1_000_000_000)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    text = join_text(format_seconds(nanos), " s")
    for (large, length), (small, part) in reversed([*itertools.pairwise(units)]):
        count = pc.divide(whole, length)
        rest = pc.divide(pc.subtract(whole, pc.multiply(count, length)), part)
        two = join_text(format_numbers(count), f" {large} ", format_numbers(rest), f" {small}")
        text = pc.if_else(pc.greater(count, 0), two, text)
    return text


def format_deliveries(
    where: pa.Array, consumer: pa.Array, at: pa.Array, end_times: pa.Array, dates: bool = False
) -> pa.Array:
    """Format deliveries; null if the position is null."""
    end = pc.if_else(pc.equal(end_times, NEVER), "never ended", join_text("ended ", format_clocks(end_times, dates)))
    return join_text(
        where, " at ", fill_missing_text(consumer, "nobody"), " (", format_clocks(at, dates), ", ", end, ")"
    )


def fill_template(template: str, word: Callable[[str], pa.Array]) -> pa.Array:
    """Fill a template row by row. ``word`` returns the column of a name; null becomes an empty text."""
    parts: list[pa.Array | str] = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(pc.fill_null(word(name), ""))
    return join_text(*parts)
