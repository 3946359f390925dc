"""Charts of shares: what changed hands at each epoch, and who gets how much under each scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt

from subreplay.reports import words
from subreplay.reports.data import MoveView, ScenarioConsumer, ScenarioView
from subreplay.reports.page.canvas import PLOT, Layer, Rows, figure, marks, places, shorten
from subreplay.reports.page.canvas import token as colour_token
from subreplay.reports.page.palette import Palette
from subreplay.reports.page.svg import draw

MOST_EPOCHS = 50
MOST_SCENARIOS = 14
MOST_BARS = 60
SCENARIO_LABEL = "Share per consumer under each scenario, against perfect balance"
HEAD, BODY, GAP = 20, 46, 30  # of a scenario's row


class Moved(NamedTuple):
    """All that changed hands at one epoch of one dispatcher."""

    scope: str
    epoch: int
    at: str
    cause: str
    slots: int
    share_of_space: float
    keys: int
    messages: int
    share_of_traffic: float
    parts: tuple[MoveView, ...]


def by_epoch(moves: Sequence[MoveView]) -> tuple[Moved, ...]:
    """Moves summed by dispatcher and epoch, in order of time."""
    groups: dict[tuple[str, str, int], list[MoveView]] = defaultdict(list)
    for move in moves:
        groups[move.at, move.scope, move.epoch].append(move)
    return tuple([_sum(tuple(groups[key])) for key in sorted(groups)])


def _sum(parts: tuple[MoveView, ...]) -> Moved:
    first = parts[0]
    return Moved(
        first.scope,
        first.epoch,
        first.at,
        first.cause,
        slots=sum(m.slots for m in parts),
        share_of_space=sum(m.share_of_space for m in parts),
        keys=sum(m.keys for m in parts),
        messages=sum(m.messages for m in parts),
        share_of_traffic=sum(m.share_of_traffic for m in parts),
        parts=parts,
    )


def moves_chart(moved: Sequence[Moved], colours: Palette) -> str:
    """One column per epoch: the share of the traffic that got another owner, coloured by the new owner."""
    traffic = any(m.share_of_traffic for m in moved)
    shown = moved if len(moved) <= MOST_EPOCHS else _largest(moved)
    step = PLOT / max(len(shown), 1)
    rows = [row for i, group in enumerate(shown) for row in _column(group, (i + 0.5) * step, step, traffic, colours)]
    names = [{"x": (i + 0.5) * step, "text": str(group.epoch)} for i, group in enumerate(shown)]
    top = max((float(row["y2"]) for row in rows), default=0.0)
    x = alt.X("x:Q", scale=places(PLOT, horizontal=True), axis=None)
    axis = alt.Axis(title=None, format=".1~%", tickCount=4, grid=True, domain=False, ticks=False)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top or 1], nice=True), axis=axis)
    text = marks().mark_text(baseline="top", aria=False).encode(x=x, y=alt.value(168), text="text:N")
    return draw(figure([(rows, _bars(x, y)), (names, text)], 160), "Share of the traffic that changed owner, by epoch")


def _column(group: Moved, middle: float, step: float, traffic: bool, colours: Palette) -> Iterator[dict[str, Any]]:
    """One epoch's stacked column."""
    wide, base = min(step * 0.7, 48), 0.0
    for part in sorted(group.parts, key=lambda m: (words.natural(m.after), words.natural(m.before))):
        share = part.share_of_traffic if traffic else part.share_of_space
        tip = f"epoch {part.epoch}, {part.cause}: {words.percent(share)} from {part.before} to {part.after}"
        place = {"x": middle - wide / 2, "x2": middle + wide / 2, "y": base, "y2": base + share}
        yield {**place, "colour": colours.token(part.after), "tip": tip}
        base += share


def _bars(x: alt.X, y: alt.Y) -> alt.Chart:
    drawn: alt.Chart = (
        marks().mark_rect().encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=colour_token(), description="tip:N")
    )
    return drawn


