"""Decode the records of ``__consumer_offsets`` one by one: the type of each record, its table and its columns.

Source: the JSON message specifications of Kafka's group coordinator (``OffsetCommitKey/Value``, ``GroupMetadataKey/
Value``, ``ConsumerGroup*Key/Value``, ``ShareGroup*Key/Value``) and of its consumer protocol
(``ConsumerProtocolSubscription/Assignment``). The version of a key is the type of the record. A record without a value
is a tombstone: it removes what its key names. Every table also has the position of the record in the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_group import streams_records
from subreplay.adapters.kafka_group.protocol_bytes import ByteReader, MalformedBytes
from subreplay.rows.model.contracts import ENTRY, FIRST_TIME, HAPPENED, LAST_TIME, PARTITION
from subreplay.rows.model.tables import TIME

Row = dict[str, Any]

TOPIC_PARTITIONS: Final = pa.list_(pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())]))
ID_PARTITIONS: Final = pa.list_(pa.struct([pa.field("topic_id", pa.string()), pa.field("partition", pa.int32())]))
TOPIC_ID_PARTITIONS: Final = pa.list_(
    pa.struct([pa.field("topic_id", pa.string()), pa.field("topic", pa.string()), pa.field("partition", pa.int32())])
)
MEMBERS: Final = pa.list_(
    pa.struct(
        [
            pa.field("member_id", pa.string()),
            pa.field("instance_id", pa.string()),  # group.instance.id of a static member
            pa.field("client_id", pa.string()),
            pa.field("client_host", pa.string()),
            pa.field("rebalance_timeout_ms", pa.int32()),
            pa.field("session_timeout_ms", pa.int32()),
            # of protocol type "consumer" only; other types have their own format
            pa.field("topics", pa.list_(pa.string())),  # subscribed
            pa.field("owned", TOPIC_PARTITIONS),  # claimed in its join (cooperative assignors)
            pa.field("owned_generation", pa.int32()),  # null: it claims no generation
            pa.field("rack", pa.string()),
            pa.field("user_data", pa.binary()),  # from its assignor
            pa.field("assignment", TOPIC_PARTITIONS),
        ]
    )
)
TOPICS: Final = pa.list_(
    pa.struct([pa.field("topic_id", pa.string()), pa.field("topic", pa.string()), pa.field("partitions", pa.int32())])
)
_POSITION: Final = [
    pa.field("record_partition", pa.int32(), nullable=False),
    pa.field("record_offset", pa.int64(), nullable=False),
    pa.field("record_time", TIME, nullable=False),
    pa.field("tombstone", pa.bool_(), nullable=False),
]


def _build_schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*_POSITION, pa.field("group", pa.string(), nullable=False), *[pa.field(*f) for f in fields]])


RECORD_TABLES: Final = {
    "offset_commits": _build_schema(
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),  # the next offset to read
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("committed_at", TIME),
        ("expires_at", TIME),
        ("topic_id", pa.string()),  # from 4.1 on
    ),
    "classic_groups": _build_schema(
        ("protocol_type", pa.string()),
        ("generation", pa.int32()),
        ("protocol", pa.string()),  # the assignor
        ("leader", pa.string()),
        ("state_since", TIME),
        ("members", MEMBERS),
    ),
    "group_epochs": _build_schema(("epoch", pa.int32())),
    "topic_metadata": _build_schema(("topics", TOPICS)),
    "members": _build_schema(
        ("member_id", pa.string()),
        ("instance_id", pa.string()),
        ("rack", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("topics", pa.list_(pa.string())),
        ("regex", pa.string()),
        ("rebalance_timeout_ms", pa.int32()),
        ("session_timeout_ms", pa.int32()),  # of a member that uses the classic protocol
        ("server_assignor", pa.string()),
    ),
    "target_epochs": _build_schema(
        ("epoch", pa.int32()),
        ("computed_at", TIME),  # from 4.3 on; null for the target of an empty group
    ),
    "targets": _build_schema(("member_id", pa.string()), ("assignment", ID_PARTITIONS)),
    "current_assignments": _build_schema(
        ("member_id", pa.string()),
        ("epoch", pa.int32()),  # -2: a static member that left and may return
        ("previous_epoch", pa.int32()),
        ("state", pa.string()),
        ("assigned", ID_PARTITIONS),
        ("revoking", ID_PARTITIONS),
    ),
    "regexes": _build_schema(("regex", pa.string()), ("topics", pa.list_(pa.string()))),
    "share_members": _build_schema(
        ("member_id", pa.string()),
        ("rack", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("topics", pa.list_(pa.string())),
    ),
    "share_epochs": _build_schema(("epoch", pa.int32()), ("metadata_hash", pa.int64())),
    "share_target_epochs": _build_schema(
        ("epoch", pa.int32()),
        ("computed_at", TIME),  # null for the target of an empty group
    ),
    "share_targets": _build_schema(("member_id", pa.string()), ("assignment", ID_PARTITIONS)),
    "share_assignments": _build_schema(
        ("member_id", pa.string()),
        ("epoch", pa.int32()),
        ("previous_epoch", pa.int32()),
        ("state", pa.string()),
        ("assigned", ID_PARTITIONS),
    ),
    "share_partitions": _build_schema(
        ("initializing", TOPIC_ID_PARTITIONS),
        ("initialized", TOPIC_ID_PARTITIONS),  # only these are assigned
        ("deleting", pa.list_(pa.struct([pa.field("topic_id", pa.string()), pa.field("topic", pa.string())]))),
    ),
    **{name: _build_schema(*fields) for name, fields in streams_records.STREAMS_TABLES.items()},
}
"""The decoded tables by name, with one row per record."""

_STATES: Final = {0: "stable", 1: "unrevoked partitions", 2: "unreleased partitions", 127: "unknown"}
_VERSION_REMEDY = "decode the other records, and use a newer subreplay for this version"


def decode_record(key: bytes, value: bytes | None) -> tuple[str, Row]:
    """Decode a record into its table and its row, without its position. Raises ``MalformedBytes``."""
    try:
        reader = ByteReader(key)
        kind = reader.read_int16()
        if kind not in _RECORD_TYPES:
            raise MalformedBytes(
                f"key version {kind} must be one of a group record: 0 to 8, 10 to 17 or 19 to 23", _VERSION_REMEDY
            )
        record = _RECORD_TYPES[kind]
        row: Row = {name: reader.read_string() for name in record.key}
        if not all(row.values()):
            raise MalformedBytes("a name must not be empty", "remove the records of this group, which cannot be named")
        if record.has_partition:
            row["partition"] = _read_partition(reader)
        reader.check_end()
    except MalformedBytes as malformed:
        malformed.column = "key"
        raise
    if value is not None:
        reader = ByteReader(value)
        version = reader.read_int16()
        if not 0 <= version <= record.latest:
            raise MalformedBytes(
                f"value version {version} of {record.table} must be from 0 to {record.latest}", _VERSION_REMEDY
            )
        reader.flexible = version >= record.flexible
        row |= record.read(reader, version) | record.tagged(reader.read_tags())
        reader.check_end()
    return record.table, row


def _read_commit(reader: ByteReader, version: int) -> Row:
    row: Row = {"offset": _check_range(0, reader.read_int64(), ENTRY.most + 1, "a committed offset")}
    if version >= 3:
        row["leader_epoch"] = _replace_negative(reader.read_int32())
    row["metadata"] = reader.read_string()
    row["committed_at"] = _convert_time(reader.read_int64())
    if version == 1:
        expires = reader.read_int64()
        row["expires_at"] = None if expires < 0 else _convert_time(expires)
    return row


def _read_commit_topic(tags: Mapping[int, bytes]) -> Row:
    """Decode the tagged field ``topicId`` of a commit."""
    return {"topic_id": ByteReader(tags[0]).read_uuid() if 0 in tags else None}


def _read_classic_group(reader: ByteReader, version: int) -> Row:
    kind = reader.read_string()
    row: Row = {"protocol_type": kind, "generation": reader.read_int32(), "protocol": reader.read_nullable_string()}
    row["leader"] = reader.read_nullable_string()
    if version >= 2:
        since = reader.read_int64()
        row["state_since"] = None if since < 0 else _convert_time(since)
    row["members"] = reader.read_array(lambda: _read_classic_member(reader, version, kind))
    return row


def _read_classic_member(reader: ByteReader, version: int, kind: str) -> Row:
    row: Row = {"member_id": reader.read_string()}
    if version >= 3:
        row["instance_id"] = reader.read_nullable_string()
    row |= {"client_id": reader.read_string(), "client_host": reader.read_string()}
    if version >= 1:
        row["rebalance_timeout_ms"] = reader.read_int32()
    row["session_timeout_ms"] = reader.read_int32()
    subscription, assignment = reader.read_byte_string(), reader.read_byte_string()
    reader.read_tags()
    if kind == "consumer":
        row |= decode_subscription(subscription) | {"assignment": decode_assignment(assignment)}
    return row


def decode_subscription(data: bytes) -> Row:
    """Decode the subscription of a member of a classic group (``ConsumerProtocolSubscription``).

    A later version than 3 is read as version 3, as every consumer does, and the rest is ignored.
    """
    reader = ByteReader(data)
    version = _read_protocol_version(reader)
    row: Row = {"topics": reader.read_array(reader.read_string), "user_data": reader.read_nullable_byte_string()}
    if version >= 1:
        row["owned"] = _read_topic_partitions(reader)
    if version >= 2:
        row["owned_generation"] = _replace_negative(reader.read_int32())
    if version >= 3:
        row["rack"] = reader.read_nullable_string()
    if version <= 3:
        reader.check_end()
    return row


def decode_assignment(data: bytes) -> list[Row]:
    """Decode the assignment of a member of a classic group (``ConsumerProtocolAssignment``); no bytes mean none yet."""
    if not data:
        return []
    reader = ByteReader(data)
    version = _read_protocol_version(reader)
    partitions = _read_topic_partitions(reader)
    reader.read_nullable_byte_string()
    if version <= 3:
        reader.check_end()
    return partitions


def _read_protocol_version(reader: ByteReader) -> int:
    version = reader.read_int16()
    if version < 0:
        raise MalformedBytes(f"the version of a subscription or assignment must be 0 or later, not {version}")
    return version


def _read_topic_partitions(reader: ByteReader) -> list[Row]:
    topics = reader.read_array(lambda: (reader.read_string(), reader.read_array(lambda: _read_partition(reader))))
    return [{"topic": topic, "partition": number} for topic, numbers in topics for number in numbers]


def _read_epoch(reader: ByteReader, version: int) -> Row:
    return {"epoch": reader.read_int32()}


def _read_topic_metadata(reader: ByteReader, version: int) -> Row:
    return {"topics": reader.read_array(lambda: _read_topic(reader))}


def _read_topic(reader: ByteReader) -> Row:
    row = {"topic_id": reader.read_uuid(), "topic": reader.read_string(), "partitions": reader.read_int32()}
    reader.read_array(
        lambda: (reader.read_int32(), reader.read_array(reader.read_string), reader.read_tags())
    )  # racks of each partition
    reader.read_tags()
    return row


def _read_member(reader: ByteReader, version: int) -> Row:
    row: Row = {"instance_id": reader.read_nullable_string(), "rack": reader.read_nullable_string()}
    row |= {
        "client_id": reader.read_string(),
        "client_host": reader.read_string(),
        "topics": reader.read_array(reader.read_string),
    }
    row |= {"regex": reader.read_nullable_string() or None, "rebalance_timeout_ms": reader.read_int32()}
    row["server_assignor"] = reader.read_nullable_string()
    return row


def _read_classic_metadata(tags: Mapping[int, bytes]) -> Row:
    """Decode the tagged field ``ClassicMemberMetadata`` of a member, which begins with 0 where it is null."""
    reader = ByteReader(tags.get(0, bytes(1)))
    return {"session_timeout_ms": reader.read_int32() if reader.read_varint() else None}


def _read_target_time(tags: Mapping[int, bytes]) -> Row:
    """Decode the tagged field ``AssignmentTimestamp`` of a target's epoch."""
    return {"computed_at": _convert_time(ByteReader(tags[0]).read_int64()) if 0 in tags else None}


