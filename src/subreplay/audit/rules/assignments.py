"""Assignments of a Kafka group: what its coordinator decided, what its assignor must decide, what members were told.

These findings are about a partition of a generation, not about one delivery. Members, decisions and callbacks are few.
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
from subreplay.rows.model.words import clock
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
        "A consumer is told that a partition is its own only after every other one gave it up. One that had left the "
        "group without knowing it (max.poll.interval.ms, a session that timed out) keeps it until it polls again.",
        "ConsumerCoordinator.onJoinPrepare, ConsumerMembershipManager (4.0.2); row K-OWNER-1",
        promised=GROUP,
        needs=frozenset({Need.CALLBACKS, Need.MEMBERSHIP}),
    ),
    Rule(
        Code.TOLD_DIFFERS,
        "A consumer was told otherwise than its coordinator decided",
        "A consumer is assigned the partitions that the coordinator gave it in that generation (or, under the consumer "
        "protocol, up to that member epoch), and no others.",
        "ConsumerCoordinator.onJoinComplete, AbstractMembershipManager.reconcile (4.0.2); row K-OWNER-2",
        promised=GROUP,
        needs=frozenset({Need.CALLBACKS, Need.DECISIONS}),
    ),
    Rule(
        Code.OWNER_DIFFERS,
        "The coordinator decided otherwise than the assignor must",
        "The members of a generation, their subscriptions and what they owned before decide who gets which partition: "
        "the assignor folded over the membership gives what the coordinator recorded.",
        "ConsumerPartitionAssignor, PartitionAssignor (4.0.2); row K-OWNER-3",
        promised=GROUP,
        needs=frozenset({Need.DECISIONS, Need.MEMBERSHIP}),
    ),
)


class GroupStory(NamedTuple):
    """What is known of a Kafka group beside its deliveries.

    ``changes`` and ``told``: of each topic partition that is audited, who came and went, and what was decided and told
    of it. ``members`` and ``decided``: the same of all topics of the group, the former once for each topic.
    """

    changes: Mapping[Scope, MembershipEvents] = {}
    told: Mapping[Scope, MembershipEvents] = {}
    members: MembershipEvents = ()
    decided: MembershipEvents = ()

    @classmethod
    def of(
        cls,
        changes: Mapping[Scope, MembershipEvents],
        here: Iterable[Mapping[str, Any]],
        elsewhere: Iterable[Mapping[str, Any]],
    ) -> GroupStory:
        """The story that the rows of a membership tell, ``here`` on the audited topic, and on others."""
        rows = [*here]
        told, others = collect_ownership_events(rows), collect_ownership_events(rows_elsewhere := [*elsewhere])
        members = collect_member_changes([*rows, *rows_elsewhere])
        decided = [event for stories in (told, others) for story in stories.values() for event in story]
        return cls(changes, told, members, decided)

    @property
    def lacking(self) -> frozenset[Need]:
        """What rules need and this does not tell."""
        known = {event.event for story in self.told.values() for event in story}
        told = {Need.CALLBACKS: "assigned" in known, Need.DECISIONS: "owner" in known}
        return frozenset(need for need, is_known in told.items() if not is_known)


def assignment_findings(policy: Policy, story: GroupStory, dates: bool = False) -> Iterator[Finding]:
    """The findings of this file, which are about groups of Kafka only."""
    if is_group(policy):
        yield from _of_group(policy, story, dates)


def _of_group(policy: Any, story: GroupStory, dates: bool) -> Iterator[Finding]:
    for scope, changes in story.changes.items():
        yield from two_owners(scope, changes, story.told.get(scope, ()), dates)
        yield from find_decision_differences(scope, story.told.get(scope, ()), dates)
    yield from owner_differs(policy, story, dates)


def two_owners(
    scope: Scope, changes: MembershipEvents, told: MembershipEvents, dates: bool = False
) -> Iterator[Finding]:
    """TWO_OWNERS of a partition, by what its consumers were told."""
    open_: list[OwnershipInterval] = []
    for one in find_ownership_intervals(told, changes):
        at = one.assigned.at
        open_ = [other for other in open_ if other.ended is None or other.ended.at > at]
        for other in open_:
            if other.consumer != one.consumer:
                exemption = Exemption.LEFT_UNAWARE if _had_left(other, changes, one.assigned) else Exemption.NONE
                until = "the end" if other.ended is None else clock(other.ended.at.at, dates)
                yield Finding(
                    Code.TWO_OWNERS, scope, at.at,
                    f"partition {scope.partition} was assigned to {one.consumer} at {clock(at.at, dates)}, though "
                    f"{other.consumer} owned it until {until}",
                    "its earlier owner had left the group" if exemption else "unexplained",
                    consumer=one.consumer, exemption=exemption,
                )  # fmt: skip
        open_.append(one)


def _had_left(owner: OwnershipInterval, changes: MembershipEvents, assigned: MembershipEvent) -> bool:
    """Whether an owner was no member any more, and was told so later."""
    gone = (e for e in changes if e.event != "join" and e.consumer == owner.consumer)
    left = any(owner.assigned.at <= e.at and e.since <= assigned.at for e in gone)
    return left and owner.ended is not None and owner.ended.event == "lost"


def find_decision_differences(scope: Scope, told: MembershipEvents, dates: bool = False) -> Iterator[Finding]:
    """TOLD_DIFFERS of a partition: callbacks beside the decisions among what is ``told``."""
    decided = [e for e in told if e.event in ("owner", "withdrawn")]
    for event in told:
        if event.event != "assigned" or event.generation is None or not decided:
            continue
        owners = _owners_at(decided, event)
        if event.consumer not in owners:
            yield Finding(
                Code.TOLD_DIFFERS, scope, event.at.at,
                f"{event.consumer} was assigned partition {scope.partition} at {clock(event.at.at, dates)} in "
                f"generation {event.generation}, in which it is {owners[-1] if owners else 'nobody'}'s",
                "unexplained", consumer=event.consumer,
            )  # fmt: skip


def _owners_at(decided: Sequence[MembershipEvent], told: MembershipEvent) -> list[str]:
    """Who has a partition in the generation of a callback, when it was called: by the latest decision, or by one of
    the same generation, in which a static member that comes back takes over from its former self."""
    known = [e for e in decided if e.generation is not None and e.generation <= (told.generation or 0)]
    latest = [e for e in known if e.at <= told.at][-1:]
    mine = [e for e in known if e.generation == told.generation]
    return [e.consumer for e in (*latest, *mine) if e.event == "owner"]


TOPICS: Final = 3
"""Of so many topics all orders are tried."""
DRAWS: Final = 1_000
"""So many ids are drawn at most, until all orders were there."""
_SIGNS: Final = 1 << 127 | 1 << 63
"""Java compares an id as two signed longs."""


def _explained(policy: Policy, story: GroupStory) -> Sequence[ExpectedDecision]:
    topics = sorted({event.scope.topic for event in (*story.members, *story.decided)})
    found = list(replay_decisions(policy, story.members, story.decided))
    if policy.name != "kafka.uniform" or len(topics) == 1:
        return found
    if len(topics) > TOPICS:
        return ()
    for ids in _possible_ids(topics):
        if not any(one.misassigned for one in found):
            break
        other = list(replay_decisions(policy, story.members, story.decided, lambda _, ids=ids: ids))  # type: ignore[misc]
        found = min(found, other, key=lambda every: sum(len(one.misassigned) for one in every))
    return found


def _possible_ids(topics: Sequence[str]) -> Iterator[dict[str, UUID]]:
    """Ids that bring about the orders of topics that there can be: by their hash codes, and by the ids themselves."""
    orders = factorial(len(topics)) ** 2
    known: set[tuple[tuple[int, ...], ...]] = set()
    for seed in range(DRAWS):
        ids = {topic: uuid5(NAMESPACE_URL, f"{seed} {topic}") for topic in topics}
        by_hash = compute_map_order(np.array([compute_uuid_hash_code(one) for one in ids.values()], np.int64)).tolist()
        by_id = sorted(range(len(topics)), key=[one.int ^ _SIGNS for one in ids.values()].__getitem__)
        if (order := (tuple(by_hash), tuple(by_id))) not in known:
            known.add(order)
            yield ids
        if len(known) == orders:
            break


def owner_differs(policy: Policy, story: GroupStory, dates: bool = False) -> Iterator[Finding]:
    """OWNER_DIFFERS: one finding for each partition of a decision.

    The uniform assignor goes by the ids of topics, which nothing tells: of the orders that these can bring about, the
    one that explains most is taken. Of more than ``TOPICS`` topics nothing is looked for."""
    for decision in _explained(policy, story):
        for topic_partition in decision.misassigned:
            decided, due = decision.decided.get(topic_partition), decision.due.get(topic_partition)
            scope = next((s for s in story.changes if (s.topic, max(s.partition, 0)) == topic_partition), None)
            if scope is not None:
                yield Finding(
                    Code.OWNER_DIFFERS, scope, decision.at,
                    f"generation {decision.generation} gave partition {topic_partition.partition} to "
                    f"{decided or 'nobody'} at {clock(decision.at, dates)}; by {policy.name} it is {due or 'nobody'}'s",
                    "unexplained", consumer=decided,
                )  # fmt: skip
