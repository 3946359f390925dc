"""Convert integers and instants of source columns. Instants become µs since 1970 in UTC; finer digits are cut off.

A time without a zone is read as UTC. The conversions return an ``Outcome`` as those of ``encoded`` do.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.encoded import Broken, Mask, Outcome, is_present, mask_of, replace_with_null, utf8_text
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import HAPPENED, LARGEST
from subreplay.rows.model.tables import TIME

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EXACT: Final = 2**53
_WHOLE: Final = "an integer must fit 64 bits"
_CORRECT: Final = "correct the value at its source"
_TOO_FAR: Final = "check its unit"

_DAY: Final = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?"
_ZONE: Final = r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)"
_ISO: Final = f"^{_DAY}[T ]{_CLOCK}{_ZONE}?$"
_LOOSE: Final = (
    r"^\s*(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[Tt ]\s*(?P<clock>\d\d:\d\d(?::\d\d)?)"
    r"(?:[.,](?P<fraction>\d{1,9}))?\s*(?P<zone>(?i:Z|UTC|GMT)|[+-]\d\d(?::?\d\d)?)?(?:\[[^\]]*\])?\s*$"
)
_DIGITS: Final = r"^\s*\+?(?P<whole>-?\d{1,19})(?:\.0*)?\s*$"
_DECIMAL: Final = r"^\s*\+?(?P<number>-?\d{1,30}(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)\s*$"
_NEAR: Final = "^(?:19[3-9]|20|21)"  # years that ns since 1970 can count in any zone


def convert_integers(values: pa.Array) -> Outcome:
    """Convert integers, decimals without fraction, and floats that are integers, to int64."""
    kind = values.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return Outcome(values.cast(pa.int64()))
    if pa.types.is_floating(kind):
        values = values.cast(pa.float64())
        legal = pc.and_(pc.equal(pc.floor(values), values), pc.less_equal(pc.abs(values), float(_EXACT)))
        return _convert_legal_integers(
            values, mask_of(legal), "the value must be an integer, and a float is exact only up to 2^53"
        )
    if kind == pa.uint64():
        return _convert_legal_integers(values, mask_of(pc.less_equal(values, pa.scalar(LARGEST, pa.uint64()))), _WHOLE)
    values = values.cast(pa.decimal256(76, 0))
    most = pa.scalar(Decimal(LARGEST), values.type)
    least = pa.scalar(Decimal(-LARGEST - 1), values.type)
    return _convert_legal_integers(
        values, mask_of(pc.and_(pc.less_equal(values, most), pc.greater_equal(values, least))), _WHOLE
    )


def _convert_legal_integers(values: pa.Array, legal: Mask, rule: str) -> Outcome:
    bad = is_present(values) & ~legal
    return Outcome(replace_with_null(values, bad).cast(pa.int64()), _build_broken(bad, rule, _CORRECT))


def parse_integers(text: pa.Array) -> Outcome:
    """Parse integers in decimal digits, as JSON writes numbers of 64 bits.

    >>> parse_integers(pa.array(["17", "-1", "1e3"])).values.to_pylist()
    [17, -1, None]
    """
    read = utf8_text(text)
    found = pc.extract_regex(read.values, _DIGITS)
    bad = is_present(text) & ~mask_of(found.is_valid())
    numbers = convert_integers(pc.struct_field(found, "whole").cast(pa.decimal128(19, 0)))
    return Outcome(
        numbers.values, (*_build_broken(bad, "an integer must be written in digits", _CORRECT), *numbers.broken)
    )


def parse_floats(text: pa.Array) -> Outcome:
    """Parse numbers in decimal digits, with a fraction or an exponent, as in ``1.584680012228E12``."""
    read = utf8_text(text)
    found = pc.extract_regex(read.values, _DECIMAL)
    bad = is_present(text) & ~mask_of(found.is_valid())
    return Outcome(
        pc.struct_field(found, "number").cast(pa.float64()),
        _build_broken(bad, "a number must be written in digits", _CORRECT),
    )


def convert_attempts(values: pa.Array) -> Outcome:
    """Convert attempts, which count from 1, to redelivery counts, which count from 0."""
    whole = parse_integers(values) if pa.types.is_string(values.type) else convert_integers(values)
    return Outcome(pc.subtract(whole.values, 1), whole.broken)


def format_digits(values: pa.Array) -> Outcome:
    """Convert integers to the bytes of their decimal digits."""
    whole = convert_integers(values)
    return Outcome(whole.values.cast(pa.string()).cast(pa.binary()), whole.broken)


def build_epoch_conversion(unit: str) -> Callable[[pa.Array], Outcome]:
    """Return the conversion of numbers or digits that count ``unit`` (s, ms, us, ns) since 1970."""
    return partial(_convert_epoch, per_second=PER_SECOND[unit])


def _convert_epoch(values: pa.Array, per_second: int) -> Outcome:
    if _is_text(values.type):
        return _parse_epoch_text(values, per_second)
    if pa.types.is_floating(values.type):
        return _convert_floats(values.cast(pa.float64()), per_second)
    whole = convert_integers(values)
    times = _convert_to_instants(whole.values, per_second)
    return Outcome(times.values, (*whole.broken, *times.broken))


def convert_timestamps(values: pa.Array) -> Outcome:
    """Convert timestamps of any unit."""
    return _convert_to_instants(values.cast(pa.int64()), PER_SECOND[values.type.unit])


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _parse_epoch_text(values: pa.Array, per_second: int) -> Outcome:
    """Parse times in digits: integers exactly, other numbers as floats."""
    whole = parse_integers(values)
    other = replace_with_null(values, mask_of(whole.values.is_valid()))
    floats = parse_floats(other)
    exact, near = _convert_to_instants(whole.values, per_second), _convert_floats(floats.values, per_second)
    broken = (*floats.broken, *exact.broken, *near.broken)
    return Outcome(pc.coalesce(exact.values, near.values), broken)


def convert_event_times(values: pa.Array) -> Outcome:
    """Convert Pulsar's event times, as timestamps or in ms; 0 means unset and becomes null."""
    times = convert_timestamps(values) if pa.types.is_timestamp(values.type) else build_epoch_conversion("ms")(values)
    unset = mask_of(pc.equal(times.values.cast(pa.int64()), 0))
    return Outcome(replace_with_null(times.values, unset), times.broken)


