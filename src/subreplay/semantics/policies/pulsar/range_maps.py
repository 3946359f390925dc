"""The states of sticky selectors: the ranges of the connected consumers, as older and newer brokers store them.

Each is the immutable state of the policy, and depends on the connected consumers only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from subreplay.rows.model.range_table import Range, RangeTable
from subreplay.rows.model.rows import Consumer
from subreplay.semantics.policies.pulsar.members import Members


@dataclass(frozen=True)
class EndPointMap:
    """The selector of 3.2.3: a sorted map of both end points of every range.

    A slot belongs to a consumer if the end points below and above it both belong to that consumer. So it also gets the
    gap between two of its ranges, and its own ranges may overlap (documented row P-KR-2: the older profile).
    """

    members: Members = ()

    @staticmethod
    def find_objection(ranges: tuple[Range, ...]) -> str | None:
        """Return why the broker rejects these ranges whatever other consumers are connected, or None."""
        return "Fixed hash range start > end" if any(start > end for start, end in ranges) else None

    @cached_property
    def end_points(self) -> list[tuple[int, Consumer]]:
        owner = {end: member for member in self.members for range_ in _get_ranges(member) for end in range_}
        return sorted(owner.items())

    @cached_property
    def _keys(self) -> list[int]:
        return [key for key, _ in self.end_points]

    def find_conflict(self, ranges: tuple[Range, ...]) -> Consumer | None:
        """Return the first connected consumer in conflict with ``ranges``."""
        return next((other for range_ in ranges if (other := self._find_conflicting(*range_))), None)

    def _find_conflicting(self, start: int, end: int) -> Consumer | None:
        floor, ceiling = bisect_right(self._keys, end) - 1, bisect_left(self._keys, start)
        if floor >= 0 and self._keys[floor] >= start:
            return self.end_points[floor][1]
        if (
            ceiling < len(self._keys)
            and floor >= 0
            and self.end_points[floor][1].index == self.end_points[ceiling][1].index
        ):
            around = self.end_points[floor][1]  # in the way if one of its ranges really reaches in here
            return around if any(s <= end and start <= e for s, e in _get_ranges(around)) else None
        return None

    @cached_property
    def table(self) -> RangeTable:
        ranges: dict[int, list[Range]] = {}
        for end, owner in self.end_points:
            ranges.setdefault(owner.index, []).append((end, end))
        for (below, owner), (above, other) in pairwise(self.end_points):
            if owner.index == other.index and below + 1 < above:
                ranges[owner.index].append((below + 1, above - 1))
        return RangeTable.of(ranges).merged()

    def list_reported_ranges(self) -> dict[int, list[Range]]:
        """Pair the end points two by two; a range of one slot shifts all pairs after it."""
        ranges: dict[int, list[Range]] = {}
        for (start, owner), (end, other) in zip(self.end_points[::2], self.end_points[1::2], strict=False):
            if owner.index == other.index:
                ranges.setdefault(owner.index, []).append((start, end))
        return ranges


@dataclass(frozen=True)
class RangeMap:
    """The selector of 4.0.8, 4.2.4 and the documents: a sorted map of ranges; a slot must be inside one."""

    members: Members = ()

    @staticmethod
    def find_objection(ranges: tuple[Range, ...]) -> str | None:
        """Return why the broker rejects these ranges whatever other consumers are connected, or None.

        Each range is checked alone, then against the next one. A range that ends before it starts overlaps with nothing
        (``areRangesOverlapping``, 4.0.8).
        """
        in_order = sorted(ranges, key=lambda range_: range_[0])
        for (start, end), following in zip(in_order, (*in_order[1:], None), strict=True):
            if start > end:
                return f"Fixed hash range start > end for range: [{start},{end}]"
            if following and max(start, following[0]) <= min(end, following[1]):
                return f"Consumer's own ranges conflict: [{start},{end}] overlaps with [{following[0]},{following[1]}]"
        return None

    @cached_property
    def owned_ranges(self) -> list[tuple[int, int, Consumer]]:
        rows = ((*range_, member) for member in self.members for range_ in _get_ranges(member))
        return sorted(rows, key=lambda row: row[0])

    @cached_property
    def _keys(self) -> list[int]:
        return [start for start, _, _ in self.owned_ranges]

    def find_conflict(self, ranges: tuple[Range, ...]) -> Consumer | None:
        """Return the first connected consumer in conflict with ``ranges``."""
        return next((other for range_ in ranges if (other := self._find_conflicting(*range_))), None)

    def _find_conflicting(self, start: int, end: int) -> Consumer | None:
        position = bisect_right(self._keys, start) - 1
        neighbours = self.owned_ranges[max(position, 0) : position + 2]  # the ranges that start below and above
        return next((owner for first, last, owner in neighbours if first <= end and start <= last), None)

    @cached_property
    def table(self) -> RangeTable:
        return RangeTable.of({member.index: _get_ranges(member) for member in self.members}).merged()

    def list_reported_ranges(self) -> dict[int, list[Range]]:
        """Return the table by consumer, in slot order; adjacent ranges are merged."""
        return self.table.by_owner()


def _get_ranges(consumer: Consumer) -> tuple[Range, ...]:
    return consumer.ranges or ()
