"""A share partition for tests: ``Share("3 2")`` has a log of a batch with three records and one with two."""

import numpy as np

from subreplay.simulation.kafka.share import share_partition
from subreplay.simulation.kafka.share.share_window import ShareSettings, create_windows


class Share:
    def __init__(self, batches, hidden=(), **settings):
        sizes = [int(word) for word in batches.split()]
        ends = np.repeat(np.cumsum(sizes), sizes)
        self.windows = create_windows([ends], ShareSettings(**settings))
        self.windows.slots.hidden[list(hidden)] = 1
        self.log_end = len(ends)

    @property
    def partition(self):
        return self.windows.partitions[0]

    @property
    def start(self):
        return int(self.partition.start)

    @property
    def end(self):
        return int(self.partition.end)

    def fetch(self, member, most=500, batch_size=500, now=0, new=True):
        """Acquired ranges with their delivery count; without ``new``, the log ends with the window."""
        self.partition.log_end = self.log_end if new else self.partition.end
        share_partition.acquire(self.windows, 0, member, most, batch_size, now)
        ranges = self.windows.ranges[: self.windows.rules[0].ranges]
        return [(int(one.first), int(one.last), int(one["count"])) for one in ranges]

    def can_acknowledge(self, member, first, last):
        return share_partition.can_acknowledge(self.windows, 0, member, first, last)

    def acknowledge(self, member, first, last, kind, now=0):
        assert self.can_acknowledge(member, first, last)
        share_partition.acknowledge(self.windows, 0, first, last, kind, now)

    def expire(self, first, last, due):
        share_partition.expire(self.windows, 0, first, last, due)

    def release(self, member):
        share_partition.release(self.windows, 0, member)

    def states(self):
        slots = self.windows.slots[: self.end]
        return [(int(one.state), int(one["count"])) for one in slots]
