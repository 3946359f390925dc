"""Build the timeline of an audit: traffic and waiting messages by window, and lanes of connected consumers.

A picture can show about 240 windows and 24 lanes. Neighbouring windows are merged if there are more. Consumers of
incidents keep a lane each, and the others share lanes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from subreplay.reports.assemble.epoch_views import find_extent
from subreplay.reports.figures import Figures, Row
from subreplay.reports.formatting import natural_sort_key
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.timeline_data import (
    Lane,
    LaneEvent,
    LaneEventKind,
    LaneStretch,
    RunTimeline,
    TimelinePoint,
)
from subreplay.semantics.timelines.timeline import Epoch, Timeline

MAX_POINTS: Final = 240
MAX_LANES: Final = 24
MAX_OWN_LANES: Final = 12  # of consumers in incidents, if lanes are shared
MAX_EVENTS: Final = 30  # of one lane
MAX_INTERVALS: Final = 60  # of one lane
MAX_STRETCHES: Final = 12  # of one lane
BLOCKING_CODES: Final = frozenset({"STUCK", "STARVED", "STALLED"})
"""Rules whose findings say that messages wait for the consumers of the incident."""
_VERBS: Final[Mapping[LaneEventKind, str]] = {
    "crash": "disconnected", "rejected": "was rejected", "leave": "left", "join": "joined", "rebalance": "rebalanced",
}  # fmt: skip
"""Kinds of events, the most telling first, and what they say of a consumer."""

Interval = tuple[int, int]


@dataclass
class _Presence:
    """When one consumer was connected to how many dispatchers, and its events. All times are in ns."""

    changes: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # of the number of its connections
    events: set[tuple[int, LaneEventKind]] = field(default_factory=set)

    def list_intervals(self, end: int) -> Iterator[Interval]:
        """List when it was connected to any dispatcher. The last interval ends at ``end``."""
        connections = since = 0
        for at, step in sorted(self.changes.items()):
            before, connections = connections, connections + step
            if not before and connections:
                since = at
            elif before and not connections:
                yield since, at
        if connections:
            yield since, max(end, since)


def build_timeline(figures: Figures, incidents: Sequence[IncidentView] = ()) -> RunTimeline:
    """Build the timeline of a run, with what incidents say about its consumers."""
    first, (_, end) = figures.extent["first"], find_extent(figures)
    shown_from = first - (end - first) // 10  # charts show no earlier events
    presences = _find_presences(figures.plan.timelines.values())
    for row in figures.consumers:  # consumers that the membership does not contain
        if row["consumer"]:
            presences.setdefault(row["consumer"], _Presence())
    groups = group_lanes(presences, [name for incident in incidents for name in incident.consumers])
    lanes = [_build_lane(names, presences, incidents, shown_from, end) for names in groups]
    return RunTimeline(build_points(figures), tuple(lanes), len(presences))


def build_points(figures: Figures) -> tuple[TimelinePoint, ...]:
    """Build the traffic by window. A message waits from the window of its publication until it is first delivered.

    Messages that were published before the first window, on an earlier day, wait from the start.
    """
    published, delivered, redelivered = (
        _sum_by_window(figures.published, "messages"),
        _sum_by_window(figures.load, "messages"),
        _sum_by_window(figures.load, "redelivered"),
    )
    if not published and not delivered:
        return ()
    width = figures.width
    first = min([figures.extent["first"] // width * width, *delivered])
    starts = range(first, max([*published, *delivered, first]) + 1, width)
    step = -(-len(starts) // MAX_POINTS)
    waiting = sum(messages for start, messages in published.items() if start < first)
    points = []
    for start in starts[::step]:
        merged = range(start, min(start + step * width, starts.stop), width)
        new, given, again = (
            sum(counts.get(window, 0) for window in merged) for counts in (published, delivered, redelivered)
        )
        waiting += new - (given - again)
        bounds = start // 1_000, merged[-1] // 1_000 + width // 1_000
        points.append(TimelinePoint(*bounds, new, given - again, again, max(waiting, 0)))
    return tuple(points)


def _sum_by_window(rows: Iterable[Row], column: str) -> dict[int, int]:
    sums: dict[int, int] = defaultdict(int)
    for row in rows:
        sums[row["window"]] += row.get(column, 0)
    return sums


def _find_presences(timelines: Iterable[Timeline]) -> dict[str, _Presence]:
    """Find when each consumer was connected to any dispatcher."""
    found: dict[str, _Presence] = defaultdict(_Presence)
    for timeline in timelines:
        for epoch in timeline.epochs[1:]:
            at = epoch.start.at
            if epoch.joined is not None:
                found[epoch.joined.label].changes[at] += 1
            for consumer in epoch.left:
                found[consumer.label].changes[at] -= 1
            for name, kind in _list_events(timeline, epoch):
                found[name].events.add((at, kind))
    return dict(found)


def _list_events(timeline: Timeline, epoch: Epoch) -> Iterator[tuple[str, LaneEventKind]]:
    """List the events of an epoch. An epoch that only changes owners is a rebalance of the old and the new owner."""
    if epoch.cause is None:
        return
    if epoch.rejected is not None:
        yield epoch.cause.label, "rejected"
        return
    if epoch.joined is not None:
        yield epoch.joined.label, "join"
    # a join also removes consumers: those whose connection the broker then finds dead
    kind: LaneEventKind = "leave" if epoch.cause.event == "leave" else "crash"
    yield from ((consumer.label, kind) for consumer in epoch.left)
    if epoch.joined is None and not epoch.left:
        owners = {owner for move in epoch.moves for owner in (move.before, move.after) if owner >= 0}
        yield from ((timeline.consumers[owner].label, "rebalance") for owner in sorted(owners))


def group_lanes(names: Iterable[str], concerned: Iterable[str], most: int = MAX_LANES) -> list[tuple[str, ...]]:
    """Group consumers into at most ``most`` lanes, in natural order. The first ``concerned`` ones have their own.

    Consumers whose names differ only in their number share lanes, as evenly as possible.
    """
    ordered = sorted(names, key=natural_sort_key)
    if len(ordered) <= most:
        return [(name,) for name in ordered]
    known = set(ordered)
    own = set([name for name in dict.fromkeys(concerned) if name in known][: min(MAX_OWN_LANES, most - 1)])
    families: dict[str, list[str]] = defaultdict(list)
    for name in ordered:
        if name not in own:
            families[re.sub(r"\d+", "", name)].append(name)
    groups, free = [*families.values()], most - len(own)
    if len(groups) > free:
        groups = [[name for group in groups for name in group]]
    lanes = [1] * len(groups)
    while sum(lanes) < free and (size := max(len(group) / of for group, of in zip(groups, lanes, strict=True))) > 1:
        lanes[next(i for i, group in enumerate(groups) if len(group) / lanes[i] == size)] += 1
    shared = [
        tuple(group[len(group) * i // of : len(group) * (i + 1) // of])
        for group, of in zip(groups, lanes, strict=True)
        for i in range(of)
    ]
    return sorted([*((name,) for name in own), *shared], key=lambda group: natural_sort_key(group[0]))


def _build_lane(
    names: tuple[str, ...], presences: Mapping[str, _Presence], incidents: Sequence[IncidentView], begin: int, end: int
) -> Lane:
    connected = merge_intervals([of for name in names for of in presences[name].list_intervals(end)])
    events = _merge_events(names, presences, begin, max((end - begin) // MAX_POINTS, 1))
    shown = sorted(events, key=lambda event: ([*_VERBS].index(event.kind), event.at_us))[:MAX_EVENTS]
    members = set(names)
    stretches = [
        LaneStretch(incident.start_us, incident.end_us, incident.number, acts and incident.code in BLOCKING_CODES)
        for incident in incidents
        if (acts := bool(members.intersection(incident.consumers))) or members.intersection(incident.waiting)
    ]
    return Lane(
        _name_lane(names),
        len(names),
        tuple([(start // 1_000, stop // 1_000) for start, stop in connected]),
        tuple(sorted(shown, key=lambda event: event.at_us)),
        len(events) - len(shown),
        tuple(stretches[:MAX_STRETCHES]),
    )


def _name_lane(names: Sequence[str]) -> str:
    """Name the consumers of a lane: ``c7``, ``c1 to 9``, or ``billing-3 to mail-2``."""
    first, last = names[0], names[-1]
    family = re.split(r"\d", first, maxsplit=1)[0]
    return first if len(names) == 1 else f"{first} to {last[len(family) :] if last.startswith(family) else last}"


def merge_intervals(intervals: Iterable[Interval], most: int = MAX_INTERVALS) -> list[Interval]:
    """Merge intervals that overlap or touch, and then those with the smallest gaps until ``most`` are left."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    if len(merged) <= most:
        return merged
    gaps = sorted(((after[0] - before[1], i) for i, (before, after) in enumerate(pairwise(merged))), reverse=True)
    cuts = [0, *sorted(i + 1 for _, i in gaps[: most - 1]), len(merged)]
    return [(merged[first][0], merged[last - 1][1]) for first, last in pairwise(cuts)]


def _merge_events(names: Sequence[str], presences: Mapping[str, _Presence], begin: int, width: int) -> list[LaneEvent]:
    """Merge the events of one kind that are too close together to draw, such as those of all partitions at one join.
    Events earlier than ``begin`` are left out."""
    columns: dict[tuple[LaneEventKind, int], list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        for at, kind in presences[name].events:
            if at >= begin:
                columns[kind, (at - begin) // width].append((at, name))
    events = []
    for (kind, _), together in columns.items():
        who = sorted({name for _, name in together}, key=natural_sort_key)
        subject = "" if len(names) == 1 else f"{who[0]} " if len(who) == 1 else f"{len(who)} consumers "
        verb = _VERBS[kind].replace("was", "were") if len(who) > 1 else _VERBS[kind]
        events.append(LaneEvent(min(at for at, _ in together) // 1_000, kind, subject + verb))
    return events
