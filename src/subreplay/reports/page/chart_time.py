"""Charts over time: the load of each consumer, its skew, and when findings happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from subreplay.reports import words
from subreplay.reports.data import LoadPoint
from subreplay.reports.finding_data import FindingPoint
from subreplay.reports.page.canvas import Frame, cell, grid, round_ticks, shorten, stretch, time_axis
from subreplay.reports.page.palette import Palette
from subreplay.reports.page.svg import PLOT, Drawing

MOST_WINDOWS = 90
MOST_CONSUMERS = 24
MOST_BARS = 3_000  # of the findings chart
REST = "others"
LOAD = 220  # height of the load chart
ROW = 18  # of the skew chart
STRIP = 60  # of the findings chart, its title and its columns
REACH = 34  # of its highest column
LEVELS = ((0.5, "u3"), (1 / 1.5, "u2"), (0.8, "u1"), (1.25, "even"), (1.5, "o1"), (2.0, "o2"))


class Cell(NamedTuple):
    """What one consumer was given in one stretch of time. ``skew`` is the mean over messages."""

    start: int
    end: int
    consumer: str
    messages: int
    skew: float


class Load(NamedTuple):
    """Cells in order, and how many of the report's windows one of them stands for."""

    cells: tuple[Cell, ...]
    windows: int
    width: int  # of a cell, in microseconds


