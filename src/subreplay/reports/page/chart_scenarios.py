"""Draw small charts for each scenario: load over time, consumers by share, and moves between consumers.

Charts over time share one scale, so that a reader can compare scenarios.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from subreplay.reports.data import Flow, ScenarioView
from subreplay.reports.formatting import format_percent, format_ratio, format_short_count, natural_sort_key, parse_us
from subreplay.reports.page.chart_canvas import TimeFrame, choose_round_ticks, shorten_name
from subreplay.reports.page.palette import Palette
from subreplay.reports.page.svg import Drawing

MAX_ENDS = 10  # consumers on each side of a flow
REST: Final = "others"
WIDE, TALL, LEFT, RIGHT = 214.0, 64, 40, 6  # sizes of a panel
MEMBERS = 70
NODE, GAP, FLOW = 9, 7, 240  # sizes of a flow chart: a consumer's column, a gap, and the height


@dataclass(frozen=True, slots=True)
class ScenarioPanel:
    """The charts of a scenario; a chart is empty if it has no data."""

    load: str
    members: str
    flow: str


def draw_panels(scenarios: Sequence[ScenarioView], at: TimeFrame, colours: Palette) -> dict[str, ScenarioPanel]:
    """Draw the charts of scenarios, by name."""
    most = max((max(one.messages, one.even) for view in scenarios for one in view.load), default=0.0)
    return {
        view.name: ScenarioPanel(
            draw_load_panel(view, choose_round_ticks(most)[-1], at) if view.load else "",
            draw_members_panel(view, colours) if view.per_consumer else "",
            draw_flow_chart(view, colours) if view.flows else "",
        )
        for view in scenarios
    }


def draw_load_panel(view: ScenarioView, top: float, at: TimeFrame) -> str:
    """Draw the messages of the busiest consumer by window, and the fair share in front of them."""
    drawing = Drawing(TALL, f"{view.name}: the busiest consumer over time", top=8, bottom=18, width=WIDE, left=LEFT,
                      right=RIGHT)  # fmt: skip
    unit, across = TALL / top, WIDE / (at.end - at.start)
    busiest, even = [(0.0, float(TALL))], [(0.0, float(TALL))]
    for one in view.load:
        start, end = ((min(max(parse_us(t), at.start), at.end) - at.start) * across for t in (one.start, one.end))
        for line, height in ((busiest, one.messages), (even, min(one.even, one.messages))):
            if start > line[-1][0] + 0.01:
                line += [(line[-1][0], TALL), (start, TALL)]
            line += [(start, TALL - height * unit), (end, TALL - height * unit)]
    for line, colour in ((busiest, "o2"), (even, "rest")):
        drawing.area([*line, (line[-1][0], TALL)], colour)
    drawing.line(0, WIDE, 0, 0, "grid")
    drawing.line(0, WIDE, TALL, TALL, "axis")
    drawing.text(-5, 0, format_short_count(top), anchor="end")
    drawing.text(-5, TALL, "0", anchor="end")
    ticks = list(at.list_ticks())
    for (instant, text), anchor in zip((ticks[0], ticks[-1]) if len(ticks) > 1 else (), ("start", "end"), strict=False):
        x = (instant - at.start) * across
        drawing.line(x, x, TALL, TALL + 3, "axis")
        near = "start" if x < 20 else "end" if x > WIDE - 20 else "middle"
        drawing.text(x, TALL + 6, text, anchor="middle" if near == "middle" else anchor, stands="top")  # type: ignore[arg-type]
    return drawing.svg()


def draw_members_panel(view: ScenarioView, colours: Palette) -> str:
    """Draw the share of each consumer, the largest first, and the fair share as a line."""
    shares = sorted(view.per_consumer, key=lambda one: -one.share)
    top = max(shares[0].share, view.even_share) or 1.0
    drawing = Drawing(MEMBERS, f"{view.name}: consumers by share", top=8, bottom=6, left=52)
    step = min(drawing.width / len(shares), 48)
    wide = step * (0.8 if step >= 4 else 1)
    for i, one in enumerate(shares):
        tip = f"{one.consumer}: {format_percent(one.share)}, {format_ratio(one.skew)} a balanced share"
        high = one.share / top * MEMBERS
        drawing.box(i * step, i * step + wide, MEMBERS, MEMBERS - high, colours.find_token(one.consumer), tip)
    even = MEMBERS - view.even_share / top * MEMBERS
    drawing.line(0, step * len(shares), MEMBERS, MEMBERS, "axis")
    drawing.line(0, step * len(shares), even, even, "ink", "4,3")
    drawing.text(-6, even, format_percent(view.even_share), anchor="end")
    return drawing.svg()


def draw_flow_chart(view: ScenarioView, colours: Palette) -> str:
    """Draw moves as bands from the previous owners (left) to the new owners (right)."""
    sides = [_select_ends(view.flows, side) for side in ("before", "after")]
    bands: dict[tuple[str, str], float] = defaultdict(float)
    for flow in view.flows:
        ends = [name if name in side else REST for name, side in zip((flow.before, flow.after), sides, strict=True)]
        bands[ends[0], ends[1]] += flow.share
    whole = sum(bands.values())
    unit = (FLOW - GAP * (max(map(len, sides)) - 1)) / whole
    drawing = Drawing(FLOW, f"{view.name}: moves between consumers", top=6, bottom=6, width=300, left=110, right=110)
    tops: list[dict[str, float]] = []
    for side, x in zip(sides, (0.0, drawing.width - NODE), strict=True):
        tops.append(_draw_column(drawing, side, unit, x, colours))
    for before in sides[0]:
        for after in sides[1]:
            share = bands.get((before, after), 0.0)
            if not share:
                continue
            tip = f"{before} → {after}: {format_percent(share)}"
            y, y2 = tops[0][before], tops[1][after]
            token = REST if after == REST else colours.find_token(after)
            drawing.band(NODE, drawing.width - NODE, y, y2, max(share * unit, 0.5), token, tip)
            tops[0][before], tops[1][after] = y + share * unit, y2 + share * unit
    return drawing.svg()


def _select_ends(flows: Sequence[Flow], side: str) -> dict[str, float]:
    """Sum the moves of each consumer on one side, in natural order; small ones are combined as the last entry."""
    sums: dict[str, float] = defaultdict(float)
    for flow in flows:
        sums[getattr(flow, side)] += flow.share
    order = sorted(sums, key=lambda name: (-sums[name], natural_sort_key(name)))
    named = order if len(order) <= MAX_ENDS else order[: MAX_ENDS - 1]
    ends = {name: sums[name] for name in sorted(named, key=natural_sort_key)}
    if len(named) < len(order):
        ends[REST] = sum(sums[name] for name in order[len(named) :])
    return ends


def _draw_column(drawing: Drawing, side: dict[str, float], unit: float, x: float, colours: Palette) -> dict[str, float]:
    """Draw the consumers of one side, and return the top of each."""
    y, tops = 0.0, {}
    for name, share in side.items():
        high = max(share * unit, 1)
        token = REST if name == REST else colours.find_token(name)
        drawing.box(x, x + NODE, y, y + high, token, f"{name}: {format_percent(share)}")
        label = f"{shorten_name(name, 11)} {format_percent(share)}"
        if x:
            drawing.text(x + NODE + 5, y + high / 2, label)
        else:
            drawing.text(-5, y + high / 2, label, anchor="end")
        tops[name] = y
        y += high + GAP
    return tops
