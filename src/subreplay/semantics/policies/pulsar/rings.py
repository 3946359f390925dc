"""The rings of consistent hashing: the owner of each point, and the rule for points that two consumers share.

A ring is the immutable state of the policy. Both kinds assign a slot to the owner of the next point clockwise. They
differ in the names of points, and in the owner of a point that several consumers hash to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.java_string import utf16_sort_key
from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.hashing.slots import HASH_RANGE, SHORT_RING, WHOLE_RING, SlotRule
from subreplay.rows.model.range_table import NOBODY, Groups, Range, RangeTable
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.pulsar.members import Members, add_member, remove_member

_NOTHING = np.zeros(0, np.int64)

Group = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SharedPointRing:
    """The ring ``0..2^31 - 1`` of 3.2.3 and of the documents: consumers with the same point share it.

    Of the consumers at a point, sorted by name and then by join, ``hash % count`` selects one. So consumers with equal
    names share all their points. ``holders[i]`` owns ``at[i]``: a consumer index, or ``-2 - g`` for ``groups[g]``.
    """

    separator: str
    first_number: int
    points: int
    members: Members = ()
    at: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)
    holders: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)
    groups: Groups = ()

    def add(self, consumer: Consumer) -> SharedPointRing:
        members = add_member(self.members, consumer)
        name = {member.index: utf16_sort_key(member.name) for member in members}
        points = self._compute_points(consumer)
        taken = np.isin(points, self.at, assume_unique=True)
        holders, groups = self._change_groups(
            points[taken], lambda group: tuple(sorted((*group, consumer.index), key=lambda index: name[index]))
        )
        positions_of_new = np.searchsorted(self.at, points[~taken])
        at = np.insert(self.at, positions_of_new, points[~taken])
        return replace(
            self, members=members, at=at, holders=np.insert(holders, positions_of_new, consumer.index), groups=groups
        )

    def remove(self, consumer: Consumer) -> SharedPointRing:
        members = remove_member(self.members, consumer)
        holders, groups = self._change_groups(
            self._compute_points(consumer), lambda group: tuple(index for index in group if index != consumer.index)
        )
        is_owned = holders != NOBODY
        return replace(self, members=members, at=self.at[is_owned], holders=holders[is_owned], groups=groups)

    @cached_property
    def table(self) -> RangeTable:
        return _build_clockwise_table(self.at, self.holders, (0, MASK_31), self.groups)

    def list_reported_ranges(self) -> dict[int, list[Range]]:
        """List one range per point for each consumer there, without the range after the last point, which is served,
        too."""
        ranges: dict[int, list[Range]] = {}
        starts = np.insert(self.at + 1, 0, 0)[:-1]
        for start, end, holder in zip(starts.tolist(), self.at.tolist(), self.holders.tolist(), strict=True):
            for index in self._get_group(holder):
                ranges.setdefault(index, []).append((start, end))
        return ranges

    def _compute_points(self, consumer: Consumer) -> NDArray[np.int64]:
        return np.unique(_compute_points(consumer.name + self.separator, self.first_number, self.points, WHOLE_RING))

    def _get_group(self, holder: int) -> Group:
        return self.groups[-2 - holder] if holder < NOBODY else (holder,)

    def _change_groups(
        self, points: NDArray[np.int64], change: Callable[[Group], Group]
    ) -> tuple[NDArray[np.int64], Groups]:
        """Return the holders and groups after ``change`` of the consumers at ``points``, which are on the ring."""
        positions = np.searchsorted(self.at, points)
        before, holders, groups = self.holders[positions], self.holders.copy(), self.groups
        for holder in np.unique(before).tolist():  # few: consumers of one name meet at all their points alike
            code, groups = _encode_group(change(self._get_group(holder)), groups)
            holders[positions[before == holder]] = code
        return holders, groups


@dataclass(frozen=True, eq=False)
class FirstComeRing:
    """The ring ``1..65535`` of 4.x: consumers queue at each point in join order, and the first one owns it.

    ``at`` contains every claim, sorted by point and then by arrival. A point is named after the consumer and
    ``numbers[index]``, the smallest free number among the connected consumers of that name
    (``ConsumerNameIndexTracker``).
    """

    points: int
    members: Members = ()
    numbers: dict[int, int] = field(default_factory=dict)
    at: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)
    claimants: NDArray[np.int64] = field(default_factory=lambda: _NOTHING)

    def add(self, consumer: Consumer) -> FirstComeRing:
        in_use = {self.numbers[member.index] for member in self.members if member.name == consumer.name}
        number = next(number for number in count() if number not in in_use)
        points = np.sort(_compute_points(f"{consumer.name}\0{number}\0", 0, self.points, SHORT_RING))
        end_of_queue = np.searchsorted(self.at, points, "right")
        return FirstComeRing(
            self.points,
            add_member(self.members, consumer),
            self.numbers | {consumer.index: number},
            np.insert(self.at, end_of_queue, points),
            np.insert(self.claimants, end_of_queue, consumer.index),
        )

    def remove(self, consumer: Consumer) -> FirstComeRing:
        members = remove_member(self.members, consumer)
        numbers = {index: number for index, number in self.numbers.items() if index != consumer.index}
        is_kept = self.claimants != consumer.index
        return FirstComeRing(self.points, members, numbers, self.at[is_kept], self.claimants[is_kept])

    @cached_property
    def table(self) -> RangeTable:
        head = np.diff(self.at, prepend=0) != 0  # points count from 1
        return _build_clockwise_table(self.at[head], self.claimants[head], (1, HASH_RANGE - 1))

    def list_reported_ranges(self) -> dict[int, list[Range]]:
        """Return the table by consumer, in slot order."""
        return self.table.by_owner()


def _build_clockwise_table(
    at: NDArray[np.int64], holders: NDArray[np.int64], space: Range, groups: Groups = ()
) -> RangeTable:
    """Assign each slot of ``space`` to the next point's holder; slots after the last point go to the first one's."""
    if not len(at):
        return RangeTable.empty()
    first, last = space
    starts, ends = np.insert(at + 1, 0, first), np.append(at, last)
    real = starts <= ends  # no range past a point that is the last slot
    return RangeTable(starts[real], ends[real], np.append(holders, holders[0])[real], groups).merged()


def _encode_group(group: Group, groups: Groups) -> tuple[int, Groups]:
    """Return the code of ``group``, and the groups including it; known groups keep their numbers."""
    if len(group) < 2:
        return (group[0] if group else NOBODY), groups
    if group not in groups:
        groups = (*groups, group)
    return -2 - groups.index(group), groups


@lru_cache(maxsize=4096)
def _compute_points(prefix: str, first: int, points: int, rule: SlotRule) -> NDArray[np.int64]:
    """Compute the slots of ``prefix + i`` for ``points`` numbers i from ``first`` on."""
    hashes = [murmur3_32(f"{prefix}{i}".encode()) for i in range(first, first + points)]
    return rule.compute_slots(np.array(hashes, np.uint32))
