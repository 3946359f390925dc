"""Charts of shares: what changed hands at each epoch, and who gets how much under each scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import altair as alt
from markupsafe import Markup

from subreplay.reports import words
from subreplay.reports.canvas import PLOT, figure, marks, places, shorten
from subreplay.reports.canvas import token as colour_token
from subreplay.reports.data import MoveView, ScenarioView
from subreplay.reports.palette import Palette
from subreplay.reports.svg import draw

MOST_EPOCHS = 50
MOST_SCENARIOS = 14
MOST_BARS = 60
HEAD, BODY, GAP = 20, 54, 12  # of a scenario's row


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
        first.scope, first.epoch, first.at, first.cause, sum(m.slots for m in parts), sum(m.share_of_space for m in parts),
        sum(m.keys for m in parts), sum(m.messages for m in parts), sum(m.share_of_traffic for m in parts), parts,
    )  # fmt: skip


def moves_chart(moved: Sequence[Moved], colours: Palette) -> Markup:
    """One column per epoch: the share of the traffic that got another owner, coloured by the new owner."""
    traffic = any(m.share_of_traffic for m in moved)
    shown = moved if len(moved) <= MOST_EPOCHS else _largest(moved)
    step, rows, names, top = PLOT / max(len(shown), 1), [], [], 0.0
    wide = min(step * 0.7, 48)
    for i, group in enumerate(shown):
        base, middle = 0.0, (i + 0.5) * step
        for part in sorted(group.parts, key=lambda m: words.natural(m.after)):
            share = part.share_of_traffic if traffic else part.share_of_space
            rows.append({"x": middle - wide / 2, "x2": middle + wide / 2, "y": base, "y2": base + share,
                         "colour": colours.token(part.after),
                         "tip": f"epoch {part.epoch}, {part.cause}: {words.percent(share)} from {part.before} to {part.after}"})  # fmt: skip
            base += share
        names.append({"x": middle, "text": str(group.epoch)})
        top = max(top, base)
    x = alt.X("x:Q", scale=places(PLOT, horizontal=True), axis=None)
    axis = alt.Axis(title=None, format=".1~%", tickCount=4, grid=True, domain=False, ticks=False)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, top or 1], nice=True), axis=axis)
    bars = marks().mark_rect().encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=colour_token(), description="tip:N")
    text = marks().mark_text(baseline="top", aria=False).encode(x=x, y=alt.value(168), text="text:N")
    return draw(figure([(rows, bars), (names, text)], 160), "Share of the traffic that changed owner, by epoch")


def _largest(moved: Sequence[Moved]) -> list[Moved]:
    """The epochs that moved the most, still in order of time."""
    order = sorted(range(len(moved)), key=lambda i: (-moved[i].share_of_traffic, -moved[i].share_of_space, i))
    return [moved[i] for i in sorted(order[:MOST_EPOCHS])]


def scenario_chart(scenarios: Sequence[ScenarioView], colours: Palette) -> Markup:
    """One row per scenario: a bar per consumer, all rows on one scale, against the line of perfect balance."""
    shown = scenarios[:MOST_SCENARIOS]
    top = max([max([s.perfect_share, *[c.share for c in s.per_consumer]]) for s in shown], default=1.0) or 1.0
    bars, lines, titles, names = [], [], [], []
    for i, scenario in enumerate(shown):
        floor = (i + 1) * (HEAD + BODY + GAP) - GAP
        members = sorted(scenario.per_consumer, key=lambda c: words.natural(c.consumer))[:MOST_BARS]
        step = PLOT / max(len(members), 8)
        for j, row in enumerate(members):
            bars.append({"x": j * step, "x2": j * step + min(step * 0.82, step - 2), "y": floor, "y2": floor - row.share / top * BODY,
                         "colour": colours.token(row.consumer),
                         "tip": f"{scenario.name}, {row.consumer}: {words.percent(row.share)}, {words.times(row.skew)} a balanced share"})  # fmt: skip
        wide = len(members) * step
        lines.append({"x": 0.0, "x2": wide, "y": floor - scenario.perfect_share / top * BODY, "floor": floor})
        titles.append({"y": floor - BODY - 6, "text": shorten(scenario.name, 90)})
        names.append({"y": floor - scenario.perfect_share / top * BODY, "text": words.percent(scenario.perfect_share)})
    height = (HEAD + BODY + GAP) * len(shown)
    x = alt.X("x:Q", scale=places(PLOT, horizontal=True), axis=None)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    floors = alt.Y("floor:Q", scale=places(height), axis=None)
    layers = [
        (bars, marks().mark_rect().encode(x=x, x2="x2:Q", y=y, y2="y2:Q", color=colour_token(), description="tip:N")),
        (lines, marks().mark_rule(aria=False, color="axis").encode(x=x, x2="x2:Q", y=floors)),
        (lines, marks().mark_rule(aria=False, color="ink", strokeDash=[4, 3]).encode(x=x, x2="x2:Q", y=y)),
        (titles, marks().mark_text(align="left", baseline="bottom", aria=False, color="ink", fontWeight=600).encode(
            x=alt.value(0), y=y, text="text:N")),
        (names, marks().mark_text(align="right", baseline="middle", aria=False).encode(x=alt.value(-8), y=y, text="text:N")),
    ]  # fmt: skip
    return draw(figure(layers, height, bottom=4), "Share per consumer under each scenario, against perfect balance")
