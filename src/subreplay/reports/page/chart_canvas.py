"""Draw the common parts of charts: the time axis, value axes and grid lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from subreplay.reports.data import ReportData
from subreplay.reports.formatting import format_utc_clock, parse_us
from subreplay.reports.page.svg import PLOT, Drawing

SIDE = 0.08  # fraction of the data's window that is drawn before and after it
FORMATS = ((3, "%H:%M:%S.%f"), (900, "%H:%M:%S"), (130_000, "%H:%M"), (700_000, "%d %b %H:%M"))
_SECOND, _MINUTE, _HOUR, _DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000  # µs
_STEPS: Final = (
    *(n * 10**power for power in range(3, 6) for n in (1, 2, 5)), *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)), *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * 10**power * _DAY for power in range(5) for n in (1, 2, 5)),
)  # fmt: skip
"""Distances between the ticks of a time axis, in µs."""
_TICKS = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """The time interval that all charts show, in microseconds, and the width of their plot in pixels."""

    start: int
    end: int
    width: float = PLOT

    def to_pixel(self, micros: int) -> float:
        """Convert an instant to pixels from the left end of the axis; instants outside move to the nearer end."""
        return (min(max(micros, self.start), self.end) - self.start) / (self.end - self.start) * self.width

    def is_visible(self, start: int, end: int) -> bool:
        """Return whether any part of an interval is inside."""
        return start < self.end and end > self.start

    def list_ticks(self) -> Iterator[tuple[int, str]]:
        """List about seven round instants inside, or fewer on a narrow plot, with their labels."""
        wanted = _TICKS * self.width / PLOT
        seconds = (self.end - self.start) / _SECOND
        form = next((form for limit, form in FORMATS if seconds < limit), "%d %b")
        step = min(_STEPS, key=lambda step: abs(math.log(step * wanted / (self.end - self.start))))
        for at in range(-(-self.start // step) * step, self.end + 1, step):
            text = (_EPOCH + timedelta(microseconds=at)).strftime(form)
            yield at, text[:-3] if form.endswith("%f") else text


def find_time_frame(data: ReportData) -> TimeFrame:
    """Find the data's window, extended slightly if epochs or load windows exceed it."""
    start, end = parse_us(data.run.window_start), parse_us(data.run.window_end)
    begins = [epoch.start_us for mapped in data.range_maps for epoch in mapped.epochs]
    begins += [parse_us(point.window_start) for point in data.load]
    ends = [epoch.end_us for mapped in data.range_maps for epoch in mapped.epochs]
    ends += [parse_us(point.window_end) for point in data.load]
    side = round((end - start) * SIDE) if end > start else 1_000_000
    low = max(min([start, *begins]), start - side)
    high = min(max([end, *ends]), end + side)
    return TimeFrame(low, max(high, low + 1000))


def draw_time_axis(drawing: Drawing, at: TimeFrame) -> None:
    """Draw the time axis below the plot, in UTC. A selected span will be marked in the plot."""
    floor = drawing.height
    drawing.frame = at.start, at.end
    drawing.line(0, at.width, floor, floor, "axis")
    for instant, text in at.list_ticks():
        x = at.to_pixel(instant)
        drawing.line(x, x, floor, floor + 4, "axis")
        drawing.text(x, floor + 9, text, anchor="middle", stands="top")


def draw_marked_axis(drawing: Drawing, ticks: Iterable[tuple[float, str]]) -> None:
    """Draw an axis left of the plot, with a tick at each height."""
    drawing.line(0, 0, 0, drawing.height, "axis")
    for y, text in ticks:
        drawing.line(-4, 0, y, y, "axis")
        drawing.text(-9, y, text, anchor="end")


def draw_grid(drawing: Drawing, ticks: Iterable[tuple[float, str]]) -> None:
    """Draw a line across the plot at each height, with its label."""
    for y, text in ticks:
        drawing.line(0, PLOT, y, y, "grid")
        drawing.text(-5, y, text, anchor="end")


def choose_round_ticks(most: float) -> list[float]:
    """Choose about four round figures from 0 to at least ``most``.

    >>> choose_round_ticks(870), choose_round_ticks(0.14)
    ([0.0, 200.0, 400.0, 600.0, 800.0, 1000.0], [0.0, 0.05, 0.1, 0.15])
    """
    unit = 10.0 ** math.floor(math.log10(most / 4))
    step = next(n * unit for n in (1, 2, 5, 10) if n * unit >= most / 5)
    return [round(i * step, 12) for i in range(math.ceil(round(most / step, 9)) + 1)]


def draw_cell(
    drawing: Drawing, at: TimeFrame, start: int, end: int, low: float, high: float, colour: str, tip: str
) -> None:
    """Draw an interval as a rectangle between two heights (pixels), with its colour token and tool tip."""
    drawing.box(at.to_pixel(start), at.to_pixel(end), low, high, colour, tip)


def format_dated_clock(micros: int, at: TimeFrame) -> str:
    """Format an instant; with its date if the picture shows more than a day."""
    day = f"{_EPOCH + timedelta(microseconds=micros):%d %b} " if at.end - at.start > _DAY else ""
    return day + format_utc_clock(micros)


def format_stretch(start: int, end: int) -> str:
    """Format an interval."""
    return f"{format_utc_clock(start)} to {format_utc_clock(end)}"


def shorten_name(text: str, most: int = 17) -> str:
    """Shorten a long name by omitting its middle."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"
