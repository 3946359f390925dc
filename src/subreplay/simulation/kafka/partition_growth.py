"""Topics that grow while a group reads them: which of their partitions a group knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subreplay.semantics.policies.kafka.assignor import Partitions


class Growth:
    """``partitions`` are numbered with room for all that there will be; ``known`` has those that are assigned."""

    def __init__(self, partitions: Partitions) -> None:
        self.known = partitions
        self._there = partitions
        self._seen = partitions
        self._taken = True

    def grow(self, topic: str, count: int) -> None:
        """A topic has so many partitions."""
        counts = np.array(self._there.counts)
        counts[self._there.topics.index(topic)] = count
        self._there = replace(self._there, counts=counts)

    def unknown(self) -> bool:
        """Whether there is a partition that nobody has looked at."""
        return bool((self._there.counts != self._seen.counts).any())

    def see(self) -> None:
        """What is there is looked at: the next decision is about it."""
        self._taken = self._taken and not self.unknown()
        self._seen = self._there

    def taken(self) -> Partitions | None:
        """What the next decision has to know; None: nothing new."""
        if self._taken:
            return None
        self._taken, self.known = True, self._seen
        return self.known
