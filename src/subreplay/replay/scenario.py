"""The membership of a scenario: as it was recorded, or as a run file invents it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from subreplay.group_timeline import GroupTimeline
from subreplay.model import Instant, MembershipEvent, Scope
from subreplay.policies.base import Policy
from subreplay.policies.kafka.assignor import GroupPolicy, Partitions, invented_ids
from subreplay.policies.pulsar.key_failover import KeyFailover
from subreplay.replay.assign import Plan
from subreplay.timeline import Timeline


@dataclass(frozen=True)
class PlannedMember:
    """A consumer of a scenario: joins and leaves in ns after the first message."""

    consumer: str
    join: int
    leave: int | None
    priority: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    instance_id: str | None = None
    rack: str | None = None


def planned_events(members: Sequence[PlannedMember], scope: Scope, start: int) -> tuple[MembershipEvent, ...]:
    """Membership events of invented members; those of the same instant happen in the order of the list, leaves
    first."""
    changes = [(start + m.join, 1, i, m) for i, m in enumerate(members)]
    changes += [(start + m.leave, 0, i, m) for i, m in enumerate(members) if m.leave is not None]
    events = []
    for seq, (at, joins, _, m) in enumerate(sorted(changes, key=lambda c: c[:3])):
        instant = Instant(at, seq)
        kind = "join" if joins else "leave"
        event = MembershipEvent(scope, kind, m.consumer, instant, instant, m.priority, m.ranges)  # type: ignore[arg-type]
        events.append(replace(event, instance_id=m.instance_id, rack=m.rack))
    return tuple(events)


def recorded(events: Iterable[MembershipEvent]) -> tuple[MembershipEvent, ...]:
    """Recorded events as a scenario takes them: each change at the instant it was complete."""
    return tuple(replace(e, since=e.at) for e in events)


def group_events(events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> tuple[MembershipEvent, ...]:
    """What a group saw of its members: each comes with its first partition and goes with its last."""
    story = sorted((event for mine in events.values() for event in mine), key=lambda event: event.at)
    seen: list[MembershipEvent] = []
    held: dict[str, int] = {}
    for event in story:
        before = held.get(event.consumer, 0)
        held[event.consumer] = after = max(before + (1 if event.event == "join" else -1), 0)
        if (before == 0) != (after == 0):
            seen.append(event)
    return tuple(seen)


def plan(name: str, policy: Policy, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> Plan:
    """Fold a policy over every dispatcher's events; a Kafka assignor over the group that shares all its partitions."""
    if isinstance(policy, GroupPolicy):
        return Plan(name, policy, _group_timelines(policy, events))
    timelines = {scope: Timeline.fold(policy, scope, mine) for scope, mine in events.items()}
    if isinstance(policy, KeyFailover):  # its load has done its part, and need not travel
        policy = policy.with_traffic({})
        timelines = {scope: replace(timeline, policy=policy) for scope, timeline in timelines.items()}
    return Plan(name, policy, timelines)


def _group_timelines(policy: GroupPolicy, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> dict[Scope, Timeline]:
    counts: dict[str, int] = {}
    for scope in events:
        counts[scope.topic] = max(counts.get(scope.topic, 0), scope.partition + 1, 1)
    partitions = Partitions.of(counts, topic_ids=invented_ids(counts))
    return GroupTimeline.fold(policy, partitions, group_events(events)).timelines(events)
