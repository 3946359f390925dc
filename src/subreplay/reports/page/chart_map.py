"""The range map: the slots (or partitions) of a subscription over time, in the colours of their owners."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from subreplay.reports import words
from subreplay.reports.data import EpochView, RangeMap
from subreplay.reports.page.canvas import Frame, cell, marked_axis, shorten, stretch, time_axis
from subreplay.reports.page.palette import NOBODY, Palette
from subreplay.reports.page.rangemap import Rect, rectangles
from subreplay.reports.page.svg import PLOT, Drawing

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


@dataclass(frozen=True, slots=True)
class EpochMarks:
    """Where epochs begin (pixels from the left), and of those with room for it, why; ``room`` is what that takes above
    the plot. Where not all fit beside each other they are slanted."""

    lines: tuple[float, ...]
    labels: tuple[tuple[float, str], ...]
    slanted: bool
    room: int

    def draw(self, drawing: Drawing) -> None:
        for x in self.lines:
            drawing.line(x, x, -6, drawing.height, "epoch", "3,3")
        for x, text in self.labels:
            if self.slanted:
                drawing.text(x, -7, text, anchor="end", stands="bottom", angle=40)
            else:
                drawing.text(x, -7, text, stands="bottom")


def slot_map(mapped: RangeMap, at: Frame, colours: Palette, alone: int) -> MapDrawing:
    """One dispatcher's slots, or only the shares of them where ranges are too many; ``alone`` is how many maps share
    the page."""
    height = HEIGHTS.get(alone, 160)
    thin = max((epoch.bands_left_out for epoch in mapped.epochs), default=0)
    outside = sum(not at.shows(e.start_us, e.end_us) for e in mapped.epochs)
    starts = len(_starts([mapped], at))
    told = causes([mapped], at)
    written = len(told.labels)
    if thin:
        shares = _shares(mapped, at, colours, height, told)
        return MapDrawing(mapped.scope, "", shares, thin, written, starts, outside)
    label = f"Slots of {mapped.scope} over time, coloured by the consumer that owned them"
    drawing = Drawing(height, label, top=told.room)
    slots = mapped.high - mapped.low + 1

    def y(slot: float) -> float:
        return height * (mapped.high + 1 - slot) / slots

    time_axis(drawing, at)
    ticks = [*(mapped.low + slots * i // 4 for i in range(4)), mapped.high]
    marked_axis(drawing, [(y(slot), words.count(slot)) for slot in ticks])
    _nobody(drawing, mapped, at)
    for r in rectangles(mapped.epochs):
        if at.shows(r.start, r.end):
            cell(drawing, at, r.start, r.end, y(r.low), y(r.high), colours.token(r.consumer), _tip(r))
    told.draw(drawing)
    shares = _shares(mapped, at, colours, STRIP, None)
    return MapDrawing(mapped.scope, drawing.svg(), shares, 0, written, starts, outside)


def partition_map(maps: Sequence[RangeMap], at: Frame, colours: Palette) -> MapDrawing:
    """Partitions as rows, of one group or of one dispatcher each."""
    strips = [strip for mapped in maps for strip in _strips(mapped)]
    shown = strips[:MOST_ROWS]
    told = causes(maps, at)
    label = "Partitions over time, coloured by the consumer that owned them"
    drawing = Drawing(ROW * len(shown), label, top=told.room)
    time_axis(drawing, at)
    for i, (name, rects) in enumerate(shown):
        drawing.text(-8, (i + 0.5) * ROW, shorten(name), anchor="end")
        for rect in rects:
            if at.shows(rect.start, rect.end):
                colour, tip = colours.token(rect.consumer), _row_tip(name, rect)
                cell(drawing, at, rect.start, rect.end, i * ROW + 2, (i + 1) * ROW - 2, colour, tip)
    told.draw(drawing)
    hidden = len(strips) - len(shown)
    return MapDrawing("", drawing.svg(), "", 0, len(told.labels), len(_starts(maps, at)), 0, hidden)


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


def _shares(mapped: RangeMap, at: Frame, colours: Palette, height: int, over: EpochMarks | None) -> str:
    """How much of the slots each consumer owned, over time; a consumer's band stays at its place in the order."""
    label = f"Share of the slots of {mapped.scope} that each consumer owned, over time"
    drawing = Drawing(height, label, top=over.room if over else 8)
    time_axis(drawing, at)
    marked_axis(drawing, [(height, "0%"), (height / 2, "50%"), (0, "100%")])
    _nobody(drawing, mapped, at)
    for epoch in (e for e in mapped.epochs if at.shows(e.start_us, e.end_us)):
        base = float(height)
        for one in sorted(epoch.shares, key=lambda one: (one.consumer is None, words.natural(one.consumer or ""))):
            name, colour = (one.consumer, colours.token(one.consumer)) if one.consumer else ("others", "others")
            tip = f"{name}: {words.percent(one.share)} of the slots, {stretch(epoch.start_us, epoch.end_us)}"
            top = base - one.share * height
            cell(drawing, at, epoch.start_us, epoch.end_us, base, top, colour, tip)
            base = top
    if over:
        over.draw(drawing)
    return drawing.svg()


def _nobody(drawing: Drawing, mapped: RangeMap, at: Frame) -> None:
    """A ground that shows wherever no rectangle covers it: slots without an owner."""
    inside = [epoch for epoch in mapped.epochs if at.shows(epoch.start_us, epoch.end_us)]
    if inside:
        start, end = min(epoch.start_us for epoch in inside), max(epoch.end_us for epoch in inside)
        cell(drawing, at, start, end, 0, drawing.height, NOBODY, NOBODY)


def causes(maps: Sequence[RangeMap], at: Frame) -> EpochMarks:
    """Where epochs begin inside the picture, and the causes for which there is room above it."""
    starts = _starts(maps, at)
    pixels = [at.pixel(start) for start, _ in starts]
    flat = _fits(pixels, [_label(text) for _, text in starts])
    chosen = dict.fromkeys(range(len(starts)), 0) if flat else _spread(pixels)
    labels = tuple([(pixels[i], _label(starts[i][1], hidden)) for i, hidden in chosen.items()])
    room = 26 if flat else round(SLANT_ROOM + SLANT_RISE * max(len(text) for _, text in labels))
    return EpochMarks(tuple(pixels), labels, not flat, room)


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
