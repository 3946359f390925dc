"""Plan sticky ranges that make the busiest consumer's worst window as small as contiguous ranges can.

The search is exact. To test a limit, give each consumer, in the given order, as many slots as the limit allows: no
other choice reaches further. The smallest feasible limit is found by bisection. Loads are whole numbers, so it is the
optimum. Among the ranges that keep it, the plan takes those closest to the fair share of the whole traffic.
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
    """Contiguous inclusive slot ranges, one for each consumer in order.

    None: no slot is light enough for the consumer.

    ``worst`` is the busiest consumer's load in its worst window, divided by the consumer's weight; no contiguous ranges
    have a smaller one. ``bound`` holds for any ranges: the hottest slot has one owner, and one consumer has at least
    its fair share. ``even`` is the worst load of ranges of equal width. ``loads`` are those of each consumer over all
    windows.
    """

    ranges: tuple[Range | None, ...]
    weights: tuple[int, ...]
    worst: Fraction
    bound: Fraction
    even: Fraction
    loads: tuple[int, ...]

    @property
    def cuts(self) -> Ints:
        """The first slot of each consumer, and one past the last slot."""
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
    """Plan the best contiguous ranges over loads ``[slot, window]`` for a number of consumers, or for their weights.

    A consumer of weight 2 may do twice the work of one of weight 1. ``slots`` are the ascending slot numbers of the
    rows, of ``space`` slots in all; other slots have no load, and ranges meet in the middle between two rows. By
    default every slot has a row. Raises ``ConfigError`` if there are fewer rows than consumers, or a weight is not a
    whole number of at least 1.

    >>> plan_ranges(np.array([[5], [1], [1], [1]]), 2).ranges
    ((0, 0), (1, 3))
    """
    weights = (1,) * consumers if isinstance(consumers, int) else tuple(consumers)
    slots = np.arange(len(loads)) if slots is None else slots
    space = len(loads) if space is None else space
    if not 1 <= len(weights) <= len(loads):
        raise ConfigError(
            f"consumers: must be between 1 and {len(loads):,}, the number of slots, but is {len(weights):,}."
        )
    if any(weight < 1 for weight in weights):
        raise ConfigError(f"weights: must be whole numbers of at least 1, but are {', '.join(map(str, weights))}.")
    before = sum_loads_before(loads)
    unit = lcm(*set(weights))  # limits are counted in parts of 1/unit, in which every weighed load is a whole number
    bound = _find_bound(loads, weights)
    limit = _find_smallest_limit(before, weights, unit, bound)
    rows = _find_cuts(before, _compute_capacities(limit, weights, unit), weights)
    equal_cuts = np.arange(len(weights) + 1) * space // len(weights)
    return RangePlan(
        ranges=tuple(
            (first, last - 1) if first < last else None for first, last in pairwise(_place_cuts(rows, slots, space))
        ),
        weights=weights,
        worst=find_worst_load(before, rows, weights),
        bound=bound,
        even=find_worst_load(before, np.searchsorted(slots, equal_cuts), weights),
        loads=tuple(np.diff(before[rows].sum(axis=1)).tolist()),
    )


def _place_cuts(rows: Ints, slots: Ints, space: int) -> list[int]:
    """Return the first slots of the ranges that begin at these rows: the middle between the slots of two rows."""
    between = np.concatenate([[0], (slots[:-1] + slots[1:] + 1) // 2, [space]])
    cuts: list[int] = between[rows].tolist()
    return cuts


@compiled
def sum_loads_before(loads: Ints) -> Ints:
    """Return the sums of loads ``[slot, window]`` over all slots before each slot, with one row more than slots."""
    before = np.zeros((loads.shape[0] + 1, loads.shape[1]), np.int64)
    for slot in range(loads.shape[0]):  # row by row: numpy would go down the columns
        for window in range(loads.shape[1]):
            before[slot + 1, window] = before[slot, window] + loads[slot, window]
    return before


def find_worst_load(before: Ints, cuts: Ints, weights: Sequence[int]) -> Fraction:
    """Return the busiest consumer's load in its worst window, by weight. Consumer i has the slots between two cuts."""
    worst = np.diff(before[cuts], axis=0).max(axis=1, initial=0).tolist()
    return max(Fraction(load, weight) for load, weight in zip(worst, weights, strict=True))


def _find_bound(loads: Ints, weights: Sequence[int]) -> Fraction:
    hottest, most = int(loads.max(initial=0)), int(loads.sum(axis=0).max(initial=0))
    return max(Fraction(hottest, max(weights)), Fraction(most, sum(weights)))


def _find_smallest_limit(before: Ints, weights: Sequence[int], unit: int, bound: Fraction) -> int:
    """Find the smallest feasible limit, in parts of 1/unit, between the bound and one consumer with all load."""
    most = int(before[-1].max(initial=0))
    low, high = -(-bound.numerator * unit // bound.denominator), most * unit // max(weights)
    while low < high:
        middle = (low + high) // 2
        if _is_reachable(before, _compute_capacities(middle, weights, unit)):
            high = middle
        else:
            low = middle + 1
    return low


def _compute_capacities(limit: int, weights: Sequence[int], unit: int) -> Ints:
    """Return how much load each consumer may have in a window under a limit."""
    return np.array([min(limit * weight // unit, np.iinfo(np.int64).max) for weight in weights], np.int64)


def _find_cuts(before: Ints, capacities: Ints, weights: Sequence[int]) -> Ints:
    """Return the first slot of each consumer, and one past the last slot, within the capacities.

    Each cut is as close to the consumer's fair share of the whole traffic as the others allow. ``least[i]`` is the
    first slot from which the consumers i, i + 1, … can take the rest. From a cut at or after it, the next consumer
    reaches that of its successor.
    """
    slots, consumers = len(before) - 1, len(weights)
    least = _find_first_slots(before, capacities)
    total = before.sum(axis=1)
    shares = np.cumsum(weights)
    cuts = np.zeros(consumers + 1, np.int64)
    for i in range(consumers - 1):
        furthest = int(_find_reach(before, int(cuts[i]), int(capacities[i])))
        lowest = min(max(int(least[i + 1]), int(cuts[i]) + 1), furthest)
        highest = max(min(furthest, slots - (consumers - 1 - i)), lowest)
        wanted = int(total[-1]) * int(shares[i]) // int(shares[-1])
        cuts[i + 1] = min(max(_find_nearest(total, wanted), lowest), highest)
    cuts[-1] = slots
    return cuts


def _find_nearest(total: Ints, wanted: int) -> int:
    """Return the cut whose preceding sum is nearest to ``wanted``."""
    at = int(np.searchsorted(total, wanted))
    return at - 1 if at and wanted - total[at - 1] < total[at] - wanted else at


@operation
def _find_reach(before: Ints, start: int, capacity: int) -> int:  # pragma: no cover - compiled
    """Return one past the last slot of a consumer that begins at ``start`` with ``capacity`` in each window."""
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
def _is_reachable(before: Ints, capacities: Ints) -> bool:  # pragma: no cover - compiled
    """Return whether consumers with these capacities, in this order, can take all slots."""
    start = 0
    slots: int = before.shape[0] - 1
    for capacity in capacities:
        start = _find_reach(before, start, capacity)
        if start == slots:
            return True
    return start == slots


@compiled
def _find_first_slots(before: Ints, capacities: Ints) -> Ints:  # pragma: no cover - compiled
    """Return the first slot from which the consumers i, i + 1, … can take all the rest."""
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
