"""A capture that is folded as streams is what it is when all its events are at hand, however the streams are cut."""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from subreplay import capture
from subreplay.adapters.base import NO_OPTIONS
from subreplay.adapters.capture import capture_stream
from subreplay.capture.file_format import METADATA, VERSION
from subreplay.rows.groups import read_whole_groups
from tests.adapters.test_capture import TOPIC, about, event, of_kafka, received
from tests.support import source_reading
from tests.support.in_process import Cuts
from tests.support.properties import examples

MARKED = capture.EVENTS.with_metadata({METADATA: json.dumps({"version": VERSION}).encode()})
KEYS = {
    "messages": ("topic", "partition", "ledger", "entry", "batch_index"),
    "membership": ("instance", "seq", "topic", "partition"),
    "deliveries": ("instance", "seq"),
}

INSTANCES = st.sampled_from([("host:1:a", "c1"), ("host:2:b", "c2"), ("host:3:c", "c1")])
PULSAR_EVENTS = st.sampled_from(
    ["receive"] * 4 + ["acknowledge", "acknowledge_cumulative", "negative_acknowledge", "start", "closing", "close"]
    + ["redeliver_unacknowledged", "unsubscribe", "vanish"]
)  # fmt: skip
KAFKA_EVENTS = st.sampled_from(["receive"] * 3 + ["commit", "assign", "revoke", "lost", "close", "store_offsets"])


@st.composite
def pulsar_events(draw: st.DrawFn) -> dict[str, Any]:
    kind, number = draw(PULSAR_EVENTS), draw(st.integers(0, 30))
    part = draw(st.sampled_from(["", "-partition-1", "-partition-2"]))
    ledger = {"": 5, "-partition-1": 6, "-partition-2": 7}[part]
    if kind in ("closing", "close", "redeliver_unacknowledged", "unsubscribe", "vanish"):
        return event(kind, number)
    if kind == "start":
        return event(kind, number, topic=TOPIC + part)
    place = {"ledger": ledger, "batch_index": draw(st.integers(-1, 1)), "topic": TOPIC + part}
    if kind == "receive":
        key = draw(st.sampled_from([b"k", b"k", b"k", b"other"]))
        return received(number, draw(st.integers(0, 4)), **place, key=key, size=draw(st.sampled_from([3, 3, 3, None])))
    topic = TOPIC + part if draw(st.booleans()) else None
    failed = draw(st.sampled_from([None, None, None, "Timeout: "]))
    return about(kind, number, draw(st.integers(0, 4)), **place | {"topic": topic}, error=failed)


@st.composite
def kafka_events(draw: st.DrawFn) -> dict[str, Any]:
    kind, number = draw(KAFKA_EVENTS), draw(st.integers(0, 30))
    entry = draw(st.integers(0, 5)) if kind in ("receive", "commit", "store_offsets") else None
    return of_kafka(kind, number, entry, draw(st.sampled_from([0, 1])))


@st.composite
def files(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Events of some instances in some files: in order mostly, some numbers twice, some missing."""
    several = st.lists(st.lists(st.one_of(pulsar_events(), kafka_events()), max_size=25), min_size=1, max_size=3)
    found = []
    for rows in draw(several):
        whose = [draw(INSTANCES) for _ in rows]
        if draw(st.booleans()):
            rows = sorted(rows, key=lambda row: row["seq"])
        late = draw(st.integers(0, 5)) * 1_000
        found.append([
            row | {"instance": instance, "consumer": name, "at_ns": row["at_ns"] - (late if row["seq"] % 7 else 0)}
            for row, (instance, name) in zip(rows, whose, strict=True)
        ])  # fmt: skip
    return found


@examples(40)
@given(files(), st.integers(1, 3), st.integers(1, 9), st.integers(1, 12))
def test_streams_yield_the_same_rows_as_all_events_at_once(
    files: list[list[dict[str, Any]]], tasks: int, rows: int, at_once: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, events in enumerate(files):
            pq.write_table(pa.Table.from_pylist(events, schema=MARKED), folder / f"{number}.parquet")
        with patch.object(capture_stream, "read_whole_groups", partial(read_whole_groups, rows=at_once)):
            source_reading.assert_same_tables_or_error("capture", folder, NO_OPTIONS, Cuts(tasks, rows), KEYS)
