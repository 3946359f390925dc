"""The timeline of a Kafka partition from its consumers' callbacks: ``assigned``, ``revoked``, ``lost``.

A consumer that exceeds ``max.poll.interval.ms`` leaves its group without knowing it. By its callbacks it owns its
partitions until it polls again and gets the ``lost`` callback. The consumer with the latest ``assigned`` callback is
the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.range_table import NOBODY, Move
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.timelines.consumer_aliases import find_leaving_member
from subreplay.semantics.timelines.timeline import (
    BEGINNING,
    Epoch,
    OwnerIndex,
    Timeline,
    compute_epoch_bounds,
    make_consumer,
)

MembershipEvents = Sequence[MembershipEvent]


class OwnershipInterval(NamedTuple):
    """The ownership of a partition from ``assigned`` until ``ended`` (None: it lasts to the end of the data)."""

    assigned: MembershipEvent
    ended: MembershipEvent | None

    @property
    def consumer(self) -> str:
        return self.assigned.consumer


def find_ownership_intervals(recorded: MembershipEvents, changes: MembershipEvents) -> list[OwnershipInterval]:
    """Return the ownership intervals of a partition in the order of their starts.

    ``recorded`` are the callbacks of consumers and ``changes`` the joins, leaves and crashes. A consumer that left owns
    the partition until its callback. Without a callback (its process ended), it owns the partition until it left.
    """
    departures: dict[str, list[MembershipEvent]] = {}
    for event in changes:
        if event.event != "join":
            departures.setdefault(event.consumer, []).append(event)
    open_assignments: dict[str, MembershipEvent] = {}
    found: list[OwnershipInterval] = []

    def left(assigned: MembershipEvent) -> MembershipEvent | None:
        return next((event for event in departures.get(assigned.consumer, ()) if event.at >= assigned.at), None)

    for event in recorded:
        if event.event == "assigned":
            before = open_assignments.get(event.consumer)
            departure = None if before is None else left(before)
            if before is None or (departure is not None and departure.at < event.at):
                if before is not None:
                    found.append(OwnershipInterval(before, departure))
                open_assignments[event.consumer] = event
        elif event.event in ("revoked", "lost") and event.consumer in open_assignments:
            found.append(OwnershipInterval(open_assignments.pop(event.consumer), event))
    found += [OwnershipInterval(assigned, left(assigned)) for assigned in open_assignments.values()]
    return sorted(found, key=lambda one: one.assigned.at)


def detection_delay_ns(policy: Any, event: MembershipEvent | None) -> int:
    """Return how long (ns) after a departure the coordinator may wait for the member: its session timeout."""
    late_detection = (
        event is not None and event.event != "join" and (event.event == "crash" or event.instance_id is not None)
    )
    return getattr(policy, "session_timeout_us", 0) * 1_000 if late_detection else 0


def find_abandonment_time(policy: Any, recorded: MembershipEvents, changes: MembershipEvents) -> int:
    """Return when the last assigned owner of a partition was gone (ns), if no other member got the partition since.

    Returns ``NEVER`` if the owner is connected or decisions are not recorded.
    """
    decided = [event for event in recorded if event.event in ("owner", "withdrawn")]
    if not decided or any(event.event == "assigned" and event.at > decided[-1].at for event in recorded):
        return NEVER
    last = decided[-1]
    if last.event == "withdrawn":
        return last.at.at
    later = [event for event in changes if event.consumer == last.consumer and event.at >= last.at]
    came_back = any(event.event == "join" for event in later)
    return NEVER if came_back or not later else later[-1].at.at + detection_delay_ns(policy, later[-1])


def build_recorded_timelines(
    policy: Any, changes: Mapping[Scope, MembershipEvents], recorded: Mapping[Scope, MembershipEvents]
) -> dict[Scope, Timeline]:
    """Build the timeline of each topic partition from its ``recorded`` callbacks."""
    return {
        scope: _build_timeline(policy, scope, scope_events, recorded.get(scope, ()))
        for scope, scope_events in changes.items()
    }


class _TimelineEvent(NamedTuple):
    """An event of a timeline: a join, a leave, or the start or end of an ownership ``interval`` (by its number)."""

    at: Instant
    since: Instant
    event: MembershipEvent
    interval: int = -1
    begins: bool = False


def _build_timeline(policy: Any, scope: Scope, changes: MembershipEvents, recorded: MembershipEvents) -> Timeline:
    owned = find_ownership_intervals(recorded, changes)
    consumers: list[Consumer] = []
    connected: dict[str, list[Consumer]] = {}
    orphans: list[MembershipEvent] = []
    epochs, moves, ends = [Epoch(0, BEGINNING, BEGINNING, None)], list[tuple[int, int]](), [""]
    owner, current = NOBODY, -1
    low, high = policy.space
    for item in _order_events(changes, owned):
        joined, left, before, event = None, tuple[Consumer, ...](), owner, item.event
        if item.interval < 0 and event.event == "join":
            consumers.append(joined := make_consumer(len(consumers), event))
            connected.setdefault(event.consumer, []).append(joined)
        elif item.interval < 0:
            departures = find_leaving_member(event.instance, connected.get(event.consumer, ()))
            if departures is None:
                orphans.append(event)
                continue
            connected[event.consumer].remove(departures)
            left = (departures,)
        elif item.begins:
            scope_events = connected.get(event.consumer) or [c for c in consumers if c.name == event.consumer]
            if not scope_events:  # nobody saw it join: its deliveries are of an unknown consumer
                orphans.append(event)
                continue
            owner, current = scope_events[-1].index, item.interval
        elif item.interval == current:
            owner, current = NOBODY, -1
        else:
            continue  # another one had taken over
        epochs[-1] = replace(epochs[-1], end=item.at)
        change = (Move(low, high, before, owner),) if owner != before else ()
        epochs.append(Epoch(len(epochs), item.at, item.since, None, event, joined, left, None, change))
        ended = owned[current].ended if current >= 0 else None
        ends.append("" if ended is None else "closed" if ended.closing else ended.event)
        if change:
            moves.append((len(epochs) - 1, owner))
    epoch, after = np.array(moves, np.int64).reshape(-1, 2).T
    columns = epoch, np.full(len(moves), low), np.full(len(moves), high), after
    index = OwnerIndex.from_changes(*compute_epoch_bounds(epochs), columns)
    return Timeline(policy, scope, tuple(epochs), tuple(consumers), tuple(orphans), index, tuple(ends))


def _order_events(changes: MembershipEvents, owned: Sequence[OwnershipInterval]) -> Iterable[_TimelineEvent]:
    """Sort the events by time. At one instant, joins come first and leaves last."""
    items = [(e.at, 0 if e.event == "join" else 3, _TimelineEvent(e.at, e.at, e)) for e in changes]
    for number, (assigned, ended) in enumerate(owned):
        items.append((assigned.at, 2, _TimelineEvent(assigned.at, assigned.at, assigned, number, begins=True)))
        if ended is not None:
            since = ended.since if ended.event in ("revoked", "lost") else ended.at
            items.append((ended.at, 1, _TimelineEvent(ended.at, since, ended, number)))
    return [item for *_, item in sorted(items, key=lambda one: one[:2])]
