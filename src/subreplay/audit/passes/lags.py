"""Count the lags of consumers (``audit.clocks``) by size while their deliveries are judged."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.audit.clocks import LAGS, compute_size_bounds
from subreplay.rows.model.columns import UNKNOWN, Ints, flags, ints

_FIRST: Final = 16  # consumers that fit at first


class LagCounts:
    """Counts of the lags of consumers, by consumer number; ``least`` as for ``compute_size_bounds``."""

    def __init__(self, least: int) -> None:
        self._sizes = compute_size_bounds(least)
        self._counts = np.zeros((_FIRST, len(LAGS), len(self._sizes) + 1), np.int64)

    def add(self, facts: pa.Table, consumer: Ints) -> None:
        """Add ``FACTS`` of deliveries, each with the number of its consumer."""
        at, published, received = ints(facts, "at"), ints(facts, "published"), ints(facts, "received")
        acked = ints(facts, "acked")
        lag_times = {
            "dispatch": ((ints(facts, "nth") == 0) & (published > 0), ints(facts, "due"), at),
            "receipt": ((received != UNKNOWN) & ~flags(facts, "by_receipt"), at, received),
            "end": (acked != UNKNOWN, at, acked),
        }
        while consumer.max() >= len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        for number, name in enumerate(LAGS):
            known, begin, end = lag_times[name]
            size = np.searchsorted(self._sizes, end[known] - begin[known], "right")
            np.add.at(self._counts[:, number], (consumer[known], size), 1)

    def rows(self, consumers: list[str]) -> pa.Table:
        """Return columns ``consumer``, ``lag``, ``size`` and ``messages``. ``consumers`` are the names by number."""
        who, lag, size = np.nonzero(self._counts)
        return pa.table(
            {
                "consumer": pa.array(consumers).take(pa.array(who)) if len(who) else pa.array([], pa.string()),
                "lag": pa.array([*LAGS]).take(pa.array(lag)),
                "size": size,
                "messages": self._counts[who, lag, size],
            }
        )
