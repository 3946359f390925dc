"""Lines of several files have one order, which is known while each file is read."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.broker_log.parsing import BEGIN, MOST_FILES, Order
from subreplay.rows.model.contracts import SEQ


def numbers(at, number=0, files=1, order=None):
    line, times = np.arange(1, len(at) + 1), np.array(at, np.int64)
    return (order or Order(number, files)).of(line, times).tolist()


@given(st.lists(st.integers(0, 2**47), max_size=40), st.integers(1, MOST_FILES))
def test_within_a_file_lines_rise_whatever_its_clock_says_and_are_legal(at, files):
    found = numbers(at, files - 1, files)
    assert all(before < after for before, after in pairwise(found))
    assert all(SEQ.least <= each <= SEQ.most for each in found)


def test_files_are_merged_by_the_time_that_each_has_reached():
    one, two = numbers([BEGIN + 5, BEGIN + 2, BEGIN + 9], 0, 2), numbers([BEGIN + 4, BEGIN + 6, BEGIN + 9], 1, 2)
    assert sorted([*one, *two]) == [two[0], one[0], one[1], two[1], one[2], two[2]]


def test_a_file_read_in_parts_has_the_numbers_of_the_whole():
    order, at = Order(0, 1), [BEGIN + 1, BEGIN + 1, BEGIN, BEGIN + 1]
    parts = [int(order.of(np.array([line]), np.array([time]))[0]) for line, time in enumerate(at, 1)]
    assert parts == numbers(at)
    assert order.back == 1


def test_events_of_one_line_have_one_number():
    found = Order(0, 1).of(np.array([1, 1, 2]), np.array([BEGIN, BEGIN, BEGIN]))
    assert found[0] == found[1] < found[2]


def test_more_lines_at_one_time_than_there_are_places_go_on_counting():
    at = [BEGIN + 7] * 200 + [BEGIN + 8]
    found = numbers(at, 3, MOST_FILES)  # of which each has 64 places
    assert sorted(set(found)) == found


def test_too_many_files_cannot_be_told_apart():
    with pytest.raises(ValueError, match="files are more than"):
        Order(0, MOST_FILES + 1)
