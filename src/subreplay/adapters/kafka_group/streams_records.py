"""Decode the records of streams groups (KIP-1071), and describe their tasks as partitions of source topics.

Source: the message specifications ``StreamsGroup*Key/Value`` of the group coordinator (4.2). A task is a partition of a
sub-topology. A member with an active task reads this partition of each source topic of the sub-topology; standby and
warm-up tasks read changelogs only. Topics by pattern are unknown, and so are the numbers of partitions: of topics with
fewer partitions than others of their sub-topology, partitions are named that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.kafka_group.protocol_bytes import ByteReader

Row = dict[str, Any]

STREAMS: Final = "streams"
"""The protocol of these groups."""
TASKS: Final = pa.list_(pa.struct([pa.field("subtopology", pa.string()), pa.field("partition", pa.int32())]))
SUBTOPOLOGIES: Final = pa.list_(
    pa.struct(
        [
            pa.field("subtopology", pa.string()),
            pa.field("source_topics", pa.list_(pa.string())),
            pa.field("source_patterns", pa.list_(pa.string())),
            pa.field("repartition_topics", pa.list_(pa.string())),  # that it reads
        ]
    )
)
STREAMS_TABLES: Final[Mapping[str, Sequence[tuple[str, pa.DataType]]]] = {
    "streams_epochs": [("epoch", pa.int32())],
    "streams_topologies": [("epoch", pa.int32()), ("subtopologies", SUBTOPOLOGIES)],
    "streams_members": [
        ("member_id", pa.string()),
        ("instance_id", pa.string()),
        ("rack", pa.string()),
        ("client_id", pa.string()),
        ("client_host", pa.string()),
        ("rebalance_timeout_ms", pa.int32()),
        ("topology_epoch", pa.int32()),
        ("process_id", pa.string()),
    ],
    "streams_target_epochs": [("epoch", pa.int32())],
    "streams_targets": [("member_id", pa.string()), ("active", TASKS), ("standby", TASKS), ("warmup", TASKS)],
    "streams_assignments": [
        ("member_id", pa.string()),
        ("epoch", pa.int32()),
        ("previous_epoch", pa.int32()),
        ("state", pa.int8()),
        *((name, TASKS) for name in ("active", "standby", "warmup")),
        *((f"revoking_{name}", TASKS) for name in ("active", "standby", "warmup")),
    ],
}
"""The columns of the decoded tables, beside the position and the group."""


def read_epoch(reader: ByteReader, version: int) -> Row:
    """Read a group's epoch; the hash of its topics follows."""
    row = {"epoch": reader.read_int32()}
    reader.read_int64()
    return row


def read_topology(reader: ByteReader, version: int) -> Row:
    """Read the topology of an application."""
    return {"epoch": reader.read_int32(), "subtopologies": reader.read_array(lambda: _read_subtopology(reader))}


def _read_subtopology(reader: ByteReader) -> Row:
    row: Row = {"subtopology": reader.read_string(), "source_topics": reader.read_array(reader.read_string)}
    row["source_patterns"] = reader.read_array(reader.read_string)
    reader.read_array(lambda: _read_topic(reader))  # changelogs
    reader.read_array(reader.read_string)  # repartition topics that it writes
    row["repartition_topics"] = reader.read_array(lambda: _read_topic(reader))
    reader.read_array(lambda: _read_copartitions(reader))
    reader.read_tags()
    return row


def _read_topic(reader: ByteReader) -> str:
    name = reader.read_string()
    reader.read_int32(), reader.read_int16()  # partitions, and the replication factor
    reader.read_array(lambda: (reader.read_string(), reader.read_string(), reader.read_tags()))
    reader.read_tags()
    return name


def _read_copartitions(reader: ByteReader) -> None:
    for _ in range(3):
        reader.read_array(reader.read_int16)
    reader.read_tags()


