"""What plans need of a run's tables: its traffic as a profile, and the times of its recorded deliveries."""

from __future__ import annotations

from typing import Final

import pyspark.sql.functions as F

from subreplay.engine.spark.profiled import IN_PROCESS
from subreplay.engine.spark.read.source import Source
from subreplay.errors import InputError
from subreplay.rows.model.columns import column, ints
from subreplay.whatif.planning.capacity import Fit, fit
from subreplay.whatif.traffic.profile import TrafficProfile

MOST_TIMES: Final = 200_000
"""Of more deliveries so many, about, are enough to fit a model."""
_POSITION: Final = ("topic", "partition", "ledger", "entry", "batch_index")


def profile(source: Source) -> TrafficProfile:
    """The traffic of a run. Raises ``InputError`` where it is more than this process holds."""
    found = source.profiled.here
    if found is None:
        many = source.extent["messages"]
        raise InputError(f"plan: {many:,} messages are more than the {IN_PROCESS:,} it looks at at once; name a --date")
    return found


def fitted(source: Source) -> Fit:
    """A service model of the recorded deliveries, each with the size of its message."""
    every = max(1, source.extent["deliveries"] // MOST_TIMES)
    sizes = source.log.messages.select(*_POSITION, "size")
    chosen = source.log.deliveries.where(F.pmod(F.xxhash64(*_POSITION), F.lit(every)) == 0)
    rows = chosen.drop("size").join(sizes, [*_POSITION], "left").select("consumer", "received_at", "acked_at", "size")
    times = rows.orderBy("received_at", "acked_at", "consumer", "size").toArrow()
    names = column(times, "consumer").fill_null("").to_pylist() if times.num_rows else []
    return fit(ints(times, "received_at"), ints(times, "acked_at"), ints(times, "size", 0), names)
