"""Small traffic for plans."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.whatif.traffic.profile_builder import ProfileBuilder
from subreplay.whatif.traffic.traffic_profile import TrafficProfile

TOPIC = "persistent://t/ns/orders"


def build_traffic(keys: ArrayLike, partitions: int = 1, every: int = 1, sizes: ArrayLike = 1) -> TrafficProfile:
    """A message every so many ns, of keys ``k0``, ``k1`` …; a key below 0 is none. Keys lie in partitions by number."""
    number = np.asarray(keys, np.int64)
    rows = len(number)
    columns = {
        "topic": pa.array([TOPIC] * rows),
        "partition": pa.array(np.maximum(number, 0) % partitions if partitions > 1 else [-1] * rows, pa.int32()),
        "entry": pa.array(np.arange(rows)),
        "batch_index": pa.array([-1] * rows, pa.int32()),
        "at": pa.array(np.arange(rows) * every),
        "key": pa.array([None if one < 0 else f"k{one}".encode() for one in number.tolist()], pa.binary()),
        **{name: pa.nulls(rows, pa.binary()) for name in ("ordering_key", "batch_key", "batch_ordering_key")},
        "producer": pa.array(["p"] * rows),
        "sequence_id": pa.array(np.arange(rows)),
        "size": pa.array(np.broadcast_to(np.asarray(sizes, np.int64), rows)),
    }
    return ProfileBuilder(KeyMasking.from_secret(False, "subreplay")).build_profile(pa.table(columns))


def build_group_events(scope: Scope, second: int = 10**9) -> tuple[MembershipEvent, ...]:
    """Two members, of whom one goes and comes back after 20 s."""
    reported = ((0, "join", "a"), (10, "join", "b"), (60, "leave", "b"), (80, "join", "b"))
    return tuple(
        MembershipEvent(scope, event, name, Instant(at * second, n), Instant(at * second, n))  # type: ignore[arg-type]
        for n, (at, event, name) in enumerate(reported)
    )


def refuse_fit() -> NoReturn:
    """Where nothing asks for a fit."""
    raise AssertionError("nothing asks for a fit")
