"""Cut the runs of a profile at window boundaries, so that a cell has one key, one slot and one window.

Cells are computed once for all plans. If no change of the members falls into a cell, a plan does not look at its
messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import operation
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import Ints
from subreplay.whatif.traffic.evaluation_counts import Extent
from subreplay.whatif.traffic.traffic_profile import NO_KEY, Indexes, Runs, TrafficProfile


@pass_by_reference
class WindowCells(NamedTuple):
    """The cells of runs, as arrays.

    ``key``, ``scope`` and ``hash`` (unsigned) are those of each run, whose cells are ``first[run]`` up to ``first[run +
    1]``. A cell has the messages ``begin`` up to ``end`` of the profile, of ``size`` bytes. The last one was published
    at ``last`` (ns). ``window`` is the number of the cell's window. There are up to as many cells as messages, so
    ``begin``, ``end`` and ``window`` have 32 bits.
    """

    key: Ints
    scope: Ints
    hash: Ints
    first: Ints
    begin: Indexes
    end: Indexes
    window: Indexes
    size: Ints
    last: Ints


def build_cells(profile: TrafficProfile, extent: Extent) -> WindowCells:
    """Return the cells of a profile. The hash of runs without a sticky key is 0."""
    hashes = np.append(profile.keys.murmur3, np.uint32(0))[profile.runs.sticky]  # the last element is for NO_KEY
    return _cut_runs(profile, extent, profile.runs, hashes)


def build_keyless_cells(profile: TrafficProfile, extent: Extent) -> WindowCells:
    """Return the cells of a profile with one run for each message without a sticky key, with its spreading hash."""
    runs = profile.runs
    keyless = runs.sticky == NO_KEY
    lengths = np.where(keyless, runs.end - runs.begin, 1)
    run = np.repeat(np.arange(len(runs)), lengths)
    begin = runs.begin[run] + np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    key_runs = runs.select(run)
    keyless = keyless[run]
    single = Runs(begin, np.where(keyless, begin + 1, key_runs.end), *(getattr(key_runs, name) for name in _CODES))
    murmur3 = np.append(profile.keys.murmur3, np.uint32(0))[key_runs.sticky]
    return _cut_runs(profile, extent, single, np.where(keyless, profile.spread[begin], murmur3))


_CODES = ("key", "sticky", "routed", "scope", "producer")


def _cut_runs(profile: TrafficProfile, extent: Extent, runs: Runs, hashes: NDArray[np.uint32]) -> WindowCells:
    begin, end = np.ascontiguousarray(runs.begin), np.ascontiguousarray(runs.end)
    first, start = np.zeros(len(runs) + 1, np.int64), extent.first - extent.first % extent.width
    _count_cells(begin, end, profile.at, start, extent.width, first)
    first = np.cumsum(first)
    key, scope, hash_numbers = runs.key.astype(np.int64), runs.scope.astype(np.int64), hashes.astype(np.int64)
    begins, ends, window = (np.empty(first[-1], np.int32) for _ in range(3))
    size, last = (np.empty(first[-1], np.int64) for _ in range(2))
    _fill_cells(begin, end, profile.at, profile.size, start, extent.width, first, begins, ends, window, size, last)
    return WindowCells(key, scope, hash_numbers, first, begins, ends, window, size, last)


@operation
def _count_cells(
    begin: Ints, end: Ints, at: Ints, start: int, width: int, cells: Ints
) -> None:  # pragma: no cover - compiled
    """Count the cells of each run, shifted by one."""
    for run in range(len(begin)):
        bound = at[begin[run]] if begin[run] < end[run] else 0
        for i in range(begin[run], end[run]):
            if at[i] >= bound:
                bound = start + ((at[i] - start) // width + 1) * width
                cells[run + 1] += 1


@operation
def _fill_cells(
    begin: Ints, end: Ints, at: Ints, sizes: Ints, start: int, width: int, first: Ints, begins: Indexes, ends: Indexes,
    window: Indexes, size: Ints, last: Ints,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    for run in range(len(begin)):
        cell, i = first[run], begin[run]
        while i < end[run]:
            begins[cell], window[cell] = i, (at[i] - start) // width
            bound, total = start + (window[cell] + 1) * width, 0
            while i < end[run] and at[i] < bound:
                total += sizes[i]
                i += 1
            ends[cell], size[cell], last[cell] = i, total, at[i - 1]
            cell += 1
