"""Range tables: which consumer owns which slots, as sorted inclusive ranges.

A table belongs to one epoch of one dispatcher. Owners are consumer indexes (``Consumer.index``), not names, so that
tables of one timeline can be compared. A slot outside every range has no owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.murmur3 import MASK_31

NOBODY = -1
Groups = tuple[tuple[int, ...], ...]
Range = tuple[int, int]
Code = TypeVar("Code", np.int32, np.int64)


class Move(NamedTuple):
    """The inclusive slot range ``[start, end]`` moved from one consumer index to another (``NOBODY`` for none).

    A code below ``NOBODY`` represents a group of consumers, as in ``RangeTable.owners``.
    """

    start: int
    end: int
    before: int
    after: int


class Cuts(NamedTuple):
    """A table without holes: ``owners[i]`` owns ``at[i]`` up to the next cut. The last cut has no owner."""

    at: NDArray[np.int64]
    owners: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RangeTable:
    """Sorted, non-overlapping inclusive ranges ``[starts[i], ends[i]]`` owned by ``owners[i]``.

    ``owners`` holds consumer indexes; ``-2 - g`` stands for the consumers ``groups[g]`` that share a point, of whom
    ``hash % len(group)`` picks one (``pulsar-3.2`` consistent hashing). Tables of one timeline number their groups
    alike.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    owners: NDArray[np.int64]
    groups: Groups = ()

    @classmethod
    def empty(cls) -> RangeTable:
        """Return a table without owners."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    @classmethod
    def single(cls, owner: int, first: int, last: int) -> RangeTable:
        """Return a table with one owner of ``[first, last]``."""
        return cls(np.array([first]), np.array([last]), np.array([owner]))

    @classmethod
    def of(cls, ranges: Mapping[int, Iterable[Range]]) -> RangeTable:
        """Build the table of disjoint inclusive ranges by owner.

        >>> RangeTable.of({0: [(5, 9)], 1: [(0, 4)]}).rows()
        [(0, 4, 1), (5, 9, 0)]
        """
        rows = sorted((start, end, owner) for owner, owned in ranges.items() for start, end in owned)
        starts, ends, owners = np.array(rows, np.int64).reshape(-1, 3).T
        return cls(starts, ends, owners)

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self) -> list[tuple[int, int, int]]:
        """Return ``(start, end, owner)`` of every range, in slot order."""
        return list(zip(self.starts.tolist(), self.ends.tolist(), self.owners.tolist(), strict=True))

    def by_owner(self) -> dict[int, list[Range]]:
        """Return the inclusive ranges of each owner, in slot order: the inverse of ``of``."""
        ranges: dict[int, list[Range]] = {}
        for start, end, owner in self.rows():
            ranges.setdefault(owner, []).append((start, end))
        return ranges

    def merged(self) -> RangeTable:
        """Return the same owners in as few ranges as possible."""
        if not len(self):
            return self
        new = np.ones(len(self), bool)
        new[1:] = (self.owners[1:] != self.owners[:-1]) | (self.starts[1:] != self.ends[:-1] + 1)
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(self)) - 1
        return RangeTable(self.starts[first], self.ends[last], self.owners[first], self.groups)

    def owners_of(self, slots: NDArray[np.int64], hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the consumer index that owns each slot, or ``NOBODY``. ``hashes`` decide inside a group."""
        if not len(self):
            return np.full(len(slots), NOBODY, np.int64)
        at = np.searchsorted(self.starts, slots, "right") - 1
        inside = (at >= 0) & (slots <= self.ends[at])
        return pick(np.where(inside, self.owners[at], NOBODY), hashes, self.groups)

    def diff(self, other: RangeTable) -> list[Move]:
        """Return what changes hands from this table to ``other``, in slot order and in as few moves as possible.

        >>> RangeTable.single(0, 0, 9).diff(RangeTable.of({0: [(5, 9)], 1: [(0, 4)]}))
        [Move(start=0, end=4, before=0, after=1)]
        """
        return [Move(*row) for row in zip(*(column.tolist() for column in self.moves_to(other)), strict=True)]

    def moves_to(self, other: RangeTable) -> tuple[NDArray[np.int64], ...]:
        """Return ``diff`` as four columns: start, end, before, after. Linear in the number of ranges.

        Raises ValueError if the tables number their groups differently.
        """
        shared = min(len(self.groups), len(other.groups))
        if self.groups[:shared] != other.groups[:shared]:
            raise ValueError("cannot compare tables of different timelines: their groups are numbered differently")
        at, before, after = _align(self.cuts(), other.cuts())
        changed = before != after
        opens, closes = changed.copy(), changed.copy()
        passes_on = (before[1:] != before[:-1]) | (after[1:] != after[:-1])  # and never where only one has changed
        opens[1:] &= passes_on
        closes[:-1] &= passes_on
        first, last = np.flatnonzero(opens), np.flatnonzero(closes)
        return at[first], at[last + 1] - 1, before[first], after[first]

    def cuts(self) -> Cuts:
        """Return the table with its holes filled by ``NOBODY``."""
        at, owners = self.starts, self.owners
        holes = np.flatnonzero(self.starts[1:] != self.ends[:-1] + 1) + 1
        if len(holes):
            at, owners = np.insert(at, holes, self.ends[holes - 1] + 1), np.insert(owners, holes, NOBODY)
        return Cuts(np.append(at, self.ends[-1:] + 1), np.append(owners, [NOBODY] * bool(len(self))))

    def gaps(self, space: Range) -> list[Range]:
        """Return the inclusive ranges of ``space`` without an owner.

        >>> RangeTable.single(0, 10, 19).gaps((0, 99))
        [(0, 9), (20, 99)]
        """
        first, last = space
        lower = np.maximum(np.concatenate([[first], self.ends + 1]), first)
        upper = np.minimum(np.append(self.starts - 1, last), last)
        free = lower <= upper
        return list(zip(lower[free].tolist(), upper[free].tolist(), strict=True))

    def slots_per_owner(self) -> dict[int, float]:
        """Count the slots of each consumer. The members of a group have equal shares of its slots."""
        owned: defaultdict[int, float] = defaultdict(float)
        codes, positions = np.unique(self.owners, return_inverse=True)
        slots = np.bincount(positions, self.ends - self.starts + 1, len(codes))
        for code, count in zip(codes.tolist(), slots.tolist(), strict=True):
            members = self.groups[-2 - code] if code < NOBODY else (code,)
            for member in members:
                owned[member] += count / len(members)
        return dict(sorted(owned.items()))


