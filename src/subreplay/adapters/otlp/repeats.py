"""Spans that tell again what another told: columns of integers, a row a span."""

from __future__ import annotations

import numpy as np

from subreplay.adapters.capture.checks import Mask
from subreplay.adapters.capture.joins import ranks
from subreplay.rows.model.columns import Ints

_NOTHING = 3


def again(span: Ints, told: Ints) -> tuple[Mask, Mask]:
    """Spans that were there before, as of a file that was copied or an export that was tried again: those that tell
    the same, and those that tell something else. ``span`` are ranks."""
    _, first = np.unique(span, return_index=True)
    before = np.ones(len(span), np.bool_)
    before[first] = False
    same = told == told[first[span]]
    return before & same, before & ~same


def of_worse_tellers(group: Ints, teller: Ints, rank: Ints) -> Mask:
    """Spans of other tellers than the best one of their group (a message at a consumer): the one with the lowest rank
    anywhere in it. A teller is a library and its operation. ``group`` are ranks."""
    pair = ranks(group, teller)
    lowest = _lowest(pair, rank)
    order = np.lexsort((pair, lowest[pair], group))
    _, first = np.unique(group[order], return_index=True)
    best = pair[order][first]
    return np.asarray(pair != best[group], np.bool_)


def beside_named(group: Ints, named: Mask, rank: Ints) -> Mask:
    """Spans that name no subscription where others of their group do and tell more. ``group`` are ranks."""
    lowest = _lowest(group, np.where(named, rank, _NOTHING))
    return np.asarray(~named & (lowest[group] < rank), np.bool_)


def _lowest(group: Ints, rank: Ints) -> Ints:
    found = np.full(int(group.max()) + 1 if len(group) else 0, _NOTHING, np.int64)
    np.minimum.at(found, group, rank)
    return found
