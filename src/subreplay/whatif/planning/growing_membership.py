"""Who has each key or partition while equal consumers join and leave, one after another or several at once.

A ``Membership`` grows as a broker's or a group's does; ``owners`` is asked only where somebody wants to know. A
consumer is known by its number, in the order of first joining; one that comes back keeps it.
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
from subreplay.whatif.scenario import partitions_of


def consumer_name(number: int) -> str:
    """The name of consumer number ``number`` (from 0): names sort as the consumers join."""
    return f"c{number + 1:05d}"


class Membership(Protocol):
    """Consumers that join and leave, and what they own."""

    def change(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        """Some leave and some join at one instant, in these orders."""

    def owners(self) -> Ints:
        """The consumer that has each thing now, or ``NOBODY``."""


def of_keys(
    policy: Policy, hashes: NDArray[np.uint32], scope: Scope, called: Callable[[int], str] = consumer_name
) -> Membership:
    """A subscription that goes by keys, given by their hashes; a ring depends on what consumers are ``called``.

    Raises ``ConfigError`` for a policy whose consumers choose their slots, or that looks at recent traffic: who owns a
    key does not follow from who is there.
    """
    if is_load_measuring(policy) or policy.serving == "key shared sticky":
        raise ConfigError(f"{policy.name}: who owns a key does not follow from the number of consumers alone")
    return _Dispatchers(policy, [scope], policy.compute_slots(hashes), hashes, called)


def of_partitions(policy: Policy, scopes: Sequence[Scope]) -> Membership:
    """A group, or a subscription of which each partition has one active consumer."""
    if is_group(policy):
        return _OfGroup(policy, scopes)
    return _Dispatchers(policy, scopes, np.array([policy.space[0]], np.int64), np.zeros(1, np.uint32), consumer_name)


def growing(membership: Membership, first: int = 1) -> Iterator[Ints]:
    """The owners with ``first``, ``first + 1``, … consumers, which join one after another; without an end."""
    for number in count():
        membership.change((), (number,))
        if number + 1 >= first:
            yield membership.owners()


class _Dispatchers:
    """A dispatcher for each scope; the things are the slots of one, or the partitions that they are."""

    def __init__(
        self,
        policy: Policy,
        scopes: Sequence[Scope],
        slots: Ints,
        hashes: NDArray[np.uint32],
        called: Callable[[int], str],
    ) -> None:
        self.order = np.argsort(slots, kind="stable")  # sorted slots are found several times faster
        self.policy, self.slots, self.hashes, self.called = policy, slots[self.order], hashes[self.order], called
        self.states: list[Any] = [policy.start(scope) for scope in scopes]
        self.joins: list[int] = []  # the number of the consumer of each join
        self.here: dict[int, Consumer] = {}

    def change(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        for number in leaving:
            gone = self.here.pop(number)
            self.states = [self.policy.leave(state, gone) for state in self.states]
        for number in joining:
            self.here[number] = come = Consumer(len(self.joins), self.called(number))
            self.joins.append(number)
            self.states = [self.policy.join(state, come) for state in self.states]

    def owners(self) -> Ints:
        found = np.empty((len(self.states), len(self.slots)), np.int64)
        for number, state in enumerate(self.states):
            found[number, self.order] = state.table.owners_of(self.slots, self.hashes)
        return _numbered(self.joins, found.ravel())


class _OfGroup:
    """A Kafka group; every change is a rebalance at an instant of its own."""

    def __init__(self, policy: GroupPolicy, scopes: Sequence[Scope]) -> None:
        partitions = partitions_of(scopes)
        self.fold, self.scopes = GroupFold(policy, partitions), scopes
        self.numbers = [partitions.find_number(scope) for scope in scopes]
        self.joins: list[int] = []
        self.here: dict[int, int] = {}
        self.now = 0

    def change(self, leaving: Sequence[int], joining: Sequence[int]) -> None:
        at = Instant(self.now)
        self.now += 1
        detected = [DetectedEvent(at, self.here.pop(number), self._event("leave", number, at)) for number in leaving]
        for number in joining:
            self.here[number] = len(self.joins)
            detected.append(DetectedEvent(at, len(self.joins), self._event("join", number, at)))
            self.joins.append(number)
        self.fold.apply(at, detected)
        while self.fold.group.needs_rebalance:
            self.fold.follow_up(at, at)

    def _event(self, event: Any, number: int, at: Instant) -> MembershipEvent:
        return MembershipEvent(self.scopes[0], event, consumer_name(number), at, at)

    def owners(self) -> Ints:
        return _numbered(self.joins, self.fold.owners[self.numbers])


def _numbered(joins: Sequence[int], found: NDArray[Any]) -> Ints:
    """The number of the consumer of each join; ``NOBODY`` stays."""
    return np.asarray(np.append(joins, NOBODY)[found], np.int64)
