"""Find out which past rebalances static membership would have avoided in a Kafka group.

The recorded joins and leaves are replayed twice with the same assignor: as recorded, and as those of static members.
Static members are evicted only when their session times out, and come back before that without a rebalance. The cost is
that the partitions of an absent member are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from subreplay.errors import ConfigError
from subreplay.rows.model.rows import MembershipEvent
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.assignor import GroupPolicy, Partitions, is_group
from subreplay.semantics.timelines.group_timeline import GroupTimeline


@dataclass(frozen=True)
class TimeoutOutcome:
    """The result of a session timeout (ns): rebalances, moved partitions, and pauses of partitions.

    ``away`` is the time (ns) in which partitions of absent members were not read, summed over absences; ``longest`` is
    the longest one.
    """

    timeout: int
    rebalances: int
    moved: int
    away: int
    longest: int


@dataclass(frozen=True)
class StaticPlan:
    """The group as recorded, and with each timeout. ``bound`` is the number of rebalances with an endless timeout."""

    before: TimeoutOutcome
    timeouts: tuple[TimeoutOutcome, ...]
    bound: int

    def count_spared(self, one: TimeoutOutcome) -> int:
        """Return the number of rebalances that a timeout would have avoided."""
        return self.before.rebalances - one.rebalances


def plan_static(
    policy: Policy, partitions: Partitions, events: Sequence[MembershipEvent], timeouts: Iterable[int]
) -> StaticPlan:
    """Evaluate session timeouts (ns).

    ``events`` are those of the group, in order.

    A member that comes back under the same client id is the same member; the name is used if no id is known. Raises
    ``ConfigError`` for a policy without groups.
    """
    if not is_group(policy):
        raise ConfigError(
            f"plan static: {policy.name} has no static membership. Use a Kafka assignor policy, such as kafka.range."
        )
    never = 36_525 * 86_400 * 10**9  # a century
    static = [replace(event, instance_id=_identify(event)) for event in events]
    outcomes = [_evaluate_timeout(policy, partitions, static, timeout) for timeout in timeouts]
    before = _evaluate(policy, partitions, events, 0, static=False)
    return StaticPlan(before, tuple(outcomes), _evaluate_timeout(policy, partitions, static, never).rebalances)


def _evaluate_timeout(
    policy: GroupPolicy, partitions: Partitions, events: Sequence[MembershipEvent], timeout: int
) -> TimeoutOutcome:
    with_timeout = replace(policy, session_timeout_us=timeout // 1_000)
    return _evaluate(with_timeout, partitions, events, timeout, static=True)


def _evaluate(
    policy: GroupPolicy, partitions: Partitions, events: Sequence[MembershipEvent], timeout: int, *, static: bool
) -> TimeoutOutcome:
    timeline = GroupTimeline.fold(policy, partitions, events)
    rebalances = len({step.generation for step in timeline.steps})
    absences = [min(gap, timeout) for gap in _measure_absences(events)] if static else []
    return TimeoutOutcome(timeout, rebalances, _count_moved(timeline), sum(absences), max(absences, default=0))


def _count_moved(timeline: GroupTimeline) -> int:
    """Count how often a partition passed from one member to another, by their names."""
    names = [_identify(event) for step in timeline.steps for event in step.events if event.event == "join"]
    number = np.unique(np.array([*names, ""]), return_inverse=True)[1]
    owners = timeline.owners(range(len(timeline.partitions)))
    member_numbers = np.append(number[:-1], -1)[owners]
    last = np.full(member_numbers.shape[1], -1) if len(member_numbers) else np.zeros(0, np.int64)
    moved = 0
    for row in member_numbers:  # a partition may have no owner in between
        moved += int(((row >= 0) & (last >= 0) & (row != last)).sum())
        last = np.where(row >= 0, row, last)
    return moved


def _measure_absences(events: Iterable[MembershipEvent]) -> list[int]:
    """Return how long (ns) each member was away before it came back; a very long time if it never did."""
    departed_at: dict[str, int] = {}
    absences = []
    for event in events:
        name = _identify(event)
        if event.event in ("leave", "crash"):
            departed_at[name] = event.at.at
        elif event.event == "join" and name in departed_at:
            absences.append(event.at.at - departed_at.pop(name))
    return [*absences, *(2**62 for _ in departed_at)]


def _identify(event: MembershipEvent) -> str:
    return event.client_id or event.consumer
