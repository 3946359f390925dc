"""The rectangles of a range map: who owned which slots from when to when, as few as the picture needs.

A rectangle goes on over the epochs in which its owner stays, so a join shows as the few stripes that change colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from subreplay.reports.data import EpochView


class Rect(NamedTuple):
    """Slots ``[low, high)`` owned by one consumer during ``[start, end)`` microseconds."""

    start: int
    end: int
    low: float
    high: float
    consumer: str | None


def rectangles(epochs: Sequence[EpochView]) -> tuple[Rect, ...]:
    """Every band, joined over neighbouring epochs in which it is the same."""
    return tuple(_joined(((e.start_us, e.end_us, b.start, b.end + 1, b.consumer) for b in e.bands) for e in epochs))


def _joined(columns: Iterable[Iterable[tuple[int, int, float, float, str | None]]]) -> list[Rect]:
    """Rectangles of consecutive epochs, each lengthened while the next epoch starts with the same one."""
    done: list[Rect] = []
    open_: dict[tuple[float, float, str | None], Rect] = {}
    for column in columns:
        still: dict[tuple[float, float, str | None], Rect] = {}
        for start, end, low, high, consumer in column:
            before = open_.pop((low, high, consumer), None)
            if before is not None and before.end != start:
                done.append(before)
                before = None
            still[low, high, consumer] = Rect(before.start if before else start, end, low, high, consumer)
        done += open_.values()
        open_ = still
    return sorted([*done, *open_.values()], key=lambda rect: (rect.low, rect.start))
