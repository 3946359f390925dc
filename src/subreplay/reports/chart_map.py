"""The range map: the slots (or partitions) of a subscription over time, in the colours of their owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
from markupsafe import Markup

from subreplay.reports import words
from subreplay.reports.canvas import LEFT, PLOT, Frame, Rows, figure, marks, places, shorten, time_axis, token
from subreplay.reports.data import EpochView, RangeMap
from subreplay.reports.palette import Palette
from subreplay.reports.rangemap import Picture, owned_share, picture
from subreplay.reports.svg import draw

ROW = 24  # height of a partition's row
MOST_ROWS = 40
LETTER = 5.6  # about the width of a letter, in pixels
MOST_LETTERS = 26
SLANT_GAP = 13
SLANT_ROOM = 92
HEIGHTS = {1: 360, 2: 240, 3: 200}  # of each of so many slot maps


@dataclass(frozen=True, slots=True)
class MapDrawing:
    """A drawn map and what its caption needs."""

    scope: str
    svg: Markup
    shares: Markup  # who owns how much of the slots; empty for partitions
    pictured: Picture | None
    labels: int  # causes written above the map
    causes: int
    outside: int  # epochs before or after the picture


def slot_map(mapped: RangeMap, at: Frame, colours: Palette, alone: int) -> MapDrawing:
    """One dispatcher's slots; ``alone`` is how many maps share the page."""
    height = HEIGHTS.get(alone, 160)
    drawn = picture(mapped, height // 3)
    rows = [
        {"x": at.x(r.start), "x2": at.x(r.end), "y": r.low, "y2": r.high, "colour": colours.token(r.consumer),
         "tip": f"{_who(r.consumer, drawn)}: slots {_range(r.low, r.high)}, {_times(r.start, r.end)}"}
        for r in drawn.rects if at.shows(r.start, r.end)
    ]  # fmt: skip
    slots = mapped.high - mapped.low + 1
    ticks = [mapped.low + slots * i // 4 for i in range(5)]
    scale = alt.Scale(domain=[mapped.low, mapped.high + 1], nice=False, zero=False)
    y = alt.Y("y:Q", scale=scale, axis=alt.Axis(title=None, values=ticks, grid=False, format=","))
    boxes = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    lines, written, top = causes([mapped], at, height)
    spec = figure([_nobody([mapped], at, mapped.low, mapped.high + 1, boxes), (rows, boxes), *lines], height, top=top)
    label = f"Slots of {mapped.scope} over time, coloured by the consumer that owned them"
    outside = sum(not at.shows(e.start_us, e.end_us) for e in mapped.epochs)
    inside = _starts([mapped], at)
    return MapDrawing(
        mapped.scope, draw(spec, label), _shares(mapped, at, colours), drawn, written, len(inside), outside
    )


def partition_map(maps: Sequence[RangeMap], at: Frame, colours: Palette) -> MapDrawing:
    """Partitions as rows, of one group or of one dispatcher each."""
    rows_of = [(mapped, part) for mapped in maps for part in range(mapped.low, mapped.high + 1)][:MOST_ROWS]
    rows, names = [], []
    for i, (mapped, part) in enumerate(rows_of):
        name = f"partition {part}" if mapped.low != mapped.high or mapped.scope.endswith(f"-{part}") else mapped.scope
        names.append({"y": (i + 0.5) * ROW, "text": shorten(name)})
        for epoch in mapped.epochs:
            owner = next((b.consumer for b in epoch.bands if b.start <= part <= b.end), None)
            if at.shows(epoch.start_us, epoch.end_us):
                rows.append({"x": at.x(epoch.start_us), "x2": at.x(epoch.end_us), "y": i * ROW + 2, "y2": (i + 1) * ROW - 2,
                             "colour": colours.token(owner),
                             "tip": f"{name}: {owner or 'nobody'}, {_times(epoch.start_us, epoch.end_us)}"})  # fmt: skip
    height = ROW * len(rows_of)
    y = alt.Y("y:Q", scale=places(height), axis=None)
    boxes = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    titles = marks().mark_text(align="right", baseline="middle", aria=False).encode(x=alt.value(-8), y=y, text="text:N")
    lines, written, top = causes(maps, at, height)
    spec = figure([(rows, boxes), (names, titles), *lines], height, top=top)
    label = "Partitions over time, coloured by the consumer that owned them"
    return MapDrawing("", draw(spec, label), Markup(), None, written, len(_starts(maps, at)), 0)


def _shares(mapped: RangeMap, at: Frame, colours: Palette) -> Markup:
    """How much of the slots each consumer owns, over time."""
    rows = []
    for epoch in (e for e in mapped.epochs if at.shows(e.start_us, e.end_us)):
        base = 0.0
        for name, share in owned_share(epoch, mapped.low, mapped.high).items():
            rows.append({"x": at.x(epoch.start_us), "x2": at.x(epoch.end_us), "y": base, "y2": base + share,
                         "colour": colours.token(name),
                         "tip": f"{name}: {words.percent(share)} of the slots, {_times(epoch.start_us, epoch.end_us)}"})  # fmt: skip
            base += share
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=alt.Axis(title=None, format="%", values=[0, 0.5, 1], grid=False))
    boxes = marks().mark_rect().encode(x=time_axis(at), x2="x2:T", y=y, y2="y2:Q", color=token(), description="tip:N")
    label = f"Share of the slots of {mapped.scope} that each consumer owned, over time"
    return draw(figure([_nobody([mapped], at, 0, 1, boxes), (rows, boxes)], 84), label)


def _nobody(maps: Sequence[RangeMap], at: Frame, low: float, high: float, boxes: alt.Chart) -> tuple[Rows, alt.Chart]:
    """A ground that shows wherever nobody's colour covers it: slots without an owner."""
    starts = [at.x(e.start_us) for m in maps for e in m.epochs if at.shows(e.start_us, e.end_us)]
    ends = [at.x(e.end_us) for m in maps for e in m.epochs if at.shows(e.start_us, e.end_us)]
    row = {"x": min(starts, default=0), "x2": max(ends, default=0), "y": low, "y2": high, "colour": "nobody",
           "tip": "nobody"}  # fmt: skip
    return ([row] if starts else []), boxes


def causes(maps: Sequence[RangeMap], at: Frame, height: int) -> tuple[list[tuple[Rows, alt.Chart]], int, int]:
    """Lines where epochs begin and the causes above them; how many causes have room; the room above the plot."""
    starts = _starts(maps, at)
    texts = [f"{text[: MOST_LETTERS - 1]}…" if len(text) > MOST_LETTERS else text for _, text in starts]
    pixels = [at.pixel(start) for start, _ in starts]
    flat = _fits(pixels, texts)
    chosen = {i: 0 for i in range(len(starts))} if flat else _spread(pixels)
    lines = [{"x": at.x(start)} for start, _ in starts]
    labels = [{"x": at.x(starts[i][0]), "text": texts[i] + (f" +{n}" if n else "")} for i, n in chosen.items()]
    x = time_axis(at)
    rule = marks().mark_rule(strokeDash=[3, 3], strokeWidth=1, aria=False, color="epoch").encode(
        x=x, y=alt.value(-6), y2=alt.value(height))  # fmt: skip
    turn = {"align": "left", "angle": 0, "dx": -1} if flat else {"align": "right", "angle": 40, "dx": 0}
    text = marks().mark_text(baseline="bottom", aria=False, **turn).encode(x=x, y=alt.value(-7), text="text:N")
    return [(lines, rule), (labels, text)], len(chosen), 26 if flat else SLANT_ROOM


def _starts(maps: Sequence[RangeMap], at: Frame) -> list[tuple[int, str]]:
    """When epochs begin inside the picture, and why; the same event of several dispatchers once."""
    views: list[EpochView] = [epoch for mapped in maps for epoch in mapped.epochs]
    return sorted({(e.start_us, e.cause) for e in views if at.start <= e.start_us < at.end})


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


def _who(name: str | None, drawn: Picture) -> str:
    return ("mostly " if drawn.slots_per_line else "") + (name or "nobody")


def _range(low: float, high: float) -> str:
    return f"{words.count(low)} to {words.count(high - 1)}"


def _times(start: int, end: int) -> str:
    return f"{words.utc_clock(start)} to {words.utc_clock(end)}"


assert LEFT > MOST_LETTERS * LETTER * 0.7, "a slanted label at the left edge must stay on the picture"
