"""Who has each key or partition when so many equal consumers have joined, one after another, under a policy.

Owners are given for ``first``, ``first + 1``, … consumers, without an end; a consumer is known by the order of joining.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.model.columns import Ints
from subreplay.model.range_table import NOBODY
from subreplay.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.policies.base import Measuring, Policy
from subreplay.policies.kafka.assignor import GroupPolicy, is_group
from subreplay.timelines.group_timeline import DetectedEvent, GroupFold
from subreplay.whatif.scenario import partitions_of


def consumer_name(index: int) -> str:
    """The name of the consumer that joins as the ``index``-th (from 0): names sort as the consumers join."""
    return f"c{index + 1:05d}"


def owners_of_keys(policy: Policy, hashes: NDArray[np.uint32], scope: Scope, first: int = 1) -> Iterator[Ints]:
    """The owner of each key, by its hash, under a policy that goes by keys; ``NOBODY`` where none has it.

    Raises ``ConfigError`` for a policy whose consumers choose their slots, or that looks at recent traffic: neither
    follows from how many there are.
    """
    if isinstance(policy, Measuring) or policy.serving == "key shared sticky":
        raise ConfigError(f"{policy.name}: who owns a key does not follow from the number of consumers alone")
    slots, state = policy.slots(hashes), policy.start(scope)
    for index in count():
        state = policy.join(state, Consumer(index, consumer_name(index)))
        if index + 1 >= first:
            yield state.table.owners_of(slots, hashes)


def owners_of_partitions(policy: Policy, scopes: Sequence[Scope], first: int = 1) -> Iterator[Ints]:
    """The owner of each partition, in a group or under a policy with one active consumer."""
    return _of_group(policy, scopes, first) if is_group(policy) else _of_active(policy, scopes, first)


def _of_active(policy: Policy, scopes: Sequence[Scope], first: int) -> Iterator[Ints]:
    states: list[Any] = [policy.start(scope) for scope in scopes]
    nothing, slot = np.zeros(1, np.uint32), np.array([policy.space[0]], np.int64)
    for index in count():
        consumer = Consumer(index, consumer_name(index))
        states = [policy.join(state, consumer) for state in states]
        if index + 1 >= first:
            yield np.array([int(state.table.owners_of(slot, nothing)[0]) for state in states], np.int64)


def _of_group(policy: GroupPolicy, scopes: Sequence[Scope], first: int) -> Iterator[Ints]:
    partitions = partitions_of(scopes)
    fold, numbers = GroupFold(policy, partitions), [partitions.number(scope) for scope in scopes]
    for index in count():
        at = Instant(index)
        event = MembershipEvent(scopes[0], "join", consumer_name(index), at, at)
        fold.apply(at, [DetectedEvent(at, index, event)])
        while fold.group.unsettled:
            fold.follow_up(at, at)
        if index + 1 >= first:
            yield np.where(fold.owners[numbers] < 0, NOBODY, fold.owners[numbers]).astype(np.int64)
