"""Who was connected when: the sessions of a dispatcher's consumers, searched by name and instant."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.model import Instant
from subreplay.timeline import Timeline

Ints = NDArray[np.int64]
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

    def find(self, names: pa.StringArray, at: Ints, seq: Ints) -> Ints:
        """The session of each consumer name at each instant; ``STRANGER`` where it had none."""
        found = np.full(len(at), STRANGER, np.int64)
        encoded = names.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1))
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            mine = np.flatnonzero(codes == code)
            for index in self._of_name.get(name, ()):
                inside = ~before(at[mine], seq[mine], self.since[index]) & ~after(at[mine], seq[mine], self.left[index])
                found[mine[inside & (found[mine] == STRANGER)]] = index
        return found

    @cached_property
    def _of_name(self) -> dict[str, list[int]]:
        by_name: dict[str, list[int]] = defaultdict(list)
        for index, name in enumerate(self.names):
            by_name[name].append(index)
        return by_name


def before(at: Ints, seq: Ints, instant: Instant) -> NDArray[np.bool_]:
    return np.asarray((at < instant.at) | ((at == instant.at) & (seq < instant.seq) & (seq > 0)))


def after(at: Ints, seq: Ints, instant: Instant) -> NDArray[np.bool_]:
    return np.asarray((at > instant.at) | ((at == instant.at) & (seq > instant.seq) & (seq > 0)))