def _largest(moved: Sequence[Moved]) -> list[Moved]:
    """The epochs that moved the most, still in order of time."""
    order = sorted(range(len(moved)), key=lambda i: (-moved[i].share_of_traffic, -moved[i].share_of_space, i))
    return [moved[i] for i in sorted(order[:MOST_EPOCHS])]


def scenario_chart(scenarios: Sequence[ScenarioView], colours: Palette) -> str:
    """One row per scenario, a column per consumer in the same place, against the scenario's line of perfect balance."""
    shown = scenarios[:MOST_SCENARIOS]
    names = sorted({c.consumer for s in shown for c in s.per_consumer}, key=words.natural)[:MOST_BARS]
    column = {name: j for j, name in enumerate(names)}
    step = PLOT / max(8, len(names))
    top = max([1.0, *[_times(c.share, s) for s in shown for c in s.per_consumer]])
    bars, lines, titles = [], [], []
    for i, scenario in enumerate(shown):
        floor = (i + 1) * (HEAD + BODY + GAP) - GAP
        members = [c for c in scenario.per_consumer if c.consumer in column]
        bars += [_bar(c, scenario, column[c.consumer] * step, step, floor, BODY / top, colours) for c in members]
        wide = (max((column[c.consumer] for c in members), default=-1) + 1) * step
        line = {"x": 0.0, "x2": wide, "y": floor - BODY / top, "floor": floor}
        lines.append({**line, "text": words.percent(scenario.even_share)})
        titles.append({"y": floor - BODY - 8, "text": shorten(scenario.name, 90)})
    height = (HEAD + BODY + GAP) * len(shown)
    return draw(figure(_scenario_layers(bars, lines, titles, height), height, bottom=4), SCENARIO_LABEL)


def _scenario_layers(bars: Rows, lines: Rows, titles: Rows, height: float) -> list[Layer]:
    """Bars with their shares below, the floor, the line of balance with its share, and the names."""
    x = alt.X("x:Q", scale=places(PLOT, horizontal=True), axis=None)
    middle = alt.X("middle:Q", scale=places(PLOT, horizontal=True), axis=None)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    floors = alt.Y("floor:Q", scale=places(height), axis=None)
    name = marks().mark_text(align="left", baseline="bottom", aria=False, color="ink", fontWeight=600)
    before = marks().mark_text(align="right", baseline="middle", aria=False)
    below = marks().mark_text(align="center", baseline="top", aria=False, dy=4)
    balance = marks().mark_rule(aria=False, color="ink", strokeDash=[4, 3])
    return [
        (bars, _bars(x, y)),
        (lines, marks().mark_rule(aria=False, color="axis").encode(x=x, x2="x2:Q", y=floors)),
        (lines, balance.encode(x=x, x2="x2:Q", y=y)),
        (titles, name.encode(x=alt.value(0), y=y, text="text:N")),
        (lines, before.encode(x=alt.value(-8), y=y, text="text:N")),
        (bars, below.encode(x=middle, y=y, text="share:N")),
    ]


def _bar(
    row: ScenarioConsumer, scenario: ScenarioView, x: float, step: float, floor: float, unit: float, colours: Palette
) -> dict[str, Any]:
    """One consumer's bar, ``unit`` pixels high for a balanced share, with its share where there is room."""
    wide, share = min(step * 0.74, 56), words.percent(row.share)
    high = _times(row.share, scenario) * unit
    place = {"x": x, "x2": x + wide, "middle": x + wide / 2, "y": floor, "y2": floor - high}
    tip = f"{scenario.name}, {row.consumer}: {share}, {words.times(row.skew)} a balanced share"
    return {**place, "colour": colours.token(row.consumer), "share": share if step >= 44 else "", "tip": tip}


def _times(share: float, scenario: ScenarioView) -> float:
    """A share against the scenario's balanced one."""
    return share / scenario.even_share if scenario.even_share > 0 else 0.0
