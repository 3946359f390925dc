"""Sticky ranges: as good as the best of all contiguous ranges, and never below what nothing can beat."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.whatif.planning.sticky_ranges import find_worst_load, plan_ranges, sum_loads_before


@st.composite
def traffic(draw: st.DrawFn) -> tuple[NDArray[np.int64], list[int]]:
    windows, slots = draw(st.integers(1, 4)), draw(st.integers(3, 9))
    cell = st.integers(0, 12)
    loads = draw(st.lists(st.lists(cell, min_size=windows, max_size=windows), min_size=slots, max_size=slots))
    return np.array(loads, np.int64), draw(st.lists(st.integers(1, 4), min_size=1, max_size=min(slots, 4)))


def best_of_all(loads: NDArray[np.int64], weights: list[int]) -> Fraction:
    """By trying every contiguous division, empty ranges included."""
    before, slots = sum_loads_before(loads), len(loads)
    inner = combinations_with_replacement(range(slots + 1), len(weights) - 1)
    return min(find_worst_load(before, np.array([0, *cuts, slots]), weights) for cuts in inner)


@given(traffic())
def test_no_contiguous_ranges_are_better(given: tuple[NDArray[np.int64], list[int]]) -> None:
    loads, weights = given
    assert plan_ranges(loads, weights).worst == best_of_all(loads, weights)


@given(traffic())
def test_the_bound_is_never_above_what_is_achieved(given: tuple[NDArray[np.int64], list[int]]) -> None:
    loads, weights = given
    plan = plan_ranges(loads, weights)
    assert plan.bound <= plan.worst <= plan.even


@given(traffic())
def test_ranges_cover_every_slot_once_and_equal_consumers_all_have_one(
    given: tuple[NDArray[np.int64], list[int]],
) -> None:
    loads, weights = given
    plan = plan_ranges(loads, weights)
    covered = [slot for one in plan.ranges if one is not None for slot in range(one[0], one[1] + 1)]
    assert covered == list(range(len(loads)))
    assert sum(plan.loads) == loads.sum()
    assert None not in plan_ranges(loads, len(weights)).ranges


def test_among_equally_good_ranges_the_most_balanced_are_chosen() -> None:
    loads = np.array([[9, 0], [0, 3], [0, 3], [0, 3], [0, 0]])
    assert plan_ranges(loads, 2).ranges == ((0, 0), (1, 4))


def test_a_consumer_with_more_weight_gets_more_work() -> None:
    assert plan_ranges(np.ones((12, 1), np.int64), [1, 3]).loads == (3, 9)


def test_a_consumer_gets_no_range_if_no_slot_is_light_enough() -> None:
    assert plan_ranges(np.full((2, 1), 10), [1, 20]).ranges == (None, (0, 1))


@pytest.mark.parametrize("consumers", [0, 5, [1, 0]])
def test_an_impossible_number_of_consumers_is_rejected(consumers: int | list[int]) -> None:
    with pytest.raises(ConfigError):
        plan_ranges(np.ones((4, 1), np.int64), consumers)
