"""The membership of a scenario: as it was recorded, or as a run file invents it."""

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
from subreplay.whatif.message_assignment import Plan


@dataclass(frozen=True)
class PlannedMember:
    """A consumer of a scenario: joins, leaves and crashes in ns after the first message.

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

    def changes(self) -> Iterator[tuple[int, str]]:
        """(time, event) of this consumer."""
        yield self.join, "join"
        end = self.leave if self.crash is None else self.crash
        if end is not None:
            yield end, "leave" if self.crash is None else "crash"
            if self.restart is not None:
                yield end + self.restart, "join"


def planned_events(members: Sequence[PlannedMember], scope: Scope, start: int) -> tuple[MembershipEvent, ...]:
    """Membership events of invented members; those of the same instant happen in the order of the list, leaves
    first. Members with equal names are different consumers."""
    names = Counter(member.consumer for member in members)
    changes = [(start + at, kind == "join", i, kind, m) for i, m in enumerate(members) for at, kind in m.changes()]
    events = []
    for seq, (at, _, number, kind, m) in enumerate(sorted(changes, key=lambda c: c[:3])):
        instant, instance = Instant(at, seq), str(number) if names[m.consumer] > 1 else None
        event = MembershipEvent(scope, kind, m.consumer, instant, instant, m.priority, m.ranges)  # type: ignore[arg-type]
        events.append(replace(event, instance_id=m.instance_id, rack=m.rack, instance=instance))
    named = assign_aliases(events)
    return tuple([event if event.alias is None else replace(event, instance=event.alias) for event in named])


def recorded(events: Iterable[MembershipEvent], silent: int = 0) -> tuple[MembershipEvent, ...]:
    """Recorded events as a scenario takes them: each change at the instant it was complete.

    A member of a group that crashed, or is static and left, was ``silent`` (ns) for so long by then, as ``silence``
    tells; its process ended earlier by that, though not before it joined."""
    joined: dict[str, Instant] = {}
    story: list[MembershipEvent] = []
    for event in events:
        at = event.at
        if event.event == "join":
            joined[event.label] = at
        elif event.event == "crash" or event.instance_id is not None:
            at = max(Instant(at.at - silent, at.seq), joined.get(event.label, at))
        story.append(replace(event, at=at, since=at))
    return tuple(assign_aliases(sorted(story, key=lambda event: event.at) if silent else story, assumed=True))


def silence(recorded_under: Policy, policy: Policy) -> int:
    """How long (ns) a recorded member of a group had been silent when it was missed: where the recorded group has no
    session timeout, its coordinator had waited already, and a scenario's must not wait once more."""
    if is_group(policy) and is_group(recorded_under) and recorded_under.session_timeout_us == 0:
        return policy.session_timeout_us * 1_000
    return 0


def group_events(events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> tuple[MembershipEvent, ...]:
    """What a group saw of its members: each comes with its first partition and goes with its last."""
    story = sorted((event for mine in events.values() for event in mine), key=lambda event: event.at)
    seen: list[MembershipEvent] = []
    held: dict[str, int] = {}
    for event in story:
        before = held.get(event.label, 0)
        held[event.label] = after = max(before + (1 if event.event == "join" else -1), 0)
        if (before == 0) != (after == 0):
            seen.append(event)
    return tuple(seen)


def on_partitions(
    events: Mapping[Scope, tuple[MembershipEvent, ...]], partitions: int
) -> dict[Scope, tuple[MembershipEvent, ...]]:
    """The events as each of so many partitions of a topic would see them: of whoever was at some dispatcher."""
    mine = group_events(events)
    topics = sorted({scope.topic for scope in events})
    scopes = [Scope(topic, partition) for topic in topics for partition in range(partitions)]
    return {scope: tuple([replace(event, scope=scope) for event in mine]) for scope in scopes}


def plan(
    name: str,
    policy: Policy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    told: Mapping[Scope, MembershipEvents] = MappingProxyType({}),
) -> Plan:
    """Fold a policy over every dispatcher's events; a Kafka assignor over the group that shares all its partitions.

    Where its consumers were ``told`` of their partitions, that is who owned them, and nothing is folded."""
    if is_group(policy) and any(e.event == "assigned" for mine in told.values() for e in mine):
        timelines = build_recorded_timelines(policy, events, told)
    elif is_group(policy):
        timelines = GroupTimeline.fold(policy, partitions_of(events), group_events(events)).timelines(events)
    else:
        timelines = _folded(policy, events)
    if is_load_measuring(policy):  # its load has done its part, and need not travel
        policy = policy.with_traffic({})
        timelines = {scope: replace(timeline, policy=policy) for scope, timeline in timelines.items()}
    return Plan(name, policy, timelines)


def _folded(policy: Policy, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> dict[Scope, Timeline]:
    """The timeline of each dispatcher. Who owns a slot does not depend on the partition (but by its traffic), so those
    that saw the same events have the same one."""
    if policy.routing == "partition" or is_load_measuring(policy):
        return {scope: Timeline.fold(policy, scope, mine) for scope, mine in events.items()}
    known: dict[tuple[MembershipEvent, ...], Timeline] = {}
    found = {}
    for scope, mine in events.items():
        anywhere = tuple([replace(event, scope=_ANYWHERE) for event in mine])
        if anywhere not in known:
            known[anywhere] = Timeline.fold(policy, scope, mine)
        found[scope] = replace(known[anywhere], scope=scope)
    return found


_ANYWHERE = Scope("")


def partitions_of(scopes: Iterable[Scope]) -> Partitions:
    """The partitions of a group that reads these topics, as far as they are known."""
    counts: dict[str, int] = {}
    for scope in scopes:
        counts[scope.topic] = max(counts.get(scope.topic, 0), scope.partition + 1, 1)
    return Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts))
