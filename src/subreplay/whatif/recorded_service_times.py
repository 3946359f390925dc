"""Measure recorded service times and their exact quantiles: from receipt, or else delivery, to acknowledgement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import gather_batches, ints
from subreplay.rows.scan.table_columns import Columns
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.grouped_sums import GroupedSum, name_batches

SHARES: Final = tuple(i / 100 for i in range(101))
"""The shares for which quantiles are computed."""
MOST_TIMES: Final = 1 << 18
"""The largest number of distinct times that a task keeps."""
_TIMES: Final = pa.schema(
    [
        pa.field("of", pa.string(), nullable=False),  # always empty: one scope for all rows
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("us", pa.int64()),
        pa.field("count", pa.int64()),
    ]
)
TIMES: Final = Order(_TIMES, ("us",), scope=("of", "bucket"))
"""Service times, and the number of deliveries that took each."""
COUNTED: Final = pa.schema([("count", pa.int64())])
RANKED: Final = pa.schema([("rank", pa.int64()), ("us", pa.int64())])
"""The service time at each rank. Ranks begin at 0."""
_BY_TIME: Final = GroupedSum(_TIMES, ("of", "bucket", "us"))


def measure_service_times(deliveries: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows of table ``deliveries`` into ``times`` (``TIMES``) and their number (``counted``)."""
    adding, count = _BY_TIME.start_adding(), 0
    for batch in deliveries:
        columns = Columns("deliveries", batch)
        received = pc.coalesce(columns["received_at"], columns["delivered_at"]).cast(pa.int64())
        us = pc.subtract(columns["acked_at"].cast(pa.int64()), received)
        us = us.filter(pc.fill_null(pc.greater_equal(us, 0), False))
        n, count = len(us), count + len(us)
        scope = [pa.repeat("", n), pa.array(np.zeros(n, np.int32))]
        adding.add(pa.table([*scope, us, pa.repeat(1, n)], schema=_TIMES))
        for batch_of_sums in adding.take_sums(MOST_TIMES):
            yield from name_batches("times", batch_of_sums)
    yield from name_batches("times", adding.compute_sum())
    yield "counted", pa.RecordBatch.from_pydict({"count": [count]}, COUNTED)


@dataclass(frozen=True)
class SelectRanks:
    """Turns ordered ``TIMES`` rows into ``RANKED`` rows for ``ranks`` in ascending order."""

    ranks: tuple[int, ...]

    def __call__(self, times: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before, ranks = 0, np.array(self.ranks, np.int64)
        for rows in gather_batches(times):
            ends = before + np.cumsum(ints(rows, "count"))
            ranks_here = ranks[(ranks >= before) & (ranks < ends[-1])]
            us = ints(rows, "us")[np.searchsorted(ends, ranks_here, "right")]
            before = int(ends[-1])
            yield pa.RecordBatch.from_arrays([pa.array(ranks_here), pa.array(us)], schema=RANKED)


def list_ranks(count: int) -> tuple[int, ...]:
    """Return the ranks whose times ``interpolate_quantiles`` needs, for this number of times."""
    positions = [(count - 1) * share for share in SHARES]
    return tuple(sorted({round_to(position) for position in positions for round_to in (math.floor, math.ceil)}))


def interpolate_quantiles(count: int, at: Mapping[int, int]) -> tuple[float, ...]:
    """Return the quantiles of ``SHARES`` (us), interpolated between the times ``at`` their ranks."""
    interpolated = []
    for position in ((count - 1) * share for share in SHARES):
        lower, higher = math.floor(position), math.ceil(position)
        low, high = float(at[lower]), float(at[higher])
        interpolated.append(low if low == high else (higher - position) * low + (position - lower) * high)
    return tuple(interpolated)