def _read_target(reader: ByteReader, version: int) -> Row:
    return {"assignment": _read_id_partitions(reader)}


def _read_current_assignment(reader: ByteReader, version: int) -> Row:
    row: Row = {"epoch": reader.read_int32(), "previous_epoch": reader.read_int32()}
    state = reader.read_int8()
    if state not in _STATES:
        raise MalformedBytes(
            f"a member's state must be one of {', '.join(map(str, _STATES))}, not {state}", _VERSION_REMEDY
        )
    return row | {
        "state": _STATES[state],
        "assigned": _read_id_partitions(reader),
        "revoking": _read_id_partitions(reader),
    }


def _read_id_partitions(reader: ByteReader) -> list[Row]:
    topics = reader.read_array(
        lambda: (reader.read_uuid(), reader.read_array(lambda: _read_partition(reader)), reader.read_tags())
    )
    return [{"topic_id": topic, "partition": number} for topic, numbers, _ in topics for number in numbers]


def _read_share_member(reader: ByteReader, version: int) -> Row:
    row: Row = {"rack": reader.read_nullable_string(), "client_id": reader.read_string()}
    return row | {"client_host": reader.read_string(), "topics": reader.read_array(reader.read_string)}


def _read_share_epoch(reader: ByteReader, version: int) -> Row:
    return {"epoch": reader.read_int32(), "metadata_hash": reader.read_int64()}


