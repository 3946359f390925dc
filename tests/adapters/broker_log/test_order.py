"""Lines of several files have one order, which is known while each file is read."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.broker_log.numbered_events import EARLIEST_TIME, MAX_FILES, LineNumbering
from subreplay.rows.model.contracts import SEQ


def numbers(at, number=0, files=1, order=None):
    line, times = np.arange(1, len(at) + 1), np.array(at, np.int64)
    return (order or LineNumbering(number, files)).number(line, times).tolist()


@given(st.lists(st.integers(0, 2**47), max_size=40), st.integers(1, MAX_FILES))
def test_within_a_file_lines_rise_whatever_its_clock_says_and_are_legal(at, files):
    found = numbers(at, files - 1, files)
    assert all(before < after for before, after in pairwise(found))
    assert all(SEQ.least <= each <= SEQ.most for each in found)


def test_files_are_merged_by_the_time_that_each_has_reached():
    one, two = (
        numbers([EARLIEST_TIME + 5, EARLIEST_TIME + 2, EARLIEST_TIME + 9], 0, 2),
        numbers([EARLIEST_TIME + 4, EARLIEST_TIME + 6, EARLIEST_TIME + 9], 1, 2),
    )
    assert sorted([*one, *two]) == [two[0], one[0], one[1], two[1], one[2], two[2]]


def test_a_file_read_in_parts_has_the_numbers_of_the_whole():
    order, at = LineNumbering(0, 1), [EARLIEST_TIME + 1, EARLIEST_TIME + 1, EARLIEST_TIME, EARLIEST_TIME + 1]
    parts = [int(order.number(np.array([line]), np.array([time]))[0]) for line, time in enumerate(at, 1)]
    assert parts == numbers(at)
    assert order.back == 1


def test_events_of_one_line_have_one_number():
    found = LineNumbering(0, 1).number(np.array([1, 1, 2]), np.array([EARLIEST_TIME, EARLIEST_TIME, EARLIEST_TIME]))
    assert found[0] == found[1] < found[2]


def test_more_lines_at_one_time_than_there_are_places_go_on_counting():
    at = [EARLIEST_TIME + 7] * 200 + [EARLIEST_TIME + 8]
    found = numbers(at, 3, MAX_FILES)  # of which each has 64 places
    assert sorted(set(found)) == found


def test_too_many_files_are_refused():
    with pytest.raises(ValueError, match="files are too many"):
        LineNumbering(0, MAX_FILES + 1)
