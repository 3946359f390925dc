"""Which past rebalances static membership would have spared a Kafka group, from its recorded members.

The recorded joins and leaves are folded twice over the same assignor: as they were, and as those of static members,
who are evicted only when their session has timed out, and who come back without a rebalance before that. The price is
that nobody reads the partitions of a member that is away.
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
class Static:
    """A session timeout (ns): rebalances with it, partitions that got another member, and how long the partitions of
    members that were away stood still, in ns summed over absences, and of the longest."""

    timeout: int
    rebalances: int
    moved: int
    away: int
    longest: int


@dataclass(frozen=True)
class StaticPlan:
    """The group as it was, and with each timeout; ``bound``: no timeout spares more than one that never ends."""

    before: Static
    timeouts: tuple[Static, ...]
    bound: int

    def spared(self, one: Static) -> int:
        """Rebalances that this timeout would have spared."""
        return self.before.rebalances - one.rebalances


def plan_static(
    policy: Policy, partitions: Partitions, events: Sequence[MembershipEvent], timeouts: Iterable[int]
) -> StaticPlan:
    """What each session timeout (ns) would have spared; ``events`` are the group's, in order.

    Who comes back under the same client id, or under the same name where no id is known, is taken for the same member.
    Raises ``ConfigError`` for a policy that is not a group's.
    """
    if not is_group(policy):
        raise ConfigError(f"plan static: {policy.name} has no static membership; only Kafka's groups have")
    never = 36_525 * 86_400 * 10**9  # a century
    static = [replace(event, instance_id=_identity(event)) for event in events]
    found = [_of(policy, partitions, static, timeout) for timeout in timeouts]
    before = _counted(policy, partitions, events, 0, static=False)
    return StaticPlan(before, tuple(found), _of(policy, partitions, static, never).rebalances)


def _of(policy: GroupPolicy, partitions: Partitions, events: Sequence[MembershipEvent], timeout: int) -> Static:
    with_timeout = replace(policy, session_timeout_us=timeout // 1_000)
    return _counted(with_timeout, partitions, events, timeout, static=True)


def _counted(
    policy: GroupPolicy, partitions: Partitions, events: Sequence[MembershipEvent], timeout: int, *, static: bool
) -> Static:
    timeline = GroupTimeline.fold(policy, partitions, events)
    rebalances = len({step.generation for step in timeline.steps})
    absences = [min(gap, timeout) for gap in _absences(events)] if static else []
    return Static(timeout, rebalances, _moved(timeline), sum(absences), max(absences, default=0))


def _moved(timeline: GroupTimeline) -> int:
    """How often a partition passed from one member to another, told apart by what they are called."""
    names = [_identity(event) for step in timeline.steps for event in step.events if event.event == "join"]
    number = np.unique(np.array([*names, ""]), return_inverse=True)[1]
    owners = timeline.owners(range(len(timeline.partitions)))
    who = np.append(number[:-1], -1)[owners]
    last = np.full(who.shape[1], -1) if len(who) else np.zeros(0, np.int64)
    moved = 0
    for row in who:  # a partition may be nobody's in between
        moved += int(((row >= 0) & (last >= 0) & (row != last)).sum())
        last = np.where(row >= 0, row, last)
    return moved


def _absences(events: Iterable[MembershipEvent]) -> list[int]:
    """How long each member that came back was away (ns); who never did was so for ever."""
    gone: dict[str, int] = {}
    gaps = []
    for event in events:
        name = _identity(event)
        if event.event in ("leave", "crash"):
            gone[name] = event.at.at
        elif event.event == "join" and name in gone:
            gaps.append(event.at.at - gone.pop(name))
    return [*gaps, *(2**62 for _ in gone)]


def _identity(event: MembershipEvent) -> str:
    return event.client_id or event.consumer
