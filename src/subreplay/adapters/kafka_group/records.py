"""The records of ``__consumer_offsets``, decoded one by one: what each type means, its table and its columns.

Source: the JSON message specifications of Kafka's group coordinator (``OffsetCommitKey/Value``, ``GroupMetadataKey/
Value``, ``ConsumerGroup*Key/Value``) and of its consumer protocol (``ConsumerProtocolSubscription/Assignment``). The
version of a key is the type of the record. A record without a value is a tombstone: what its key names is gone.
Every table has the position of the record in the topic beside what was decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from subreplay.adapters.kafka_group.protocol_bytes import Malformed, Reader
from subreplay.rows.model.contracts import ENTRY, FIRST_TIME, HAPPENED, LAST_TIME, PARTITION
from subreplay.rows.model.tables import TIME

Row = dict[str, Any]

TOPIC_PARTITIONS: Final = pa.list_(pa.struct([pa.field("topic", pa.string()), pa.field("partition", pa.int32())]))
ID_PARTITIONS: Final = pa.list_(pa.struct([pa.field("topic_id", pa.string()), pa.field("partition", pa.int32())]))
MEMBERS: Final = pa.list_(
    pa.struct(
        [
            pa.field("member_id", pa.string()),
            pa.field("instance_id", pa.string()),  # group.instance.id of a static member
            pa.field("client_id", pa.string()),
            pa.field("client_host", pa.string()),
            pa.field("rebalance_timeout_ms", pa.int32()),
            pa.field("session_timeout_ms", pa.int32()),
            # of protocol type "consumer" only: others have bytes of their own
            pa.field("topics", pa.list_(pa.string())),  # subscribed
            pa.field("owned", TOPIC_PARTITIONS),  # claimed in its join (cooperative assignors)
            pa.field("owned_generation", pa.int32()),  # null: it claims no generation
            pa.field("rack", pa.string()),
            pa.field("user_data", pa.binary()),  # of its assignor
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


def _table(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([*_POSITION, pa.field("group", pa.string(), nullable=False), *[pa.field(*f) for f in fields]])


TABLES: Final = {
    "offset_commits": _table(
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),  # the next one to read
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("committed_at", TIME),
        ("expires_at", TIME),
    ),
    "classic_groups": _table(
        ("protocol_type", pa.string()),
        ("generation", pa.int32()),
        ("protocol", pa.string()),  # the assignor
        ("leader", pa.string()),
        ("state_since", TIME),
        ("members", MEMBERS),
    ),
    "group_epochs": _table(("epoch", pa.int32())),
    "topic_metadata": _table(("topics", TOPICS)),
    "members": _table(
        ("member_id", pa.string()),
        ("instance_id", pa.string()),
        ("rack", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("topics", pa.list_(pa.string())),
        ("regex", pa.string()),
        ("rebalance_timeout_ms", pa.int32()),
        ("session_timeout_ms", pa.int32()),  # of a member that speaks the classic protocol
        ("server_assignor", pa.string()),
    ),
    "target_epochs": _table(("epoch", pa.int32())),
    "targets": _table(("member_id", pa.string()), ("assignment", ID_PARTITIONS)),
    "current_assignments": _table(
        ("member_id", pa.string()),
        ("epoch", pa.int32()),  # -2: a static member that will be back
        ("previous_epoch", pa.int32()),
        ("state", pa.string()),
        ("assigned", ID_PARTITIONS),
        ("revoking", ID_PARTITIONS),
    ),
    "regexes": _table(("regex", pa.string()), ("topics", pa.list_(pa.string()))),
}
"""The decoded tables by name: one row a record."""

_STATES: Final = {0: "stable", 1: "unrevoked partitions", 2: "unreleased partitions", 127: "unknown"}
_VERSION = "decode the rest; this version needs a newer subreplay"


def decode(key: bytes, value: bytes | None) -> tuple[str, Row]:
    """The table of a record and its row, without the record's position. Raises ``Malformed``."""
    try:
        reader = Reader(key)
        kind = reader.int16()
        if kind not in _TYPES:
            raise Malformed(f"no group record has key version {kind}; known are 0 to 8 and 16", _VERSION)
        record = _TYPES[kind]
        row: Row = {name: reader.string() for name in record.key}
        if not all(row.values()):
            raise Malformed("a name is not empty", "such a group cannot be told from no group: leave its records out")
        if record.has_partition:
            row["partition"] = _partition(reader)
        reader.end()
    except Malformed as malformed:
        malformed.column = "key"
        raise
    if value is not None:
        reader = Reader(value)
        version = reader.int16()
        if not 0 <= version <= record.latest:
            raise Malformed(f"{record.table} have value versions 0 to {record.latest}, not {version}", _VERSION)
        reader.flexible = version >= record.flexible
        row |= record.read(reader, version) | record.tagged(reader.tags())
        reader.end()
    return record.table, row