def pick(codes: NDArray[Code], hashes: NDArray[np.uint32], groups: Groups) -> NDArray[Code]:
    """Replace each group in ``codes`` by its member ``(hash & 0x7fffffff) % len(group)``."""
    shared = codes < NOBODY
    if not shared.any():
        return codes
    sizes = np.array([len(group) for group in groups])
    members = np.concatenate([np.array(group, codes.dtype) for group in groups])
    group = -2 - codes[shared]
    chosen = (hashes[shared] & np.uint32(MASK_31)).astype(np.int64) % sizes[group]
    picked = codes.copy()
    picked[shared] = members[(np.cumsum(sizes) - sizes)[group] + chosen]
    return picked


def _align(one: Cuts, two: Cuts) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return all cuts of two tables, and the owner in either table from each cut on."""
    at = np.concatenate([one.at, two.at])
    order = np.argsort(at, kind="stable")  # merging two sorted runs is linear
    at = at[order]
    last_of_equal = np.flatnonzero(np.append(at[1:] != at[:-1], True)[: len(at)])
    of_one = np.cumsum(order < len(one.at))[last_of_equal]  # how many cuts of it come no later
    of_two = last_of_equal + 1 - of_one
    before, after = np.append(NOBODY, one.owners)[of_one], np.append(NOBODY, two.owners)[of_two]
    return at[last_of_equal], before, after
