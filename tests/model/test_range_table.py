"""Range tables against the plainest possible model: one list element a slot."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.range_table import NOBODY, Move, RangeTable

SPACE = 24
layouts = st.lists(st.sampled_from([NOBODY, 0, 1, 2]), min_size=SPACE, max_size=SPACE)


def table_of(layout):
    """The table in which slot i is owned by ``layout[i]``, one range a slot."""
    return RangeTable.of({owner: [(i, i) for i, o in enumerate(layout) if o == owner] for owner in set(layout) - {-1}})


@given(layouts)
def test_lookup_finds_the_owner_of_every_slot_and_nobody_elsewhere(layout):
    slots = np.arange(-2, SPACE + 2)
    owners = table_of(layout).merged().owners_of(slots, slots.astype(np.uint32))
    assert owners.tolist() == [NOBODY, NOBODY, *layout, NOBODY, NOBODY]


@given(layouts)
def test_merging_leaves_no_two_touching_ranges_of_one_owner(layout):
    rows = table_of(layout).merged().rows()
    touching = [(a, b) for a, b in pairwise(rows) if a[1] + 1 == b[0] and a[2] == b[2]]
    assert touching == []


@given(layouts, layouts)
def test_moves_are_exactly_the_slots_that_changed(before, after):
    moved = dict(enumerate(before))
    for move in table_of(before).diff(table_of(after)):
        for slot in range(move.start, move.end + 1):
            assert (moved[slot], move.before != move.after) == (move.before, True)
            moved[slot] = move.after
    assert list(moved.values()) == after


@given(layouts, layouts)
def test_moves_are_as_few_as_possible(before, after):
    moves = table_of(before).diff(table_of(after))
    for one, two in pairwise(moves):
        assert one.end + 1 < two.start or (one.before, one.after) != (two.before, two.after)


@given(layouts)
def test_gaps_are_the_slots_of_nobody(layout):
    gaps = table_of(layout).gaps((0, SPACE - 1))
    assert [slot for first, last in gaps for slot in range(first, last + 1)] == [
        slot for slot, owner in enumerate(layout) if owner == NOBODY
    ]


@given(layouts)
def test_slots_per_owner_counts_them(layout):
    assert table_of(layout).slots_per_owner() == {o: layout.count(o) for o in (0, 1, 2) if o in layout}


def test_a_gap_is_clipped_to_the_space():
    assert RangeTable.of({0: [(0, 9), (90, 120)]}).gaps((5, 99)) == [(10, 89)]


def test_the_hash_decides_inside_a_group():
    table = RangeTable(np.array([0]), np.array([9]), np.array([-2]), groups=((4, 7),))
    hashes = np.array([6, 7, 2**31 + 6], np.uint32)
    assert table.owners_of(np.array([0, 5, 9]), hashes).tolist() == [4, 7, 4]
    assert table.slots_per_owner() == {4: 5.0, 7: 5.0}


def test_a_group_wins_and_loses_ranges_under_its_code():
    alone = RangeTable.single(4, 0, 9)
    shared = RangeTable(np.array([0]), np.array([9]), np.array([-2]), groups=((4, 7),))
    assert alone.diff(shared) == [Move(0, 9, 4, -2)]


def test_tables_that_number_their_groups_differently_cannot_be_compared():
    one = RangeTable(np.array([0]), np.array([9]), np.array([-2]), groups=((1, 2),))
    two = RangeTable(np.array([0]), np.array([9]), np.array([-2]), groups=((3, 4),))
    with pytest.raises(ValueError, match="different timelines"):
        one.diff(two)