def extract_epoch_nanos(values: pa.Array) -> Outcome:
    """Return the ns beyond the microsecond (0 to 999) of numbers that count ns since 1970."""
    whole = convert_integers(values)
    return Outcome(_extract_nanos(whole.values), whole.broken)


def extract_nanos(values: pa.Array) -> Outcome:
    """Return the ns beyond the microsecond of timestamps; null where their unit is coarser."""
    if values.type.unit != "ns":
        return Outcome(pa.nulls(len(values), pa.int64()))
    return Outcome(_extract_nanos(values.cast(pa.int64())))


def parse_iso(text: pa.Array) -> Outcome:
    """Parse instants in ISO 8601, such as ``2026-11-20T10:00:00.123Z``. A space may replace the T, the second may have
    up to nine decimals, and the zone is ``Z``, an offset such as ``+01:00``, or missing, which means UTC.

    >>> parse_iso(pa.array(["1970-01-02 01:00+01:00", "2026-02-29T00:00:00Z"])).values.cast(pa.int64()).to_pylist()
    [86400000000, None]
    """
    text = utf8_text(text).values if not pa.types.is_string(text.type) else text
    iso = mask_of(pc.match_substring_regex(text, _ISO))
    if not (iso | ~is_present(text)).all():
        text = pc.if_else(pa.array(iso), text, _normalise_iso(text))
        iso = mask_of(pc.match_substring_regex(text, _ISO))
    near = iso & mask_of(pc.match_substring_regex(text, _NEAR))
    known = replace_with_null(text, ~near)
    zoned = pc.if_else(pc.match_substring_regex(known, f"{_ZONE}$"), known, pc.binary_join_element_wise(known, "Z", ""))
    times = _convert_to_instants(zoned.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()), PER_SECOND["ns"])
    remedy = "write the time as 2026-11-20T10:00:00.123Z"
    strange = _build_broken(is_present(text) & ~iso, "a time in text must be ISO 8601", remedy)
    return Outcome(times.values, (*strange, *_build_broken(iso & ~near, HAPPENED.rule, _CORRECT)))


def _normalise_iso(text: pa.Array) -> pa.Array:
    """Normalise times that are almost ISO 8601, as loggers and spreadsheets write them; other text stays unchanged."""
    found = pc.extract_regex(text, _LOOSE)
    parts = {name: pc.struct_field(found, name) for name in ("year", "month", "day", "clock", "fraction", "zone")}
    day = pc.binary_join_element_wise(parts["year"], parts["month"], parts["day"], "-")
    fraction = pc.if_else(pc.equal(parts["fraction"], ""), "", pc.binary_join_element_wise(".", parts["fraction"], ""))
    zone = pc.if_else(pc.is_in(pc.utf8_upper(parts["zone"]), pa.array(("Z", "UTC", "GMT"))), "Z", parts["zone"])
    whole = pc.binary_join_element_wise(day, "T", parts["clock"], fraction, zone, "")
    return pc.if_else(found.is_valid(), whole, text)


def _convert_to_instants(values: pa.Array, per_second: int) -> Outcome:
    """Convert integers of a unit to instants."""
    counts = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)
    finer, coarser = per_second // PER_SECOND["us"], PER_SECOND["us"] // per_second
    if finer:
        return Outcome(_build_times(counts // finer, is_present(values)))
    bad = np.abs(counts.astype(np.float64)) >= LARGEST // coarser
    return Outcome(
        _build_times(counts * coarser, is_present(values) & ~bad), _build_broken(bad, HAPPENED.rule, _TOO_FAR)
    )


def _convert_floats(values: pa.Array, per_second: int) -> Outcome:
    counts = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.float64)
    micros = counts * (PER_SECOND["us"] / per_second)
    bad = ~(np.abs(micros) < LARGEST)  # includes NaN
    rounded = np.round(np.where(bad, 0, micros)).astype(np.int64)
    return Outcome(_build_times(rounded, is_present(values) & ~bad), _build_broken(bad, HAPPENED.rule, _TOO_FAR))


def _build_times(micros: Ints, valid: Mask) -> pa.Array:
    return pa.array(micros, pa.int64(), mask=~valid).cast(TIME)


def _extract_nanos(values: pa.Array) -> pa.Array:
    counts = np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False), np.int64)
    return pa.array(counts % 1_000, mask=~is_present(values))


def _build_broken(bad: Mask, rule: str, remedy: str) -> tuple[Broken, ...]:
    return (Broken(bad, rule, remedy),) if bad.any() else ()
