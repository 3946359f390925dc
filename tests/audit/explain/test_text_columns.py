"""Columns in words are what single values are in words."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from subreplay.audit.explain import text_columns
from subreplay.rows.model import text_format
from subreplay.rows.model.columns import NEVER

TIMES = some.one_of(some.none(), some.integers(0, 4 * 10**18))
INDEXES = some.integers(-1, 2**31 - 1)


@given(some.lists(TIMES), some.booleans())
def test_instants_with_and_without_their_dates(times: list[int | None], dates: bool) -> None:
    reported = text_columns.format_clocks(pa.array(times, pa.int64()), dates).to_pylist()
    assert reported == [None if at is None else text_format.format_clock(at, dates) for at in times]


@pytest.mark.parametrize(("last", "dates"), [(86_399_999_999_999, False), (86_400_000_000_000, True)])
def test_a_run_has_dates_once_it_ends_on_another_day(last: int, dates: bool) -> None:
    assert text_format.has_dates(0, last) == dates


@given(some.lists(some.tuples(some.integers(0, 2**62), some.integers(0, 2**62), INDEXES)))
def test_positions(positions: list[tuple[int, int, int]]) -> None:
    columns = [pa.array([position[i] for position in positions], pa.int64()) for i in range(3)]
    assert text_columns.format_positions(*columns).to_pylist() == [
        text_format.format_position(*position) for position in positions
    ]


def test_a_delivery_is_described_with_its_consumer_and_its_end() -> None:
    reported = text_columns.format_deliveries(
        pa.array(["5:1", "5:2", None]),
        pa.array(["c1", None, "c2"]),
        pa.array([0, 1_000, 0]),
        pa.array([NEVER, 2_000, 0]),
    )
    assert reported.to_pylist() == [
        "5:1 at c1 (00:00:00.000000, never ended)",
        "5:2 at nobody (00:00:00.000001, ended 00:00:00.000002)",
        None,
    ]


@pytest.mark.parametrize(("nanos", "reported"), [(0, "0.000"), (1_020_000_000, "1.020"), (59_999_999_999, "60.000")])
def test_seconds(nanos: int, reported: str) -> None:
    assert text_columns.format_seconds(pa.array([nanos])).to_pylist() == [reported]


def test_a_template_is_filled_row_by_row() -> None:
    given_ = {"who": pa.array(["c1", "c2"]), "what": pa.array(["5:1", None])}
    assert text_columns.fill_template("{who} got {what}.", given_.__getitem__).to_pylist() == [
        "c1 got 5:1.",
        "c2 got .",
    ]
