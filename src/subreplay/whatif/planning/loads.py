"""What arrives, as work by thing and window: a thing is what has one owner at a time, a key, a slot or a partition.

Only cells in which something arrives are kept, so that many keys over many windows stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subreplay.errors import InputError
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints

MOST_DENSE = 1 << 27
"""Cells of a whole table of things by windows: 1 GiB."""


@dataclass(frozen=True, eq=False)
class Loads:
    """Work by thing and window; ``work[i]`` of ``thing[i]`` arrives in window number ``window[i]``.

    Windows are those in which anything arrives at all, numbered in order of time; they begin at ``starts`` (ns) and
    each lasts ``width`` ns. Work is a whole number: messages, bytes, or ns of a consumer's time.
    """

    thing: Ints
    window: Ints
    work: Ints
    things: int
    starts: Ints
    width: int

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self.starts)

    @classmethod
    def of(cls, thing: Ints, at: Ints, work: Ints, things: int, width: int) -> Loads:
        """The loads of messages: their things (from 0), when they arrive (ns), how much work each is.

        >>> loads = Loads.of(np.array([0, 1, 1]), np.array([5, 7, 25]), np.array([1, 1, 4]), things=2, width=10)
        >>> loads.dense().tolist()
        [[1, 0], [1, 4]]
        """
        there, window = np.unique(at // width, return_inverse=True)
        cells, cell = np.unique(thing * len(there) + window, return_inverse=True)
        summed = _summed(cell, work, len(cells))
        windows = max(len(there), 1)
        return cls(cells // windows, cells % windows, summed, things, there * width, width)

    @cached_property
    def by_window(self) -> Ints:
        """All work that arrives in each window."""
        return _summed(self.window, self.work, self.windows)

    @cached_property
    def by_thing(self) -> Ints:
        """All work that each thing brings."""
        return _summed(self.thing, self.work, self.things)

    @cached_property
    def hottest(self) -> Ints:
        """In each window the work of the thing that brings the most."""
        most = np.zeros(self.windows, np.int64)
        np.maximum.at(most, self.window, self.work)
        return most

    def of_owners(self, owners: Ints, consumers: int) -> Ints:
        """Loads ``[consumer, window]`` where ``owners[thing]`` has each thing; -1: nobody has it."""
        loads = np.zeros((consumers + 1, self.windows), np.int64)  # the last row is nobody's
        _add(self.thing, self.window, self.work, np.asarray(owners, np.int64) % (consumers + 1), loads)
        return loads[:consumers]

    def regrouped(self, groups: Ints, many: int) -> Loads:
        """The same work by groups of things: the slots of keys, say."""
        cells, cell = np.unique(groups[self.thing] * self.windows + self.window, return_inverse=True)
        summed = _summed(cell, self.work, len(cells))
        return Loads(cells // self.windows, cells % self.windows, summed, many, self.starts, self.width)

    def dense(self) -> Ints:
        """Loads ``[thing, window]``. Raises ``InputError`` if they are more than memory should hold."""
        if self.things * self.windows > MOST_DENSE:
            raise InputError(
                f"plan: {self.windows:,} windows of {self.things:,} slots are too many at once; ask for wider windows, "
                f"so that there are at most {MOST_DENSE // self.things:,}"
            )
        loads = np.zeros((self.things, self.windows), np.int64)
        loads[self.thing, self.window] = self.work
        return loads


def _summed(group: Ints, work: Ints, groups: int) -> Ints:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, work)
    return sums


@operation
def _add(thing: Ints, window: Ints, work: Ints, owners: Ints, loads: Ints) -> None:  # pragma: no cover - compiled
    for i in range(len(thing)):
        loads[owners[thing[i]], window[i]] += work[i]
