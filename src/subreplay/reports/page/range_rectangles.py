"""Build the rectangles of a range map, as few as the picture needs.

A rectangle spans all epochs with the same owner, so a join changes the colour of only a few stripes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from subreplay.reports.data import EpochView


class OwnedRectangle(NamedTuple):
    """Slots ``[low, high)`` owned by one consumer during ``[start, end)`` microseconds."""

    start: int
    end: int
    low: float
    high: float
    consumer: str | None


def build_rectangles(epochs: Sequence[EpochView]) -> tuple[OwnedRectangle, ...]:
    """Build the rectangles of all bands; equal bands of neighbouring epochs are joined."""
    return tuple(
        _join_rectangles(((e.start_us, e.end_us, b.start, b.end + 1, b.consumer) for b in e.bands) for e in epochs)
    )


def _join_rectangles(columns: Iterable[Iterable[tuple[int, int, float, float, str | None]]]) -> list[OwnedRectangle]:
    """Extend each rectangle over consecutive epochs with an equal rectangle."""
    finished: list[OwnedRectangle] = []
    open_rectangles: dict[tuple[float, float, str | None], OwnedRectangle] = {}
    for column in columns:
        continuing: dict[tuple[float, float, str | None], OwnedRectangle] = {}
        for start, end, low, high, consumer in column:
            before = open_rectangles.pop((low, high, consumer), None)
            if before is not None and before.end != start:
                finished.append(before)
                before = None
            continuing[low, high, consumer] = OwnedRectangle(
                before.start if before else start, end, low, high, consumer
            )
        finished += open_rectangles.values()
        open_rectangles = continuing
    return sorted([*finished, *open_rectangles.values()], key=lambda rect: (rect.low, rect.start))
