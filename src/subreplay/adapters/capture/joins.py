"""Which event belongs to which: columns of integers joined by group and order, a whole capture at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.columns import NEVER, Ints

NONE = -1
"""The index of no row."""


def ranks(*columns: Ints) -> Ints:
    """For each row the rank of its values among all distinct ones, in their order, from 0."""
    order = np.lexsort(columns[::-1])
    changed = np.zeros(len(order), np.int64)
    for column in columns:
        values = column[order]
        changed[1:] |= values[1:] != values[:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changed)
    return found


def latest_before(group: Ints, seq: Ints, candidate: NDArray[np.bool_]) -> Ints:
    """For each row the candidate of its group with the highest ``seq`` up to its own, as a row index, or ``NONE``."""
    order = np.lexsort((seq, group))
    sorted_group = group[order]
    latest = np.maximum.accumulate(np.where(candidate[order], np.arange(len(order)), NONE))
    begin = np.searchsorted(sorted_group, sorted_group)
    found = np.full(len(order), NONE, np.int64)
    found[order] = np.where(latest >= begin, order[latest], NONE)
    return found


def next_in(group: Ints, seq: Ints) -> Ints:
    """For each row the next ``seq`` of its group; ``NEVER`` for the last."""
    order = np.lexsort((seq, group))
    following = np.full(len(order), NEVER, np.int64)
    same = group[order[1:]] == group[order[:-1]]
    following[order[:-1]] = np.where(same, seq[order[1:]], NEVER)
    return following


def first_of(owner: Ints, rows: Ints, seq: Ints, owners: int) -> Ints:
    """For each owner the row that names it (``owner``, beside ``rows``) with the lowest ``seq``, or ``NONE``."""
    order = np.lexsort((seq[rows], owner))
    found = np.full(owners, NONE, np.int64)
    named, first = np.unique(owner[order], return_index=True)
    found[named] = rows[order[first]]
    return found


def first_after(group: Ints, seq: Ints, value: Ints, of_group: Ints, of_seq: Ints, of_value: Ints) -> Ints:
    """For each row of the first three columns the first of the others of its group that has a higher ``seq`` and no
    lower value, as an index, or ``NONE``.

    Values may fall, as offsets do after a rewind. So every row looks ahead in steps of powers of two, the largest
    first, over stretches whose highest value is below its own.
    """
    order = np.lexsort((of_seq, of_group))
    values, groups = of_value[order], of_group[order]
    key = ranks(np.concatenate([of_group[order], group]), np.concatenate([of_seq[order], seq]))
    at = np.searchsorted(key[: len(order)], key[len(order) :], side="right")
    end = np.searchsorted(groups, group, side="right")
    highest = [values]  # of 1, 2, 4 … rows from each on
    while 2 * (width := 1 << (len(highest) - 1)) <= len(values):
        highest.append(np.maximum(highest[-1][:-width], highest[-1][width:]))
    for power in reversed(range(len(highest))):
        below = at + (1 << power) <= end
        below[below] = highest[power][at[below]] < value[below]
        at = at + (below << power)
    found = np.full(len(at), NONE, np.int64)
    found[at < end] = order[at[at < end]]
    return found
