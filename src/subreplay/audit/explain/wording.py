"""Columns in words: what ``subreplay.rows.model.words`` says of one value, said of a whole Arrow column.

A test holds the two equal.
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

NOTHING: Final = pa.scalar(None, pa.string())


def joined(*parts: pa.Array | pa.Scalar | str) -> pa.Array:
    """Parts one after the other; null where one of them is."""
    return pc.binary_join_element_wise(*parts, "")


def otherwise(column: pa.Array, word: str) -> pa.Array:
    """A text column with a word where there is none."""
    return pc.if_else(pc.fill_null(pc.not_equal(column, ""), False), column, word)


def number(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def numbered(column: pa.Array, word: str) -> pa.Array:
    """A number, or a word where it is negative."""
    return pc.if_else(pc.less(column, 0), word, number(column))


def clock(at: pa.Array, dates: bool = False) -> pa.Array:
    """``words.clock`` of times in ns."""
    nanos, kind = np.asarray(at.fill_null(0), np.int64), pa.timestamp("us") if dates else pa.time64("us")
    micros = (nanos if dates else nanos % DAY) // 1_000
    return pc.if_else(at.is_valid(), pa.array(micros, kind).cast(pa.string()), NOTHING)


def clock_if_known(at: pa.Array, unknown: str = "", dates: bool = False) -> pa.Array:
    """The same where a time lies between the epoch and ``NEVER``."""
    known = pc.and_(pc.greater(at, 0), pc.less(at, NEVER))
    return pc.if_else(known, clock(at, dates), unknown)


def position(ledger: pa.Array, entry: pa.Array, batch_index: pa.Array) -> pa.Array:
    """``words.position``."""
    inside = pc.if_else(pc.less(batch_index, 0), "", joined("[", number(batch_index), "]"))
    return joined(number(ledger), ":", number(entry), inside)


def position_of(message: pa.StructArray) -> pa.Array:
    """The position of a struct of ledger, entry and batch index; null where that is."""
    return position(*(pc.struct_field(message, name) for name in ("ledger", "entry", "batch_index")))


def no_further(holder: pa.StructArray, dates: bool = False) -> pa.Array:
    """The message that the owners of a partition receive again and again, without getting past it."""
    owners, at = pc.negate(pc.struct_field(holder, "held")), pc.struct_field(holder, "at")
    who = pc.if_else(pc.equal(owners, 1), "its owner", joined(number(owners), " owners in turn"))
    return joined(position_of(holder), ", which ", who, " did not get past since ", clock(at, dates))


def seconds(nanos: pa.Array) -> pa.Array:
    """Seconds to three digits, of durations in ns that are not negative."""
    millis = pc.divide(pc.add(nanos, 500_000), 1_000_000)
    whole = pc.divide(millis, 1_000)
    fraction = pc.subtract(millis, pc.multiply(whole, 1_000))
    return joined(number(whole), ".", pc.utf8_lpad(number(fraction), 3, "0"))


def duration(nanos: pa.Array) -> pa.Array:
    """A duration in its two largest units, ``8 min 12 s``; below a minute in seconds to three digits."""
    whole = pc.divide(pc.add(nanos, 500_000_000), 1_000_000_000)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    said = joined(seconds(nanos), " s")
    for (large, length), (small, part) in reversed([*itertools.pairwise(units)]):
        count = pc.divide(whole, length)
        rest = pc.divide(pc.subtract(whole, pc.multiply(count, length)), part)
        two = joined(number(count), f" {large} ", number(rest), f" {small}")
        said = pc.if_else(pc.greater(count, 0), two, said)
    return said


def delivery(where: pa.Array, consumer: pa.Array, at: pa.Array, held_until: pa.Array, dates: bool = False) -> pa.Array:
    """A delivery; null where the position is."""
    end = pc.if_else(pc.equal(held_until, NEVER), "never ended", joined("ended ", clock(held_until, dates)))
    return joined(where, " at ", otherwise(consumer, "nobody"), " (", clock(at, dates), ", ", end, ")")


def filled(template: str, word: Callable[[str], pa.Array]) -> pa.Array:
    """A template with its names replaced, row by row; ``word`` gives the column of a name, null being nothing said."""
    parts: list[pa.Array | str] = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            parts.append(pc.fill_null(word(name), ""))
    return joined(*parts)
