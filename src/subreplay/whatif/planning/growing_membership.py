"""Find the owner of each key or partition while equal consumers join and leave, one by one or several at once.

A ``Membership`` changes as a broker's or a group's does; owners are computed only when needed. A consumer is known by
its number, in the order of first joining, and keeps it when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.policies.base import Policy, is_load_measuring
from subreplay.semantics.policies.kafka.assignor import GroupPolicy, is_group
from subreplay.semantics.timelines.group_timeline import DetectedEvent, GroupFold
from subreplay.whatif.scenario import build_partitions


def name_consumer(number: int) -> str:
    """Return the name of consumer ``number`` (from 0). Names sort in the order of joining."""
    return f"c{number + 1:05d}"


class Membership(Protocol):
    """Consumers that join and leave, and what they own."""

    def change_members(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        """Let some consumers leave and others join at one instant, in these orders."""

    def find_owners(self) -> Ints:
        """Return the consumer that owns each thing now, or ``NOBODY``."""


def build_key_membership(
    policy: Policy, hashes: NDArray[np.uint32], scope: Scope, name_of: Callable[[int], str] = name_consumer
) -> Membership:
    """Return the empty membership of a subscription that dispatches keys by these hashes.

    On a hash ring, ownership depends on the consumers' names (``name_of``). Raises ``ConfigError`` for a policy whose
    consumers choose their slots, or that looks at recent traffic: there the number of consumers does not determine the
    owner.
    """
    if is_load_measuring(policy) or policy.serving == "key shared sticky":
        raise ConfigError(
            f"{policy.name}: cannot plan with this policy, because a key's owner depends on more than the number "
            "of consumers. Plan with another Key_Shared policy."
        )
    return _DispatcherMembership(policy, [scope], policy.compute_slots(hashes), hashes, name_of)


def build_partition_membership(policy: Policy, scopes: Sequence[Scope]) -> Membership:
    """Return the empty membership of a group, or of a subscription with one active consumer for each partition."""
    if is_group(policy):
        return _GroupMembership(policy, scopes)
    return _DispatcherMembership(
        policy, scopes, np.array([policy.space[0]], np.int64), np.zeros(1, np.uint32), name_consumer
    )


def iterate_growth(membership: Membership, first: int = 1) -> Iterator[Ints]:
    """Yield the owners with ``first``, ``first + 1``, … consumers, which join one by one, without an end."""
    for number in count():
        membership.change_members((), (number,))
        if number + 1 >= first:
            yield membership.find_owners()


class _DispatcherMembership:
    """One dispatcher for each scope. The things are the slots of one dispatcher, or the partitions themselves."""

    def __init__(
        self,
        policy: Policy,
        scopes: Sequence[Scope],
        slots: Ints,
        hashes: NDArray[np.uint32],
        name_of: Callable[[int], str],
    ) -> None:
        self.order = np.argsort(slots, kind="stable")  # sorted slots are found several times faster
        self.policy, self.slots, self.hashes, self.name_of = policy, slots[self.order], hashes[self.order], name_of
        self.states: list[Any] = [policy.start(scope) for scope in scopes]
        self.joins: list[int] = []  # the number of the consumer of each join
        self.members: dict[int, Consumer] = {}

    def change_members(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        for number in leaving:
            leaving_consumer = self.members.pop(number)
            self.states = [self.policy.leave(state, leaving_consumer) for state in self.states]
        for number in joining:
            self.members[number] = new_consumer = Consumer(len(self.joins), self.name_of(number))
            self.joins.append(number)
            self.states = [self.policy.join(state, new_consumer) for state in self.states]

    def find_owners(self) -> Ints:
        join_indexes = np.empty((len(self.states), len(self.slots)), np.int64)
        for number, state in enumerate(self.states):
            join_indexes[number, self.order] = state.table.owners_of(self.slots, self.hashes)
        return _find_consumer_numbers(self.joins, join_indexes.ravel())


class _GroupMembership:
    """A Kafka group. Every change is a rebalance at its own instant."""

    def __init__(self, policy: GroupPolicy, scopes: Sequence[Scope]) -> None:
        partitions = build_partitions(scopes)
        self.fold, self.scopes = GroupFold(policy, partitions), scopes
        self.numbers = [partitions.find_number(scope) for scope in scopes]
        self.joins: list[int] = []
        self.members: dict[int, int] = {}
        self.now = 0

    def change_members(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        at = Instant(self.now)
        self.now += 1
        detected = [
            DetectedEvent(at, self.members.pop(number), self._build_event("leave", number, at)) for number in leaving
        ]
        for number in joining:
            self.members[number] = len(self.joins)
            detected.append(DetectedEvent(at, len(self.joins), self._build_event("join", number, at)))
            self.joins.append(number)
        self.fold.apply(at, detected)
        while self.fold.group.needs_rebalance:
            self.fold.follow_up(at, at)

    def _build_event(self, event: Any, number: int, at: Instant) -> MembershipEvent:
        return MembershipEvent(self.scopes[0], event, name_consumer(number), at, at)

    def find_owners(self) -> Ints:
        return _find_consumer_numbers(self.joins, self.fold.owners[self.numbers])


def _find_consumer_numbers(joins: Sequence[int], join_indexes: NDArray[Any]) -> Ints:
    """Return the consumer number of each join; ``NOBODY`` stays."""
    return np.asarray(np.append(joins, NOBODY)[join_indexes], np.int64)
