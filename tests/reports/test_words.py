"""Numbers and times as people read them, and text that cannot steer a terminal."""

from __future__ import annotations

import pytest

from subreplay.reports.formatting import format_bytes, format_clock, natural_sort_key, parse_us
from subreplay.reports.text_cleaning import clean_strings, escape_unsafe


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-01T12:00:03.120000Z",
        "2026-05-01T12:00:03.12Z",
        "2026-05-01T12:00:03.120",
        "2026-05-01 14:00:03.120000+02:00",
        "2026-05-01T12:00:03.120000000+00:00",
    ],
)
def test_an_instant_is_read_in_every_form(text: str) -> None:
    assert parse_us(text) == 1_777_636_803_120_000


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (123_456_789, "123 MB"), (9e15, "9,000 TB")]
)
def test_sizes_have_units(number: float, text: str) -> None:
    assert format_bytes(number) == text


def test_an_instant_that_is_none_is_shown_as_it_is() -> None:
    assert format_clock("before the data") == "before the data"
    assert format_clock("2026-05-01T12:00:00.5Z", "2026-05-01") == "12:00:00.500"


def test_c2_comes_before_c10() -> None:
    assert sorted(["c10", "c2", "a", "10", "9"], key=natural_sort_key) == ["9", "10", "a", "c2", "c10"]


def test_control_characters_become_visible_everywhere() -> None:
    assert escape_unsafe("a\x00\x1b\n\u202e\u200b") == r"a\x00\x1b\x0a\u202e\u200b"
    assert clean_strings((("\x07", 1), "fine")) == ((r"\x07", 1), "fine")
    assert escape_unsafe("Zürich → 東京") == "Zürich → 東京"
