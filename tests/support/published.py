"""Random traffic: batches, ordering keys, messages without a key, on some partitions; and members to give it to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.rows.model.tables import LOG
from subreplay.whatif.traffic.profile_builder import COLUMNS
from tests.support import joins
from tests.support.every_policy import histories

SCOPES = tuple(Scope("persistent://public/default/t", partition) for partition in range(2))
MESSAGES = pa.schema([LOG.field(name) for name in COLUMNS])

keys = st.sampled_from([None, b"", b"a", b"b", b"c", "κ".encode(), b"\xff\x00"])
message = st.fixed_dictionaries(
    {
        "topic": st.just(SCOPES[0].topic),
        "partition": st.integers(0, 1),
        "entry": st.integers(0, 6),
        "batch_index": st.sampled_from([-1, -1, 0, 1]),
        "at": st.integers(0, 130),
        "key": keys,
        "ordering_key": st.none() | keys,
        "batch_key": keys,
        "batch_ordering_key": st.none() | keys,
        "producer": st.sampled_from([None, "p", "q"]),
        "sequence_id": st.none() | st.integers(0, 9),
        "size": st.none() | st.integers(0, 9),
    }
)
logs = st.lists(message, min_size=1, max_size=40).map(lambda rows: pa.Table.from_pylist(rows, MESSAGES))
reported = st.lists(histories, min_size=2, max_size=2)
together = st.sampled_from([1, 20, 40])
"""Events whose instants have the same multiple of it happen at once."""


def members(reported: list[str], together: int) -> dict[Scope, tuple[MembershipEvent, ...]]:
    """The events of each dispatcher."""
    return {
        scope: tuple(_at_once(joins.events(story, scope), together))
        for scope, story in zip(SCOPES, reported, strict=True)
    }


def _at_once(story: list[MembershipEvent], together: int) -> Any:
    for number, event in enumerate(story):
        at = Instant(event.at.at - event.at.at % together, number)
        yield replace(event, at=at, since=at)
