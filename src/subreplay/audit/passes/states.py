"""Rows of state by identity: what a pass remembers of each key, slot or producer.

It uses open addressing with linear probing over plain arrays, so that compiled loops can use it and a state can be
stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.kernels.inlining import hot, operation
from subreplay.rows.model.columns import UNKNOWN, Ints

NOWHERE = -1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class StateTable:
    """``width`` integers of state for each identity (an integer from 0), all ``UNKNOWN`` at first.

    ``index`` stores identities by their hash (``NOWHERE`` if free) and their row in ``rows``. ``count[0]`` rows are
    used.
    """

    def __init__(self, width: int) -> None:
        self.index = np.full((64, 2), NOWHERE, np.int64)
        self.rows = np.empty((0, width), np.int64)
        self.count = np.zeros(1, np.int64)

    @classmethod
    def of(cls, width: int, ids: Ints, rows: Ints) -> StateTable:
        """Restore the states of ``known``: ``ids`` in one column, and the first columns of their states."""
        states = cls(width)
        indices = states.indices(ids[:, 0])
        states.rows[indices, : rows.shape[1]] = rows
        return states

    @property
    def known(self) -> tuple[Ints, Ints]:
        """The identities, as one column, and their states."""
        taken = self.index[self.index[:, 0] != NOWHERE]
        ids = np.empty((len(taken), 1), np.int64)
        ids[taken[:, 1], 0] = taken[:, 0]
        return ids, self.rows[: self.count[0]]

    def ensure_capacity(self, more: int) -> None:
        """Grow the table for ``more`` new identities."""
        needed = int(self.count[0]) + more
        if needed > len(self.rows):
            grown = np.empty((max(needed, 2 * len(self.rows)), self.rows.shape[1]), np.int64)
            grown[: self.count[0]] = self.rows[: self.count[0]]
            self.rows = grown
        if 2 * needed > len(self.index):
            before, self.index = self.index, np.full((1 << (3 * needed - 1).bit_length(), 2), NOWHERE, np.int64)
            _rehash(before, self.index)

    def indices(self, ids: Ints) -> Ints:
        """Return the row of each identity, and add new ones; ``NOWHERE`` for the identity ``NOWHERE``.

        All identities are looked up before any row, so that the memory accesses of a tight loop overlap.
        """
        self.ensure_capacity(len(ids))
        return _add_ids(self.index, self.rows, self.count, ids)

    def rows_of(self, ids: Ints) -> Ints:
        """Return the state of each identity; all ``UNKNOWN`` for an unknown one."""
        nothing = np.full((1, self.rows.shape[1]), UNKNOWN)
        return np.append(self.rows[: self.count[0]], nothing, 0)[_find_indices(self.index, ids)]


@hot
def _find_slot(index: Ints, identity: int) -> Any:  # pragma: no cover - compiled
    """Return the slot of an identity, or the free slot for it."""
    last = len(index) - 1
    at = np.int64((np.uint64(identity) * _SPREAD) >> np.uint64(20)) & last
    while index[at, 0] != NOWHERE and index[at, 0] != identity:
        at = (at + 1) & last
    return at


@compiled
def _add_ids(index: Ints, rows: Ints, count: Ints, ids: Ints) -> Ints:  # pragma: no cover - compiled
    indices = np.full(len(ids), NOWHERE, np.int64)
    for i in range(len(ids)):
        if ids[i] != NOWHERE:
            at = _find_slot(index, ids[i])
            if index[at, 0] == NOWHERE:
                index[at, 0], index[at, 1] = ids[i], count[0]
                rows[count[0], :] = UNKNOWN
                count[0] += 1
            indices[i] = index[at, 1]
    return indices


@compiled
def _find_indices(index: Ints, ids: Ints) -> Ints:  # pragma: no cover - compiled
    indices = np.full(len(ids), NOWHERE, np.int64)
    for i in range(len(ids)):
        indices[i] = index[_find_slot(index, ids[i]), 1]
    return indices


@operation
def _rehash(before: Ints, after: Ints) -> None:  # pragma: no cover - compiled
    for i in range(len(before)):
        if before[i, 0] != NOWHERE:
            at = _find_slot(after, before[i, 0])
            # one by one: to assign a row to a row, numba compiles the words of an error for seconds
            after[at, 0], after[at, 1] = before[i, 0], before[i, 1]
