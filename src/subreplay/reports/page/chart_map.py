"""Draw the range map: slots or partitions over time, in the colours of their owners."""

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
MAX_ROWS = 40
LETTER_WIDTH = 5.6  # approximate width of a letter, in pixels
MAX_LABEL_LENGTH = 20  # letters of a cause; a slanted label must fit into the left margin
SLANT_GAP = 13
SLANT_MARGIN, SLANT_RISE = 18, 3.7  # pixels above the plot, and per letter of a slanted label
MAX_MAP_BYTES = 250_000  # a map of more ranges is drawn as shares
HEIGHTS = {1: 300, 2: 240, 3: 200}  # height of a slot map by the number of maps
STRIP = 84  # height of the shares below a map


@dataclass(frozen=True, slots=True)
class MapDrawing:
    """A drawn map, and the figures of its caption."""

    scope: str
    svg: str  # the slots; empty if there are too many ranges to see
    shares: str  # fractions of the slots by consumer; empty for partitions
    thin: int  # highest number of ranges, if there are too many to see
    labels: int  # causes written above the map
    causes: int
    outside: int  # epochs before or after the picture
    rows_left_out: int = 0  # partitions without a row


@dataclass(frozen=True, slots=True)
class EpochMarks:
    """The starts of epochs (pixels from the left), with labels for their causes where they fit.

    ``label_height`` is the height of the labels above the plot. Labels are slanted if not all fit side by side.
    """

    lines: tuple[float, ...]
    labels: tuple[tuple[float, str], ...]
    slanted: bool
    label_height: int

    def draw(self, drawing: Drawing) -> None:
        for x in self.lines:
            drawing.line(x, x, -6, drawing.height, "epoch", "3,3")
        for x, text in self.labels:
            if self.slanted:
                drawing.text(x, -7, text, anchor="end", stands="bottom", angle=40)
            else:
                drawing.text(x, -7, text, stands="bottom")


def draw_slot_map(mapped: RangeMap, at: TimeFrame, colours: Palette, alone: int) -> MapDrawing:
    """Draw the slots of one dispatcher, or only their shares if there are too many ranges.

    ``alone`` is the number of maps on the page.
    """
    height = HEIGHTS.get(alone, 160)
    outside = sum(not at.is_visible(e.start_us, e.end_us) for e in mapped.epochs)
    starts = len(_list_starts([mapped], at))
    marks = build_epoch_marks([mapped], at)
    written = len(marks.labels)
    thin = max((epoch.bands_left_out for epoch in mapped.epochs), default=0)
    svg = "" if thin else _draw_slots(mapped, at, colours, height, marks)
    if len(svg) > MAX_MAP_BYTES:
        svg, thin = "", max(len(epoch.bands) for epoch in mapped.epochs)
    shares = _draw_shares(mapped, at, colours, height if thin else STRIP, marks if thin else None)
    return MapDrawing(mapped.scope, svg, shares, thin, written, starts, outside)


