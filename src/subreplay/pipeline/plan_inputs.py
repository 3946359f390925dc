"""Read what plans need from a run's tables: its traffic as a profile, and the times of its recorded deliveries."""

from __future__ import annotations

from typing import Final

from subreplay.errors import InputError
from subreplay.pipeline.measurements import sample_deliveries
from subreplay.pipeline.profiled_traffic import MAX_LOCAL_MESSAGES
from subreplay.pipeline.source import Source
from subreplay.rows.model.columns import column, ints
from subreplay.whatif.planning.capacity import ServiceFit, fit_service
from subreplay.whatif.traffic.traffic_profile import TrafficProfile

MOST_TIMES: Final = 200_000
"""The approximate number of deliveries that is enough to fit a service model."""


def require_profile(source: Source) -> TrafficProfile:
    """Return the traffic of a run. Raises ``InputError`` if it is too large for this process."""
    found = source.profiled.local_profile
    if found is None:
        many = source.extent["messages"]
        raise InputError(
            f"plan: {many:,} messages are more than the maximum of {MAX_LOCAL_MESSAGES:,}. Plan with the messages of "
            "one --date."
        )
    return found


def fit_recorded_service(source: Source) -> ServiceFit:
    """Fit a service model to the recorded deliveries and the sizes of their messages."""
    times = sample_deliveries(source.engine, source.messages, source.deliveries, MOST_TIMES)
    names = column(times, "consumer").fill_null("").to_pylist() if times.num_rows else []
    return fit_service(ints(times, "received_at"), ints(times, "acked_at"), ints(times, "size", 0), names)
