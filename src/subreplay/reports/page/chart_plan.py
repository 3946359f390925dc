"""Draw the charts of a plan: bars beside a limit, and the front of balance against moves."""

from __future__ import annotations

from itertools import pairwise

from subreplay.reports.formatting import format_percent, format_ratio
from subreplay.reports.page.chart_canvas import choose_round_ticks, shorten_name
from subreplay.reports.page.svg import Drawing
from subreplay.reports.plan_data import FrontPoint, PlanBars, PlanView

WIDE, SIDE = 420, 20  # widths of the plot and of its margins
ROW, HIGH = 40, 13  # heights of a bar with its label, and of the bar
REACH = 4.0  # times the limit; longer bars are cut and end with an arrow
FRONT = 220
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def draw_bars_chart(drawn: PlanBars) -> str:
    """Draw one labelled bar per row, and the limit as a line through all rows."""
    amounts = [amount for bar in drawn.bars for amount in (bar.value, bar.mark) if amount is not None]
    limit = drawn.limit
    most = max([*amounts, limit or 0.0], default=0.0) or 1.0
    if limit:
        most = min(most, limit * REACH)
    unit = WIDE / most
    top = 20 if limit is not None else 2
    drawing = Drawing(ROW * len(drawn.bars), drawn.title, top=top, bottom=4, width=WIDE, left=SIDE, right=SIDE)
    for i, bar in enumerate(drawn.bars):
        foot = (i + 1) * ROW - 6
        drawing.text(0, foot - HIGH - 5, shorten_name(bar.label, 52), stands="bottom", ink=True, bold=bar.marked)
        drawing.text(WIDE, foot - HIGH - 5, bar.value_text, anchor="end", stands="bottom", ink=True, bold=bar.marked)
        if bar.value is not None:
            over = not drawn.bound and _is_over_limit(bar.value, limit)
            long = max(min(bar.value, most) * unit, 1)
            drawing.box(0, long, foot - HIGH, foot, "o2" if over else "u3" if bar.marked else "u2", bar.text)
            if bar.value > most:
                drawing.text(WIDE + 3, foot - HIGH / 2, "▸", ink=True)
        if bar.mark is not None:
            at = min(bar.mark, most) * unit
            drawing.box(at - 1, at + 1, foot - HIGH - 2, foot + 2, "mark", bar.text)
        drawing.line(0, 0, foot - HIGH - 3, foot + 3, "axis")
        if limit is not None:
            drawing.line(min(limit * unit, WIDE), min(limit * unit, WIDE), foot - HIGH - 3, foot + 3, "ink", "3,2")
    if limit is not None:
        at = min(limit * unit, WIDE)
        drawing.text(at, -4, drawn.limit_text, anchor="end" if at > WIDE / 2 else "start", stands="bottom", ink=True)
        drawing.line(at, at, -3, 3, "ink")
    return drawing.svg()


def _is_over_limit(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit * (1 + 1e-9)


def assign_letters(points: tuple[FrontPoint, ...]) -> dict[str, list[FrontPoint]]:
    """Group the points by their letter, in order of balance; points at one position share a letter."""
    positions: dict[tuple[str, str], list[FrontPoint]] = {}
    for point in sorted(points, key=lambda point: (point.skew, point.moves)):
        positions.setdefault((format_ratio(point.skew), format_percent(point.moves)), []).append(point)
    return {LETTERS[i % len(LETTERS)]: found for i, found in enumerate(positions.values())}


def draw_front_chart(points: tuple[FrontPoint, ...]) -> str:
    """Draw balance against moves, with a line that joins the points on the front."""
    drawing = Drawing(FRONT, "Balance against moves", top=22, bottom=44, width=WIDE, left=46, right=SIDE)
    across = choose_round_ticks(max([point.moves for point in points]) or 0.1)
    up = [1 + tick for tick in choose_round_ticks(max(max(point.skew for point in points) - 1, 0.1))]

    def position(point: FrontPoint) -> tuple[float, float]:
        return point.moves / across[-1] * WIDE, FRONT - (point.skew - 1) / (up[-1] - 1) * FRONT

    for tick in up:
        y = FRONT - (tick - 1) / (up[-1] - 1) * FRONT
        drawing.line(0, WIDE, y, y, "grid")
        drawing.text(-5, y, f"{tick:g}×", anchor="end")
    for tick in across:
        drawing.text(tick / across[-1] * WIDE, FRONT + 6, f"{tick * 100:.3g}%", anchor="middle", stands="top")
    drawing.line(0, WIDE, FRONT, FRONT, "axis")
    drawing.text(WIDE / 2, FRONT + 36, "traffic that moves if one joins and the busiest leaves", anchor="middle")
    drawing.text(0, -9, "skew of the worst window", stands="bottom")
    best = sorted(position(point) for point in points if point.on_front and point.ordered)
    for (x, y), (x2, y2) in pairwise(best):
        drawing.line(x, x2, y, y, "ink", "2,3")
        drawing.line(x2, x2, y, y2, "ink", "2,3")
    for letter, found in assign_letters(points).items():
        x, y = position(found[0])
        tip = f"{', '.join(point.label for point in found)}: {format_ratio(found[0].skew)}, "
        tip += f"{format_percent(found[0].moves)} moves, order {'kept' if found[0].ordered else 'not kept'}"
        colour = ("u3" if found[0].on_front else "others") if found[0].ordered else "hollow"
        drawing.dot(x, y, 6, colour, tip)
        drawing.text(x, y - 9, letter, anchor="middle", stands="bottom", ink=True, bold=True)
    return drawing.svg()


def draw_plan_charts(plan: PlanView) -> tuple[str, str]:
    """Draw the bars and the front of a plan; each is empty if the plan has none."""
    bars = draw_bars_chart(plan.bars) if plan.bars is not None and plan.bars.bars else ""
    return bars, draw_front_chart(plan.front) if plan.front else ""
