"""Join events by group and order, as columns of integers of a whole capture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.columns import NEVER, Ints

NONE = -1
"""The index that stands for no row."""


def rank_rows(*columns: Ints) -> Ints:
    """Rank the rows by their values: equal rows have equal ranks, from 0 in value order."""
    order = np.lexsort(columns[::-1])
    changed = np.zeros(len(order), np.int64)
    for column in columns:
        values = column[order]
        changed[1:] |= values[1:] != values[:-1]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(changed)
    return found


def find_latest_before(group: Ints, seq: Ints, candidate: NDArray[np.bool_]) -> Ints:
    """Find for each row the latest candidate of its group up to its own ``seq``, as a row index or ``NONE``."""
    order = np.lexsort((seq, group))
    sorted_group = group[order]
    latest = np.maximum.accumulate(np.where(candidate[order], np.arange(len(order)), NONE))
    begin = np.searchsorted(sorted_group, sorted_group)
    found = np.full(len(order), NONE, np.int64)
    found[order] = np.where(latest >= begin, order[latest], NONE)
    return found


def find_next_in_group(group: Ints, seq: Ints) -> Ints:
    """Find for each row the next ``seq`` of its group; the last one has ``NEVER``."""
    order = np.lexsort((seq, group))
    following = np.full(len(order), NEVER, np.int64)
    same = group[order[1:]] == group[order[:-1]]
    following[order[:-1]] = np.where(same, seq[order[1:]], NEVER)
    return following


def find_first_of_owner(owner: Ints, rows: Ints, seq: Ints, owners: int) -> Ints:
    """Find for each owner the row with the lowest ``seq``, or ``NONE``. ``owner`` has the owner of each of ``rows``."""
    order = np.lexsort((seq[rows], owner))
    found = np.full(owners, NONE, np.int64)
    named, first = np.unique(owner[order], return_index=True)
    found[named] = rows[order[first]]
    return found


def find_first_after(group: Ints, seq: Ints, value: Ints, of_group: Ints, of_seq: Ints, of_value: Ints) -> Ints:
    """Find for each row the first row of the other columns in its group with a higher ``seq`` and no lower value.

    The result is an index, or ``NONE``. Values may decrease, as offsets do after a rewind. So every row looks ahead in
    steps of powers of two, the largest first, over stretches whose highest value is below its own.
    """
    order = np.lexsort((of_seq, of_group))
    values, groups = of_value[order], of_group[order]
    key = rank_rows(np.concatenate([of_group[order], group]), np.concatenate([of_seq[order], seq]))
    at = np.searchsorted(key[: len(order)], key[len(order) :], side="right")
    end = np.searchsorted(groups, group, side="right")
    highest = [values]  # maxima of 1, 2, 4, … rows from each row on
    while 2 * (width := 1 << (len(highest) - 1)) <= len(values):
        highest.append(np.maximum(highest[-1][:-width], highest[-1][width:]))
    for power in reversed(range(len(highest))):
        below = at + (1 << power) <= end
        below[below] = highest[power][at[below]] < value[below]
        at = at + (below << power)
    found = np.full(len(at), NONE, np.int64)
    found[at < end] = order[at[at < end]]
    return found
