"""Service times as recorded, exact quantiles of them: from receipt, or else delivery, to acknowledgement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.model.columns import gathered, ints
from subreplay.rows.scan.rows import Columns
from subreplay.rows.sorted_blocks import Order
from subreplay.whatif.grouped_sums import Sum, named

SHARES: Final = tuple(i / 100 for i in range(101))
"""Of which quantiles are told."""
MOST_TIMES: Final = 1 << 18
"""Different times that a task holds."""
_TIMES: Final = pa.schema(
    [
        pa.field("of", pa.string(), nullable=False),  # one scope: all of them
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("us", pa.int64()),
        pa.field("count", pa.int64()),
    ]
)
TIMES: Final = Order(_TIMES, ("us",), scope=("of", "bucket"))
"""Times, and how many deliveries took each."""
COUNTED: Final = pa.schema([("count", pa.int64())])
RANKED: Final = pa.schema([("rank", pa.int64()), ("us", pa.int64())])
"""The time at a rank, from 0."""
_BY_TIME: Final = Sum(_TIMES, ("of", "bucket", "us"))


def service_times(deliveries: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows of table ``deliveries`` into ``times`` (``TIMES``), and how many there are (``counted``)."""
    adding, count = _BY_TIME.adding(), 0
    for batch in deliveries:
        columns = Columns("deliveries", batch)
        received = pc.coalesce(columns["received_at"], columns["delivered_at"]).cast(pa.int64())
        us = pc.subtract(columns["acked_at"].cast(pa.int64()), received)
        us = us.filter(pc.fill_null(pc.greater_equal(us, 0), False))
        n, count = len(us), count + len(us)
        scope = [pa.repeat("", n), pa.array(np.zeros(n, np.int32))]
        adding.add(pa.table([*scope, us, pa.repeat(1, n)], schema=_TIMES))
        for enough in adding.taken(MOST_TIMES):
            yield from named("times", enough)
    yield from named("times", adding.together())
    yield "counted", pa.RecordBatch.from_pydict({"count": [count]}, COUNTED)


@dataclass(frozen=True)
class TimesAt:
    """``TIMES`` rows in order -> ``RANKED`` rows, of some ``ranks`` in ascending order."""

    ranks: tuple[int, ...]

    def __call__(self, times: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before, ranks = 0, np.array(self.ranks, np.int64)
        for rows in gathered(times):
            ends = before + np.cumsum(ints(rows, "count"))
            mine = ranks[(ranks >= before) & (ranks < ends[-1])]
            us = ints(rows, "us")[np.searchsorted(ends, mine, "right")]
            before = int(ends[-1])
            yield pa.RecordBatch.from_arrays([pa.array(mine), pa.array(us)], schema=RANKED)


def ranks_of(count: int) -> tuple[int, ...]:
    """The ranks of which ``quantiles`` needs the times, of so many times."""
    positions = [(count - 1) * share for share in SHARES]
    return tuple(sorted({of(position) for position in positions for of in (math.floor, math.ceil)}))


def quantiles(count: int, at: Mapping[int, int]) -> tuple[float, ...]:
    """The quantiles of ``SHARES`` (us), interpolated between times ``at`` their ranks."""
    found = []
    for position in ((count - 1) * share for share in SHARES):
        lower, higher = math.floor(position), math.ceil(position)
        low, high = float(at[lower]), float(at[higher])
        found.append(low if low == high else (higher - position) * low + (position - lower) * high)
    return tuple(found)
