"""Topics that grow while a group reads them: which of their partitions the group knows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subreplay.semantics.policies.kafka.assignor import Partitions


class PartitionGrowth:
    """The partitions of a growing group.

    They are numbered with space for all future ones; ``known`` are those assigned.
    """

    def __init__(self, partitions: Partitions) -> None:
        self.known = partitions
        self._existing = partitions
        self._seen = partitions
        self._taken = True

    def grow(self, topic: str, count: int) -> None:
        """Set the number of partitions of a topic."""
        counts = np.array(self._existing.counts)
        counts[self._existing.topics.index(topic)] = count
        self._existing = replace(self._existing, counts=counts)

    def has_unknown(self) -> bool:
        """Return whether there is a partition that the group has not seen."""
        return bool((self._existing.counts != self._seen.counts).any())

    def mark_seen(self) -> None:
        """Mark all existing partitions as seen, so that the next decision includes them."""
        self._taken = self._taken and not self.has_unknown()
        self._seen = self._existing

    def take_new(self) -> Partitions | None:
        """Return the partitions that the next decision must include; None if nothing is new."""
        if self._taken:
            return None
        self._taken, self.known = True, self._seen
        return self.known
