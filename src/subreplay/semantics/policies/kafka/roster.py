"""The members of a group as arrays, because a group of thousands is rebalanced with every change.

A roster is a sequence of ``GroupMember``; each member is created when it is accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np

from subreplay.hashing.java_map import compute_string_hash_codes
from subreplay.hashing.java_string import utf16_sort_key
from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import GroupMember, Ints, MemberClaim, Owners


@dataclass(frozen=True, eq=False)
class Roster(Sequence[GroupMember]):
    """Members in join order: one column per attribute, and their claims.

    Member m claims ``claimed[ends[m - 1] : ends[m]]``, ascending, as of ``claim_generations[m]``.
    """

    ids: tuple[str, ...]
    topics: tuple[frozenset[str], ...]
    instances: tuple[str | None, ...]
    racks: tuple[str | None, ...]
    generations: Ints
    claim_generations: Ints
    claimed: Ints
    ends: Ints

    @classmethod
    def from_members(cls, members: Iterable[GroupMember]) -> Roster:
        """Build the roster of these members; a roster is returned unchanged."""
        if isinstance(members, Roster):
            return members
        rows = tuple(members)
        ids, topics, instances, racks, generations, claims = zip(*rows, strict=True) if rows else ((),) * 6
        claimed_partitions = [claim.partitions for claim in claims]
        return cls(
            ids,
            topics,
            instances,
            racks,
            np.array(generations, np.int64),
            np.array([claim.generation for claim in claims], np.int64),
            np.concatenate([*claimed_partitions, np.zeros(0, np.int64)]),
            np.cumsum([len(partitions) for partitions in claimed_partitions], dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> GroupMember: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[GroupMember]: ...
    def __getitem__(self, at: int | slice) -> GroupMember | Sequence[GroupMember]:
        if isinstance(at, slice):
            return self.select(range(*at.indices(len(self))))
        at = range(len(self))[at]
        start = int(self.ends[at - 1]) if at else 0
        claim = MemberClaim(self.claimed[start : self.ends[at]], int(self.claim_generations[at]))
        return GroupMember(
            self.ids[at], self.topics[at], self.instances[at], self.racks[at], int(self.generations[at]), claim
        )

    def __iter__(self) -> Iterator[GroupMember]:
        return map(self.__getitem__, range(len(self)))

    def select(self, positions: Sequence[int]) -> Roster:
        """Return the members at these positions, in that order."""
        rows = np.array(positions, np.int64)
        widths = np.diff(self.ends, prepend=0)[rows]
        ends = np.cumsum(widths)
        taken = np.repeat(self.ends[rows] - ends, widths) + np.arange(widths.sum())
        new = Roster(
            tuple(map(self.ids.__getitem__, positions)),
            tuple(map(self.topics.__getitem__, positions)),
            tuple(map(self.instances.__getitem__, positions)),
            tuple(map(self.racks.__getitem__, positions)),
            self.generations[rows],
            self.claim_generations[rows],
            self.claimed[taken],
            ends,
        )
        if "hash_codes" in self.__dict__:
            new.__dict__["hash_codes"] = self.hash_codes[rows]
        return new

    def replace_at(self, at: int, instead: Sequence[GroupMember]) -> Roster:
        """Return the roster with these members instead of the one ``at`` a position (none, after the last one)."""
        new, end = Roster.from_members(instead), int(self.ends[at - 1]) if at else 0
        behind = int(self.ends[at]) if at < len(self) else end
        moved = self.ends[at + 1 :] + len(new.claimed) - (behind - end)
        return Roster(
            (*self.ids[:at], *new.ids, *self.ids[at + 1 :]),
            (*self.topics[:at], *new.topics, *self.topics[at + 1 :]),
            (*self.instances[:at], *new.instances, *self.instances[at + 1 :]),
            (*self.racks[:at], *new.racks, *self.racks[at + 1 :]),
            np.concatenate([self.generations[:at], new.generations, self.generations[at + 1 :]]),
            np.concatenate([self.claim_generations[:at], new.claim_generations, self.claim_generations[at + 1 :]]),
            np.concatenate([self.claimed[:end], new.claimed, self.claimed[behind:]]),
            np.concatenate([self.ends[:at], new.ends + end, moved]),
        )

    def with_assignment(self, claimed: Ints, ends: Ints, generation: int) -> Roster:
        """Return the same members, each with its owned partitions as of a generation."""
        same = np.full(len(self), generation, np.int64)
        new = Roster(self.ids, self.topics, self.instances, self.racks, same, same, claimed, ends)
        for known in ("id_order", "hash_codes"):
            if known in self.__dict__:
                new.__dict__[known] = self.__dict__[known]
        return new

    @cached_property
    def id_order(self) -> Ints:
        """The positions of the members, sorted by member id as ``String.compareTo`` does."""
        return np.array(sorted(range(len(self)), key=[*map(utf16_sort_key, self.ids)].__getitem__), np.int64)

    @cached_property
    def hash_codes(self) -> Ints:
        """``String.hashCode`` of each member id."""
        return compute_string_hash_codes(self.ids)

    def list_claims(self, positions: Ints, names: Ints) -> tuple[Ints, Ints]:
        """Return all claims, member after member as in ``positions``, each with its entry in ``names``."""
        return _list_claims(self.claimed, self.ends, positions, names)

    def find_lost_claims(self, owners: Owners) -> tuple[Ints, Ints]:
        """Return the claims whose partition has another owner or none, and the positions of their claimants."""
        return _find_lost_claims(self.claimed, self.ends, owners)


@compiled
def _find_lost_claims(claimed: Ints, ends: Ints, owners: Owners) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    partitions, claimants = np.empty_like(claimed), np.empty_like(claimed)
    filled = start = 0
    for position, end in enumerate(ends):
        for number in range(start, end):
            if owners[claimed[number]] != position:
                partitions[filled], claimants[filled] = claimed[number], position
                filled += 1
        start = end
    return partitions[:filled].copy(), claimants[:filled].copy()


@compiled
def _list_claims(
    claimed: Ints, ends: Ints, positions: Ints, names: Ints
) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    partitions, claimants = np.empty_like(claimed), np.empty_like(claimed)
    filled = 0
    for position, name in zip(positions, names):  # noqa: B905 - numba's zip knows no strict
        start = ends[position - 1] if position else 0
        for number in range(start, ends[position]):
            partitions[filled] = claimed[number]
            claimants[filled] = name
            filled += 1
    return partitions[:filled], claimants[:filled]