def _commit(reader: Reader, version: int) -> Row:
    row: Row = {"offset": _within(0, reader.int64(), ENTRY.most + 1, "a committed offset")}
    if version >= 3:
        row["leader_epoch"] = _known(reader.int32())
    row["metadata"] = reader.string()
    row["committed_at"] = _time(reader.int64())
    if version == 1:
        expires = reader.int64()
        row["expires_at"] = None if expires < 0 else _time(expires)
    return row


def _classic_group(reader: Reader, version: int) -> Row:
    kind = reader.string()
    row: Row = {"protocol_type": kind, "generation": reader.int32(), "protocol": reader.nullable_string()}
    row["leader"] = reader.nullable_string()
    if version >= 2:
        since = reader.int64()
        row["state_since"] = None if since < 0 else _time(since)
    row["members"] = reader.array(lambda: _classic_member(reader, version, kind))
    return row


def _classic_member(reader: Reader, version: int, kind: str) -> Row:
    row: Row = {"member_id": reader.string()}
    if version >= 3:
        row["instance_id"] = reader.nullable_string()
    row |= {"client_id": reader.string(), "client_host": reader.string()}
    if version >= 1:
        row["rebalance_timeout_ms"] = reader.int32()
    row["session_timeout_ms"] = reader.int32()
    subscription, assignment = reader.byte_string(), reader.byte_string()
    reader.tags()
    if kind == "consumer":
        row |= subscribed(subscription) | {"assignment": assigned(assignment)}
    return row


def subscribed(data: bytes) -> Row:
    """What a member of a classic group asks for (``ConsumerProtocolSubscription``).

    A later version than 3 is read as 3, as every consumer does, and what follows is left alone.
    """
    reader = Reader(data)
    version = _protocol_version(reader)
    row: Row = {"topics": reader.array(reader.string), "user_data": reader.nullable_byte_string()}
    if version >= 1:
        row["owned"] = _topic_partitions(reader)
    if version >= 2:
        row["owned_generation"] = _known(reader.int32())
    if version >= 3:
        row["rack"] = reader.nullable_string()
    if version <= 3:
        reader.end()
    return row


def assigned(data: bytes) -> list[Row]:
    """What a member of a classic group was given (``ConsumerProtocolAssignment``); no bytes: nothing yet."""
    if not data:
        return []
    reader = Reader(data)
    version = _protocol_version(reader)
    partitions = _topic_partitions(reader)
    reader.nullable_byte_string()
    if version <= 3:
        reader.end()
    return partitions


def _protocol_version(reader: Reader) -> int:
    version = reader.int16()
    if version < 0:
        raise Malformed(f"a subscription or assignment has version 0 or later, not {version}")
    return version


def _topic_partitions(reader: Reader) -> list[Row]:
    topics = reader.array(lambda: (reader.string(), reader.array(lambda: _partition(reader))))
    return [{"topic": topic, "partition": number} for topic, numbers in topics for number in numbers]


def _epoch(reader: Reader, version: int) -> Row:
    return {"epoch": reader.int32()}


