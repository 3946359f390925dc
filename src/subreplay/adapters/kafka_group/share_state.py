"""Decode records of Kafka's internal topic ``__share_group_state``: the state of each share partition's records.

Source: the JSON message specifications ``ShareSnapshotKey/Value`` and ``ShareUpdateKey/Value`` of Kafka's share
coordinator (4.4.0). A snapshot has the whole state of a partition, an update its changes since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_group.protocol_bytes import ByteReader, MalformedBytes
from subreplay.rows.model.tables import DELIVERIES

STATE_TOPIC: Final = "__share_group_state"
RECORD_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
SHARE_STATES: Final = pa.schema(
    [
        pa.field("snapshot", pa.bool_(), nullable=False),  # else an update
        pa.field("group", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("start_offset", pa.int64()),  # null: not initialised yet, or unchanged
        pa.field("complete", pa.int32()),  # records from the start offset on that are done
        pa.field(
            "batches",
            pa.list_(
                pa.struct(
                    [
                        pa.field("first", pa.int64()),
                        pa.field("last", pa.int64()),
                        pa.field("state", pa.string()),
                        pa.field("deliveries", pa.int32()),
                    ]
                )
            ),
        ),
    ]
)
"""One row for each record; a tombstone has no batches."""

STATE_WRITER: Final = "share coordinator"
"""The consumer of a commit that is a start offset: the broker moves it, not a member."""
_COMPLETE: Final = 0  # the tag of deliveryCompleteCount


def decode_share_state(key: bytes, value: bytes | None) -> dict[str, Any]:
    """Decode a record into a row of ``SHARE_STATES``. Raises ``MalformedBytes``."""
    reader = ByteReader(key)
    kind = reader.read_int16()
    if kind not in (0, 1):
        raise MalformedBytes(f"key version {kind} must be that of a snapshot (0) or an update (1)")
    row: dict[str, Any] = {"snapshot": kind == 0, "group": reader.read_string(), "topic_id": reader.read_uuid()}
    row |= {"partition": reader.read_int32(), "start_offset": None, "complete": None, "batches": []}
    reader.check_end()
    return row if value is None else row | _decode_value(value, kind == 0)


def _decode_value(value: bytes, snapshot: bool) -> dict[str, Any]:
    reader = ByteReader(value)
    if version := reader.read_int16():
        raise MalformedBytes(f"value version {version} must be 0", "use a newer subreplay for this version")
    reader.flexible = True
    reader.read_bytes(12 if snapshot else 8)  # epochs of the snapshot, of the group (snapshots only), of the leader
    start = reader.read_int64()
    if snapshot:
        reader.read_bytes(16)  # when it was created and written
    batches = reader.read_array(lambda: _read_batch(reader))
    complete = reader.read_tags().get(_COMPLETE)
    reader.check_end()
    counted = None if complete is None else int.from_bytes(complete, "big", signed=True)
    return {"start_offset": None if start < 0 else start, "complete": counted, "batches": batches}


def _read_batch(reader: ByteReader) -> dict[str, Any]:
    row: dict[str, Any] = {"first": reader.read_int64(), "last": reader.read_int64()}
    state = reader.read_int8()
    row |= {"state": RECORD_STATES.get(state, f"state {state}"), "deliveries": reader.read_int16()}
    reader.read_tags()
    return row


class StartOffset(NamedTuple):
    """The start offset of a share partition from ``at`` (ns) on."""

    group: str
    topic: str
    partition: int
    offset: int
    at: int


class StartOffsets:
    """Follows the start offsets of share partitions in record order; ``names`` are topics by id."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names
        self.latest: dict[tuple[str, str, int], int] = {}

    def apply_state(self, state: Mapping[str, Any], at: int) -> StartOffset | None:
        """Apply the next row of ``SHARE_STATES``, written at ``at`` (ns). Return its start offset if that is another
        one than before, and the topic is known."""
        topic, start = self.names.get(state["topic_id"]), state["start_offset"]
        if topic is None or start is None:
            return None
        place = state["group"], topic, state["partition"]
        if self.latest.get(place) == start:
            return None
        self.latest[place] = start
        return StartOffset(*place, start, at)


def build_start_offsets(found: Sequence[StartOffset], first_seq: int = 0) -> pa.Table:
    """Build a row of ``DELIVERIES`` for each start offset, as the commit of an offset."""
    rows = [
        {
            "date": date(1970, 1, 1) + timedelta(microseconds=one.at // 1_000),
            "subscription": one.group,
            "topic": one.topic,
            "partition": one.partition,
            "ledger": 0,
            "entry": one.offset,
            "batch_index": -1,
            "consumer": STATE_WRITER,
            "seq": first_seq + number,
            "redelivery_count": 0,
            "acked_at": one.at // 1_000,
            "acked_nanos": one.at % 1_000,
            "ack_type": "Commit",
            "outcome": "acked",
            "source": "observed",
        }
        for number, one in enumerate(found)
    ]
    return pa.Table.from_pylist(rows, DELIVERIES)
