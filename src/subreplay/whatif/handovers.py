"""Find handovers: slots that passed from one consumer to another.

All membership changes of a dispatcher at one instant count as one change, so an owner that never lasted is ignored. A
slot that had no owner before, or has none afterwards, is not handed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.rows.model.range_table import NOBODY
from subreplay.semantics.timelines.timeline import Epoch, Timeline


class Handover(NamedTuple):
    """Slots that passed from consumer ``before`` to consumer ``after`` with the change that ended in ``epoch``."""

    epoch: int
    before: str
    after: str
    slots: int


@dataclass(frozen=True, eq=False)
class Handovers:
    """Handovers as columns, sorted by epoch and names. ``before`` and ``after`` are indexes in ``names``."""

    names: tuple[str, ...]
    epoch: Ints
    before: Ints
    after: Ints
    slots: Ints

    def iterate_rows(self, indexes: Ints | None = None) -> Iterator[Handover]:
        """Yield all handovers, or those at some indexes."""
        wanted = np.arange(len(self.slots)) if indexes is None else indexes
        columns = (column[wanted].tolist() for column in (self.epoch, self.before, self.after, self.slots))
        for epoch, before, after, slots in zip(*columns, strict=True):
            yield Handover(epoch, self.names[before], self.names[after], slots)


def group_changes(timeline: Timeline) -> Iterator[tuple[Epoch, ...]]:
    """Yield the epochs that began at one instant together. Only the last one of a group lasted. Epoch 0 is left out."""
    for _, together in groupby(timeline.epochs[1:], key=lambda epoch: epoch.start.at):
        yield tuple(together)


def find_last_epochs(timeline: Timeline) -> Ints:
    """Return, for each epoch, the last epoch of the same change."""
    starts = np.array([epoch.start.at for epoch in timeline.epochs])
    return np.searchsorted(starts, starts, "right") - 1


def find_handovers(timeline: Timeline) -> Handovers:
    """Return all handovers of a dispatcher. The cost is linear in the changes of ownership, plus sorting."""
    index = timeline.index
    segment, epoch = index.keys >> 32, find_last_epochs(timeline)[index.keys & 0xFFFF_FFFF]
    lasting = np.append((segment[1:] != segment[:-1]) | (epoch[1:] != epoch[:-1]), True)
    segment, epoch, owner = segment[lasting], epoch[lasting], index.owners[lasting]
    names, number = np.unique([consumer.label for consumer in timeline.consumers], return_inverse=True)
    consumer_numbers = np.append(number, NOBODY)[np.maximum(owner, NOBODY)]  # the last element is for NOBODY and groups
    handed_over = (
        (segment[1:] == segment[:-1])
        & (consumer_numbers[1:] >= 0)
        & (consumer_numbers[:-1] >= 0)
        & (consumer_numbers[1:] != consumer_numbers[:-1])
    )
    slots = np.diff(index.cuts, append=index.cuts[-1])[segment[1:][handed_over]]
    names_count = max(len(names), 1)
    pairs = (
        epoch[1:][handed_over] * names_count + consumer_numbers[:-1][handed_over]
    ) * names_count + consumer_numbers[1:][handed_over]
    distinct_pairs, pair_of = np.unique(pairs, return_inverse=True)
    sums = np.zeros(len(distinct_pairs), np.int64)
    np.add.at(sums, pair_of, slots)
    return Handovers(
        tuple(names.tolist()),
        distinct_pairs // names_count**2,
        distinct_pairs // names_count % names_count,
        distinct_pairs % names_count,
        sums,
    )
