"""Draw the charts of dispatch replays: latency and backlog of each scenario."""

from __future__ import annotations

import math
from collections.abc import Sequence

from subreplay.reports.dispatch_data import BacklogPoint, DispatchView, Latency
from subreplay.reports.formatting import format_count, format_nanos, format_nanos_or_never, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame, draw_cell, draw_time_axis, format_stretch, shorten_name
from subreplay.reports.page.svg import PLOT, Drawing

MAX_COLUMNS = 90
HEAD, LANE, GAP = 22, 11, 14  # heights in a scenario's row of the latency chart
STRIP, REACH = 84, 54  # heights of a scenario's row and of its highest column in the backlog chart
THIN = 3.0  # minimum width of a bar, in pixels
LANES = (("to_delivered", "at the application", "u3", "u1"), ("to_acked", "acknowledged", "others", "even"))
MICRO, SECOND = 1_000, 1_000_000_000
TICKS = (
    *(MICRO * 10**i for i in range(6)),
    *(SECOND * s for s in (1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000, 8_640_000)),
)

NEVER = 2 * TICKS[-1]  # drawn at the right end of the axis


class DurationScale:
    """A logarithmic axis of durations that begins and ends at a tick."""

    def __init__(self, durations: Sequence[int]) -> None:
        least = min((d for d in durations if d > 0), default=MICRO)
        most = max(durations, default=MICRO)
        first = max((t for t in TICKS[:-1] if t <= least), default=TICKS[0])
        last = min((t for t in TICKS if t >= most and t > first), default=TICKS[-1])
        self.ticks = tuple(t for t in TICKS if first <= t <= last)

    def to_pixel(self, duration: int) -> float:
        """Convert a duration to pixels from the left end; durations outside move to the nearer end."""
        low, high = self.ticks[0], self.ticks[-1]
        return math.log(min(max(duration, low), high) / low) / math.log(high / low) * PLOT


def draw_latency_chart(views: Sequence[DispatchView]) -> str:
    """Draw two bars for each scenario on one logarithmic axis, from the median to the longest latency."""
    durations = [d for v in views for lane in (v.to_delivered, v.to_acked) for d in _list_durations(lane)]
    scale = DurationScale([duration for duration in durations if duration != NEVER])
    row = HEAD + 2 * LANE + GAP
    drawing = Drawing(row * len(views), "Predicted latency under each scenario")
    for tick in scale.ticks:
        drawing.line(scale.to_pixel(tick), scale.to_pixel(tick), 0, drawing.height, "grid")
        drawing.text(scale.to_pixel(tick), drawing.height + 6, format_nanos(tick), anchor="middle", stands="top")
    for i, view in enumerate(views):
        _draw_lanes(drawing, view, i * row + HEAD, scale)
        drawing.text(0, i * row + HEAD - 4, shorten_name(view.name, 90), stands="bottom", ink=True, bold=True)
    return drawing.svg()


def _list_durations(latency: Latency) -> tuple[int, ...]:
    """List the durations of a latency; an infinite one is as long as the chart."""
    found = (latency.p50_ns, latency.p99_ns, latency.max_ns) if latency.count else ()
    return tuple([NEVER if duration is None else duration for duration in found])


def _draw_lanes(drawing: Drawing, view: DispatchView, top: float, scale: DurationScale) -> None:
    """Draw the bars of one scenario, except for events without messages."""
    for lane, (field, word, solid, pale) in enumerate(LANES):
        latency: Latency = getattr(view, field)
        if not latency.count:
            continue
        p50, p99, most = (scale.to_pixel(d) for d in _list_durations(latency))
        high = top + lane * LANE
        tip = f"{view.name}, {word}: half within {format_nanos_or_never(latency.p50_ns)}, 99% within "
        tip += f"{format_nanos_or_never(latency.p99_ns)}, all within {format_nanos_or_never(latency.max_ns)}"
        drawing.box(p99, max(most, p99), high + 3, high + LANE - 4, pale, tip)
        drawing.box(p50, max(p99, p50 + THIN), high + 1, high + LANE - 2, solid, tip)


def draw_backlog_chart(views: Sequence[DispatchView], at: TimeFrame) -> str:
    """Draw a strip for each scenario on one scale: unacknowledged messages, and above them waiting ones."""
    top = max((p.waiting + p.unacked for v in views for p in v.backlog), default=0) or 1
    drawing = Drawing(STRIP * len(views), "Predicted backlog over time under each scenario")
    draw_time_axis(drawing, at)
    for i, view in enumerate(views):
        floor = (i + 1) * STRIP
        drawing.line(0, PLOT, floor - REACH, floor - REACH, "grid")
        _draw_backlog(drawing, view, floor, REACH / top, at)
        drawing.line(0, PLOT, floor, floor, "axis")
        drawing.text(-8, floor - REACH, format_count(top), anchor="end")
        drawing.text(0, floor - REACH - 8, shorten_name(view.name, 90), stands="bottom", ink=True, bold=True)
    return drawing.svg()


def _draw_backlog(drawing: Drawing, view: DispatchView, floor: float, unit: float, at: TimeFrame) -> None:
    """Draw the columns of one strip; each column ends at the next one."""
    points = _select_largest_points(view.backlog, at)
    ends = [*(parse_us(point.at) for point in points[1:]), at.end]
    for point, end in zip(points, ends, strict=True):
        start = parse_us(point.at)
        at_consumer, whole = floor - point.unacked * unit, floor - (point.unacked + point.waiting) * unit
        tip = f"{view.name}: {format_count(point.waiting)} waiting, {format_count(point.unacked)} unacknowledged, "
        tip += format_stretch(start, end)
        if point.unacked:
            draw_cell(drawing, at, start, end, floor, at_consumer, "u2", tip)
        if point.waiting:
            draw_cell(drawing, at, start, end, at_consumer, whole, "o2", tip)


def _select_largest_points(points: Sequence[BacklogPoint], at: TimeFrame) -> list[BacklogPoint]:
    """Select the largest backlog of each column of the picture."""
    largest: dict[int, BacklogPoint] = {}
    for point in points:
        column = (parse_us(point.at) - at.start) * MAX_COLUMNS // (at.end - at.start + 1)
        kept = largest.get(column)
        if kept is None or point.waiting + point.unacked > kept.waiting + kept.unacked:
            largest[column] = point
    return [largest[column] for column in sorted(largest)]
