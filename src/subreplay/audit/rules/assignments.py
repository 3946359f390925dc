"""Check the assignments of a Kafka group: the coordinator's decisions, its assignor's result, and the partitions that
members received.

These findings are about a partition in one generation, not about one delivery. There are few members, decisions and
callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import factorial
from typing import Any, Final, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np

from subreplay.audit.codes import GROUP, Code, Exemption, Rule
from subreplay.audit.findings import Finding
from subreplay.audit.needs import Need
from subreplay.hashing.java_map import compute_map_order, compute_uuid_hash_code
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.rows.model.text_format import format_clock
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.assignor import is_group
from subreplay.semantics.timelines.expected_decisions import ExpectedDecision, replay_decisions
from subreplay.semantics.timelines.membership import collect_member_changes, collect_ownership_events
from subreplay.semantics.timelines.recorded_ownership import (
    MembershipEvents,
    OwnershipInterval,
    find_ownership_intervals,
)

RULES = (
    Rule(
        Code.TWO_OWNERS,
        "A partition with two owners",
        "A consumer is assigned a partition only after every other consumer has given it up. A member that was "
        "removed without knowing it (max.poll.interval.ms, session timeout) keeps the partition until it polls again.",
        "ConsumerCoordinator.onJoinPrepare, ConsumerMembershipManager (4.0.2); row K-OWNER-1",
        promised=GROUP,
        needs=frozenset({Need.CALLBACKS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.TOLD_DIFFERS,
        "A consumer was assigned another partition than its coordinator decided",
        "A consumer is assigned exactly the partitions that the coordinator gave it in that generation (under the "
        "consumer protocol, up to that member epoch).",
        "ConsumerCoordinator.onJoinComplete, AbstractMembershipManager.reconcile (4.0.2); row K-OWNER-2",
        promised=GROUP,
        needs=frozenset({Need.CALLBACKS, Need.DECISIONS}),
    ),
    Rule(
        Code.OWNER_DIFFERS,
        "The coordinator's decision differs from its assignor's result",
        "The members of a generation, their subscriptions and their previous partitions determine the assignment. The "
        "assignor, applied to the membership, gives what the coordinator recorded.",
        "ConsumerPartitionAssignor, PartitionAssignor (4.0.2); row K-OWNER-3",
        promised=GROUP,
        needs=frozenset({Need.DECISIONS, Need.MEMBERSHIP}),
    ),
)


class GroupEvents(NamedTuple):
    """The events of a Kafka group beside its deliveries.

    ``changes`` and ``ownership`` contain, for each audited topic partition, its membership changes and its decisions
    and rebalance callbacks. ``members`` and ``decided`` contain the same for all topics of the group; ``members`` once
    for each topic. ``has_tasks``: it is a streams group, whose decisions are about tasks, which no assignor here knows.
    """

    changes: Mapping[Scope, MembershipEvents] = {}
    ownership: Mapping[Scope, MembershipEvents] = {}
    members: MembershipEvents = ()
    decided: MembershipEvents = ()
    has_tasks: bool = False

    @classmethod
    def from_rows(
        cls,
        changes: Mapping[Scope, MembershipEvents],
        here: Iterable[Mapping[str, Any]],
        elsewhere: Iterable[Mapping[str, Any]],
    ) -> GroupEvents:
        """Collect the events in the rows of a membership: ``here`` on the audited topic, ``elsewhere`` on other
        topics."""
        rows = [*here]
        ownership, others = collect_ownership_events(rows), collect_ownership_events(rows_elsewhere := [*elsewhere])
        members = collect_member_changes([*rows, *rows_elsewhere])
        decided = [
            event for events_by_scope in (ownership, others) for group in events_by_scope.values() for event in group
        ]
        has_tasks = any(row["type"] == "streams" for row in (*rows, *rows_elsewhere))
        return cls(changes, ownership, members, decided, has_tasks)

    @property
    def lacking(self) -> frozenset[Need]:
        """What rules need and these events do not contain."""
        known = {event.event for group in self.ownership.values() for event in group}
        ownership = {Need.CALLBACKS: "assigned" in known, Need.DECISIONS: "owner" in known and not self.has_tasks}
        return frozenset(need for need, is_known in ownership.items() if not is_known)


def find_assignment_findings(policy: Policy, group: GroupEvents, dates: bool = False) -> Iterator[Finding]:
    """Yield the findings of this module. They apply to Kafka groups only."""
    if is_group(policy):
        yield from _find_group_findings(policy, group, dates)


def _find_group_findings(policy: Any, group: GroupEvents, dates: bool) -> Iterator[Finding]:
    """Yield the findings of a Kafka group."""
    for scope, changes in group.changes.items():
        yield from find_two_owners(scope, changes, group.ownership.get(scope, ()), dates)
        yield from find_decision_differences(scope, group.ownership.get(scope, ()), dates)
    if not group.has_tasks:
        yield from find_assignor_differences(policy, group, dates)


def find_two_owners(
    scope: Scope, changes: MembershipEvents, ownership: MembershipEvents, dates: bool = False
) -> Iterator[Finding]:
    """Yield TWO_OWNERS of a partition, according to the callbacks of its consumers."""
    open_: list[OwnershipInterval] = []
    for one in find_ownership_intervals(ownership, changes):
        at = one.assigned.at
        open_ = [other for other in open_ if other.ended is None or other.ended.at > at]
        for other in open_:
            if other.consumer != one.consumer:
                exemption = Exemption.LEFT_UNAWARE if _had_left(other, changes, one.assigned) else Exemption.NONE
                until = "the end" if other.ended is None else format_clock(other.ended.at.at, dates)
                yield Finding(
                    Code.TWO_OWNERS, scope, at.at,
                    f"partition {scope.partition} was assigned to {one.consumer} at {format_clock(at.at, dates)}, "
                    f"although {other.consumer} owned it until {until}",
                    "its earlier owner had left the group" if exemption else "unexplained",
                    consumer=one.consumer, exemption=exemption,
                )  # fmt: skip
        open_.append(one)


def _had_left(owner: OwnershipInterval, changes: MembershipEvents, assigned: MembershipEvent) -> bool:
    """Return whether an owner had been removed from the group and learned it later."""
    gone = (e for e in changes if e.event != "join" and e.consumer == owner.consumer)
    left = any(owner.assigned.at <= e.at and e.since <= assigned.at for e in gone)
    return left and owner.ended is not None and owner.ended.event == "lost"


def find_decision_differences(scope: Scope, ownership: MembershipEvents, dates: bool = False) -> Iterator[Finding]:
    """Yield TOLD_DIFFERS of a partition: callbacks that differ from the decisions in ``ownership``."""
    decided = [e for e in ownership if e.event in ("owner", "withdrawn")]
    for event in ownership:
        if event.event != "assigned" or event.generation is None or not decided:
            continue
        owners = _find_owners(decided, event)
        if event.consumer not in owners:
            yield Finding(
                Code.TOLD_DIFFERS, scope, event.at.at,
                f"{event.consumer} was assigned partition {scope.partition} at {format_clock(event.at.at, dates)} in "
                f"generation {event.generation}, in which its owner is {owners[-1] if owners else 'nobody'}",
                "unexplained", consumer=event.consumer,
            )  # fmt: skip


def _find_owners(decided: Sequence[MembershipEvent], ownership: MembershipEvent) -> list[str]:
    """Return the owners of a partition in the generation of a callback, at the time of the callback.

    An owner comes from the latest decision, or from one of the same generation: a returning static member then takes
    over from its former self.
    """
    known = [e for e in decided if e.generation is not None and e.generation <= (ownership.generation or 0)]
    latest = [e for e in known if e.at <= ownership.at][-1:]
    selected = [e for e in known if e.generation == ownership.generation]
    return [e.consumer for e in (*latest, *selected) if e.event == "owner"]


MOST_TOPICS: Final = 3
"""The largest number of topics for which all orders are tried."""
MOST_DRAWS: Final = 1_000
"""The largest number of ids that are drawn to find all orders."""
_SIGNS: Final = 1 << 127 | 1 << 63
"""Java compares an id as two signed longs."""


def _find_decisions(policy: Policy, group: GroupEvents) -> Sequence[ExpectedDecision]:
    """Return the decisions of a group, compared with the assignor's result for the topic ids that explain most of
    them."""
    topics = sorted({event.scope.topic for event in (*group.members, *group.decided)})
    found = list(replay_decisions(policy, group.members, group.decided))
    if policy.name != "kafka.uniform" or len(topics) == 1:
        return found
    if len(topics) > MOST_TOPICS:
        return ()
    for ids in _draw_topic_ids(topics):
        if not any(one.misassigned for one in found):
            break
        other = list(replay_decisions(policy, group.members, group.decided, lambda _, ids=ids: ids))  # type: ignore[misc]
        found = min(found, other, key=lambda every: sum(len(one.misassigned) for one in every))
    return found


def _draw_topic_ids(topics: Sequence[str]) -> Iterator[dict[str, UUID]]:
    """Yield topic ids that produce every possible order of the topics: by their hash codes, and by the ids
    themselves."""
    orders = factorial(len(topics)) ** 2
    known: set[tuple[tuple[int, ...], ...]] = set()
    for seed in range(MOST_DRAWS):
        ids = {topic: uuid5(NAMESPACE_URL, f"{seed} {topic}") for topic in topics}
        by_hash = compute_map_order(np.array([compute_uuid_hash_code(one) for one in ids.values()], np.int64)).tolist()
        by_id = sorted(range(len(topics)), key=[one.int ^ _SIGNS for one in ids.values()].__getitem__)
        if (order := (tuple(by_hash), tuple(by_id))) not in known:
            known.add(order)
            yield ids
        if len(known) == orders:
            break


def find_assignor_differences(policy: Policy, group: GroupEvents, dates: bool = False) -> Iterator[Finding]:
    """Yield OWNER_DIFFERS: one finding for each partition of a decision.

    The uniform assignor depends on topic ids, which are not recorded. Of the orders that ids can produce, the audit
    uses the one that explains most decisions. It skips the check for more than ``MOST_TOPICS`` topics.
    """
    for decision in _find_decisions(policy, group):
        for topic_partition in decision.misassigned:
            decided, due = decision.decided.get(topic_partition), decision.due.get(topic_partition)
            scope = next((s for s in group.changes if (s.topic, max(s.partition, 0)) == topic_partition), None)
            if scope is not None:
                yield Finding(
                    Code.OWNER_DIFFERS, scope, decision.at,
                    f"generation {decision.generation} gave partition {topic_partition.partition} to "
                    f"{decided or 'nobody'} at {format_clock(decision.at, dates)}; {policy.name} assigns it to "
                    f"{due or 'nobody'}",
                    "unexplained", consumer=decided,
                )  # fmt: skip