def gathered(points: Sequence[LoadPoint], most: int = MOST_WINDOWS) -> Load:
    """Load by window; neighbouring windows together where there are too many to draw."""
    spans = sorted({(words.parse_us(p.window_start), words.parse_us(p.window_end)) for p in points})
    step = -(-len(spans) // most) or 1
    groups = {start: spans[i // step * step] for i, (start, _) in enumerate(spans)}
    ends = {spans[i][0]: spans[min(i + step, len(spans)) - 1][1] for i in range(0, len(spans), step)}
    sums: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    for p in points:
        given = sums[groups[words.parse_us(p.window_start)][0], p.consumer]
        given[0] += p.messages
        given[1] += p.messages * p.skew
    summed = [
        Cell(start, ends[start], name, int(n), total / n if n else 0.0) for (start, name), (n, total) in sums.items()
    ]
    ordered = tuple(sorted(summed, key=lambda c: (c.start, words.natural(c.consumer))))
    return Load(ordered, step, max((end - start for start, end in ends.items()), default=0))


def biggest(load: Load, most: int = MOST_CONSUMERS) -> tuple[str, ...]:
    """The consumers with the most messages, in natural order."""
    sums: dict[str, int] = defaultdict(int)
    for given in load.cells:
        sums[given.consumer] += given.messages
    chosen = sorted(sums, key=lambda name: (-sums[name], words.natural(name)))[:most]
    return tuple(sorted(chosen, key=words.natural))


def load_chart(load: Load, at: Frame, colours: Palette) -> str:
    """Messages given to consumers, stacked, one column a stretch of time."""
    named = set(biggest(load))
    shown = [c for c in load.cells if c.messages and at.shows(c.start, c.end)]
    sums: dict[int, int] = defaultdict(int)
    for given in shown:
        sums[given.start] += given.messages
    drawing = Drawing(LOAD, "Messages per consumer over time, stacked")
    ticks = round_ticks(max(sums.values(), default=1))
    unit = LOAD / ticks[-1]
    grid(drawing, [(LOAD - tick * unit, words.short_count(tick)) for tick in ticks])
    time_axis(drawing, at)
    tops: dict[int, int] = defaultdict(int)
    for given in sorted(shown, key=lambda c: (c.start, c.consumer not in named, words.natural(c.consumer))):
        base, top = tops[given.start], tops[given.start] + given.messages
        tops[given.start] = top
        colour = colours.token(given.consumer) if given.consumer in named else REST
        tip = f"{given.consumer}: {words.plural(given.messages, 'message')}, {stretch(given.start, given.end)}"
        cell(drawing, at, given.start, given.end, LOAD - base * unit, LOAD - top * unit, colour, tip)
    return drawing.svg()


def level(skew: float) -> str:
    """The token of a skew: even from 0.8 to 1.25, then three steps up and three down."""
    return next((name for limit, name in LEVELS if skew < limit), "o3")


def skew_chart(load: Load, totals: dict[str, float], at: Frame, colours: Palette) -> str:
    """One row per consumer: how far its share was from a balanced one, over time; its overall skew at the end."""
    names = biggest(load)
    row_of = {name: i * ROW for i, name in enumerate(names)}
    drawing = Drawing(ROW * len(names), "Skew of each consumer over time")
    time_axis(drawing, at)
    for c in load.cells:
        if c.consumer in row_of and c.messages and at.shows(c.start, c.end):
            top = row_of[c.consumer]
            cell(drawing, at, c.start, c.end, top + 1, top + ROW - 1, level(c.skew), _skew_tip(c))
    for name, top in row_of.items():
        middle = top + ROW / 2
        drawing.text(-22, middle, shorten(name, 12), anchor="end")
        drawing.box(-16.5, -7.5, middle - 4.5, middle + 4.5, colours.token(name))
        drawing.text(PLOT + 6, middle, _overall(totals, name), ink=True)
    return drawing.svg()


def _skew_tip(given: Cell) -> str:
    return f"{given.consumer}: {words.times(given.skew)} a balanced share, {stretch(given.start, given.end)}"


def _overall(totals: dict[str, float], name: str) -> str:
    return words.times(totals[name]) if name in totals else ""


def most_found(points: Sequence[FindingPoint], at: Frame, most: int = MOST_BARS) -> frozenset[str]:
    """The consumers with the most findings: as many as get bars of their own without making the chart too large."""
    sums: dict[str, int] = defaultdict(int)
    bars: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for p in points:
        sums[p.consumer] += p.count
        bars[p.consumer].add((p.code, _column(p, at)))
    if sum(map(len, bars.values())) <= most:
        return frozenset(sums)
    room, named = most - len(set().union(*bars.values())), set()  # the others together have at most so many
    for name in sorted(sums, key=lambda name: (-sums[name], words.natural(name))):
        room -= len(bars[name])
        if room < 0:
            break
        named.add(name)
    return frozenset(named)


def findings_chart(points: Sequence[FindingPoint], named: frozenset[str], at: Frame, colours: Palette) -> str:
    """One strip per code: findings by time, coloured by consumer; each strip has its own scale, its top is written.

    Consumers that are not ``named`` share a colour.
    """
    codes = sorted({p.code for p in points})
    bins = _binned(points, named, at)
    drawing = Drawing(STRIP * len(codes), "Findings over time by code")
    time_axis(drawing, at)
    for i, code in enumerate(codes):
        mine = {key: n for key, n in bins.items() if key[0] == code}
        tops: dict[int, int] = defaultdict(int)
        for (_, column, _), n in mine.items():
            tops[column] += n
        most, floor = max(tops.values(), default=1), (i + 1) * STRIP
        _columns(drawing, mine, most, floor, at, colours)
        drawing.line(0, PLOT, floor, floor, "grid")
        drawing.text(0, i * STRIP + 20, shorten(code, 90), stands="bottom", ink=True)
        drawing.text(-8, floor - REACH, words.count(most), anchor="end")
    return drawing.svg()


def _column(point: FindingPoint, at: Frame) -> int:
    """The column of the picture that a window is drawn in."""
    column = (words.parse_us(point.window_start) - at.start) * MOST_WINDOWS // (at.end - at.start)
    return min(max(column, 0), MOST_WINDOWS - 1)


def _binned(points: Iterable[FindingPoint], named: frozenset[str], at: Frame) -> dict[tuple[str, int, str], int]:
    """Findings summed by code, column of the picture and consumer, in that order; those not ``named`` last, as ""."""
    sums: dict[tuple[str, int, str], int] = defaultdict(int)
    for p in points:
        sums[p.code, _column(p, at), p.consumer if p.consumer in named else ""] += p.count
    return dict(sorted(sums.items(), key=lambda bar: (*bar[0][:2], not bar[0][2], words.natural(bar[0][2]))))


def _columns(
    drawing: Drawing, bins: dict[tuple[str, int, str], int], most: int, floor: int, at: Frame, colours: Palette
) -> None:
    """The stacked bars of one strip."""
    width = (at.end - at.start) / MOST_WINDOWS
    tops: dict[int, int] = defaultdict(int)
    for (code, column, consumer), n in bins.items():
        low, high = tops[column], tops[column] + n
        tops[column] = high
        start = round(at.start + column * width)
        tip = f"{code}: {words.count(n)} at {consumer or REST}, {stretch(start, round(start + width))}"
        foot, head = floor - low / most * REACH, floor - high / most * REACH
        colour = colours.token(consumer) if consumer else REST
        cell(drawing, at, start, round(start + width * 0.82), foot, head, colour, tip)
