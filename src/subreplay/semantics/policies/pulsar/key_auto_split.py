"""Key_Shared with auto-split ranges: a new consumer takes half of the largest range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError, ConsumerRejected
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, ProfileTable, get_rule
from subreplay.hashing.slots import HASH_RANGE, make_range_rule
from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Routing, Serving
from subreplay.semantics.policies.pulsar.members import Members, add_member, remove_member

BOUND_IS_INSIDE: Mapping[str, bool] = ProfileTable(
    {
        DOCUMENTED: False,  # row P-KS-AUTO-1: [0, 32768) and [32768, 65536)
        PULSAR_3_2: True,  # ceilingEntry: [0, 32768] and [32769, 65536]
    }
)
"""Whether a range's upper bound is its last slot, or else the first slot of the next range."""

_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class AutoSplitState:
    """``owners[i]`` owns the slots from ``bounds[i - 1]`` (from 0 for the first) up to ``bounds[i]``."""

    bound_is_inside: bool
    range_size: int
    members: Members = ()
    bounds: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)
    owners: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)

    @cached_property
    def reported_table(self) -> RangeTable:
        """The ranges as the broker lists them: the last one ends at ``range_size``, one past the last slot."""
        if not self.members:
            return RangeTable.empty()
        inside = int(self.bound_is_inside)
        starts = np.insert(self.bounds[:-1] + inside, 0, 0)
        return RangeTable(starts, self.bounds - 1 + inside, self.owners)

    @cached_property
    def table(self) -> RangeTable:
        listed = self.reported_table
        is_real = listed.starts < self.range_size  # a range of nothing but the slot past the end owns nothing
        return RangeTable(
            listed.starts[is_real], np.minimum(listed.ends, self.range_size - 1)[is_real], listed.owners[is_real]
        )


@dataclass(frozen=True)
class AutoSplitPolicy:
    """Rows P-KS-AUTO-1 to 3: ranges are split at a join and merged at a leave; a key moves only with its range.

    * join: the largest range is split, the lowest of equal ones. The new consumer takes the lower half (the larger one
      of an odd size). If no range has more than one slot, it is rejected with ``ConsumerAssignException``.
    * leave: the range goes to its upper neighbour. The topmost range goes to its lower neighbour.

    Follows ``HashRangeAutoSplitStickyKeyConsumerSelector``, which is the same in 3.2.3, 4.0.8 and 4.2.4 except for the
    slot rule.

    >>> policy = AutoSplitPolicy("documented")
    >>> one = policy.join(policy.start(Scope("persistent://t/ns/orders")), Consumer(0, "C1"))
    >>> policy.join(one, Consumer(1, "C2")).table.rows()
    [(0, 32767, 1), (32768, 65535, 0)]
    """

    name: ClassVar[str] = "pulsar.key_shared.auto_split"
    routing: ClassVar[Routing] = "slot"
    serving: ClassVar[Serving] = "key shared"
    measures_load: ClassVar[bool] = False

    profile: str
    allow_out_of_order: bool = False
    range_size: int = HASH_RANGE

    def __post_init__(self) -> None:
        get_rule(self.name, BOUND_IS_INSIDE, self.profile)
        if self.range_size < 2:
            raise ConfigError(f"{self.name}: range size must greater than 2, got {self.range_size}")
        if self.range_size & (self.range_size - 1):
            raise ConfigError(f"{self.name}: range size must be nth power with 2, got {self.range_size}")

    @property
    def ordered(self) -> bool:
        return not self.allow_out_of_order

    @property
    def space(self) -> Range:
        return 0, self.range_size - 1

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        return make_range_rule(self.profile, self.range_size).compute_slots(hashes)

    def start(self, scope: Scope) -> AutoSplitState:
        return AutoSplitState(BOUND_IS_INSIDE[self.profile], self.range_size)

    def join(self, state: AutoSplitState, consumer: Consumer) -> AutoSplitState:
        if not state.members:
            bounds, owners = np.array([self.range_size]), np.array([consumer.index])
            return replace(state, members=(consumer,), bounds=bounds, owners=owners)
        sizes = np.diff(state.bounds, prepend=0)
        largest = int(sizes.argmax())  # the first of equals
        if sizes[largest] <= 1:
            reason = f"No more range can assigned to new consumer, assigned consumers {len(state.owners)}"
            raise ConsumerRejected("ConsumerAssignException", reason)
        split = state.bounds[largest] - (sizes[largest] >> 1)
        bounds = np.insert(state.bounds, largest, split)
        owners = np.insert(state.owners, largest, consumer.index)
        return replace(state, members=add_member(state.members, consumer), bounds=bounds, owners=owners)

    def leave(self, state: AutoSplitState, consumer: Consumer) -> AutoSplitState:
        members = remove_member(state.members, consumer)
        leaving = int(np.flatnonzero(state.owners == consumer.index)[0])
        # without its bound a range joins the one above; the topmost bound stays, so there the one below goes instead
        bound = leaving if leaving < len(members) else max(leaving - 1, 0)
        bounds, owners = np.delete(state.bounds, bound), np.delete(state.owners, leaving)
        return replace(state, members=members, bounds=bounds, owners=owners)

    def list_reported_ranges(self, state: AutoSplitState) -> dict[int, list[Range]]:
        """Return the ranges of each consumer as ``getConsumerKeyHashRanges`` lists them."""
        return state.reported_table.by_owner()
