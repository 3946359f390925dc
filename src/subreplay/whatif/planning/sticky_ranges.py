"""Sticky ranges that make the busiest consumer's worst window as light as contiguous ranges can.

The search is exact. Whether a limit can be kept is decided by giving each consumer, in the given order, as many slots
as the limit allows: nothing else reaches further. The smallest limit that can be kept is found by bisection, and as
loads are whole numbers, it is the optimum itself. Among the ranges that keep it, those are taken that come closest to
an even share of the whole traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np

from subreplay.errors import ConfigError
from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.range_table import Range


@dataclass(frozen=True)
class RangePlan:
    """Contiguous inclusive slot ranges, one a consumer in the given order; None: no slot is light enough for it.

    ``worst`` is the busiest consumer's load in its worst window, each load divided by the consumer's weight; no
    contiguous ranges have a smaller one. ``bound`` holds for any ranges at all: the hottest slot in its worst window
    has one owner, and somebody has at least an even share. ``even`` is the worst load of ranges of equal width.
    ``loads`` are those of each consumer over all windows.
    """

    ranges: tuple[Range | None, ...]
    weights: tuple[int, ...]
    worst: Fraction
    bound: Fraction
    even: Fraction
    loads: tuple[int, ...]

    @property
    def cuts(self) -> Ints:
        """The first slot of each consumer, and one past the last."""
        cuts = [0]
        for one in self.ranges:
            cuts.append(cuts[-1] if one is None else one[1] + 1)
        return np.array(cuts, np.int64)

    @property
    def gap(self) -> float:
        """How far the plan is above the bound, as a part of the bound."""
        return float(self.worst / self.bound - 1) if self.bound else 0.0


def plan_ranges(
    loads: Ints, consumers: int | Sequence[int], slots: Ints | None = None, space: int | None = None
) -> RangePlan:
    """The best contiguous ranges over loads ``[slot, window]`` for so many consumers, or for these weights.

    A consumer of weight 2 may do twice the work of one of weight 1. ``slots`` are the numbers of the rows, rising, of
    ``space`` slots in all; the others have no load, and ranges meet in the middle between two rows. By default every
    slot has its row. Raises ``ConfigError`` if there are fewer rows than consumers, or a weight is not a whole number
    of at least 1.

    >>> plan_ranges(np.array([[5], [1], [1], [1]]), 2).ranges
    ((0, 0), (1, 3))
    """
    weights = (1,) * consumers if isinstance(consumers, int) else tuple(consumers)
    slots = np.arange(len(loads)) if slots is None else slots
    space = len(loads) if space is None else space
    if not 1 <= len(weights) <= len(loads):
        raise ConfigError(f"consumers: at least 1 and at most {len(loads):,}, one a slot; got {len(weights):,}")
    if any(weight < 1 for weight in weights):
        raise ConfigError(f"weights: whole numbers of at least 1, got {', '.join(map(str, weights))}")
    before = loads_before(loads)
    unit = lcm(*set(weights))  # limits are counted in parts of 1/unit, in which every weighed load is a whole number
    bound = _bound(loads, weights)
    limit = _smallest(before, weights, unit, bound)
    rows = _cuts(before, _capacities(limit, weights, unit), weights)
    even = np.arange(len(weights) + 1) * space // len(weights)
    return RangePlan(
        ranges=tuple((first, last - 1) if first < last else None for first, last in pairwise(_at(rows, slots, space))),
        weights=weights,
        worst=worst_load(before, rows, weights),
        bound=bound,
        even=worst_load(before, np.searchsorted(slots, even), weights),
        loads=tuple(np.diff(before[rows].sum(axis=1)).tolist()),
    )


def _at(rows: Ints, slots: Ints, space: int) -> list[int]:
    """The first slot of the ranges that begin at these rows: in the middle between the rows' slots."""
    between = np.concatenate([[0], (slots[:-1] + slots[1:] + 1) // 2, [space]])
    cuts: list[int] = between[rows].tolist()
    return cuts


@compiled
def loads_before(loads: Ints) -> Ints:
    """Loads ``[slot, window]`` as the sums of all slots before each, one row more than there are slots."""
    before = np.zeros((loads.shape[0] + 1, loads.shape[1]), np.int64)
    for slot in range(loads.shape[0]):  # row by row: numpy would go down the columns
        for window in range(loads.shape[1]):
            before[slot + 1, window] = before[slot, window] + loads[slot, window]
    return before


def worst_load(before: Ints, cuts: Ints, weights: Sequence[int]) -> Fraction:
    """The busiest consumer's load in its worst window, by weight, where consumer i has the slots between two cuts."""
    worst = np.diff(before[cuts], axis=0).max(axis=1, initial=0).tolist()
    return max(Fraction(load, weight) for load, weight in zip(worst, weights, strict=True))


def _bound(loads: Ints, weights: Sequence[int]) -> Fraction:
    hottest, most = int(loads.max(initial=0)), int(loads.sum(axis=0).max(initial=0))
    return max(Fraction(hottest, max(weights)), Fraction(most, sum(weights)))


def _smallest(before: Ints, weights: Sequence[int], unit: int, bound: Fraction) -> int:
    """The smallest limit, in parts of 1/unit, that can be kept: at least the bound, at most one consumer with all."""
    most = int(before[-1].max(initial=0))
    low, high = -(-bound.numerator * unit // bound.denominator), most * unit // max(weights)
    while low < high:
        middle = (low + high) // 2
        if _reached(before, _capacities(middle, weights, unit)):
            high = middle
        else:
            low = middle + 1
    return low


def _capacities(limit: int, weights: Sequence[int], unit: int) -> Ints:
    """What each consumer may have in a window under a limit."""
    return np.array([min(limit * weight // unit, np.iinfo(np.int64).max) for weight in weights], np.int64)


def _cuts(before: Ints, capacities: Ints, weights: Sequence[int]) -> Ints:
    """The first slot of each consumer, and one past the last: within the capacities, each as near to its even share
    of the whole traffic as those before and after it let it.

    ``least[i]`` is the first slot from which the consumers i, i + 1, … can have all the rest. From a cut that is not
    before it, the next consumer reaches that of its successor.
    """
    slots, consumers = len(before) - 1, len(weights)
    least = _least(before, capacities)
    total = before.sum(axis=1)
    shares = np.cumsum(weights)
    cuts = np.zeros(consumers + 1, np.int64)
    for i in range(consumers - 1):
        furthest = int(_reach(before, int(cuts[i]), int(capacities[i])))
        lowest = min(max(int(least[i + 1]), int(cuts[i]) + 1), furthest)
        highest = max(min(furthest, slots - (consumers - 1 - i)), lowest)
        wanted = int(total[-1]) * int(shares[i]) // int(shares[-1])
        cuts[i + 1] = min(max(_nearest(total, wanted), lowest), highest)
    cuts[-1] = slots
    return cuts


def _nearest(total: Ints, wanted: int) -> int:
    """The cut with the sum before it nearest to ``wanted``."""
    at = int(np.searchsorted(total, wanted))
    return at - 1 if at and wanted - total[at - 1] < total[at] - wanted else at


@operation
def _reach(before: Ints, start: int, capacity: int) -> int:  # pragma: no cover - compiled
    """One past the last slot of a consumer that begins at ``start`` and may have ``capacity`` in each window."""
    end: int = before.shape[0] - 1
    for window in range(before.shape[1]):
        most = before[start, window] + capacity
        if before[end, window] > most:
            low = start
            while low < end:  # the last cut up to which this window is kept
                middle = (low + end + 1) >> 1
                if before[middle, window] <= most:
                    low = middle
                else:
                    end = middle - 1
    return end


@operation
def _reached(before: Ints, capacities: Ints) -> bool:  # pragma: no cover - compiled
    """Whether consumers of these capacities, in this order, can have all slots."""
    start = 0
    slots: int = before.shape[0] - 1
    for capacity in capacities:
        start = _reach(before, start, capacity)
        if start == slots:
            return True
    return start == slots


@compiled
def _least(before: Ints, capacities: Ints) -> Ints:  # pragma: no cover - compiled
    """The first slot from which the consumers i, i + 1, … can have all the rest."""
    least = np.zeros(len(capacities) + 1, np.int64)
    end = before.shape[0] - 1
    least[len(capacities)] = end
    for i in range(len(capacities) - 1, -1, -1):
        start = 0
        for window in range(before.shape[1]):
            fewest = before[end, window] - capacities[i]
            if before[start, window] < fewest:
                high = end
                while start < high:  # the first cut from which this window is kept
                    middle = (start + high) >> 1
                    if before[middle, window] >= fewest:
                        high = middle
                    else:
                        start = middle + 1
        least[i] = end = start
    return least
