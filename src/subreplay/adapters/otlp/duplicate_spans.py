"""Find spans that repeat or duplicate others. Columns are integers, with one row per span."""

from __future__ import annotations

import numpy as np

from subreplay.adapters.capture.event_checks import Mask
from subreplay.adapters.capture.event_joins import rank_rows
from subreplay.rows.model.columns import Ints

_WORST_RANK = 3


def find_repeated(span: Ints, content: Ints) -> tuple[Mask, Mask]:
    """Mark repeated spans, as of a copied file or a retried export: those with equal content, and those with other
    content. ``span`` are ranks."""
    _, first = np.unique(span, return_index=True)
    before = np.ones(len(span), np.bool_)
    before[first] = False
    same = content == content[first[span]]
    return before & same, before & ~same


def find_worse_spans(group: Ints, library: Ints, rank: Ints) -> Mask:
    """Mark all spans of a group (a message at a consumer) except those of its best library and operation: the pair
    with the lowest rank in the group. ``group`` are ranks."""
    pair = rank_rows(group, library)
    lowest = _find_lowest_ranks(pair, rank)
    order = np.lexsort((pair, lowest[pair], group))
    _, first = np.unique(group[order], return_index=True)
    best = pair[order][first]
    return np.asarray(pair != best[group], np.bool_)


def find_unnamed_duplicates(group: Ints, named: Mask, rank: Ints) -> Mask:
    """Mark spans without a subscription whose group has a better span with one. ``group`` are ranks."""
    lowest = _find_lowest_ranks(group, np.where(named, rank, _WORST_RANK))
    return np.asarray(~named & (lowest[group] < rank), np.bool_)


def _find_lowest_ranks(group: Ints, rank: Ints) -> Ints:
    found = np.full(int(group.max()) + 1 if len(group) else 0, _WORST_RANK, np.int64)
    np.minimum.at(found, group, rank)
    return found
