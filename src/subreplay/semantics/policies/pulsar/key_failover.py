"""Key_Failover: a new consumer takes half of the busiest consumer's range."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError, ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, remove_member
from subreplay.semantics.policies.pulsar.slot_traffic import RecentWindows, SlotTraffic

PROFILES = ProfileTable({DOCUMENTED: None, PULSAR_3_2: None})

_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class KeyFailoverState:
    """``owners[i]`` owns the slots from ``starts[i]`` up to the next start; loads are those at the time ``at`` (ns)."""

    range_size: int
    traffic: SlotTraffic | None
    at: int | None = None
    members: Members = ()
    starts: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)
    owners: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        return np.diff(self.starts, append=self.range_size)

    @cached_property
    def loads(self) -> NDArray[np.int64]:
        """The recent messages of each range, or 0 if no traffic was measured."""
        if self.traffic is None or self.at is None:
            return np.zeros(len(self.starts), np.int64)
        return self.traffic.compute_loads(self.at, self.starts)

    @cached_property
    def table(self) -> RangeTable:
        return RangeTable(self.starts, self.starts + self.widths - 1, self.owners)


@dataclass(frozen=True)
class KeyFailoverPolicy:
    """Documented rows P-KF-1 to 4: every consumer has one range, and load decides which range is split or extended.

    * join: the busiest consumer's range is split, and the new consumer takes the upper half (the smaller one of an odd
      size). Of equally busy ranges, the widest is split, then the lowest. A range of one slot cannot be split, so the
      next busiest is. If there is none, the new consumer is rejected.
    * leave: the range goes to the less busy of the two neighbours. Of equally busy neighbours, the narrower range gets
      it, then the lower one.

    A consumer's load is the number of messages, in the last ``window_us`` microseconds, of the slots that it owns now.
    New slots count with their earlier messages. Without measured traffic all loads are 0, so the widths decide.
    ``with_traffic`` sets the traffic.

    This design is older than Key_Shared, and no broker implements it. Under the brokers' profiles, only the slot of a
    hash follows the broker. Priority levels have no effect (row P-KF-5).

    >>> policy = KeyFailoverPolicy("documented")
    >>> one = policy.join(policy.start(Scope("persistent://t/ns/orders")), Consumer(0, "C1"))
    >>> policy.join(one, Consumer(1, "C2")).table.rows()
    [(0, 32767, 0), (32768, 65535, 1)]
    """

    name: ClassVar[str] = "pulsar.key_failover"
    routing: ClassVar[Routing] = "slot"
    # row P-KF-5: what finds no permit waits with its hash, others go on; nothing is said of hashes that change hands
    serving: ClassVar[Serving] = "key failover"
    measures_load: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    profile: str
    window_us: int = 60_000_000
    range_size: int = HASH_RANGE
    traffic: Mapping[Scope, SlotTraffic] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        get_rule(self.name, PROFILES, self.profile)
        if self.window_us < 1:
            raise ConfigError(f"{self.name}: window_us must be at least 1, got {self.window_us}")
        if self.range_size < 1:
            raise ConfigError(f"{self.name}: range size must be at least 1, got {self.range_size}")

    @property
    def space(self) -> Range:
        return 0, self.range_size - 1

    def list_windows(self, events: Iterable[MembershipEvent]) -> RecentWindows:
        """Return the windows in which the traffic of a dispatcher with these events must be counted."""
        return RecentWindows.from_ends((event.at.at for event in events), self.window_us * 1000)

    def with_traffic(self, traffic: Mapping[Scope, SlotTraffic]) -> KeyFailoverPolicy:
        """Return this policy with the traffic of each dispatcher in its windows."""
        return replace(self, traffic=traffic)

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return make_range_rule(self.profile, self.range_size).compute_slots(hashes)

    def start(self, scope: Scope) -> KeyFailoverState:
        return KeyFailoverState(self.range_size, self.traffic.get(scope))

    def advance_to(self, state: KeyFailoverState, at: Instant) -> KeyFailoverState:
        return replace(state, at=at.at)

    def join(self, state: KeyFailoverState, consumer: Consumer) -> KeyFailoverState:
        members = (*state.members, consumer)
        if not state.members:
            return replace(state, members=members, starts=np.array([0]), owners=np.array([consumer.index]))
        splittable = np.flatnonzero(state.widths > 1)
        if not len(splittable):
            reason = f"No range can be halved for a new consumer, assigned consumers {len(state.owners)}"
            raise ConsumerRejected("ConsumerAssignException", reason)
        by_load = np.lexsort(
            (-state.widths[splittable], -state.loads[splittable])
        )  # stable: the lowest of equals comes first
        busiest = splittable[by_load[0]]
        middle = state.starts[busiest] + (state.widths[busiest] + 1) // 2
        starts = np.insert(state.starts, busiest + 1, middle)
        owners = np.insert(state.owners, busiest + 1, consumer.index)
        return replace(state, members=members, starts=starts, owners=owners)

    def leave(self, state: KeyFailoverState, consumer: Consumer) -> KeyFailoverState:
        members = remove_member(state.members, consumer)
        leaving = int(np.flatnonzero(state.owners == consumer.index)[0])
        neighbours = [at for at in (leaving - 1, leaving + 1) if 0 <= at < len(state.owners)]
        successor = min(neighbours, key=lambda at: (state.loads[at], state.widths[at]), default=leaving)
        starts = np.delete(state.starts, max(leaving, successor))  # the bound between the two
        owners = np.delete(state.owners, leaving)
        return replace(state, members=members, starts=starts, owners=owners)
