"""Draw charts over time: the load and skew of consumers, and the findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from subreplay.reports.data import LoadPoint
from subreplay.reports.finding_data import FindingPoint
from subreplay.reports.formatting import (
    format_count,
    format_plural,
    format_ratio,
    format_short_count,
    natural_sort_key,
    parse_us,
)
from subreplay.reports.page.chart_canvas import (
    TimeFrame,
    choose_round_ticks,
    draw_cell,
    draw_grid,
    draw_time_axis,
    format_stretch,
    shorten_name,
)
from subreplay.reports.page.palette import Palette
from subreplay.reports.page.svg import PLOT, Drawing

MAX_WINDOWS = 90
MAX_CONSUMERS = 24
MAX_BARS = 3_000  # bars of the findings chart
REST = "others"
LOAD = 220  # height of the load chart
ROW = 18  # height of a row of the skew chart
STRIP = 60  # height of a strip of the findings chart
REACH = 34  # height of its highest column
LEVELS = ((0.5, "u3"), (1 / 1.5, "u2"), (0.8, "u1"), (1.25, "even"), (1.5, "o1"), (2.0, "o2"))


class LoadCell(NamedTuple):
    """The load of one consumer in one interval. ``skew`` is the mean over messages."""

    start: int
    end: int
    consumer: str
    messages: int
    skew: float


class LoadOverTime(NamedTuple):
    """Cells in order, and the number of report windows per cell."""

    cells: tuple[LoadCell, ...]
    windows: int
    width: int  # of a cell, in microseconds


def group_windows(points: Sequence[LoadPoint], most: int = MAX_WINDOWS) -> LoadOverTime:
    """Group the load by window; neighbouring windows are combined if there are too many."""
    spans = sorted({(parse_us(p.window_start), parse_us(p.window_end)) for p in points})
    step = -(-len(spans) // most) or 1
    groups = {start: spans[i // step * step] for i, (start, _) in enumerate(spans)}
    ends = {spans[i][0]: spans[min(i + step, len(spans)) - 1][1] for i in range(0, len(spans), step)}
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for p in points:
        load_cell = sums[groups[parse_us(p.window_start)][0], p.consumer]
        load_cell[0] += p.messages
        load_cell[1] += p.messages * p.skew
    summed = [
        LoadCell(start, ends[start], name, int(n), total / n if n else 0.0)
        for (start, name), (n, total) in sums.items()
    ]
    ordered = tuple(sorted(summed, key=lambda c: (c.start, natural_sort_key(c.consumer))))
    return LoadOverTime(ordered, step, max((end - start for start, end in ends.items()), default=0))


def select_largest_consumers(load: LoadOverTime, most: int = MAX_CONSUMERS) -> tuple[str, ...]:
    """Select the consumers with the most messages, in natural order."""
    sums: dict[str, int] = defaultdict(int)
    for load_cell in load.cells:
        sums[load_cell.consumer] += load_cell.messages
    chosen = sorted(sums, key=lambda name: (-sums[name], natural_sort_key(name)))[:most]
    return tuple(sorted(chosen, key=natural_sort_key))


def draw_load_chart(load: LoadOverTime, at: TimeFrame, colours: Palette) -> str:
    """Draw the messages of each consumer as stacked columns over time."""
    named = set(select_largest_consumers(load))
    shown = _combine_others([c for c in load.cells if c.messages and at.is_visible(c.start, c.end)], named)
    sums: dict[int, int] = defaultdict(int)
    for load_cell in shown:
        sums[load_cell.start] += load_cell.messages
    drawing = Drawing(LOAD, "Messages per consumer over time, stacked")
    ticks = choose_round_ticks(max(sums.values(), default=1))
    unit = LOAD / ticks[-1]
    draw_grid(drawing, [(LOAD - tick * unit, format_short_count(tick)) for tick in ticks])
    draw_time_axis(drawing, at)
    tops: dict[int, int] = defaultdict(int)
    for load_cell in sorted(shown, key=lambda c: (c.start, c.consumer not in named, natural_sort_key(c.consumer))):
        base, top = tops[load_cell.start], tops[load_cell.start] + load_cell.messages
        tops[load_cell.start] = top
        colour = colours.find_token(load_cell.consumer) if load_cell.consumer in named else REST
        messages = format_plural(load_cell.messages, "message")
        tip = f"{load_cell.consumer}: {messages}, {format_stretch(load_cell.start, load_cell.end)}"
        draw_cell(drawing, at, load_cell.start, load_cell.end, LOAD - base * unit, LOAD - top * unit, colour, tip)
    return drawing.svg()


def find_skew_level(skew: float) -> str:
    """Find the colour token of a skew: even from 0.8 to 1.25, then three steps up and down."""
    return next((name for limit, name in LEVELS if skew < limit), "o3")


def _combine_others(cells: Sequence[LoadCell], named: set[str]) -> list[LoadCell]:
    """Combine the consumers that are not named into one cell per window."""
    others: dict[tuple[int, int], int] = defaultdict(int)
    for load_cell in cells:
        if load_cell.consumer not in named:
            others[load_cell.start, load_cell.end] += load_cell.messages
    rest = [LoadCell(start, end, REST, messages, 0.0) for (start, end), messages in others.items()]
    return [load_cell for load_cell in cells if load_cell.consumer in named] + rest


def draw_skew_chart(load: LoadOverTime, totals: dict[str, float], at: TimeFrame, colours: Palette) -> str:
    """Draw one row per consumer with its skew over time, and its overall skew at the end."""
    names = select_largest_consumers(load)
    row_of = {name: i * ROW for i, name in enumerate(names)}
    drawing = Drawing(ROW * len(names), "Skew of each consumer over time")
    draw_time_axis(drawing, at)
    for c in load.cells:
        if c.consumer in row_of and c.messages and at.is_visible(c.start, c.end):
            top = row_of[c.consumer]
            draw_cell(drawing, at, c.start, c.end, top + 1, top + ROW - 1, find_skew_level(c.skew), _format_skew_tip(c))
    for name, top in row_of.items():
        middle = top + ROW / 2
        drawing.text(-22, middle, shorten_name(name, 12), anchor="end")
        drawing.box(-16.5, -7.5, middle - 4.5, middle + 4.5, colours.find_token(name))
        drawing.text(PLOT + 6, middle, _format_overall_skew(totals, name), ink=True)
    return drawing.svg()


def _format_skew_tip(load_cell: LoadCell) -> str:
    skew = format_ratio(load_cell.skew)
    return f"{load_cell.consumer}: {skew} a fair share, {format_stretch(load_cell.start, load_cell.end)}"


def _format_overall_skew(totals: dict[str, float], name: str) -> str:
    return format_ratio(totals[name]) if name in totals else ""


def select_named_consumers(points: Sequence[FindingPoint], at: TimeFrame, most: int = MAX_BARS) -> frozenset[str]:
    """Select the consumers with the most findings, as many as the chart can draw separately."""
    sums: dict[str, int] = defaultdict(int)
    bars: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for p in points:
        sums[p.consumer] += p.count
        bars[p.consumer].add((p.code, _find_column(p, at)))
    if sum(map(len, bars.values())) <= most:
        return frozenset(sums)
    remaining_bars, named = most - len(set().union(*bars.values())), set()  # the other consumers need at most this many
    for name in sorted(sums, key=lambda name: (-sums[name], natural_sort_key(name))):
        remaining_bars -= len(bars[name])
        if remaining_bars < 0:
            break
        named.add(name)
    return frozenset(named)


def draw_findings_chart(points: Sequence[FindingPoint], named: frozenset[str], at: TimeFrame, colours: Palette) -> str:
    """Draw one strip per rule with its findings over time; each strip has its own labelled scale.

    Columns are coloured by consumer. Consumers that are not ``named`` share a colour.
    """
    codes = sorted({p.code for p in points})
    bins = _sum_bins(points, named, at)
    drawing = Drawing(STRIP * len(codes), "Findings over time by code")
    draw_time_axis(drawing, at)
    for i, code in enumerate(codes):
        code_bins = {key: n for key, n in bins.items() if key[0] == code}
        tops: dict[int, int] = defaultdict(int)
        for (_, column, _), n in code_bins.items():
            tops[column] += n
        most, floor = max(tops.values(), default=1), (i + 1) * STRIP
        _draw_columns(drawing, code_bins, most, floor, at, colours)
        drawing.line(0, PLOT, floor, floor, "grid")
        drawing.text(0, i * STRIP + 20, shorten_name(code, 90), stands="bottom", ink=True)
        drawing.text(-8, floor - REACH, format_count(most), anchor="end")
    return drawing.svg()


def _find_column(point: FindingPoint, at: TimeFrame) -> int:
    """Find the column of the picture for a window."""
    column = (parse_us(point.window_start) - at.start) * MAX_WINDOWS // (at.end - at.start)
    return min(max(column, 0), MAX_WINDOWS - 1)


def _sum_bins(points: Iterable[FindingPoint], named: frozenset[str], at: TimeFrame) -> dict[tuple[str, int, str], int]:
    """Sum the findings by code, column and consumer, in that order; unnamed consumers come last as ""."""
    sums: dict[tuple[str, int, str], int] = defaultdict(int)
    for p in points:
        sums[p.code, _find_column(p, at), p.consumer if p.consumer in named else ""] += p.count
    return dict(sorted(sums.items(), key=lambda bar: (*bar[0][:2], not bar[0][2], natural_sort_key(bar[0][2]))))


def _draw_columns(
    drawing: Drawing, bins: dict[tuple[str, int, str], int], most: int, floor: int, at: TimeFrame, colours: Palette
) -> None:
    """Draw the stacked bars of one strip."""
    width = (at.end - at.start) / MAX_WINDOWS
    tops: dict[int, int] = defaultdict(int)
    for (code, column, consumer), n in bins.items():
        low, high = tops[column], tops[column] + n
        tops[column] = high
        start = round(at.start + column * width)
        tip = f"{code}: {format_count(n)} at {consumer or REST}, {format_stretch(start, round(start + width))}"
        foot, head = floor - low / most * REACH, floor - high / most * REACH
        colour = colours.find_token(consumer) if consumer else REST
        draw_cell(drawing, at, start, round(start + width * 0.82), foot, head, colour, tip)
