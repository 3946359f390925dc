"""Loads: the work that arrives, by thing and window.

A thing has one owner at a time: a key, a slot or a partition.

Only cells with work are stored, so that many keys over many windows stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subreplay.errors import InputError
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import Ints

MOST_DENSE = 1 << 27
"""The largest number of cells of a table of things by windows: 1 GiB."""


@dataclass(frozen=True, eq=False)
class WorkLoads:
    """Work by thing and window: ``work[i]`` of ``thing[i]`` arrives in window number ``window[i]``.

    Only windows with work are numbered, in order of time. They begin at ``starts`` (ns) and each lasts ``width`` ns.
    Work is a whole number: messages, bytes, or ns of a consumer's time.
    """

    thing: Ints
    window: Ints
    work: Ints
    things: int
    starts: Ints
    width: int

    @property
    def windows(self) -> int:
        """The number of windows."""
        return len(self.starts)

    @classmethod
    def from_messages(cls, thing: Ints, at: Ints, work: Ints, things: int, width: int) -> WorkLoads:
        """Build the loads of messages from their things (from 0), arrival times (ns) and work.

        >>> thing, at, work = np.array([0, 1, 1]), np.array([5, 7, 25]), np.array([1, 1, 4])
        >>> loads = WorkLoads.from_messages(thing, at, work, things=2, width=10)
        >>> loads.build_table().tolist()
        [[1, 0], [1, 4]]
        """
        window_numbers, window = np.unique(at // width, return_inverse=True)
        cells, cell = np.unique(thing * len(window_numbers) + window, return_inverse=True)
        summed = _sum_by_group(cell, work, len(cells))
        windows = max(len(window_numbers), 1)
        return cls(cells // windows, cells % windows, summed, things, window_numbers * width, width)

    @cached_property
    def by_window(self) -> Ints:
        """All work that arrives in each window."""
        return _sum_by_group(self.window, self.work, self.windows)

    @cached_property
    def by_thing(self) -> Ints:
        """All work of each thing."""
        return _sum_by_group(self.thing, self.work, self.things)

    @cached_property
    def hottest(self) -> Ints:
        """The work of the hottest thing in each window."""
        maximum = np.zeros(self.windows, np.int64)
        np.maximum.at(maximum, self.window, self.work)
        return maximum

    def sum_by_owner(self, owners: Ints, consumers: int) -> Ints:
        """Return loads ``[consumer, window]``. ``owners[thing]`` is the consumer of each thing; -1: it has none."""
        loads = np.zeros((consumers + 1, self.windows), np.int64)  # the last row is for things without an owner
        _add_to_owners(self.thing, self.window, self.work, np.asarray(owners, np.int64) % (consumers + 1), loads)
        return loads[:consumers]

    def regroup(self, groups: Ints, many: int) -> WorkLoads:
        """Return the same work by groups of things, for example by the slots of keys."""
        cells, cell = np.unique(groups[self.thing] * self.windows + self.window, return_inverse=True)
        summed = _sum_by_group(cell, self.work, len(cells))
        return WorkLoads(cells // self.windows, cells % self.windows, summed, many, self.starts, self.width)

    def build_table(self) -> Ints:
        """Return loads ``[thing, window]``. Raises ``InputError`` if the table would be too large for memory."""
        if self.things * self.windows > MOST_DENSE:
            raise InputError(
                f"plan: {self.windows:,} windows of {self.things:,} slots do not fit in memory. Use wider windows, "
                f"so that there are at most {MOST_DENSE // self.things:,} of them."
            )
        loads = np.zeros((self.things, self.windows), np.int64)
        loads[self.thing, self.window] = self.work
        return loads


def _sum_by_group(group: Ints, work: Ints, groups: int) -> Ints:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, group, work)
    return sums


@operation
def _add_to_owners(
    thing: Ints, window: Ints, work: Ints, owners: Ints, loads: Ints
) -> None:  # pragma: no cover - compiled
    for i in range(len(thing)):
        loads[owners[thing[i]], window[i]] += work[i]
