"""What numba does not promise, and the kernels rely on: each of these fails where a release does otherwise."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.caching import CacheImpl
from numba.core.errors import NumbaError
from numba.extending import overload

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.kernels.reference_types import ReferenceType


@pytest.fixture(autouse=True)
def _not_kept(monkeypatch):
    """Code that was read from disk cannot be looked at."""
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])


class Kind(IntEnum):
    ONE = 1


def longest(arrays, parts):
    found = arrays[:0]
    for at in range(parts):
        if len(arrays[at::parts]) > len(found):
            found = arrays[at::parts]
    return len(found)


@pytest.mark.long
def test_an_operation_counts_no_references():
    counted, uncounted = compiled(longest), operation(longest)

    assert counted(np.arange(7), 2) == uncounted(np.arange(7), 2) == 4
    assert "NRT_decref" in _code(counted)
    assert "NRT_decref" not in _code(uncounted)


def test_an_operation_is_compiled_once_for_whole_numbers_of_any_width():
    twice = operation(lambda number: 2 * number)

    assert [twice(number) for number in (np.int32(3), np.int64(4), 5, Kind.ONE)] == [6, 8, 10, 2]
    assert len(twice.signatures) == 1


def test_a_part_is_compiled_once_for_all_constants():
    part = inlined(lambda number, flag: number + 1 if flag else number)
    both = operation(lambda number: part(number, True) + part(3, False) + part(4, True))

    assert both(2) == 3 + 3 + 5
    assert len(part.signatures) == 1


def test_functions_are_looked_for_anew_where_numba_compiles_them_with_other_options():
    """A division by 0 is an error in a kernel, and none in a part of an operation."""
    part = inlined(lambda a, b: _ratio(a, b))
    both = compiled(lambda a, b: part(a, b) + _ratio(a, b))
    with pytest.raises(ZeroDivisionError):
        both(1.0, 0.0)
    assert operation(lambda a, b: part(a, b))(1.0, 0.0) == np.inf


def _ratio(a, b):
    return a / b


@overload(_ratio)
def _of_numbers(a, b):
    return lambda a, b: a / b


def large(values, start):
    total = start
    for at in range(len(values)):
        for by in range(2, 9):
            if values[at] % by == 1:
                total += values[at] * by // (1 + at)
            elif values[at] // (at + 1) % by == 2:
                total ^= values[at] << by
            elif total % (by + at) > 5:
                total -= (values[at] | total) % (11 + by)
            elif values[-at] // by % 5 == 3:
                total ^= (total + values[-at]) // (by + 7) % 10_007
            elif (total - values[at // by]) % (at + 3) == 1:
                total += values[at // by] * values[-at] // (by + at)
            elif (total ^ at) % (by + 4) == 2:
                total -= values[at] % (at + 5) << by % 3
            else:
                total = (total * 31 + values[at]) % 1_000_003
    return total


@pytest.mark.long
@pytest.mark.parametrize(("decorator", "called"), [(hot, False), (inlined, True)])
def test_a_hot_part_is_put_into_its_callers_whatever_its_size(decorator, called):
    part = decorator(large)
    caller = operation(lambda values: part(values, 1) + part(values, 2) + part(values, 3))

    assert caller(np.arange(20)) == sum(large(np.arange(20), start) for start in (1, 2, 3))
    body = _code(caller)
    assert any("call" in line and "large" in line for line in body.splitlines()) == called


@pass_by_reference
class Pair(NamedTuple):
    words: np.ndarray
    table: np.ndarray


@operation
def _fill(pair, value):
    pair.words[0] = len(pair.words)
    pair.table[1, 2] = value + len(pair.table)


def test_what_a_hot_part_calls_is_not_hot():
    """numba hands the option down to what is compiled while a caller is."""
    below = inlined(lambda value: value * 3)
    above = hot(lambda value: below(value) + 1)
    assert operation(lambda value: above(value))(1) == 4

    (of_below,), (of_above,) = below.overloads.values(), above.overloads.values()
    assert "alwaysinline" in str(of_above.library._final_module)
    assert "alwaysinline" not in str(of_below.library._final_module)


def test_arrays_by_reference_are_one_argument_and_those_of_the_caller():
    pair = Pair(np.zeros(5, np.uint64), np.zeros((2, 3)))
    _fill(pair, 4)

    assert (pair.words[0], pair.table[1, 2], pair.table.sum()) == (5, 6, 6)
    of_pair, _ = _fill.signatures[0]
    assert isinstance(of_pair, ReferenceType)


@operation
def _look_up(pair, index):
    words, row = pair.words, pair.table[index]
    return words[index] + words[-1] + words[np.uint8(1)] + len(words[1:]), row[0] + pair.table[0, -1]


def test_an_element_by_reference_is_that_of_the_array():
    pair = Pair(np.array([10, 20, 30, 40], np.int64), np.array([[1.5, 2.5], [3.5, 4.5]]))

    assert [_look_up(pair, index) for index in (0, 1, -1, -2)] == [
        (10 + 40 + 20 + 3, 1.5 + 2.5),
        (20 + 40 + 20 + 3, 3.5 + 2.5),
        (40 + 40 + 20 + 3, 3.5 + 2.5),
        (30 + 40 + 20 + 3, 1.5 + 2.5),
    ]


def test_an_element_by_reference_that_is_a_record_can_be_written():
    def swap(pair):
        first, last = pair.words[0], pair.words[len(pair.words) - 1]
        first.at, last.at = last.at, first.at
        pair.words[1] = first

    pair = Pair(np.array([(1, 7), (2, 8), (3, 9)], [("at", np.int64), ("what", np.uint8)]), np.zeros(1))
    operation(swap)(pair)
    assert pair.words.tolist() == [(3, 7), (3, 7), (1, 9)]


def test_an_array_by_reference_is_one_like_any_other():
    def chosen(pair, other, of_pair):
        words = pair.words
        if not of_pair:
            words = other
        while len(words) > 2:
            words = words[1:]
        return words[0]

    choose = operation(chosen)
    pair = Pair(np.arange(5), np.zeros(1))
    assert [choose(pair, np.arange(10, 15), of_pair) for of_pair in (True, False)] == [3, 13]


def test_an_array_by_reference_that_nobody_may_write_is_not_written():
    def write(pair):
        pair.words[0] = 99

    words = np.frombuffer(bytes(8), np.int64)
    with pytest.raises(NumbaError, match="readonly"):
        operation(write)(Pair(words, np.zeros(1)))
    assert words[0] == 0


def test_bounds_checks_for_debugging_include_functions_passed_by_reference(monkeypatch):
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    third = operation(lambda pair: pair.words[2])

    assert third(Pair(np.arange(3), np.zeros(1))) == 2
    with pytest.raises(IndexError):
        third(Pair(np.arange(2), np.zeros(1)))


def test_an_array_with_gaps_cannot_be_passed_by_reference():
    with pytest.raises(TypeError, match="Pair: table must be contiguous"):
        _fill(Pair(np.zeros(5, np.uint64), np.zeros((2, 6))[:, ::2]), 4)


def test_an_operation_is_put_together_from_its_parts():
    double = inlined(lambda value: value * 2)
    assert operation(lambda value: double(value) + 1)(20) == 41


def test_parts_are_linked_behind_all_that_call_them():
    lowest = inlined(lambda value: value + 1)
    lower = inlined(lambda value: lowest(value) * 2)
    upper = inlined(lambda value: lower(value) + lowest(value))
    left_out_then_called = operation(lambda value: lower(value) if value > value else upper(value))

    assert left_out_then_called(4) == 15


def test_compiled_code_takes_an_operation_as_a_part():
    double = operation(lambda value: value * 2)

    assert operation(lambda value: double(value) + 1)(20) == 41
    assert double.signatures == []
    assert double(20) == 40


def _code(kernel) -> str:
    """The optimised code of its only signature."""
    return kernel.inspect_llvm(kernel.signatures[0])
