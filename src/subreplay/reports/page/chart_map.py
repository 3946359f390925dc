"""The range map: the slots (or partitions) of a subscription over time, in the colours of their owners."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from subreplay.reports.data import EpochView, RangeMap
from subreplay.reports.formatting import format_count, format_percent, natural_sort_key, shorten_cause
from subreplay.reports.page.chart_canvas import (
    TimeFrame,
    draw_cell,
    draw_marked_axis,
    draw_time_axis,
    format_stretch,
    shorten_name,
)
from subreplay.reports.page.palette import NOBODY, Palette
from subreplay.reports.page.range_rectangles import OwnedRectangle, build_rectangles
from subreplay.reports.page.svg import PLOT, Drawing

ROW = 24  # height of a partition's row
MOST_ROWS = 40
LETTER_WIDTH = 5.6  # about the width of a letter, in pixels
MAX_LABEL_LENGTH = 20  # of a cause; slanted, it must fit into the left margin
SLANT_GAP = 13
SLANT_MARGIN, SLANT_RISE = 18, 3.7  # above the plot, and per letter of a slanted label
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


def draw_slot_map(mapped: RangeMap, at: TimeFrame, colours: Palette, alone: int) -> MapDrawing:
    """One dispatcher's slots, or only the shares of them where ranges are too many; ``alone`` is how many maps share
    the page."""
    height = HEIGHTS.get(alone, 160)
    thin = max((epoch.bands_left_out for epoch in mapped.epochs), default=0)
    outside = sum(not at.is_visible(e.start_us, e.end_us) for e in mapped.epochs)
    starts = len(_list_starts([mapped], at))
    marks = build_epoch_marks([mapped], at)
    written = len(marks.labels)
    if thin:
        shares = _draw_shares(mapped, at, colours, height, marks)
        return MapDrawing(mapped.scope, "", shares, thin, written, starts, outside)
    label = f"Slots of {mapped.scope} over time, coloured by the consumer that owned them"
    drawing = Drawing(height, label, top=marks.room)
    slots = mapped.high - mapped.low + 1

    def y(slot: float) -> float:
        return height * (mapped.high + 1 - slot) / slots

    draw_time_axis(drawing, at)
    ticks = [*(mapped.low + slots * i // 4 for i in range(4)), mapped.high]
    draw_marked_axis(drawing, [(y(slot), format_count(slot)) for slot in ticks])
    _draw_unowned(drawing, mapped, at)
    for r in build_rectangles(mapped.epochs):
        if at.is_visible(r.start, r.end):
            draw_cell(drawing, at, r.start, r.end, y(r.low), y(r.high), colours.find_token(r.consumer), _format_tip(r))
    marks.draw(drawing)
    shares = _draw_shares(mapped, at, colours, STRIP, None)
    return MapDrawing(mapped.scope, drawing.svg(), shares, 0, written, starts, outside)


def draw_partition_map(maps: Sequence[RangeMap], at: TimeFrame, colours: Palette) -> MapDrawing:
    """Partitions as rows, of one group or of one dispatcher each."""
    strips = [strip for mapped in maps for strip in _list_strips(mapped)]
    shown = strips[:MOST_ROWS]
    marks = build_epoch_marks(maps, at)
    label = "Partitions over time, coloured by the consumer that owned them"
    drawing = Drawing(ROW * len(shown), label, top=marks.room)
    draw_time_axis(drawing, at)
    for i, (name, rects) in enumerate(shown):
        drawing.text(-8, (i + 0.5) * ROW, shorten_name(name), anchor="end")
        for rect in rects:
            if at.is_visible(rect.start, rect.end):
                colour, tip = colours.find_token(rect.consumer), _format_row_tip(name, rect)
                draw_cell(drawing, at, rect.start, rect.end, i * ROW + 2, (i + 1) * ROW - 2, colour, tip)
    marks.draw(drawing)
    hidden = len(strips) - len(shown)
    return MapDrawing("", drawing.svg(), "", 0, len(marks.labels), len(_list_starts(maps, at)), 0, hidden)


def _list_strips(mapped: RangeMap) -> list[tuple[str, list[OwnedRectangle]]]:
    """The rows of a map: its partitions, or itself as one row where its dispatcher has a single owner at a time."""
    single = all(len(epoch.bands) <= 1 for epoch in mapped.epochs)
    if single and (mapped.high - mapped.low >= MOST_ROWS or mapped.low == mapped.high):
        name = re.sub(r".*-partition-(\d+)$", r"partition \1", mapped.scope.rsplit("/", 1)[-1])
        return [(name, _list_owners(mapped, None))]
    return [(f"partition {part}", _list_owners(mapped, part)) for part in range(mapped.low, mapped.high + 1)]


def _list_owners(mapped: RangeMap, part: int | None) -> list[OwnedRectangle]:
    """Who owned one partition (or all of them), epoch by epoch."""
    rects = []
    for epoch in mapped.epochs:
        owner = next((b.consumer for b in epoch.bands if part is None or b.start <= part <= b.end), None)
        rects.append(OwnedRectangle(epoch.start_us, epoch.end_us, 0, 1, owner))
    return rects


def _format_row_tip(name: str, rect: OwnedRectangle) -> str:
    return f"{name}: {rect.consumer or NOBODY}, {format_stretch(rect.start, rect.end)}"


def _draw_shares(mapped: RangeMap, at: TimeFrame, colours: Palette, height: int, over: EpochMarks | None) -> str:
    """How much of the slots each consumer owned, over time; a consumer's band stays at its place in the order."""
    label = f"Share of the slots of {mapped.scope} that each consumer owned, over time"
    drawing = Drawing(height, label, top=over.room if over else 8)
    draw_time_axis(drawing, at)
    draw_marked_axis(drawing, [(height, "0%"), (height / 2, "50%"), (0, "100%")])
    _draw_unowned(drawing, mapped, at)
    for epoch in (e for e in mapped.epochs if at.is_visible(e.start_us, e.end_us)):
        base = float(height)
        for one in sorted(epoch.shares, key=lambda one: (one.consumer is None, natural_sort_key(one.consumer or ""))):
            name, colour = (one.consumer, colours.find_token(one.consumer)) if one.consumer else ("others", "others")
            tip = f"{name}: {format_percent(one.share)} of the slots, {format_stretch(epoch.start_us, epoch.end_us)}"
            top = base - one.share * height
            draw_cell(drawing, at, epoch.start_us, epoch.end_us, base, top, colour, tip)
            base = top
    if over:
        over.draw(drawing)
    return drawing.svg()


