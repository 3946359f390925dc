"""The rectangles of a range map cover what the epochs say, with as few rectangles as needed."""

from __future__ import annotations

from itertools import pairwise

from subreplay.reports.data import Band, EpochView, RangeMap, ReportData
from subreplay.reports.rangemap import Rect, majority, owned_share, picture


def epoch(index: int, *bands: Band, left_out: int = 0) -> EpochView:
    start, end = index * 10, index * 10 + 10
    members = tuple(sorted({b.consumer for b in bands if b.consumer}))
    return EpochView(index, "", "", start, end, f"event {index}", members, bands, left_out)


def slots(*epochs: EpochView, high: int = 99) -> RangeMap:
    return RangeMap("t", "slot", 0, high, epochs)


def test_a_band_that_stays_is_one_rectangle() -> None:
    first = epoch(0, Band(0, 49, "a"), Band(50, 99, "b"))
    second = epoch(1, Band(0, 49, "a"), Band(50, 99, "c"))
    drawn = picture(slots(first, second))
    assert drawn.rects == (Rect(0, 20, 0, 50, "a"), Rect(0, 10, 50, 100, "b"), Rect(10, 20, 50, 100, "c"))
    assert (drawn.bands, drawn.hidden, drawn.slots_per_line) == (4, 0, 0)


def test_a_gap_between_epochs_ends_a_rectangle() -> None:
    drawn = picture(slots(epoch(0, Band(0, 99, "a")), epoch(2, Band(0, 99, "a"))))
    assert drawn.rects == (Rect(0, 10, 0, 100, "a"), Rect(20, 30, 0, 100, "a"))


def test_many_bands_become_lines_of_the_majority() -> None:
    bands = tuple(Band(i * 10, i * 10 + 9, "ab"[i % 2]) for i in range(10))
    drawn = picture(slots(epoch(0, *bands)), lines=5)
    assert drawn.slots_per_line == 20
    assert {rect.consumer for rect in drawn.rects} == {"a"}  # a tie in each line goes to the one met first
    assert drawn.rects == (Rect(0, 10, 0, 100, "a"),)
    assert (drawn.bands, drawn.hidden) == (10, 5)


def test_lines_meet_without_gap_or_overlap(large: ReportData) -> None:
    mapped = large.range_maps[0]
    drawn = picture(mapped)
    middle = (mapped.epochs[20].start_us + mapped.epochs[20].end_us) // 2
    column = sorted((r.low, r.high) for r in drawn.rects if r.start <= middle < r.end)
    assert column[0][0] == 0
    assert column[-1][1] == 65_536
    assert all(abs(a[1] - b[0]) < 1e-6 for a, b in pairwise(column))
    assert len(drawn.rects) < 3_000


def test_slots_without_owner_are_nobodys_and_left_out_bands_are_not() -> None:
    assert majority([Band(0, 9, "a")], 0, 99, 10) == ["a", *[None] * 9]
    mapped = slots(epoch(0, Band(0, 9, "a"), Band(12, 19, "b"), left_out=1))
    drawn = picture(mapped, lines=10)
    assert [rect.consumer for rect in drawn.rects] == ["a", "b"]
    assert (drawn.bands, drawn.hidden) == (3, 1)


def test_shares_of_the_slots_add_up_and_name_idle_members() -> None:
    view = EpochView(0, "", "", 0, 1, "", ("a", "b", "c"), (Band(0, 24, "b"), Band(25, 99, "a")), 0)
    assert owned_share(view, 0, 99) == {"a": 0.75, "b": 0.25, "c": 0.0}