def _topic_metadata(reader: Reader, version: int) -> Row:
    return {"topics": reader.array(lambda: _topic(reader))}


def _topic(reader: Reader) -> Row:
    row = {"topic_id": reader.uuid(), "topic": reader.string(), "partitions": reader.int32()}
    reader.array(lambda: (reader.int32(), reader.array(reader.string), reader.tags()))  # racks of each partition
    reader.tags()
    return row


def _member(reader: Reader, version: int) -> Row:
    row: Row = {"instance_id": reader.nullable_string(), "rack": reader.nullable_string()}
    row |= {"client_id": reader.string(), "client_host": reader.string(), "topics": reader.array(reader.string)}
    row |= {"regex": reader.nullable_string() or None, "rebalance_timeout_ms": reader.int32()}
    row["server_assignor"] = reader.nullable_string()
    return row


def _classic_metadata(tags: Mapping[int, bytes]) -> Row:
    """The tagged field ``ClassicMemberMetadata`` of a member, which begins with 0 where it is null."""
    reader = Reader(tags.get(0, bytes(1)))
    return {"session_timeout_ms": reader.int32() if reader.varint() else None}


def _target(reader: Reader, version: int) -> Row:
    return {"assignment": _id_partitions(reader)}


def _current(reader: Reader, version: int) -> Row:
    row: Row = {"epoch": reader.int32(), "previous_epoch": reader.int32()}
    state = reader.int8()
    if state not in _STATES:
        raise Malformed(f"a member's state is one of {', '.join(map(str, _STATES))}, not {state}", _VERSION)
    return row | {"state": _STATES[state], "assigned": _id_partitions(reader), "revoking": _id_partitions(reader)}


def _id_partitions(reader: Reader) -> list[Row]:
    topics = reader.array(lambda: (reader.uuid(), reader.array(lambda: _partition(reader)), reader.tags()))
    return [{"topic_id": topic, "partition": number} for topic, numbers, _ in topics for number in numbers]


def _regex(reader: Reader, version: int) -> Row:
    row = {"topics": reader.array(reader.string)}
    reader.int64(), reader.int64()  # version of the metadata, time of the refresh
    return row


def _partition(reader: Reader) -> int:
    return _within(0, reader.int32(), PARTITION.most, "a partition")


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _within(least: int, number: int, most: int, what: str) -> int:
    if not least <= number <= most:
        raise Malformed(f"{what} is from {least:,} to {most:,}, not {number}")
    return number


def _time(millis: int) -> int:
    """Milliseconds as the microseconds of a table."""
    if not FIRST_TIME <= millis * 1_000 <= LAST_TIME:
        raise Malformed(f"{HAPPENED.rule}, not {millis} ms since 1970")
    return millis * 1_000


class _Type(NamedTuple):
    table: str
    key: tuple[str, ...]  # names of the strings in its key
    latest: int  # version of its value
    flexible: int  # the first version that is
    read: Callable[[Reader, int], Row]
    has_partition: bool = False
    tagged: Callable[[Mapping[int, bytes]], Row] = lambda tags: {}


_COMMIT: Final = _Type("offset_commits", ("group", "topic"), 4, 4, _commit, True)
_TYPES: Final = {
    0: _COMMIT,
    1: _COMMIT,
    2: _Type("classic_groups", ("group",), 4, 4, _classic_group),
    3: _Type("group_epochs", ("group",), 0, 0, _epoch),
    4: _Type("topic_metadata", ("group",), 0, 0, _topic_metadata),
    5: _Type("members", ("group", "member_id"), 0, 0, _member, tagged=_classic_metadata),
    6: _Type("target_epochs", ("group",), 0, 0, _epoch),
    7: _Type("targets", ("group", "member_id"), 0, 0, _target),
    8: _Type("current_assignments", ("group", "member_id"), 0, 0, _current),
    16: _Type("regexes", ("group", "regex"), 0, 0, _regex),
}