def read_member(reader: ByteReader, version: int) -> Row:
    """Read a member."""
    row: Row = {"instance_id": reader.read_nullable_string(), "rack": reader.read_nullable_string()}
    row |= {"client_id": reader.read_string(), "client_host": reader.read_string()}
    row |= {"rebalance_timeout_ms": reader.read_int32(), "topology_epoch": reader.read_int32()}
    row["process_id"] = reader.read_string()
    if reader.read_int8() >= 0:  # its endpoint, for interactive queries
        reader.read_string(), reader.read_int16(), reader.read_tags()
    reader.read_array(lambda: (reader.read_string(), reader.read_string(), reader.read_tags()))  # client tags
    return row


def read_target_epoch(reader: ByteReader, version: int) -> Row:
    """Read the epoch of a target."""
    return {"epoch": reader.read_int32()}


def read_target(reader: ByteReader, version: int) -> Row:
    """Read a member's tasks in a target."""
    return {name: _read_tasks(reader) for name in ("active", "standby", "warmup")}


def read_assignment(reader: ByteReader, version: int) -> Row:
    """Read the tasks that a member has and gives up."""
    row: Row = {"epoch": reader.read_int32(), "previous_epoch": reader.read_int32(), "state": reader.read_int8()}
    names = ("active", "standby", "warmup")
    return row | {name: _read_tasks(reader) for name in (*names, *(f"revoking_{name}" for name in names))}


def _read_tasks(reader: ByteReader) -> list[Row]:
    subtopologies = reader.read_array(
        lambda: (reader.read_string(), reader.read_array(reader.read_int32), reader.read_tags())
    )
    return [{"subtopology": name, "partition": number} for name, numbers, _ in subtopologies for number in numbers]


def describe_as_consumers(records: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the records of a group with those of streams groups as a group of the consumer protocol would have them.

    Records are (table, row) in topic order. A topic is its own id. Other records are unchanged.
    """
    topics: dict[str, list[str]] = {}  # of each sub-topology
    members: dict[str, Row] = {}
    for table, record in records:
        if not table.startswith("streams_"):
            yield table, record
            continue
        row = {**record, "protocol": STREAMS}
        if table == "streams_topologies":
            topics = {
                one["subtopology"]: sorted({*one["source_topics"], *one["repartition_topics"]})
                for one in row["subtopologies"] or ()
            }
            named = [{"topic_id": topic, "topic": topic} for topic in _list_topics(topics)]
            yield "topic_metadata", {**row, "topics": named}
            for member in members.values():
                yield "members", {**member, **_get_position(row), "topics": _list_topics(topics)}
        elif table == "streams_members":
            members.pop(row["member_id"], None)
            row |= {"topics": _list_topics(topics), "regex": None, "server_assignor": None, "session_timeout_ms": None}
            if not row["tombstone"]:
                members[row["member_id"]] = row
            yield "members", row
        elif table == "streams_targets":
            yield "targets", {**row, "assignment": _list_partitions(row["active"], topics)}
        elif table == "streams_assignments":
            tasks = {"assigned": row["active"], "revoking": row["revoking_active"]}
            yield (
                "current_assignments",
                row | {name: _list_partitions(each, topics) for name, each in tasks.items()},
            )
        else:
            yield {"streams_epochs": "group_epochs", "streams_target_epochs": "target_epochs"}[table], row


def _get_position(row: Row) -> Row:
    return {name: row[name] for name in ("record_partition", "record_offset", "record_time")}


def _list_topics(topics: Mapping[str, Sequence[str]]) -> list[str]:
    return sorted({topic for own in topics.values() for topic in own})


def _list_partitions(tasks: Iterable[Row] | None, topics: Mapping[str, Sequence[str]]) -> list[Row]:
    """List the partitions of source topics that active tasks read."""
    return [
        {"topic_id": topic, "partition": task["partition"]}
        for task in tasks or ()
        for topic in topics.get(task["subtopology"], ())
    ]
