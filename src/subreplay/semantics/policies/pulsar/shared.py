"""Shared: each message goes to one consumer with permits, round robin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, add_member, remove_member

PROFILES = ProfileTable({DOCUMENTED: None, PULSAR_3_2: None})


@dataclass(frozen=True)
class SharedState:
    """The consumers by priority level, then by join."""

    members: Members = ()
    table: ClassVar[RangeTable] = RangeTable.empty()


@dataclass(frozen=True)
class SharedPolicy:
    """Documented row P-SH-1: any consumer may receive any message, and the order is not guaranteed.

    ``choose_next_consumer`` is the broker's choice for given permits. The table is empty.

    >>> policy = SharedPolicy("pulsar-4.0")
    >>> state = policy.start(Scope("persistent://t/ns/orders"))
    >>> state = policy.join(policy.join(state, Consumer(0, "a")), Consumer(1, "b"))
    >>> choose_next_consumer(state.members, [True, True], 1)
    (1, 2)
    """

    name: ClassVar[str] = "pulsar.shared"
    routing: ClassVar[Routing] = "any"
    serving: ClassVar[Serving] = "shared"
    measures_load: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    space: ClassVar[Range] = (0, HASH_RANGE - 1)

    profile: str

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Compute slots as Key_Shared does; they do not affect this policy."""
        return make_range_rule(self.profile).compute_slots(hashes)

    def start(self, scope: Scope) -> SharedState:
        return SharedState()

    def join(self, state: SharedState, consumer: Consumer) -> SharedState:
        return SharedState(add_member(state.members, consumer))

    def leave(self, state: SharedState, consumer: Consumer) -> SharedState:
        return SharedState(remove_member(state.members, consumer))


def choose_next_consumer(members: Sequence[Consumer], available: Sequence[bool], turn: int) -> tuple[int | None, int]:
    """Return the position of the next consumer to serve (None if none can be served), and the turn after it.

    ``members`` are sorted by priority level. ``available[i]`` is whether consumer i has permits and is not blocked.
    ``turn`` is the position after the last served one, and is kept across joins and leaves. All consumers of the turn's
    level come before the lower levels. A higher level that becomes available interrupts, and then its first available
    consumer is always served. Follows ``AbstractDispatcherMultipleConsumers.getNextConsumer`` (3.2.3, 4.0.8, 4.2.4).
    """
    if not members:
        return None, turn
    turn = turn if turn < len(members) else 0
    level = members[turn].priority
    # level 0 counts as the highest: the broker does not look above it, whatever negative levels there are
    higher = _find_positions(members, lambda priority: priority < level) if level != 0 else []
    same = _find_positions(members, lambda priority: priority == level)
    lower = _find_positions(members, lambda priority: priority > level)
    rotated = [i for i in same if i >= turn] + [i for i in same if i < turn]
    chosen = _find_first((*higher, *rotated, *lower), available)
    return chosen, turn if chosen is None else chosen + 1


def _find_positions(members: Sequence[Consumer], is_wanted: Callable[[int], bool]) -> list[int]:
    return [i for i, member in enumerate(members) if is_wanted(member.priority)]


def _find_first(positions: Iterable[int], available: Sequence[bool]) -> int | None:
    return next((i for i in positions if available[i]), None)
