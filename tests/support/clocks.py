"""Tables in which one consumer's clock is off, and the lags that tables show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.clocks import LAGS, QUANTILES
from tests.support.history import History
from tests.support.pure import POSITION

OWN_LOG = ("delivered_at", "received_at", "acked_at", "nacked_at")


def off(tables: History, consumer: str, micros: int, columns: Iterable[str]) -> History:
    """The tables where that consumer wrote these columns of its deliveries by a clock that is so far ahead."""
    rows = tables["deliveries"]
    mine = pc.equal(rows["consumer"], consumer)
    for name in columns:
        index = rows.schema.get_field_index(name)
        moved = pc.add(rows[name], pa.scalar(micros, pa.duration("us")))
        rows = rows.set_column(index, rows.schema.field(index), pc.if_else(mine, moved, rows[name]))
    return tables | {"deliveries": rows}


def lags(tables: History) -> list[dict[str, Any]]:
    """What ``engine.spark.read.clocks.lags`` finds in tables."""
    of_message = [tables["messages"][name].to_pylist() for name in POSITION]
    times = pc.coalesce(tables["messages"]["deliver_at"], tables["messages"]["publish_time"])
    due = dict(zip(zip(*of_message, strict=True), _micros(times), strict=True))
    rows = tables["deliveries"].filter(tables["deliveries"]["delivered_at"].is_valid()).sort_by("delivered_at")
    names = ("delivered_at", "received_at", "acked_at")
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: {name: [] for name in LAGS})
    positions = zip(*(rows[name].to_pylist() for name in POSITION), strict=True)
    for position, who, at, received, acked in zip(
        positions, rows["consumer"].to_pylist(), *(_micros(rows[name]) for name in names), strict=True
    ):
        since = due.pop(position, None)  # first deliveries only
        for name, begin, end in (("dispatch", since, at), ("receipt", at, received), ("end", at, acked)):
            if begin is not None and end is not None:
                found[who][name].append((end - begin) * 1_000)
    return [{"consumer": who} | {n: lag(values) for n, values in of.items()} for who, of in sorted(found.items())]


def lag(values: list[int]) -> dict[str, Any]:
    """The count and the quantiles of some lags in ns."""
    quantiles = [int(q) for q in np.quantile(values, QUANTILES, method="lower")] if values else None
    return {"count": len(values), "lags": quantiles}


def _micros(times: Any) -> list[int | None]:
    return times.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
