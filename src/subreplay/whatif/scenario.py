"""Build the members of a scenario: the recorded ones, or those that a run file defines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.base import Policy, is_load_measuring
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids, is_group
from subreplay.semantics.timelines.consumer_aliases import assign_aliases
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.semantics.timelines.recorded_ownership import MembershipEvents, build_recorded_timelines
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.message_assignment import ScenarioPlan


@dataclass(frozen=True)
class PlannedMember:
    """A consumer of a scenario.

    Its joins, leaves and crashes are in ns after the first message.

    It may come back ``restart`` ns after it left or crashed.
    """

    consumer: str
    join: int
    leave: int | None
    priority: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    instance_id: str | None = None
    rack: str | None = None
    crash: int | None = None
    restart: int | None = None

    def iterate_changes(self) -> Iterator[tuple[int, str]]:
        """Yield the (time, event) pairs of this consumer."""
        yield self.join, "join"
        end = self.leave if self.crash is None else self.crash
        if end is not None:
            yield end, "leave" if self.crash is None else "crash"
            if self.restart is not None:
                yield end + self.restart, "join"


def build_planned_events(members: Sequence[PlannedMember], scope: Scope, start: int) -> tuple[MembershipEvent, ...]:
    """Return the membership events of planned members.

    Events of the same instant follow the order of the list, leaves first. Members with equal names are different
    consumers.
    """
    names = Counter(member.consumer for member in members)
    timed_changes = [
        (start + at, kind == "join", i, kind, m) for i, m in enumerate(members) for at, kind in m.iterate_changes()
    ]
    events = []
    for seq, (at, _, number, kind, m) in enumerate(sorted(timed_changes, key=lambda c: c[:3])):
        instant, instance = Instant(at, seq), str(number) if names[m.consumer] > 1 else None
        event = MembershipEvent(scope, kind, m.consumer, instant, instant, m.priority, m.ranges)  # type: ignore[arg-type]
        events.append(replace(event, instance_id=m.instance_id, rack=m.rack, instance=instance))
    named = assign_aliases(events)
    return tuple([event if event.alias is None else replace(event, instance=event.alias) for event in named])


def build_recorded_events(events: Iterable[MembershipEvent], silent: int = 0) -> tuple[MembershipEvent, ...]:
    """Return recorded events as a scenario uses them: each change happens at the instant at which it was complete.

    A group member that crashed, or a static member that left, had already been ``silent`` (ns) by then (see
    ``find_silence``). Its process ended earlier by that time, but not before it joined.
    """
    joined: dict[str, Instant] = {}
    ordered_events: list[MembershipEvent] = []
    for event in events:
        at = event.at
        if event.event == "join":
            joined[event.label] = at
        elif event.event == "crash" or event.instance_id is not None:
            at = max(Instant(at.at - silent, at.seq), joined.get(event.label, at))
        ordered_events.append(replace(event, at=at, since=at))
    return tuple(
        assign_aliases(sorted(ordered_events, key=lambda event: event.at) if silent else ordered_events, assumed=True)
    )


def find_silence(recorded_under: Policy, policy: Policy) -> int:
    """Return how long (ns) a recorded group member had been silent when the coordinator removed it.

    If the recorded policy has no session timeout, the recorded coordinator has already waited, and the scenario's
    coordinator must not wait again.
    """
    if is_group(policy) and is_group(recorded_under) and recorded_under.session_timeout_us == 0:
        return policy.session_timeout_us * 1_000
    return 0


def find_group_events(events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> tuple[MembershipEvent, ...]:
    """Return the events as a group sees them: a member joins with its first partition and leaves with its last."""
    ordered_events = sorted(
        (event for scope_events in events.values() for event in scope_events), key=lambda event: event.at
    )
    group_changes: list[MembershipEvent] = []
    partitions_by_member: dict[str, int] = {}
    for event in ordered_events:
        before = partitions_by_member.get(event.label, 0)
        partitions_by_member[event.label] = after = max(before + (1 if event.event == "join" else -1), 0)
        if (before == 0) != (after == 0):
            group_changes.append(event)
    return tuple(group_changes)


def copy_to_partitions(
    events: Mapping[Scope, tuple[MembershipEvent, ...]], partitions: int
) -> dict[Scope, tuple[MembershipEvent, ...]]:
    """Return the events as each of a topic's partitions sees them, for the consumers of all dispatchers."""
    scope_events = find_group_events(events)
    topics = sorted({scope.topic for scope in events})
    scopes = [Scope(topic, partition) for topic in topics for partition in range(partitions)]
    return {scope: tuple([replace(event, scope=scope) for event in scope_events]) for scope in scopes}


def build_plan(
    name: str,
    policy: Policy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    reported_ownership: Mapping[Scope, MembershipEvents] = MappingProxyType({}),
) -> ScenarioPlan:
    """Build the timeline of every dispatcher from its events; a Kafka assignor uses the whole group.

    If the source reports the assigned partitions (``reported_ownership``), these are the owners, and no assignor runs.
    """
    if is_group(policy) and any(
        e.event == "assigned" for scope_events in reported_ownership.values() for e in scope_events
    ):
        timelines = build_recorded_timelines(policy, events, reported_ownership)
    elif is_group(policy):
        timelines = GroupTimeline.fold(policy, build_partitions(events), find_group_events(events)).timelines(events)
    else:
        timelines = _fold_timelines(policy, events)
    if is_load_measuring(policy):  # the measured load is not needed any more
        policy = policy.with_traffic({})
        timelines = {scope: replace(timeline, policy=policy) for scope, timeline in timelines.items()}
    return ScenarioPlan(name, policy, timelines)


def _fold_timelines(policy: Policy, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> dict[Scope, Timeline]:
    """Return the timeline of each dispatcher.

    Unless traffic decides, ownership does not depend on the partition. Dispatchers with the same events share one
    timeline.
    """
    if policy.routing == "partition" or policy.serving == "entry buckets" or is_load_measuring(policy):
        return {scope: Timeline.fold(policy, scope, scope_events) for scope, scope_events in events.items()}
    known: dict[tuple[MembershipEvent, ...], Timeline] = {}
    timelines_by_scope = {}
    for scope, scope_events in events.items():
        scopeless = tuple([replace(event, scope=_NO_SCOPE) for event in scope_events])
        if scopeless not in known:
            known[scopeless] = Timeline.fold(policy, scope, scope_events)
        timelines_by_scope[scope] = replace(known[scopeless], scope=scope)
    return timelines_by_scope


_NO_SCOPE = Scope("")


def build_partitions(scopes: Iterable[Scope]) -> Partitions:
    """Return the partitions of a group that reads these topics, as far as they are known."""
    counts: dict[str, int] = {}
    for scope in scopes:
        counts[scope.topic] = max(counts.get(scope.topic, 0), scope.partition + 1, 1)
    return Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts))