def _read_share_assignment(reader: ByteReader, version: int) -> Row:
    row: Row = {"epoch": reader.read_int32(), "previous_epoch": reader.read_int32()}
    state = reader.read_int8()
    return row | {"state": _STATES.get(state, "unknown"), "assigned": _read_id_partitions(reader)}


def _read_share_partitions(reader: ByteReader, version: int) -> Row:
    row: Row = {name: _read_named_partitions(reader) for name in ("initializing", "initialized")}
    deleting = reader.read_array(lambda: (reader.read_uuid(), reader.read_string(), reader.read_tags()))
    return row | {"deleting": [{"topic_id": topic_id, "topic": topic} for topic_id, topic, _ in deleting]}


def _read_named_partitions(reader: ByteReader) -> list[Row]:
    topics = reader.read_array(
        lambda: (
            reader.read_uuid(),
            reader.read_string(),
            reader.read_array(lambda: _read_partition(reader)),
            reader.read_tags(),
        )
    )
    return [
        {"topic_id": topic_id, "topic": topic, "partition": number}
        for topic_id, topic, numbers, _ in topics
        for number in numbers
    ]


def _read_regex(reader: ByteReader, version: int) -> Row:
    row = {"topics": reader.read_array(reader.read_string)}
    reader.read_int64(), reader.read_int64()  # the version of the metadata, and the time of the refresh
    return row


