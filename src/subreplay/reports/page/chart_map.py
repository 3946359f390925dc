"""The range map: the slots (or partitions) of a subscription over time, in the colours of their owners."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from subreplay.reports import words
from subreplay.reports.data import EpochView, RangeMap
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
    time_axis,
)
from subreplay.reports.page.palette import NOBODY, Palette
from subreplay.reports.page.rangemap import Rect, rectangles
from subreplay.reports.page.svg import draw

ROW = 24  # height of a partition's row
MOST_ROWS = 40
LETTER = 5.6  # about the width of a letter, in pixels
MOST_LETTERS = 20  # of a cause; slanted, it must fit into the left margin
SLANT_GAP = 13
SLANT_ROOM, SLANT_RISE = 18, 3.7  # above the plot, and per letter of a slanted label
HEIGHTS = {1: 300, 2: 240, 3: 200}  # of each of so many slot maps
STRIP = 84  # of the shares below a map


@dataclass(frozen=True, slots=True)
class MapDrawing:
    """A drawn map and what its caption needs."""

    scope: str
    svg: str  # which slots; empty where there are too many ranges to be seen
    shares: str  # who owned how much of the slots; empty for partitions
    thin: int  # ranges of the epoch with the most, where they are too many to be seen
    labels: int  # causes written above the map
    causes: int
    outside: int  # epochs before or after the picture
    rows_left_out: int = 0  # partitions without a row


def slot_map(mapped: RangeMap, at: Frame, colours: Palette, alone: int) -> MapDrawing:
    """One dispatcher's slots, or only the shares of them where ranges are too many; ``alone`` is how many maps share
    the page."""
    height = HEIGHTS.get(alone, 160)
    thin = max((epoch.bands_left_out for epoch in mapped.epochs), default=0)
    outside = sum(not at.shows(e.start_us, e.end_us) for e in mapped.epochs)
    starts = len(_starts([mapped], at))
    lines, written, top = causes([mapped], at, height)
    if thin:
        shares = _shares(mapped, at, colours, height, lines, top)
        return MapDrawing(mapped.scope, "", shares, thin, written, starts, outside)
    rows = [
        cell(at, r.start, r.end, r.low, r.high, colours.token(r.consumer), _tip(r))
        for r in rectangles(mapped.epochs)
        if at.shows(r.start, r.end)
    ]
    slots = mapped.high - mapped.low + 1
    ticks = [*(mapped.low + slots * i // 4 for i in range(4)), mapped.high]
    scale = alt.Scale(domain=[mapped.low, mapped.high + 1], nice=False, zero=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title=None, values=ticks, grid=False, format=",d"))
    boxes = cells(at, y)
    ground = _nobody(mapped, at, mapped.low, mapped.high + 1)
    spec = figure([(ground, boxes), (rows, boxes), *lines], height, top=top)
    label = f"Slots of {mapped.scope} over time, coloured by the consumer that owned them"
    shares = _shares(mapped, at, colours, STRIP, [], 8)
    return MapDrawing(mapped.scope, draw(spec, label), shares, 0, written, starts, outside)


def partition_map(maps: Sequence[RangeMap], at: Frame, colours: Palette) -> MapDrawing:
    """Partitions as rows, of one group or of one dispatcher each."""
    strips = [strip for mapped in maps for strip in _strips(mapped)]
    shown = strips[:MOST_ROWS]
    names = [{"y": (i + 0.5) * ROW, "text": shorten(name)} for i, (name, _) in enumerate(shown)]
    rows = [
        cell(
            at, rect.start, rect.end, i * ROW + 2, (i + 1) * ROW - 2, colours.token(rect.consumer), _row_tip(name, rect)
        )
        for i, (name, rects) in enumerate(shown)
        for rect in rects
        if at.shows(rect.start, rect.end)
    ]
    height = ROW * len(shown)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    boxes = cells(at, y)
    titles = marks().mark_text(align="right", baseline="middle", aria=False).encode(x=alt.value(-8), y=y, text="text:N")
    lines, written, room = causes(maps, at, height)
    spec = figure([(rows, boxes), (names, titles), *lines], height, top=room)
    label = "Partitions over time, coloured by the consumer that owned them"
    hidden = len(strips) - len(shown)
    return MapDrawing("", draw(spec, label), "", 0, written, len(_starts(maps, at)), 0, hidden)


def _strips(mapped: RangeMap) -> list[tuple[str, list[Rect]]]:
    """The rows of a map: its partitions, or itself as one row where its dispatcher has a single owner at a time."""
    single = all(len(epoch.bands) <= 1 for epoch in mapped.epochs)
    if single and (mapped.high - mapped.low >= MOST_ROWS or mapped.low == mapped.high):
        name = re.sub(r".*-partition-(\d+)$", r"partition \1", mapped.scope.rsplit("/", 1)[-1])
        return [(name, _owners(mapped, None))]
    return [(f"partition {part}", _owners(mapped, part)) for part in range(mapped.low, mapped.high + 1)]


def _owners(mapped: RangeMap, part: int | None) -> list[Rect]:
    """Who owned one partition (or all of them), epoch by epoch."""
    rects = []
    for epoch in mapped.epochs:
        owner = next((b.consumer for b in epoch.bands if part is None or b.start <= part <= b.end), None)
        rects.append(Rect(epoch.start_us, epoch.end_us, 0, 1, owner))
    return rects


def _row_tip(name: str, rect: Rect) -> str:
    return f"{name}: {rect.consumer or NOBODY}, {stretch(rect.start, rect.end)}"


def _shares(mapped: RangeMap, at: Frame, colours: Palette, height: int, over: Sequence[Layer], top: int) -> str:
    """How much of the slots each consumer owned, over time; a consumer's band stays at its place in the order."""
    rows = []
    for epoch in (e for e in mapped.epochs if at.shows(e.start_us, e.end_us)):
        base = 0.0
        for one in sorted(epoch.shares, key=lambda one: (one.consumer is None, words.natural(one.consumer or ""))):
            name, colour = (one.consumer, colours.token(one.consumer)) if one.consumer else ("others", "others")
            tip = f"{name}: {words.percent(one.share)} of the slots, {stretch(epoch.start_us, epoch.end_us)}"
            rows.append(cell(at, epoch.start_us, epoch.end_us, base, base + one.share, colour, tip))
            base += one.share
    axis = alt.Axis(title=None, format="%", values=[0, 0.5, 1], grid=False)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=axis)
    boxes = cells(at, y)
    label = f"Share of the slots of {mapped.scope} that each consumer owned, over time"
    return draw(figure([(_nobody(mapped, at, 0, 1), boxes), (rows, boxes), *over], height, top=top), label)


