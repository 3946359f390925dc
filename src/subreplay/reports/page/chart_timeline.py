"""Draw the timeline of an audit: waiting messages, deliveries per second, lanes of consumers, and incidents.

There are two pictures of the same marks. The narrow one is for small screens, where the other would be cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from subreplay.reports.formatting import format_count, format_plural, format_short_count, format_span
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.page.chart_canvas import (
    TimeFrame,
    choose_round_ticks,
    draw_time_axis,
    format_dated_clock,
    shorten_name,
)
from subreplay.reports.page.svg import LEFT, RIGHT, Drawing
from subreplay.reports.timeline_data import Lane, LaneEventKind, RunTimeline, TimelinePoint

NARROW_LEFT, NARROW, NARROW_RIGHT = 62, 272, 28
"""Width and margins of the narrow picture in pixels."""
NARROW_POINTS: Final = 80
MAX_SPANS: Final = 12  # incidents
MAX_ROWS: Final = 4  # rows of incidents that overlap in time
SPAN, CAPTION, WAITING, RATE, LANE = 16, 18, 72, 40, 18  # heights
MAX_BANDS: Final = 3  # shaded incidents
MIN_SPAN: Final = 13.0  # width with space for the number
LETTER: Final = 8.5  # width of a capital letter
SECOND: Final = 1_000_000  # µs


_COLOURS: Final = {"unknown": "t-span t-unknown"}


class Sign(NamedTuple):
    """The mark of a membership event: its shape around (0, 0), its colour token, and its meaning."""

    path: str
    colour: str
    words: str


SIGNS: Final[dict[LaneEventKind, Sign]] = {
    "join": Sign("M0,-4.5L4.5,3.5H-4.5Z", "t-ink", "joined"),
    "leave": Sign("M0,4.5L4.5,-3.5H-4.5Z", "t-ink", "left"),
    "crash": Sign("M-4,-3L-3,-4L0,-1L3,-4L4,-3L1,0L4,3L3,4L0,1L-3,4L-4,3L-1,0Z", "t-bad", "disconnected"),
    "rejected": Sign("M0,-4.5L4.5,0L0,4.5L-4.5,0Z", "t-bad", "was rejected"),
    "rebalance": Sign("M-1,-7H1V7H-1Z", "t-muted", "rebalanced"),
}


@dataclass(frozen=True, slots=True)
class TimelineDrawing:
    """Both pictures, the sentence above them, and what their legend contains."""

    wide: str
    narrow: str
    sentence: str
    frame: tuple[int, int]  # µs
    signs: tuple[Sign, ...]
    redelivers: bool
    blocks: bool
    concerns: bool
    groups: bool  # a lane is several consumers
    events_left_out: int
    spans_left_out: int  # incidents


class _Span(NamedTuple):
    """An incident in its row."""

    incident: IncidentView
    row: int
    start: float  # pixels
    end: float


def draw_timeline(timeline: RunTimeline, incidents: Sequence[IncidentView], at: TimeFrame) -> TimelineDrawing:
    """Draw the timeline of a run with its incidents."""
    narrow = replace(at, width=NARROW)
    stretches = [stretch for lane in timeline.lanes for stretch in lane.stretches]
    kinds = {event.kind for lane in timeline.lanes for event in lane.events}
    label = _describe(timeline, incidents, at)
    spans = _place_spans(incidents, at)
    return TimelineDrawing(
        wide=_Picture(timeline.points, timeline.lanes, spans, at, label, LEFT, RIGHT, tips=True).draw(),
        narrow=_Picture(
            tuple(_merge_points(timeline.points)), timeline.lanes, _place_spans(incidents, narrow), narrow, label,
            NARROW_LEFT, NARROW_RIGHT, tips=False,
        ).draw(),
        sentence=summarize_traffic(timeline.points, at),
        frame=(at.start, at.end),
        signs=tuple([sign for kind, sign in SIGNS.items() if kind in kinds]),
        redelivers=any(point.redelivered for point in timeline.points),
        blocks=any(stretch.blocks for stretch in stretches),
        concerns=any(not stretch.blocks for stretch in stretches),
        groups=any(lane.consumers > 1 for lane in timeline.lanes),
        events_left_out=sum(lane.events_left_out for lane in timeline.lanes),
        spans_left_out=len(incidents) - len(spans),
    )  # fmt: skip


def summarize_traffic(points: Sequence[TimelinePoint], at: TimeFrame) -> str:
    """Say how many messages waited, and how many were redelivered."""
    if not points:
        return "Nothing was published or delivered."
    peak, last = max(points, key=lambda point: point.waiting), points[-1].waiting
    width = format_span(points[0].end_us - points[0].start_us)
    if not peak.waiting:
        sentence = f"No message waited longer than a column of the picture ({width})."
    elif last == peak.waiting:
        sentence = f"{format_plural(last, 'message waits', 'messages wait')} when the data end, more than before."
    else:
        when = format_dated_clock(peak.end_us, at)
        still = f"{format_plural(last, 'waits', 'wait')} when the data end" if last else "none wait when the data end"
        sentence = f"At most {format_plural(peak.waiting, 'message')} waited, at {when}; {still}."
    again = sum(point.redelivered for point in points)
    deliveries = again + sum(point.delivered for point in points)
    if again:
        is_are = "is a redelivery" if again == 1 else "are redeliveries"
        sentence += f" {format_count(again)} of {format_plural(deliveries, 'delivery', 'deliveries')} {is_are}."
    return sentence


def _describe(timeline: RunTimeline, incidents: Sequence[IncidentView], at: TimeFrame) -> str:
    """Describe the picture for readers who do not see it."""
    what = f"{format_plural(timeline.consumers, 'consumer')}, {format_plural(len(incidents), 'incident')}"
    period = f"{format_dated_clock(at.start, at)} to {format_dated_clock(at.end, at)}"
    return f"Timeline from {period}. {summarize_traffic(timeline.points, at)} {what}."


def _merge_points(points: Sequence[TimelinePoint]) -> Iterator[TimelinePoint]:
    """Merge neighbours, so that a narrow picture shows all of them."""
    step = -(-len(points) // NARROW_POINTS) or 1
    for first in range(0, len(points), step):
        some = points[first : first + step]
        published, delivered, redelivered = (
            sum(getattr(point, name) for point in some) for name in ("published", "delivered", "redelivered")
        )
        yield TimelinePoint(some[0].start_us, some[-1].end_us, published, delivered, redelivered, some[-1].waiting)


def _place_spans(incidents: Sequence[IncidentView], at: TimeFrame) -> list[_Span]:
    """Place incidents in rows where they do not overlap; the most severe ones first."""
    rows: list[list[_Span]] = [[] for _ in range(MAX_ROWS)]
    for incident in incidents[:MAX_SPANS]:
        if not at.is_visible(incident.start_us, max(incident.end_us, incident.start_us + 1)):
            continue
        start = min(at.to_pixel(incident.start_us), at.width - MIN_SPAN)
        end = max(at.to_pixel(incident.end_us), start + MIN_SPAN)
        for number, row in enumerate(rows):
            if all(end + 2 <= other.start or start >= other.end + 2 for other in row):
                row.append(_Span(incident, number, start, end))
                break
    return [span for row in rows for span in row]


@dataclass(frozen=True, slots=True)
class _Picture:
    """One picture of the timeline, from top to bottom: incidents, waiting messages, deliveries, lanes."""

    points: tuple[TimelinePoint, ...]
    lanes: tuple[Lane, ...]
    spans: list[_Span]
    at: TimeFrame
    label: str
    left: int
    right: int
    tips: bool  # whether each column has a tool tip

    def draw(self) -> str:
        rows = max([span.row + 1 for span in self.spans], default=0)
        waiting = rows * SPAN + CAPTION
        rate = waiting + WAITING + CAPTION + 6
        lanes = rate + RATE + 12
        height = lanes + LANE * len(self.lanes)
        drawing = Drawing(height, self.label, width=self.at.width, left=self.left, right=self.right)
        self._draw_bands(drawing)
        draw_time_axis(drawing, self.at)
        self._draw_waiting(drawing, waiting)
        self._draw_rate(drawing, rate)
        for i, lane in enumerate(self.lanes):
            self._draw_lane(drawing, lane, lanes + i * LANE)
        self._draw_spans(drawing)
        if self.tips:
            self._draw_tips(drawing, waiting, rate + RATE)
        return drawing.svg()

    def _draw_bands(self, drawing: Drawing) -> None:
        """Shade the time of the first incidents, except of those that last almost as long as the data."""
        for span in self.spans:
            if span.incident.number <= MAX_BANDS and span.end - span.start < self.at.width * 0.9:
                drawing.box(span.start, span.end, 0, drawing.height, "t-band")

    def _draw_spans(self, drawing: Drawing) -> None:
        """Draw a bar with the number of each incident, and its rule if there is space."""
        for incident, row, start, end in self.spans:
            top = row * SPAN
            drawing.box(
                start,
                end,
                top,
                top + SPAN - 3,
                _COLOURS.get(incident.verdict, "t-span"),
                self._format_incident(incident),
            )
            words = f"{incident.number} {incident.code}"
            fits = len(words) * LETTER < end - start
            words = words if fits else str(incident.number)
            drawing.text(start + 3.5, top + (SPAN - 3) / 2, words, bold=True, ink=True)

    def _format_incident(self, incident: IncidentView) -> str:
        return (
            f"Incident {incident.number}: {incident.title} ({self._format_period(incident.start_us, incident.end_us)})"
        )

    def _format_period(self, start: int, end: int) -> str:
        return f"{format_dated_clock(start, self.at)} to {format_dated_clock(end, self.at)}"

    def _draw_panel(self, drawing: Drawing, top: float, height: float, most: float, caption: str) -> float:
        """Draw the scale and the caption of a panel, and return the pixels of one unit."""
        scale = choose_round_ticks(most or 1)[-1]
        drawing.line(0, self.at.width, top, top, "grid")
        drawing.line(0, self.at.width, top + height, top + height, "axis")
        drawing.text(-5, top, format_short_count(scale), anchor="end")
        drawing.text(-5, top + height, "0", anchor="end")
        drawing.text(0, top - 4, caption, stands="bottom", ink=True)
        return height / scale

    def _draw_waiting(self, drawing: Drawing, top: float) -> None:
        most = max((point.waiting for point in self.points), default=0)
        unit = self._draw_panel(drawing, top, WAITING, most, "Waiting messages")
        if not most:
            return
        floor = top + WAITING
        line = [(self.at.to_pixel(point.end_us), floor - point.waiting * unit) for point in self.points]
        first = self.at.to_pixel(self.points[0].start_us)
        drawing.area([(first, floor), *line, (line[-1][0], floor)], "t-waiting")
        peak = max(range(len(self.points)), key=lambda i: self.points[i].waiting)
        x, y = line[peak]
        words = f"{format_count(most)} at {format_dated_clock(self.points[peak].end_us, self.at)}"
        drawing.dot(x, y, 2.5, "t-hot", f"Most messages waiting: {words}")
        at_left = x > self.at.width / 2
        y = max(y, top + 8)  # below the caption
        drawing.text(x + (-7 if at_left else 7), y, words, anchor="end" if at_left else "start", halo=True, bold=True)

    def _draw_rate(self, drawing: Drawing, top: float) -> None:
        seconds = [(point.end_us - point.start_us) / SECOND for point in self.points]
        rates = [
            (point.delivered / length, (point.delivered + point.redelivered) / length)
            for point, length in zip(self.points, seconds, strict=True)
        ]
        most = max((whole for _, whole in rates), default=0.0)
        caption = "Deliveries per second"
        unit = self._draw_panel(drawing, top, RATE, most, caption)
        floor = top + RATE
        for number, colour in ((1, "t-again"), (0, "t-first")):
            steps = [
                (self.at.to_pixel(instant), floor - rate[number] * unit)
                for point, rate in zip(self.points, rates, strict=True)
                for instant in (point.start_us, point.end_us)
            ]
            if number == 0 or any(point.redelivered for point in self.points):
                drawing.area([(steps[0][0], floor), *steps, (steps[-1][0], floor)] if steps else [], colour)

    def _draw_tips(self, drawing: Drawing, top: float, floor: float) -> None:
        """Cover both panels with columns that show the figures of a window."""
        for point in self.points:
            tip = f"{self._format_period(point.start_us, point.end_us)}: {format_count(point.published)} published, "
            tip += f"{format_count(point.delivered)} delivered for the first time, "
            tip += f"{format_count(point.redelivered)} redelivered, {format_count(point.waiting)} waiting"
            start, end = self.at.to_pixel(point.start_us), self.at.to_pixel(point.end_us)
            if end > start:
                drawing.box(start, end, top, floor, "t-tip", tip)

    def _draw_lane(self, drawing: Drawing, lane: Lane, top: float) -> None:
        middle = top + LANE / 2
        name = lane.name if lane.consumers == 1 else f"{lane.name} ({lane.consumers} consumers)"
        drawing.text(-8, middle, shorten_name(lane.name, 14 if self.tips else 9), anchor="end", ink=True)
        drawing.line(0, self.at.width, middle, middle, "grid")
        for start, end in lane.connected:
            if self.at.is_visible(start, end):
                tip = f"{name}: connected {self._format_period(start, end)}"
                self._draw_bar(drawing, start, end, (middle - 6, middle + 6), "t-live", tip)
        for stretch in sorted(lane.stretches, key=lambda one: one.blocks):
            colour, what = ("t-block", "messages wait for it") if stretch.blocks else ("t-touch", "is concerned")
            heights = (middle - 6, middle + 6) if stretch.blocks else (middle + 2, middle + 6)
            tip = (
                f"{name}: {what}, incident {stretch.incident}, {self._format_period(stretch.start_us, stretch.end_us)}"
            )
            if self.at.is_visible(stretch.start_us, max(stretch.end_us, stretch.start_us + 1)):
                self._draw_bar(drawing, stretch.start_us, stretch.end_us, heights, colour, tip)
        for event in sorted(lane.events, key=lambda event: event.kind != "rebalance"):  # a join covers what it caused
            if self.at.start <= event.at_us <= self.at.end:
                sign = SIGNS[event.kind]
                text = event.text if lane.consumers > 1 else f"{name} {event.text}"
                tip = f"{text} at {format_dated_clock(event.at_us, self.at)}"
                drawing.sign(self.at.to_pixel(event.at_us), middle, sign.path, f"t-sign {sign.colour}", tip)

    def _draw_bar(
        self, drawing: Drawing, start: int, end: int, heights: tuple[float, float], colour: str, tip: str
    ) -> None:
        """Draw an interval of a lane, at least one and a half pixels wide."""
        left = self.at.to_pixel(start)
        drawing.box(left, max(self.at.to_pixel(end), left + 1.5), *heights, colour, tip)
