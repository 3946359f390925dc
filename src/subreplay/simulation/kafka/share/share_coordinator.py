"""The coordinator of a share group (``GroupMetadataManager``, 4.4): epochs, targets, and the state of partitions.

A join, a departure, another subscription and a topic that grew each bump the group's epoch. The target of the latest
epoch is computed with the first heartbeat that comes an assignment interval after the last target. Members follow one
by one, with their own heartbeats; nobody has to give anything up first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.timeline_map import TimelineMapOrder
from subreplay.semantics.policies.kafka.assignor import GroupMember, MemberClaim, Partitions

Ints = NDArray[np.int64]
FIRST_EPOCH: Final = 2
"""The epoch that the first join begins."""
ASSIGNMENT_INTERVAL: Final = 1_000_000_000
"""``group.share.assignment.interval.ms`` (ns)."""
NO_PARTITIONS: Final = np.zeros(0, np.int64)


@dataclass
class ShareMember:
    """A member as the coordinator knows it.

    ``target`` is its part of the latest target, ``assigned`` what its latest heartbeat was answered, and ``beat`` the
    time of that heartbeat.
    """

    member_id: str
    topics: frozenset[str]
    beat: int
    target: Ints = field(default_factory=lambda: NO_PARTITIONS)
    assigned: Ints = field(default_factory=lambda: NO_PARTITIONS)


class ShareTarget(NamedTuple):
    """The target of an epoch: when it was computed (ns), and the partitions of each member."""

    epoch: int
    at: int
    partitions: dict[str, Ints]


class ShareCoordinator:
    """The group: its members by id, in join order, and all its ``targets``.

    ``policy`` assigns partitions whose share state exists. If a subscribed partition has none, a heartbeat calls
    ``initialise`` with the numbers; the caller marks them as initialised when their state was written.
    """

    def __init__(
        self,
        policy: Any,
        partitions: Partitions,
        initialise: Callable[[Ints], None],
        assignment_interval: int = ASSIGNMENT_INTERVAL,
    ) -> None:
        self.policy, self.partitions, self.initialise = policy, partitions, initialise
        self.assignment_interval = assignment_interval
        self.members: dict[str, ShareMember] = {}
        self._ordered_ids = TimelineMapOrder()
        self.epoch = self.target_epoch = FIRST_EPOCH - 1
        self.targets: list[ShareTarget] = []
        self.is_initialised = np.zeros(len(partitions), np.bool_)
        self._is_initialising = np.zeros(len(partitions), np.bool_)
        self._target_at: int | None = None  # None: the next heartbeat computes one
        self._has_grown = False

    def handle_heartbeat(self, member_id: str, now: int, topics: frozenset[str] | None = None) -> ShareMember:
        """Answer a heartbeat; ``topics`` is the subscription if the member is new or changed it."""
        member = self.members.get(member_id)
        changes = self._has_grown
        if member is None:
            member = self.members[member_id] = ShareMember(member_id, topics or frozenset(), now)
            changes = True
        elif topics is not None and topics != member.topics:
            member.topics, changes = topics, True
        member.beat, self._has_grown = now, False
        if changes or (self.epoch == self.target_epoch and self._has_unassigned()):
            self.epoch += 1
        if self.is_due(now):
            self._compute_target(now)
        self._ordered_ids.add(member_id)  # a target that a join computes has its member last
        member.assigned = member.target
        self._request_state()
        return member

    def is_due(self, now: int) -> bool:
        """Check whether a heartbeat at ``now`` computes a target."""
        is_late = self._target_at is None or now - self._target_at >= self.assignment_interval
        return self.target_epoch < self.epoch and is_late

    def remove(self, member_id: str, now: int) -> None:
        """Remove a member that left or was evicted. The last one leaves an empty target, which delays no other."""
        del self.members[member_id]
        self._ordered_ids.remove(member_id)
        self.epoch += 1
        if not self.members:
            self.target_epoch, self._target_at = self.epoch, None
            self.targets.append(ShareTarget(self.epoch, now, {}))

    def mark_initialised(self, numbers: Ints) -> None:
        """Let partitions be assigned, because their share state was written."""
        self.is_initialised[numbers] = True
        self._is_initialising[numbers] = False

    def grow_topic(self, topic: str, count: int) -> None:
        """Let a topic have ``count`` partitions, which the next heartbeat notices."""
        counts = self.partitions.counts.copy()
        counts[self.partitions.topics.index(topic)] = count
        self.partitions = replace(self.partitions, counts=counts)
        self._has_grown = True

    def _has_unassigned(self) -> bool:
        """Check whether an initialised partition is missing in the target."""
        owned = [member.target for member in self.members.values()]
        return not np.isin(np.flatnonzero(self.is_initialised), np.concatenate([NO_PARTITIONS, *owned])).all()

    def _compute_target(self, now: int) -> None:
        in_order = [self.members[name] for name in dict.fromkeys((*self._ordered_ids, *self.members))]
        rows = [GroupMember(one.member_id, one.topics, claim=MemberClaim(one.target)) for one in in_order]
        targets = self.policy.assign(self.partitions, rows, self.is_initialised)
        for member, target in zip(in_order, targets, strict=True):
            member.target = target
        self.target_epoch, self._target_at = self.epoch, now
        self.targets.append(ShareTarget(self.epoch, now, {name: one.target for name, one in self.members.items()}))

    def _request_state(self) -> None:
        """Request the share state of subscribed partitions that have none."""
        topics = frozenset().union(*(member.topics for member in self.members.values()))
        is_subscribed = np.isin(self.partitions.topic, [t for t, n in enumerate(self.partitions.topics) if n in topics])
        missing = self.partitions.exists & is_subscribed & ~self.is_initialised & ~self._is_initialising
        if missing.any():
            self._is_initialising |= missing
            self.initialise(np.flatnonzero(missing))