def _draw_slots(mapped: RangeMap, at: TimeFrame, colours: Palette, height: int, marks: EpochMarks) -> str:
    """Draw each range of slots in the colour of its owner."""
    label = f"Slots of {mapped.scope} over time, coloured by the consumer that owned them"
    drawing = Drawing(height, label, top=marks.label_height)
    slots = mapped.high - mapped.low + 1

    def y(slot: float) -> float:
        return height * (mapped.high + 1 - slot) / slots

    draw_time_axis(drawing, at)
    ticks = [*(mapped.low + slots * i // 4 for i in range(4)), mapped.high]
    draw_marked_axis(drawing, [(y(slot), format_count(slot)) for slot in ticks])
    _draw_ownerless_slots(drawing, mapped, at)
    for r in build_rectangles(mapped.epochs):
        if at.is_visible(r.start, r.end):
            draw_cell(drawing, at, r.start, r.end, y(r.low), y(r.high), colours.find_token(r.consumer), _format_tip(r))
    marks.draw(drawing)
    return drawing.svg()


def draw_partition_map(maps: Sequence[RangeMap], at: TimeFrame, colours: Palette) -> MapDrawing:
    """Draw partitions as rows, of one group or of one dispatcher each."""
    strips = [strip for mapped in maps for strip in _list_strips(mapped)]
    shown = strips[:MAX_ROWS]
    marks = build_epoch_marks(maps, at)
    label = "Partitions over time, coloured by the consumer that owned them"
    drawing = Drawing(ROW * len(shown), label, top=marks.label_height)
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
    """List the rows of a map: its partitions, or one row if the dispatcher has a single owner at a time."""
    single = all(len(epoch.bands) <= 1 for epoch in mapped.epochs)
    if single and (mapped.high - mapped.low >= MAX_ROWS or mapped.low == mapped.high):
        name = re.sub(r".*-partition-(\d+)$", r"partition \1", mapped.scope.rsplit("/", 1)[-1])
        return [(name, _list_owners(mapped, None))]
    return [(f"partition {part}", _list_owners(mapped, part)) for part in range(mapped.low, mapped.high + 1)]


def _list_owners(mapped: RangeMap, part: int | None) -> list[OwnedRectangle]:
    """Draw the owners of one partition (or of all) epoch by epoch."""
    rects = []
    for epoch in mapped.epochs:
        owner = next((b.consumer for b in epoch.bands if part is None or b.start <= part <= b.end), None)
        rects.append(OwnedRectangle(epoch.start_us, epoch.end_us, 0, 1, owner))
    return rects


def _format_row_tip(name: str, rect: OwnedRectangle) -> str:
    return f"{name}: {rect.consumer or NOBODY}, {format_stretch(rect.start, rect.end)}"


def _draw_shares(mapped: RangeMap, at: TimeFrame, colours: Palette, height: int, over: EpochMarks | None) -> str:
    """Draw the fraction of the slots that each consumer owned over time, in a fixed order of consumers."""
    label = f"Share of the slots of {mapped.scope} that each consumer owned, over time"
    drawing = Drawing(height, label, top=over.label_height if over else 8)
    draw_time_axis(drawing, at)
    draw_marked_axis(drawing, [(height, "0%"), (height / 2, "50%"), (0, "100%")])
    _draw_ownerless_slots(drawing, mapped, at)
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


def _draw_ownerless_slots(drawing: Drawing, mapped: RangeMap, at: TimeFrame) -> None:
    """Draw the background, which shows slots without an owner."""
    inside = [epoch for epoch in mapped.epochs if at.is_visible(epoch.start_us, epoch.end_us)]
    if inside:
        start, end = min(epoch.start_us for epoch in inside), max(epoch.end_us for epoch in inside)
        draw_cell(drawing, at, start, end, 0, drawing.height, NOBODY, NOBODY)


def build_epoch_marks(maps: Sequence[RangeMap], at: TimeFrame) -> EpochMarks:
    """Find the starts of epochs inside the picture, and the cause labels that fit above it."""
    starts = _list_starts(maps, at)
    pixels = [at.to_pixel(start) for start, _ in starts]
    flat = _fits_all_labels(pixels, [_format_label(text) for _, text in starts])
    chosen = dict.fromkeys(range(len(starts)), 0) if flat else _choose_labels(pixels)
    labels = tuple([(pixels[i], _format_label(starts[i][1], hidden)) for i, hidden in chosen.items()])
    label_height = 26 if flat else round(SLANT_MARGIN + SLANT_RISE * max(len(text) for _, text in labels))
    return EpochMarks(tuple(pixels), labels, not flat, label_height)


def _format_label(cause: str, hidden: int = 0) -> str:
    """Shorten a cause to fit, and append the number of hidden causes."""
    more = f" +{hidden}" if hidden else ""
    length = MAX_LABEL_LENGTH - len(more)
    return (f"{cause[: length - 1].rstrip()}…" if len(cause) > length else cause) + more


def _list_starts(maps: Sequence[RangeMap], at: TimeFrame) -> list[tuple[int, str]]:
    """List the starts and causes of epochs inside the picture; equal events of several dispatchers count once."""
    views: list[EpochView] = [epoch for mapped in maps for epoch in mapped.epochs]
    return sorted({(e.start_us, shorten_cause(e.cause)) for e in views if at.start <= e.start_us < at.end})


def _fits_all_labels(pixels: Sequence[float], texts: Sequence[str]) -> bool:
    """Return whether all horizontal labels fit side by side."""
    ends = [x + len(text) * LETTER_WIDTH + 10 for x, text in zip(pixels, texts, strict=True)]
    return all(end <= x for end, x in zip(ends, [*pixels[1:], PLOT + 40], strict=True)) if pixels else True


def _choose_labels(pixels: Sequence[float]) -> dict[int, int]:
    """Select the slanted labels that fit, each with the number of labels that it hides."""
    chosen: dict[int, int] = {}
    last = 0
    for i, x in enumerate(pixels):
        if not chosen or x - pixels[last] >= SLANT_GAP:
            chosen[i], last = 0, i
        else:
            chosen[last] += 1
    return chosen


def _format_tip(rect: OwnedRectangle) -> str:
    """Format the tool tip of a rectangle."""
    slots = f"{format_count(rect.low)} to {format_count(rect.high - 1)}"
    return f"{rect.consumer or NOBODY}: slots {slots}, {format_stretch(rect.start, rect.end)}"
