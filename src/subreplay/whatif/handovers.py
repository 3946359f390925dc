"""What changed hands: slots that passed from one consumer to another.

All that happens to a dispatcher's members at one instant is one change: an owner that nobody saw is none. What nobody
had before is no handover but a first owner, and neither is what nobody gets.
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
    """Slots that passed ``before`` → ``after`` (names of consumers) by the change that ended with ``epoch``."""

    epoch: int
    before: str
    after: str
    slots: int


@dataclass(frozen=True, eq=False)
class Handovers:
    """Many of them as columns, in order of epoch and names; ``before`` and ``after`` are indexes in ``names``."""

    names: tuple[str, ...]
    epoch: Ints
    before: Ints
    after: Ints
    slots: Ints

    def rows(self, indexes: Ints | None = None) -> Iterator[Handover]:
        """All of them, or those at some indexes."""
        wanted = np.arange(len(self.slots)) if indexes is None else indexes
        columns = (column[wanted].tolist() for column in (self.epoch, self.before, self.after, self.slots))
        for epoch, before, after, slots in zip(*columns, strict=True):
            yield Handover(epoch, self.names[before], self.names[after], slots)


def changes(timeline: Timeline) -> Iterator[tuple[Epoch, ...]]:
    """The epochs that began at one instant, of which only the last one lasted; epoch 0 has no beginning."""
    for _, together in groupby(timeline.epochs[1:], key=lambda epoch: epoch.start.at):
        yield tuple(together)


def last_of_change(timeline: Timeline) -> Ints:
    """The last epoch of the change that each epoch belongs to."""
    starts = np.array([epoch.start.at for epoch in timeline.epochs])
    return np.searchsorted(starts, starts, "right") - 1


def handovers(timeline: Timeline) -> Handovers:
    """All handovers of a dispatcher. Linear in the changes of owner, but for sorting them."""
    index = timeline.index
    segment, epoch = index.keys >> 32, last_of_change(timeline)[index.keys & 0xFFFF_FFFF]
    lasting = np.append((segment[1:] != segment[:-1]) | (epoch[1:] != epoch[:-1]), True)
    segment, epoch, owner = segment[lasting], epoch[lasting], index.owners[lasting]
    names, number = np.unique([consumer.label for consumer in timeline.consumers], return_inverse=True)
    who = np.append(number, NOBODY)[np.maximum(owner, NOBODY)]  # the last of them is NOBODY's, and that of groups
    passed = (segment[1:] == segment[:-1]) & (who[1:] >= 0) & (who[:-1] >= 0) & (who[1:] != who[:-1])
    slots = np.diff(index.cuts, append=index.cuts[-1])[segment[1:][passed]]
    every = max(len(names), 1)
    pairs = (epoch[1:][passed] * every + who[:-1][passed]) * every + who[1:][passed]
    found, pair_of = np.unique(pairs, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, pair_of, slots)
    return Handovers(tuple(names.tolist()), found // every**2, found // every % every, found % every, sums)
