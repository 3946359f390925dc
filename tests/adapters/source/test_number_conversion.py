from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.source.number_conversion import (
    build_epoch_conversion,
    convert_event_times,
    convert_integers,
    convert_timestamps,
    extract_epoch_nanos,
    extract_nanos,
    parse_integers,
    parse_iso,
)

AT = 1_700_000_000_123_456_789  # ns
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def micros(times: pa.Array) -> list[int | None]:
    return times.cast(pa.int64()).to_pylist()


@pytest.mark.parametrize(("unit", "per"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_numbers_since_1970_are_micros_of_their_unit(unit: str, per: int) -> None:
    assert micros(build_epoch_conversion(unit)(pa.array([AT // per, None])).values) == [AT // per * per // 1000, None]


def test_seconds_with_a_fraction() -> None:
    assert micros(build_epoch_conversion("s")(pa.array([1.25, float("nan")])).values) == [1_250_000, None]


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("count", [2**63 - 1, -(2**63), 2**62])
def test_a_number_that_no_time_can_have_is_rejected(unit: str, count: int) -> None:
    outcome = build_epoch_conversion(unit)(pa.array([count]))
    assert outcome.values.to_pylist() == [None]
    assert outcome.broken[0].rows.tolist() == [True]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_are_instants_and_without_zone_they_are_utc(unit: str, zone: str | None) -> None:
    per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    given_times = pa.array([AT // per], pa.int64()).cast(pa.timestamp(unit, zone))
    assert micros(convert_timestamps(given_times).values) == [AT // per * per // 1000]


def test_nanoseconds_are_kept_if_the_source_has_them() -> None:
    assert extract_epoch_nanos(pa.array([AT])).values.to_pylist() == [789]
    assert extract_nanos(pa.array([AT], pa.timestamp("ns"))).values.to_pylist() == [789]
    assert extract_nanos(pa.array([AT // 1000], pa.timestamp("us"))).values.to_pylist() == [None]


def test_an_event_time_of_0_was_never_set() -> None:
    assert micros(convert_event_times(pa.array([0, 5, None])).values) == [None, 5_000, None]


@given(st.datetimes(datetime(1971, 1, 1), datetime(2169, 12, 31)), st.integers(-720, 720), st.sampled_from("T "))
def test_iso_times_are_what_python_reads(at: datetime, minutes: int, between: str) -> None:
    zoned = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    texts = [at.isoformat(between), zoned.isoformat(between)]
    expected = [(each - EPOCH) // timedelta(microseconds=1) for each in (at.replace(tzinfo=timezone.utc), zoned)]
    assert micros(parse_iso(pa.array(texts)).values) == expected


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-02-29T00:00:00Z", "1900-02-29 00:00",
     "2026-13-01T00:00:00Z", "2026-11-20", "2026-11-20T24:00:00Z",
     "2026-11-20T10:00:60Z", "2026-11-20T10:00:00.1234567891Z", "9999-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
     "2026-11-20T10:00:00+25:00"],
)  # fmt: skip
def test_text_that_is_no_time_is_rejected(text: str) -> None:
    outcome = parse_iso(pa.array([text, "2024-02-29T10:00:00.123456789Z"]))
    assert [value is None for value in outcome.values.to_pylist()] == [True, False]
    assert [each.rows.tolist() for each in outcome.broken] == [[True, False]]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([2**63, 7], pa.uint64(), [None, 7]),
        ([Decimal(2**63), Decimal(-(2**63))], pa.decimal128(38, 0), [None, -(2**63)]),
        ([1.0, 1.5, float("inf"), 2.0**60], pa.float64(), [1, None, None, None]),
        ([1, None], pa.int8(), [1, None]),
    ],
)
def test_whole_numbers_of_64_bits(values: list[Any], kind: pa.DataType, expected: list[int | None]) -> None:
    outcome = convert_integers(pa.array(values, kind))
    assert outcome.values.to_pylist() == expected
    named = [any(bool(each.rows[row]) for each in outcome.broken) for row in range(len(values))]
    assert named == [value is None and given is not None for value, given in zip(expected, values, strict=True)]


def test_whole_numbers_in_text() -> None:
    outcome = parse_integers(pa.array(["9223372036854775807", "9223372036854775808", "0x1", "", None, "-3"]))
    assert outcome.values.to_pylist() == [2**63 - 1, None, None, None, None, -3]