def _nobody(mapped: RangeMap, at: Frame, low: float, high: float) -> list[dict[str, Any]]:
    """A ground that shows wherever no rectangle covers it: slots without an owner."""
    inside = [epoch for epoch in mapped.epochs if at.shows(epoch.start_us, epoch.end_us)]
    if not inside:
        return []
    start, end = min(epoch.start_us for epoch in inside), max(epoch.end_us for epoch in inside)
    return [cell(at, start, end, low, high, NOBODY, NOBODY)]


def causes(maps: Sequence[RangeMap], at: Frame, height: int) -> tuple[list[Layer], int, int]:
    """Lines where epochs begin and the causes above them; how many causes have room; the room above the plot."""
    starts = _starts(maps, at)
    texts = [_label(text) for _, text in starts]
    pixels = [at.pixel(start) for start, _ in starts]
    flat = _fits(pixels, texts)
    chosen = dict.fromkeys(range(len(starts)), 0) if flat else _spread(pixels)
    lines = [{"x": at.x(start)} for start, _ in starts]
    shown = [_label(starts[i][1], n) for i, n in chosen.items()]
    labels = [{"x": at.x(starts[i][0]), "text": label} for i, label in zip(chosen, shown, strict=True)]
    room = 26 if flat else round(SLANT_ROOM + SLANT_RISE * max(map(len, shown)))
    x = time_axis(at)
    rule = marks().mark_rule(strokeDash=[3, 3], strokeWidth=1, aria=False, color="epoch").encode(
        x=x, y=alt.value(-6), y2=alt.value(height))  # fmt: skip
    text = marks().mark_text(baseline="bottom", aria=False, align="left" if flat else "right", angle=0 if flat else 40)
    named = text.encode(x=x, y=alt.value(-7), text="text:N")
    return [(lines, rule), (labels, named)], len(chosen), room


def _label(cause: str, hidden: int = 0) -> str:
    """A cause as short as there is room for, and how many more it stands for."""
    more = f" +{hidden}" if hidden else ""
    room = MOST_LETTERS - len(more)
    return (f"{cause[: room - 1].rstrip()}…" if len(cause) > room else cause) + more


def _starts(maps: Sequence[RangeMap], at: Frame) -> list[tuple[int, str]]:
    """When epochs begin inside the picture, and why; the same event of several dispatchers once."""
    views: list[EpochView] = [epoch for mapped in maps for epoch in mapped.epochs]
    return sorted({(e.start_us, words.short_cause(e.cause)) for e in views if at.start <= e.start_us < at.end})


def _fits(pixels: Sequence[float], texts: Sequence[str]) -> bool:
    """Whether all labels fit beside each other, level."""
    ends = [x + len(text) * LETTER + 10 for x, text in zip(pixels, texts, strict=True)]
    return all(end <= x for end, x in zip(ends, [*pixels[1:], PLOT + 40], strict=True)) if pixels else True


def _spread(pixels: Sequence[float]) -> dict[int, int]:
    """The labels that have room when slanted, each far enough from the one before, and how many it hides."""
    chosen: dict[int, int] = {}
    last = 0
    for i, x in enumerate(pixels):
        if not chosen or x - pixels[last] >= SLANT_GAP:
            chosen[i], last = 0, i
        else:
            chosen[last] += 1
    return chosen


def _tip(rect: Rect) -> str:
    """What a rectangle is, for a pointer that rests on it."""
    slots = f"{words.count(rect.low)} to {words.count(rect.high - 1)}"
    return f"{rect.consumer or NOBODY}: slots {slots}, {stretch(rect.start, rect.end)}"
