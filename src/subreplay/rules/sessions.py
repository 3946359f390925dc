"""Who was connected when: the sessions of a dispatcher's consumers, searched by name and instant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from subreplay.columns import Ints
from subreplay.hashing.compiled import compiled
from subreplay.model import Instant
from subreplay.timeline import Timeline

FOREVER = Instant(int(np.iinfo(np.int64).max), 0)
STRANGER = -1


@dataclass(frozen=True, eq=False)
class Sessions:
    """Sessions by consumer index (the ordinal of the join): name, when joined, when left; instants as time and order.

    A session runs from the instant a join was asked for to the instant its leave was complete: inside the two changes
    nobody can tell, so a delivery there is to a connected consumer. ``closing`` is when the leave was asked for.
    """

    names: tuple[str, ...]
    since: tuple[Instant, ...]
    joined: Ints  # when the join was complete, ns
    closing: Ints  # ns, or the end of time
    left: tuple[Instant, ...]

    @classmethod
    def of(cls, timeline: Timeline) -> Sessions:
        """The sessions of a timeline; a consumer that the policy rejected has none, at any time."""
        names = tuple(c.name for c in timeline.consumers)
        since, joined = [FOREVER] * len(names), np.full(len(names), FOREVER.at)
        closing, left = np.full(len(names), FOREVER.at), [FOREVER] * len(names)
        for epoch in timeline.epochs:
            if epoch.joined is not None:
                since[epoch.joined.index], joined[epoch.joined.index] = epoch.since, epoch.start.at
            for consumer in epoch.left:
                closing[consumer.index], left[consumer.index] = epoch.since.at, epoch.start
        return cls(names, tuple(since), joined, closing, tuple(left))

    def find(self, names: pa.DictionaryArray, at: Ints, seq: Ints) -> Ints:
        """The session of each consumer name at each instant; ``STRANGER`` where it had none."""
        mine = [self._of_name.get(name, []) for name in names.dictionary.to_pylist()]
        starts = np.cumsum([0, *map(len, mine)])
        indexes = np.array([index for of_name in mine for index in of_name], np.int64)
        codes = np.asarray(names.indices.fill_null(-1), np.int64)
        return _find(codes, at, seq, starts, indexes, *self._bounds)

    @cached_property
    def _of_name(self) -> dict[str, list[int]]:
        by_name: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(self.names):
            by_name[name].append(index)
        return by_name

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        since, left = (np.array([*instants], np.int64).reshape(-1, 2) for instants in (self.since, self.left))
        return since, left


@compiled
def _find(
    codes: Ints, at: Ints, seq: Ints, starts: Ints, indexes: Ints, since: Ints, left: Ints
) -> Ints:  # pragma: no cover - compiled
    """Bounds are times and orders; a delivery without an order (0) is inside at the very instant of either."""
    found = np.full(len(at), STRANGER, np.int64)
    for i in range(len(at)):
        if codes[i] < 0:
            continue
        for k in range(starts[codes[i]], starts[codes[i] + 1]):
            s = indexes[k]
            before = at[i] < since[s, 0] or (at[i] == since[s, 0] and 0 < seq[i] < since[s, 1])
            after = at[i] > left[s, 0] or (at[i] == left[s, 0] and seq[i] > left[s, 1] and seq[i] > 0)
            if not before and not after:
                found[i] = s
                break
    return found
