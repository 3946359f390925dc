"""The rectangles of a range map cover what the epochs say, with as few rectangles as needed."""

from __future__ import annotations

from subreplay.reports.data import Band, EpochView
from subreplay.reports.page.range_rectangles import OwnedRectangle, build_rectangles


def epoch(index: int, *bands: Band) -> EpochView:
    start, end = index * 10, index * 10 + 10
    members = tuple(sorted({b.consumer for b in bands if b.consumer}))
    return EpochView(index, "", "", start, end, f"event {index}", members, bands, 0, ())


def test_a_band_that_stays_is_one_rectangle() -> None:
    first = epoch(0, Band(0, 49, "a"), Band(50, 99, "b"))
    second = epoch(1, Band(0, 49, "a"), Band(50, 99, "c"))
    assert build_rectangles((first, second)) == (
        OwnedRectangle(0, 20, 0, 50, "a"), OwnedRectangle(0, 10, 50, 100, "b"), OwnedRectangle(10, 20, 50, 100, "c")
    )  # fmt: skip


def test_a_gap_between_epochs_ends_a_rectangle() -> None:
    drawn = build_rectangles((epoch(0, Band(0, 99, "a")), epoch(2, Band(0, 99, "a"))))
    assert drawn == (OwnedRectangle(0, 10, 0, 100, "a"), OwnedRectangle(20, 30, 0, 100, "a"))
