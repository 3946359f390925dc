"""Charts of a dispatch replay: how late messages are under each scenario, and how the backlog grows and drains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from subreplay.reports import words
from subreplay.reports.dispatch_data import BacklogPoint, DispatchView, Latency
from subreplay.reports.page.canvas import (
    PLOT,
    Frame,
    Layer,
    cell,
    cells,
    figure,
    marks,
    places,
    shorten,
    stretch,
    token,
)
from subreplay.reports.page.svg import draw

MOST_SCENARIOS = 14
MOST_COLUMNS = 90
HEAD, LANE, GAP = 22, 11, 14  # of a scenario's row in the latency chart
STRIP, REACH = 84, 54  # of a scenario's row in the backlog chart, and of its highest column
THIN = 3.0  # pixels of a bar whose ends meet
LANES = (("to_delivered", "delivered", "u3", "u1"), ("to_acked", "acknowledged", "others", "even"))
MICRO, SECOND = 1_000, 1_000_000_000
TICKS = (
    *(MICRO * 10**i for i in range(6)),
    *(SECOND * s for s in (1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000, 8_640_000)),
)


class Scale:
    """Durations on a logarithmic axis, from one tick to another."""

    def __init__(self, durations: Sequence[int]) -> None:
        least = min((d for d in durations if d > 0), default=MICRO)
        most = max(durations, default=MICRO)
        first = max((t for t in TICKS[:-1] if t <= least), default=TICKS[0])
        last = min((t for t in TICKS if t >= most and t > first), default=TICKS[-1])
        self.ticks = tuple(t for t in TICKS if first <= t <= last)

    def x(self, duration: int) -> float:
        """Pixels from the axis' left end; what is shorter or longer stands at that end."""
        low, high = self.ticks[0], self.ticks[-1]
        return math.log(min(max(duration, low), high) / low) / math.log(high / low) * PLOT


def latency_chart(views: Sequence[DispatchView]) -> str:
    """Two bars a scenario, on one logarithmic axis: from the median to the 99th percentile, and on to the longest."""
    shown = views[:MOST_SCENARIOS]
    scale = Scale([d for v in shown for lane in (v.to_delivered, v.to_acked) for d in _durations(lane)])
    row = HEAD + 2 * LANE + GAP
    height = row * len(shown)
    bars = [bar for i, view in enumerate(shown) for bar in _lanes(view, i * row + HEAD, scale)]
    names = [{"y": i * row + HEAD - 4, "text": shorten(view.name, 90)} for i, view in enumerate(shown)]
    ticks = [{"x": scale.x(t), "text": words.nanos(t)} for t in scale.ticks]
    x = alt.X("x:Q", scale=places(PLOT, horizontal=True), axis=None)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    line = marks().mark_rule(aria=False, color="grid").encode(x=x, y=alt.value(0), y2=alt.value(height))
    tick = marks().mark_text(baseline="top", aria=False).encode(x=x, y=alt.value(height + 6), text="text:N")
    bar = marks().mark_rect().encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=token(), description="tip:N")
    layers = [(ticks, line), (ticks, tick), (bars, bar), _titles(names, y)]
    return draw(figure(layers, height), "Predicted latency under each scenario")


def _durations(latency: Latency) -> tuple[int, ...]:
    return (latency.p50_ns, latency.p99_ns, latency.max_ns) if latency.count else ()


def _lanes(view: DispatchView, top: float, scale: Scale) -> Iterator[dict[str, Any]]:
    """The bars of one scenario; none for what happened to no message."""
    for lane, (field, word, solid, pale) in enumerate(LANES):
        latency: Latency = getattr(view, field)
        if not latency.count:
            continue
        p50, p99, most = (scale.x(d) for d in _durations(latency))
        high = top + lane * LANE
        tip = f"{view.name}, {word}: half within {words.nanos(latency.p50_ns)}, 99% within "
        tip += f"{words.nanos(latency.p99_ns)}, all within {words.nanos(latency.max_ns)}"
        yield {"x": p99, "x2": max(most, p99), "y": high + 3, "y2": high + LANE - 4, "colour": pale, "tip": tip}
        yield {"x": p50, "x2": max(p99, p50 + THIN), "y": high + 1, "y2": high + LANE - 2, "colour": solid, "tip": tip}


def _titles(names: list[dict[str, Any]], y: alt.Y) -> Layer:
    """The scenarios' names above their rows."""
    name = marks().mark_text(align="left", baseline="bottom", aria=False, color="ink", fontWeight=600)
    return names, name.encode(x=alt.value(0), y=y, text="text:N")


def backlog_chart(views: Sequence[DispatchView], at: Frame) -> str:
    """One strip a scenario, all on one scale: messages at a consumer, and on them those that wait for one."""
    shown = views[:MOST_SCENARIOS]
    top = max((p.waiting + p.unacked for v in shown for p in v.backlog), default=0) or 1
    height = STRIP * len(shown)
    rows = [bar for i, view in enumerate(shown) for bar in _backlog(view, (i + 1) * STRIP, REACH / top, at)]
    labels = [
        {"y": i * STRIP + STRIP - REACH - 8, "text": shorten(view.name, 90), "floor": (i + 1) * STRIP,
         "high": (i + 1) * STRIP - REACH, "most": words.count(top)}
        for i, view in enumerate(shown)
    ]  # fmt: skip
    y = alt.Y("y:Q", scale=places(height), axis=None)
    floor = alt.Y("floor:Q", scale=places(height), axis=None)
    high = alt.Y("high:Q", scale=places(height), axis=None)
    most = marks().mark_text(align="right", baseline="middle", aria=False)
    layers = [
        (labels, marks().mark_rule(aria=False, color="grid").encode(y=high)),
        (rows, cells(at, y)),
        (labels, marks().mark_rule(aria=False, color="axis").encode(y=floor)),
        (labels, most.encode(x=alt.value(-8), y=high, text="most:N")),
        _titles(labels, y),
    ]
    return draw(figure(layers, height), "Predicted backlog over time under each scenario")


def _backlog(view: DispatchView, floor: float, unit: float, at: Frame) -> Iterator[dict[str, Any]]:
    """The columns of one strip, each as wide as the time to the next."""
    points = _few(view.backlog, at)
    ends = [*(words.parse_us(point.at) for point in points[1:]), at.end]
    for point, end in zip(points, ends, strict=True):
        start = words.parse_us(point.at)
        held, whole = floor - point.unacked * unit, floor - (point.unacked + point.waiting) * unit
        tip = f"{view.name}: {words.count(point.waiting)} waiting, {words.count(point.unacked)} unacknowledged, "
        tip += stretch(start, end)
        if point.unacked:
            yield cell(at, start, end, floor, held, "u2", tip)
        if point.waiting:
            yield cell(at, start, end, held, whole, "o2", tip)


def _few(points: Sequence[BacklogPoint], at: Frame) -> list[BacklogPoint]:
    """The largest backlog of every column of the picture."""
    largest: dict[int, BacklogPoint] = {}
    for point in points:
        column = (words.parse_us(point.at) - at.start) * MOST_COLUMNS // (at.end - at.start + 1)
        kept = largest.get(column)
        if kept is None or point.waiting + point.unacked > kept.waiting + kept.unacked:
            largest[column] = point
    return [largest[column] for column in sorted(largest)]
