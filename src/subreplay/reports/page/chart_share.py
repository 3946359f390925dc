"""Draw charts of shares: the moves at each epoch, and the load of consumers under each scenario."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from subreplay.reports.data import MoveView, ScenarioConsumer, ScenarioView
from subreplay.reports.formatting import format_percent, format_ratio, natural_sort_key
from subreplay.reports.page.chart_canvas import choose_round_ticks, draw_grid, shorten_name
from subreplay.reports.page.palette import Palette
from subreplay.reports.page.svg import PLOT, Drawing

MAX_EPOCHS = 50
MAX_BARS = 60
SCENARIO_LABEL = "Share per consumer under each scenario, against the fair share"
HEIGHT = 160  # height of the moves chart
HEAD, BODY, GAP = 20, 46, 30  # heights in a scenario's row


class EpochMoves(NamedTuple):
    """All moves at one epoch of one dispatcher."""

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


def group_by_epoch(moves: Sequence[MoveView]) -> tuple[EpochMoves, ...]:
    """Sum the moves by dispatcher and epoch, in order of time."""
    groups: dict[tuple[str, str, int], list[MoveView]] = defaultdict(list)
    for move in moves:
        groups[move.at, move.scope, move.epoch].append(move)
    return tuple([_sum_moves(tuple(groups[key])) for key in sorted(groups)])


def _sum_moves(parts: tuple[MoveView, ...]) -> EpochMoves:
    first = parts[0]
    return EpochMoves(
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


def draw_moves_chart(moved: Sequence[EpochMoves], colours: Palette) -> str:
    """Draw one column per epoch: the share of the traffic that moved, coloured by the new owner."""
    traffic = any(m.share_of_traffic for m in moved)
    shown = moved if len(moved) <= MAX_EPOCHS else _select_largest(moved)
    drawing = Drawing(HEIGHT, "Share of the traffic that changed owner, by epoch")
    ticks = choose_round_ticks(max((_get_share(group, traffic) for group in shown), default=0.0) or 1)
    unit, step = HEIGHT / ticks[-1], PLOT / max(len(shown), 1)
    draw_grid(drawing, [(HEIGHT - tick * unit, f"{tick * 100:.3g}%") for tick in ticks])
    for i, group in enumerate(shown):
        middle = (i + 0.5) * step
        _draw_column(drawing, group, middle, min(step * 0.7, 48), unit, traffic, colours)
        drawing.text(middle, HEIGHT + 8, str(group.epoch), anchor="middle", stands="top")
    return drawing.svg()


def _get_share(group: EpochMoves, traffic: bool) -> float:
    return group.share_of_traffic if traffic else group.share_of_space


def _draw_column(
    drawing: Drawing, group: EpochMoves, middle: float, wide: float, unit: float, traffic: bool, colours: Palette
) -> None:
    """Draw the stacked column of one epoch."""
    base = drawing.height
    for part in sorted(group.parts, key=lambda m: (natural_sort_key(m.after), natural_sort_key(m.before))):
        share = part.share_of_traffic if traffic else part.share_of_space
        tip = f"epoch {part.epoch}, {part.cause}: {format_percent(share)} from {part.before} to {part.after}"
        top = base - share * unit
        drawing.box(middle - wide / 2, middle + wide / 2, base, top, colours.find_token(part.after), tip)
        base = top


def _select_largest(moved: Sequence[EpochMoves]) -> list[EpochMoves]:
    """Select the epochs with the most moves, in order of time."""
    order = sorted(range(len(moved)), key=lambda i: (-moved[i].share_of_traffic, -moved[i].share_of_space, i))
    return [moved[i] for i in sorted(order[:MAX_EPOCHS])]


def draw_scenario_chart(scenarios: Sequence[ScenarioView], colours: Palette) -> str:
    """Draw one row per scenario with a bar for each consumer, and a line at the fair share."""
    names = sorted({c.consumer for s in scenarios for c in s.per_consumer}, key=natural_sort_key)[:MAX_BARS]
    column = {name: j for j, name in enumerate(names)}
    step = PLOT / max(8, len(names))
    top = max([1.0, *[_compute_ratio(c.share, s) for s in scenarios for c in s.per_consumer]])
    height = (HEAD + BODY + GAP) * len(scenarios)
    drawing = Drawing(height, SCENARIO_LABEL, bottom=4)
    for i, scenario in enumerate(scenarios):
        floor = (i + 1) * (HEAD + BODY + GAP) - GAP
        members = [c for c in scenario.per_consumer if c.consumer in column]
        for one in members:
            _draw_bar(drawing, one, scenario, column[one.consumer] * step, step, floor, BODY / top, colours)
        wide = (max((column[c.consumer] for c in members), default=-1) + 1) * step
        even = floor - BODY / top
        drawing.line(0, wide, floor, floor, "axis")
        drawing.line(0, wide, even, even, "ink", "4,3")
        drawing.text(0, floor - BODY - 8, shorten_name(scenario.name, 90), stands="bottom", ink=True, bold=True)
        drawing.text(-8, even, format_percent(scenario.even_share), anchor="end")
    return drawing.svg()


def _draw_bar(
    drawing: Drawing, row: ScenarioConsumer, scenario: ScenarioView, x: float, step: float, floor: float, unit: float,
    colours: Palette,
) -> None:  # fmt: skip
    """Draw the bar of one consumer, ``unit`` pixels high for a fair share, with its share if it fits."""
    wide, share = min(step * 0.74, 56), format_percent(row.share)
    tip = f"{scenario.name}, {row.consumer}: {share}, {format_ratio(row.skew)} a fair share"
    high = _compute_ratio(row.share, scenario) * unit
    drawing.box(x, x + wide, floor, floor - high, colours.find_token(row.consumer), tip)
    if step >= 44:
        drawing.text(x + wide / 2, floor + 4, share, anchor="middle", stands="top")


def _compute_ratio(share: float, scenario: ScenarioView) -> float:
    """Compute the ratio of a share to the scenario's fair share."""
    return share / scenario.even_share if scenario.even_share > 0 else 0.0
