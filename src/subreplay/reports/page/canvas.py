"""What all charts have in common: one width, one left margin, one time axis, so that they can be read under each other.

Places are computed here and in the charts, never by the drawing engine's measuring of text: a chart looks the same
whatever fonts a machine has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from subreplay.reports import words
from subreplay.reports.data import ReportData

LEFT, PLOT, RIGHT = 92, 758, 50
SIDE = 0.08  # of the data's window: how far before and after it an epoch is still drawn
Rows = Sequence[Mapping[str, Any]]
Layer = tuple[Rows, alt.Chart]
FORMATS = ((3, "%H:%M:%S.%L"), (900, "%H:%M:%S"), (130_000, "%H:%M"), (700_000, "%d %b %H:%M"))


@dataclass(frozen=True, slots=True)
class Frame:
    """The stretch of time that all charts show, in microseconds."""

    start: int
    end: int

    def x(self, micros: int) -> float:
        """An instant on the time axis (milliseconds), moved to the nearer edge where it lies outside."""
        return min(max(micros, self.start), self.end) / 1000

    def pixel(self, micros: int) -> float:
        """The same in pixels from the axis' left end."""
        return (min(max(micros, self.start), self.end) - self.start) / (self.end - self.start) * PLOT

    def shows(self, start: int, end: int) -> bool:
        """Whether any of that stretch is inside."""
        return start < self.end and end > self.start


def frame(data: ReportData) -> Frame:
    """The data's window, and a little more where epochs or load windows begin before it or end after it."""
    start, end = words.parse_us(data.run.window_start), words.parse_us(data.run.window_end)
    begins = [epoch.start_us for mapped in data.range_maps for epoch in mapped.epochs]
    begins += [words.parse_us(point.window_start) for point in data.load]
    ends = [epoch.end_us for mapped in data.range_maps for epoch in mapped.epochs]
    ends += [words.parse_us(point.window_end) for point in data.load]
    side = round((end - start) * SIDE) if end > start else 1_000_000
    low = max(min([start, *begins]), start - side)
    high = min(max([end, *ends]), end + side)
    return Frame(low, max(high, low + 1000))


def marks() -> alt.Chart:
    """A chart without marks or rows: ``figure`` gives each layer its rows by name (altair would check each of them)."""
    return alt.Chart(alt.NamedData(name="rows"))


def time_axis(at: Frame, *, labels: bool = True) -> alt.X:
    """The shared time axis, in UTC."""
    seconds = (at.end - at.start) / 1e6
    text = next((format_ for limit, format_ in FORMATS if seconds < limit), "%d %b")
    axis = alt.Axis(title=None, format=text, tickCount=7, grid=False, labels=labels, ticks=labels)
    return alt.X("x:T", scale=alt.Scale(type="utc", domain=[at.start / 1000, at.end / 1000], nice=False), axis=axis)


def cell(at: Frame, start: int, end: int, low: float, high: float, colour: str, tip: str) -> dict[str, Any]:
    """The row of one rectangle: a stretch of time, from low to high, with its token and its tool tip."""
    return {"x": at.x(start), "x2": at.x(end), "y": low, "y2": high, "colour": colour, "tip": tip}


def cells(at: Frame, y: alt.Y) -> alt.Chart:
    """Rectangles on the time axis, from rows made by ``cell``."""
    place = {"x": time_axis(at), "x2": "x2:T", "y": y, "y2": "y2:Q"}
    drawn: alt.Chart = marks().mark_rect().encode(**place, color=token(), description="tip:N")
    return drawn


def stretch(start: int, end: int) -> str:
    """A stretch of time in words."""
    return f"{words.utc_clock(start)} to {words.utc_clock(end)}"


def places(size: float, *, horizontal: bool = False) -> alt.Scale:
    """A scale on which data are pixels, counted from the top or the left."""
    return alt.Scale(domain=[0, size], nice=False, zero=False, reverse=not horizontal)


COUNTS = "datum.value == 0 ? '0' : format(datum.value, '~s')"


def token(field: str = "colour") -> alt.Color:
    """The colour column as it is: a token of the page's style sheet."""
    return alt.Color(f"{field}:N", scale=None)


def figure(layers: Sequence[Layer], height: float, *, top: int = 8, bottom: int = 26) -> dict[str, Any]:
    """Layers on one plot of the shared width, as a complete Vega-Lite specification."""
    named = [(f"t{i}", rows, chart) for i, (rows, chart) in enumerate(layers)]
    charts = [chart.properties(data=alt.NamedData(name=name)) for name, _, chart in named]
    padding = {"left": LEFT, "right": RIGHT, "top": top, "bottom": bottom}
    whole = alt.layer(*charts).properties(width=PLOT, height=height, padding=padding, autosize={"type": "none"})
    spec: dict[str, Any] = _styled(whole).to_dict()
    spec["datasets"] = {name: [dict(row) for row in rows] for name, rows, _ in named}
    return spec


def _styled(chart: alt.LayerChart | alt.FacetChart) -> alt.LayerChart:
    """Tokens in place of colours; no measured labels."""
    styled: alt.LayerChart = chart.configure_axis(
        domainColor="axis", tickColor="axis", gridColor="grid", labelColor="muted", labelFontSize=11, labelFlush=False,
        labelOverlap=False, labelBound=False, labelPadding=5, tickSize=4, labelFont="sans-serif",
    ).configure_view(strokeOpacity=0).configure_text(font="sans-serif", fontSize=11, color="muted")  # fmt: skip
    return styled


def shorten(text: str, most: int = 17) -> str:
    """A long name with its middle left out."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head + 1 - most :]}"
