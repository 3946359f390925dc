"""Compare each recorded decision of a Kafka group's coordinator with the assignment that its assignor must make.

The fold computes the members' claims itself and never uses recorded claims. A decision that moves nothing leaves no
row, so it is not seen. The membership changes before it count for the next decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from uuid import UUID

import numpy as np

from subreplay.hashing.java_map import compute_map_order, compute_string_hash_codes
from subreplay.hashing.timeline_map import TimelineMapOrder
from subreplay.rows.model.rows import MembershipEvent
from subreplay.semantics.policies.kafka.assignor import GroupMember, Partitions, TopicPartition, derive_topic_ids
from subreplay.semantics.policies.kafka.group import ConsumerGroup

Owners = Mapping[TopicPartition, str]


@dataclass(frozen=True)
class ExpectedDecision:
    """The owners from ``at`` (ns) on: as the coordinator ``decided`` them, and as they are ``due``."""

    generation: int
    at: int
    decided: Owners
    due: Owners

    @property
    def misassigned(self) -> list[TopicPartition]:
        """The partitions that the coordinator assigned to another member than it must."""
        topic_partitions = sorted({*self.decided, *self.due})
        return [
            topic_partition
            for topic_partition in topic_partitions
            if self.decided.get(topic_partition) != self.due.get(topic_partition)
        ]


def replay_decisions(
    policy: Any,
    changes: Iterable[MembershipEvent],
    ownership_events: Iterable[MembershipEvent],
    ids: Callable[[Iterable[str]], Mapping[str, UUID]] = derive_topic_ids,
) -> Iterator[ExpectedDecision]:
    """Yield every decision that gave members new partitions, or that restored the partitions of a static member which
    came back without a rebalance.

    ``changes`` are the joins, leaves and crashes of all members, one for each topic. ``ownership_events`` are the
    coordinator's decisions for all partitions and the callbacks of members. A member with a ``lost`` callback is alive
    and may come back. Both can be in any order. ``ids`` returns the ids of topics.
    """
    member_events = sorted(changes, key=lambda event: event.at)
    decided = sorted(
        (e for e in ownership_events if e.event in ("owner", "withdrawn")), key=lambda e: (e.at, e.generation or 0)
    )
    fold = _DecisionFold(policy, {event.consumer for event in ownership_events if event.event == "lost"}, ids)
    owners: dict[TopicPartition, str] = {}
    for (at, generation), rows in groupby(decided, key=lambda e: (e.at.at, e.generation or 0)):
        for row in rows:
            topic_partition = TopicPartition(row.scope.topic, max(row.scope.partition, 0))
            if row.event == "owner":
                owners[topic_partition] = row.consumer
            else:
                owners.pop(topic_partition, None)
        until = next((n for n, event in enumerate(member_events) if event.at.at > at), len(member_events))
        came_back = fold.apply_changes(
            member_events[:until], keep_assignment=generation == fold.group.generation, at=at
        )
        member_events = member_events[until:]
        if generation != fold.group.generation:
            yield ExpectedDecision(generation, at, dict(owners), fold.decide(generation, owners))
        elif came_back:
            yield ExpectedDecision(generation, at, dict(owners), fold.owners())


class _DecisionFold:
    """The group state between two decisions, with the order of the coordinator's maps."""

    def __init__(self, policy: Any, alive: set[str], ids: Callable[[Iterable[str]], Mapping[str, UUID]]) -> None:
        self.ids = ids
        self.policy, self.group, self.alive = policy, ConsumerGroup(policy), alive
        self.server = policy.rebalance == "server"
        self.order = TimelineMapOrder()
        self.fresh: set[str] = set()
        self.clients: dict[str, str | None] = {}
        self.evicted: list[str | None] = []  # clients that live on, the first evicted first
        self.counts: dict[str, int] = {}

    def apply_changes(self, member_events: Sequence[MembershipEvent], keep_assignment: bool, at: int) -> bool:
        """Apply the membership changes before a decision; return whether a static member came back.

        With ``keep_assignment``, a static member that came back before the decision keeps its assignment.
        """
        came_back = False
        before = {m.member_id: m for m in self.group.members}
        now = dict(before)
        for event in member_events:
            name = event.consumer
            topics = {event.scope.topic}
            if event.event == "join":
                known = now[name].topics if name in now else frozenset[str]()
                now[name] = GroupMember(name, known | topics, event.instance_id, event.rack)
                self.order.add(name)
            elif name in now:
                remaining = now[name].topics - topics
                if remaining:
                    now[name] = now[name]._replace(topics=remaining)
                else:
                    del now[name]
                    self.order.remove(name)
        joined = {e.consumer: e for e in reversed(member_events) if e.event == "join"}
        gone = [m for name, m in before.items() if name not in now]
        for new in (m for name, m in now.items() if name not in before):
            old = next((m for m in gone if m.instance_id is not None and m.instance_id == new.instance_id), None)
            if old is not None:
                came_back = True
                gone.remove(old)
                self.group = self.group.restart(old.member_id, new, keep_assignment or joined[new.member_id].at.at < at)
            elif self.group.away and joined[new.member_id].client_id in self.evicted:
                self.evicted.remove(joined[new.member_id].client_id)
                self.group = self.group.rejoin(new)
            else:
                self.group = self.group.join(new)
            if joined[new.member_id].at.at >= at:  # its join caused the decision
                self.fresh.add(new.member_id)
        for old in gone:
            if old.member_id in self.alive and not self.server:
                self.group = self.group.evict(old.member_id)
                self.evicted.append(self.clients.get(old.member_id))
            else:
                self.group = self.group.leave(old.member_id)
        self.clients |= {name: event.client_id for name, event in joined.items()}
        changed = {m.member_id: now[m.member_id].topics for m in self.group.members}
        self.group = self.group.subscribe({n: t for n, t in changed.items() if self.group.find_member(n).topics != t})
        return came_back

    def decide(self, generation: int, decided: Owners) -> Owners:
        """Compute the next generation. A topic has the partitions that were ever assigned or that a member reads."""
        for topic, partition in decided:
            self.counts[topic] = max(self.counts.get(topic, 0), partition + 1)
        group = self.group.with_partitions(Partitions.from_counts(self.counts, topic_ids=self.ids(self.counts)))
        group = replace(group, members=self._sort_members(group.members), generation=generation - 1)
        self.group, self.fresh = group.rebalance(), set()
        return self.owners()

    def owners(self) -> Owners:
        """Return the owner of each partition after the last decision."""
        return {
            topic_partition: member.member_id
            for member in self.group.assigned
            for topic_partition in self.group.partitions.list_names(member.claim.partitions)
        }

    def _sort_members(self, members: Sequence[GroupMember]) -> tuple[GroupMember, ...]:
        """Sort members as the coordinator's map does: Java's order, or on the server its own, with new members last."""
        if self.server:
            index = {member_id: number for number, member_id in enumerate(self.order)}
            return tuple(sorted(members, key=lambda m: (m.member_id in self.fresh, index[m.member_id])))
        codes = np.asarray(compute_string_hash_codes([m.member_id for m in members]), np.int64)
        return tuple(members[index] for index in compute_map_order(codes).tolist())