def _draw_unowned(drawing: Drawing, mapped: RangeMap, at: TimeFrame) -> None:
    """A ground that shows wherever no rectangle covers it: slots without an owner."""
    inside = [epoch for epoch in mapped.epochs if at.is_visible(epoch.start_us, epoch.end_us)]
    if inside:
        start, end = min(epoch.start_us for epoch in inside), max(epoch.end_us for epoch in inside)
        draw_cell(drawing, at, start, end, 0, drawing.height, NOBODY, NOBODY)


def build_epoch_marks(maps: Sequence[RangeMap], at: TimeFrame) -> EpochMarks:
    """Where epochs begin inside the picture, and the causes for which there is room above it."""
    starts = _list_starts(maps, at)
    pixels = [at.to_pixel(start) for start, _ in starts]
    flat = _has_room_for_all(pixels, [_format_label(text) for _, text in starts])
    chosen = dict.fromkeys(range(len(starts)), 0) if flat else _choose_labels(pixels)
    labels = tuple([(pixels[i], _format_label(starts[i][1], hidden)) for i, hidden in chosen.items()])
    room = 26 if flat else round(SLANT_MARGIN + SLANT_RISE * max(len(text) for _, text in labels))
    return EpochMarks(tuple(pixels), labels, not flat, room)


def _format_label(cause: str, hidden: int = 0) -> str:
    """A cause as short as there is room for, and how many more it stands for."""
    more = f" +{hidden}" if hidden else ""
    room = MAX_LABEL_LENGTH - len(more)
    return (f"{cause[: room - 1].rstrip()}…" if len(cause) > room else cause) + more


def _list_starts(maps: Sequence[RangeMap], at: TimeFrame) -> list[tuple[int, str]]:
    """When epochs begin inside the picture, and why; the same event of several dispatchers once."""
    views: list[EpochView] = [epoch for mapped in maps for epoch in mapped.epochs]
    return sorted({(e.start_us, shorten_cause(e.cause)) for e in views if at.start <= e.start_us < at.end})


def _has_room_for_all(pixels: Sequence[float], texts: Sequence[str]) -> bool:
    """Whether all labels fit beside each other, level."""
    ends = [x + len(text) * LETTER_WIDTH + 10 for x, text in zip(pixels, texts, strict=True)]
    return all(end <= x for end, x in zip(ends, [*pixels[1:], PLOT + 40], strict=True)) if pixels else True


def _choose_labels(pixels: Sequence[float]) -> dict[int, int]:
    """The labels that have room when slanted, each far enough from the one before, and how many it hides."""
    chosen: dict[int, int] = {}
    last = 0
    for i, x in enumerate(pixels):
        if not chosen or x - pixels[last] >= SLANT_GAP:
            chosen[i], last = 0, i
        else:
            chosen[last] += 1
    return chosen


def _format_tip(rect: OwnedRectangle) -> str:
    """What a rectangle is, for a pointer that rests on it."""
    slots = f"{format_count(rect.low)} to {format_count(rect.high - 1)}"
    return f"{rect.consumer or NOBODY}: slots {slots}, {format_stretch(rect.start, rect.end)}"
