"""The membership of a scenario: as it was recorded, or as a run file invents it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from subreplay.model import Instant, MembershipEvent, Scope
from subreplay.policies.base import Policy
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


def planned_events(members: Sequence[PlannedMember], scope: Scope, start: int) -> tuple[MembershipEvent, ...]:
    """Membership events of invented members; those of the same instant happen in the order of the list, leaves
    first."""
    changes = [(start + m.join, 1, i, m) for i, m in enumerate(members)]
    changes += [(start + m.leave, 0, i, m) for i, m in enumerate(members) if m.leave is not None]
    events = []
    for seq, (at, joins, _, m) in enumerate(sorted(changes, key=lambda c: c[:3])):
        instant = Instant(at, seq)
        kind = "join" if joins else "leave"
        events.append(MembershipEvent(scope, kind, m.consumer, instant, instant, m.priority, m.ranges))  # type: ignore[arg-type]
    return tuple(events)


def recorded(events: Iterable[MembershipEvent]) -> tuple[MembershipEvent, ...]:
    """Recorded events as a scenario takes them: each change at the instant it was complete."""
    return tuple(replace(e, since=e.at) for e in events)


def plan(name: str, policy: Policy, events: Mapping[Scope, tuple[MembershipEvent, ...]]) -> Plan:
    """Fold a policy over every dispatcher's events."""
    return Plan(name, policy, {scope: Timeline.fold(policy, scope, mine) for scope, mine in events.items()})
