"""Charts over time: the load of each consumer, its skew, and when findings happened."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import altair as alt
from markupsafe import Markup

from subreplay.reports import words
from subreplay.reports.canvas import PLOT, Frame, figure, marks, places, shorten, time_axis, token
from subreplay.reports.data import FindingPoint, LoadPoint
from subreplay.reports.palette import Palette
from subreplay.reports.svg import draw

MOST_WINDOWS = 90
MOST_CONSUMERS = 24
REST = "others"
ROW = 18  # of the skew chart
STRIP = 46  # of the findings chart
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
        cell = sums[groups[words.parse_us(p.window_start)][0], p.consumer]
        cell[0] += p.messages
        cell[1] += p.messages * p.skew
    cells = [
        Cell(start, ends[start], name, int(n), total / n if n else 0.0) for (start, name), (n, total) in sums.items()
    ]
    ordered = tuple(sorted(cells, key=lambda c: (c.start, words.natural(c.consumer))))
    return Load(ordered, step, max((end - start for start, end in ends.items()), default=0))


def biggest(load: Load, most: int = MOST_CONSUMERS) -> tuple[str, ...]:
    """The consumers with the most messages, in natural order."""
    sums: dict[str, int] = defaultdict(int)
    for cell in load.cells:
        sums[cell.consumer] += cell.messages
    chosen = sorted(sums, key=lambda name: (-sums[name], words.natural(name)))[:most]
    return tuple(sorted(chosen, key=words.natural))


def load_chart(load: Load, at: Frame, colours: Palette) -> Markup:
    """Messages given to consumers, stacked, one column a stretch of time."""
    named, rows, tops = set(biggest(load)), [], defaultdict(int)
    for cell in sorted(load.cells, key=lambda c: (c.start, c.consumer not in named, words.natural(c.consumer))):
        if not at.shows(cell.start, cell.end) or not cell.messages:
            continue
        base = tops[cell.start]
        tops[cell.start] += cell.messages
        colour = colours.token(cell.consumer) if cell.consumer in named else REST
        tip = f"{cell.consumer}: {words.plural(cell.messages, 'message')}, {_when(cell.start, cell.end)}"
        rows.append({"x": at.x(cell.start), "x2": at.x(cell.end), "y": base, "y2": tops[cell.start], "colour": colour,
                     "tip": tip})  # fmt: skip
    scale = alt.Scale(domain=[0, max(tops.values(), default=1)], nice=True)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title=None, tickCount=4, format="~s", grid=True, domain=False, ticks=False))
    bars = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    return draw(figure([(rows, bars)], 220), "Messages per consumer over time, stacked")


def level(skew: float) -> str:
    """The token of a skew: even from 0.8 to 1.25, then three steps up and three down."""
    return next((name for limit, name in LEVELS if skew < limit), "o3")


def skew_chart(load: Load, totals: dict[str, float], at: Frame, colours: Palette) -> Markup:
    """One row per consumer: how far its share was from a balanced one, over time; its overall skew at the end."""
    names = biggest(load)
    row_of = {name: i for i, name in enumerate(names)}
    rows = [
        {"x": at.x(c.start), "x2": at.x(c.end), "y": row_of[c.consumer] * ROW + 1, "y2": (row_of[c.consumer] + 1) * ROW - 1,
         "colour": level(c.skew), "tip": f"{c.consumer}: {words.times(c.skew)} a balanced share, {_when(c.start, c.end)}"}
        for c in load.cells if c.consumer in row_of and c.messages and at.shows(c.start, c.end)
    ]  # fmt: skip
    height = ROW * len(names)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    boxes = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    labels = [{"y": (i + 0.5) * ROW, "text": shorten(name, 15), "colour": colours.token(name),
               "end": words.times(totals[name]) if name in totals else ""} for i, name in enumerate(names)]  # fmt: skip
    return draw(figure([(rows, boxes), *_row_labels(labels, y)], height), "Skew of each consumer over time")


def _row_labels(labels: list[dict[str, object]], y: alt.Y) -> list[tuple[list[dict[str, object]], alt.Chart]]:
    """The name before a row with its swatch, and a figure behind it."""
    text = marks().mark_text(align="right", baseline="middle", aria=False)
    swatch = marks().mark_square(size=90, opacity=1, filled=True, aria=False)
    return [
        (labels, text.encode(x=alt.value(-22), y=y, text="text:N")),
        (labels, swatch.encode(x=alt.value(-12), y=y, color=token())),
        (labels, marks().mark_text(align="left", baseline="middle", aria=False, color="ink").encode(
            x=alt.value(PLOT + 6), y=y, text="end:N")),
    ]  # fmt: skip


def findings_chart(points: Sequence[FindingPoint], at: Frame, colours: Palette) -> Markup:
    """One strip per code: findings by time, coloured by consumer; each strip has its own scale, its top is written."""
    codes = sorted({p.code for p in points})
    bins = _binned(points, at)
    rows, labels = [], []
    for i, code in enumerate(codes):
        mine = {key: n for key, n in bins.items() if key[0] == code}
        tops: dict[int, int] = defaultdict(int)
        for (_, column, _), n in mine.items():
            tops[column] += n
        most = max(tops.values(), default=1)
        rows += list(_columns(mine, most, i, at, colours))
        labels.append({"y": (i + 1) * STRIP - 8, "text": shorten(code, 18), "end": words.count(most), "line": (i + 1) * STRIP})
    height = STRIP * len(codes)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    bars = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    text = marks().mark_text(align="right", aria=False).encode(x=alt.value(-8), y=y, text="text:N")
    end = marks().mark_text(align="left", aria=False, color="ink").encode(x=alt.value(PLOT + 6), y=y, text="end:N")
    base = marks().mark_rule(aria=False, color="grid").encode(y=alt.Y("line:Q", scale=places(height), axis=None))
    return draw(figure([(rows, bars), (labels, base), (labels, text), (labels, end)], height), "Findings over time by code")


def _binned(points: Iterable[FindingPoint], at: Frame) -> dict[tuple[str, int, str], int]:
    """Findings summed by code, column of the picture and consumer, in that order."""
    sums: dict[tuple[str, int, str], int] = defaultdict(int)
    for p in points:
        micros = words.parse_us(p.window_start)
        column = (micros - at.start) * MOST_WINDOWS // (at.end - at.start)
        sums[p.code, min(max(column, 0), MOST_WINDOWS - 1), p.consumer] += p.count
    return dict(sorted(sums.items(), key=lambda item: (item[0][0], item[0][1], words.natural(item[0][2]))))


def _columns(
    bins: dict[tuple[str, int, str], int], most: int, strip: int, at: Frame, colours: Palette
) -> Iterable[dict[str, object]]:
    """The stacked bars of one strip."""
    width, reach = (at.end - at.start) / MOST_WINDOWS, STRIP - 10
    tops: dict[int, int] = defaultdict(int)
    for (code, column, consumer), n in bins.items():
        low, high = tops[column], tops[column] + n
        tops[column] = high
        start, floor = round(at.start + column * width), (strip + 1) * STRIP
        yield {"x": at.x(start), "x2": at.x(round(start + width * 0.82)), "y": floor - low / most * reach,
               "y2": floor - high / most * reach, "colour": colours.token(consumer),
               "tip": f"{code}: {words.count(n)} at {consumer}, {_when(start, round(start + width))}"}  # fmt: skip


def _when(start: int, end: int) -> str:
    return f"{words.utc_clock(start)} to {words.utc_clock(end)}"