def _read_partition(reader: ByteReader) -> int:
    return _check_range(0, reader.read_int32(), PARTITION.most, "a partition")


def _replace_negative(number: int) -> int | None:
    return None if number < 0 else number


def _check_range(least: int, number: int, most: int, what: str) -> int:
    if not least <= number <= most:
        raise MalformedBytes(f"{what} must be from {least:,} to {most:,}, not {number}")
    return number


def _convert_time(millis: int) -> int:
    """Convert milliseconds to the microseconds of a table."""
    if not FIRST_TIME <= millis * 1_000 <= LAST_TIME:
        raise MalformedBytes(f"{HAPPENED.rule}, not {millis} ms since 1970")
    return millis * 1_000


class _RecordType(NamedTuple):
    table: str
    key: tuple[str, ...]  # the names of the strings in its key
    latest: int  # the latest version of its value
    flexible: int  # the first flexible version
    read: Callable[[ByteReader, int], Row]
    has_partition: bool = False
    tagged: Callable[[Mapping[int, bytes]], Row] = lambda tags: {}


_COMMIT: Final = _RecordType("offset_commits", ("group", "topic"), 4, 4, _read_commit, True, _read_commit_topic)
_RECORD_TYPES: Final = {
    0: _COMMIT,
    1: _COMMIT,
    2: _RecordType("classic_groups", ("group",), 4, 4, _read_classic_group),
    3: _RecordType("group_epochs", ("group",), 0, 0, _read_epoch),
    4: _RecordType("topic_metadata", ("group",), 0, 0, _read_topic_metadata),
    5: _RecordType("members", ("group", "member_id"), 0, 0, _read_member, tagged=_read_classic_metadata),
    6: _RecordType("target_epochs", ("group",), 0, 0, _read_epoch, tagged=_read_target_time),
    7: _RecordType("targets", ("group", "member_id"), 0, 0, _read_target),
    8: _RecordType("current_assignments", ("group", "member_id"), 0, 0, _read_current_assignment),
    10: _RecordType("share_members", ("group", "member_id"), 0, 0, _read_share_member),
    11: _RecordType("share_epochs", ("group",), 0, 0, _read_share_epoch),
    12: _RecordType("share_target_epochs", ("group",), 0, 0, _read_epoch, tagged=_read_target_time),
    13: _RecordType("share_targets", ("group", "member_id"), 0, 0, _read_target),
    14: _RecordType("share_assignments", ("group", "member_id"), 0, 0, _read_share_assignment),
    15: _RecordType("share_partitions", ("group",), 0, 0, _read_share_partitions),
    16: _RecordType("regexes", ("group", "regex"), 0, 0, _read_regex),
    17: _RecordType("streams_epochs", ("group",), 0, 0, streams_records.read_epoch),
    19: _RecordType("streams_members", ("group", "member_id"), 0, 0, streams_records.read_member),
    20: _RecordType("streams_target_epochs", ("group",), 0, 0, streams_records.read_target_epoch),
    21: _RecordType("streams_targets", ("group", "member_id"), 0, 0, streams_records.read_target),
    22: _RecordType("streams_assignments", ("group", "member_id"), 0, 0, streams_records.read_assignment),
    23: _RecordType("streams_topologies", ("group",), 0, 0, streams_records.read_topology),
}
