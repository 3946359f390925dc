"""The number of messages of each slot just before every join and leave, for load-aware policies.

The time axis is cut wherever a window begins or ends, so a window is a run of whole buckets with an exact count. Counts
of many workers are summed by bucket and slot. Messages outside the windows are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

COUNTS: Final = pa.schema(
    [
        pa.field("bucket", pa.int64(), nullable=False),
        pa.field("slot", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
    ]
)

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class RecentWindows:
    """The intervals ``[end - width, end)`` in ns, one for each of the sorted, distinct ``ends``.

    Bucket i is ``[cuts[i], cuts[i + 1])``.
    """

    ends: NDArray[np.int64]
    width: int

    @classmethod
    def from_ends(cls, times: Iterable[int], width: int) -> RecentWindows:
        """Build the windows of ``width`` ns that end at ``times`` (ns, in any order)."""
        return cls(np.unique(np.array([*times], np.int64)), width)

    @cached_property
    def cuts(self) -> NDArray[np.int64]:
        return np.unique(np.concatenate([self.ends - self.width, self.ends]))

    @cached_property
    def _is_counted(self) -> NDArray[np.bool_]:
        """Whether each bucket is in a window; the last entry is for all times before or after them."""
        next_end = np.append(self.ends, _LATEST)[np.searchsorted(self.ends, self.cuts, "right")]
        return np.append(next_end - self.width <= self.cuts, False)

    def count_messages(self, times: NDArray[np.int64], slots: NDArray[np.int64]) -> pa.Table:
        """Count the messages dispatched at ``times`` (ns) in ``slots`` as summed ``COUNTS`` rows, in no order.

        >>> windows = RecentWindows.from_ends([100, 130], width=50)  # [50, 100) and [80, 130)
        >>> counts = windows.count_messages(np.array([49, 60, 90, 95, 130]), np.array([7, 7, 7, 7, 7]))
        >>> counts.sort_by("bucket").to_pydict()
        {'bucket': [0, 1], 'slot': [7, 7], 'messages': [1, 2]}
        """
        buckets = np.searchsorted(self.cuts, times, "right") - 1
        inside = self._is_counted[buckets]
        each = pa.table([buckets[inside], slots[inside], np.ones(inside.sum(), np.int64)], schema=COUNTS)
        return _sum_counts(each)


@dataclass(frozen=True, eq=False)
class SlotTraffic:
    """The messages of one dispatcher in ``windows``, sorted by bucket, then by slot."""

    windows: RecentWindows
    buckets: NDArray[np.int64]
    slots: NDArray[np.int64]
    messages: NDArray[np.int64]

    @classmethod
    def from_counts(cls, windows: RecentWindows, counts: pa.Table) -> SlotTraffic:
        """Build the traffic from ``COUNTS`` rows in any order, summed or not."""
        rows = _sum_counts(counts).sort_by([("bucket", "ascending"), ("slot", "ascending")])
        return cls(windows, *(rows.column(name).to_numpy() for name in COUNTS.names))

    def compute_loads(self, end: int, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the messages in the window that ends at ``end`` (ns), for each range from ``starts[i]`` up to the next
        start.

        Raises ValueError if no window ends there.
        """
        if end not in self.windows.ends:
            raise ValueError(f"no traffic was counted for an event at {end}")
        first_and_last = np.searchsorted(self.windows.cuts, [end - self.windows.width, end])
        rows = slice(*np.searchsorted(self.buckets, first_and_last))
        ranges = np.searchsorted(starts, self.slots[rows], "right") - 1
        return np.bincount(ranges, self.messages[rows], len(starts)).astype(np.int64)


def _sum_counts(counts: pa.Table) -> pa.Table:
    by_slot = counts.group_by(["bucket", "slot"]).aggregate([("messages", "sum")])
    return by_slot.select(["bucket", "slot", "messages_sum"]).rename_columns(COUNTS.names).cast(COUNTS)
