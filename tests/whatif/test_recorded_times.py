"""Quantiles of recorded service times, of any number of deliveries in any number of tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from subreplay.engine.local.engine import LocalEngine
from subreplay.rows.model.tables import DELIVERIES
from subreplay.whatif.recorded_service_times import (
    COUNTED,
    RANKED,
    TIMES,
    SelectRanks,
    interpolate_quantiles,
    list_ranks,
    measure_service_times,
)


def deliveries(us: np.ndarray) -> pa.Table:
    n, begin = len(us), 1_000_000
    given = {
        "received_at": pa.array(np.full(n, begin), pa.int64()).cast(pa.timestamp("us", "UTC")),
        "acked_at": pa.array(begin + us, pa.int64()).cast(pa.timestamp("us", "UTC")),
    }
    columns = [given[f.name] if f.name in given else pa.nulls(n, f.type) for f in DELIVERIES]
    return pa.table(columns, names=DELIVERIES.names)


@pytest.mark.parametrize("count", [1, 2, 7, 1_000])
def test_quantiles_are_exact_and_interpolated(count: int) -> None:
    us = np.random.default_rng(count).integers(0, 5_000, count)
    unknown = np.array([-5, -1])  # acknowledged before it was received
    with LocalEngine(cores=2) as engine:
        parts = [deliveries(part) for part in (us[: count // 3], us[count // 3 :], unknown)]
        found = [
            engine.create_dataset(part).split(measure_service_times, {"times": TIMES, "counted": COUNTED})
            for part in parts
        ]
        assert sum(sum(part["counted"].to_table()["count"].to_pylist()) for part in found) == count
        times = engine.sort([part["times"] for part in found], TIMES)
        ranked = times.map(SelectRanks(list_ranks(count)), RANKED).to_table()
    at = dict(zip(ranked["rank"].to_pylist(), ranked["us"].to_pylist(), strict=True))
    expected = np.quantile(us, np.arange(101) / 100)
    assert interpolate_quantiles(count, at) == pytest.approx(expected.tolist())
