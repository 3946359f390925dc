"""The order of the lines of several files, as a number of each line that is known while its file is read.

Within a file lines are in order, whatever its clock says; files are merged by the time that each has reached. So a
number is made of that time, of the file, and of the line's place among those of its file at that time.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.compiled import compiled

BEGIN: Final = 1_577_836_800_000
"""The earliest time (ms): 2020 begins. Lines of earlier clocks are as of then."""
_LATEST: Final = BEGIN + (1 << 40) - (1 << 30)  # in 2054; there is room to go on counting
_BITS: Final = 22  # of a file and a place in it: a number of 62 bits is as large as a ``seq`` may be
MOST_FILES: Final = 1 << 16
"""So many files can be told apart."""

Ints = NDArray[np.int64]


def number_at(millis: int) -> int:
    """The number of what happened at a time (ms), before all lines of it."""
    return (min(max(millis, BEGIN), _LATEST) - BEGIN) << _BITS


class Order:
    """Numbers the lines of file ``number`` of ``files``, a batch after the other. ``back`` is the largest step (ms)
    that its clock went back."""

    def __init__(self, number: int, files: int) -> None:
        if files > MOST_FILES:
            raise ValueError(f"{files:,} files are more than {MOST_FILES:,}")
        self._places = _BITS - (files - 1).bit_length()
        self._number = number << self._places
        # the line before, the time it had reached, its place there, the largest step back
        self._state = np.array([-1, BEGIN, -1, 0], np.int64)

    def of(self, line: Ints, at: Ints) -> Ints:
        """Numbers of lines (from 1, rising), whose times are ``at`` (ms); events of one line have one."""
        found = np.empty(len(line), np.int64)
        _count(line, np.minimum(at, _LATEST), self._state, 1 << self._places, found)
        return found + self._number

    @property
    def back(self) -> int:
        """In ms."""
        return int(self._state[3])


def _count(line: Ints, at: Ints, state: Ints, places: Any, found: Ints) -> None:
    before, reached, place = state[0], state[1], state[2]
    for row in range(len(line)):
        if line[row] != before:
            before = line[row]
            state[3] = max(state[3], reached - at[row]) if place >= 0 else state[3]
            place += 1
            if at[row] > reached:
                reached, place = at[row], 0
            elif place >= places:  # more lines at one time than there are places
                reached, place = reached + 1, 0
        found[row] = ((reached - BEGIN) << _BITS) + place
    state[0], state[1], state[2] = before, reached, place


_count = compiled(_count)
