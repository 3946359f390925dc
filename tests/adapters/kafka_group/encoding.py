"""Records of ``__consumer_offsets`` as Kafka would write them: the other direction of the decoders, for tests only."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

AT = 1_700_000_000_000  # ms


class Writer:
    """Writes the primitive types of Kafka's messages, compact where ``flexible``."""

    def __init__(self, flexible: bool = False) -> None:
        self.data, self.flexible = b"", flexible

    def integer(self, value: int, width: int) -> Writer:
        self.data += value.to_bytes(width, "big", signed=True)
        return self

    def varint(self, value: int) -> Writer:
        while value >= 0x80:
            self.data += bytes([value & 0x7F | 0x80])
            value >>= 7
        self.data += bytes([value])
        return self

    def length(self, value: int, width: int) -> Writer:
        return self.varint(value + 1) if self.flexible else self.integer(value, width)

    def string(self, text: str | None) -> Writer:
        data = None if text is None else text.encode()
        self.length(-1 if data is None else len(data), 2).data += data or b""
        return self

    def bytes(self, data: bytes | None) -> Writer:
        self.length(-1 if data is None else len(data), 4).data += data or b""
        return self

    def uuid(self, text: str) -> Writer:
        self.data += base64.urlsafe_b64decode(text + "==")
        return self

    def array(self, items: Iterable[Any], write: Callable[[Any], Any]) -> Writer:
        every = list(items)
        self.length(len(every), 4)
        for item in every:
            write(item)
        return self

    def tags(self, found: dict[int, bytes] | None = None) -> Writer:
        if self.flexible:
            self.varint(len(found or {}))
            for tag, data in (found or {}).items():
                self.varint(tag).varint(len(data)).data += data
        return self


def key(kind: int, *names: str, partition: int | None = None) -> bytes:
    writer = Writer().integer(kind, 2)
    for name in names:
        writer.string(name)
    return writer.data if partition is None else writer.integer(partition, 4).data


def commit(version: int, offset: int, epoch: int, metadata: str, at: int, expires: int = -1, tags: Any = None) -> bytes:
    writer = Writer(version >= 4)
    writer.integer(version, 2).integer(offset, 8)
    if version >= 3:
        writer.integer(epoch, 4)
    writer.string(metadata).integer(at, 8)
    if version == 1:
        writer.integer(expires, 8)
    return writer.tags(tags).data


def partitions(writer: Writer, owned: list[dict[str, Any]], name: str = "topic") -> None:
    """Each partition as an array of its own: the decoder must not care how they are grouped."""

    def one(topic_partition: dict[str, Any]) -> None:
        (writer.uuid if name == "topic_id" else writer.string)(topic_partition[name])
        writer.array([topic_partition["partition"]], lambda number: writer.integer(number, 4)).tags()

    writer.array(owned, one)


def subscription(version: int, member: dict[str, Any]) -> bytes:
    writer = Writer().integer(version, 2)
    writer.array(member["topics"], writer.string).bytes(member["user_data"])
    if version >= 1:
        partitions(writer, member["owned"])
    if version >= 2:
        writer.integer(-1 if member["owned_generation"] is None else member["owned_generation"], 4)
    if version >= 3:
        writer.string(member["rack"])
    return writer.data


def assignment(member: dict[str, Any]) -> bytes:
    writer = Writer().integer(3, 2)
    partitions(writer, member["assignment"])
    return writer.bytes(None).data


def classic_group(version: int, protocol_version: int, group: dict[str, Any]) -> bytes:
    writer = Writer(version >= 4).integer(version, 2).string(group["protocol_type"])
    writer.integer(group["generation"], 4).string(group["protocol"]).string(group["leader"])
    if version >= 2:
        writer.integer(group["state_since"], 8)

    def one(member: dict[str, Any]) -> None:
        writer.string(member["member_id"])
        if version >= 3:
            writer.string(member["instance_id"])
        writer.string(member["client_id"]).string(member["client_host"])
        if version >= 1:
            writer.integer(member["rebalance_timeout_ms"], 4)
        writer.integer(member["session_timeout_ms"], 4)
        writer.bytes(subscription(protocol_version, member)).bytes(assignment(member)).tags()

    return writer.array(group["members"], one).tags().data


def modern_member(tags: Any = None) -> bytes:
    """What a member of the consumer protocol asks for."""
    value = Writer(True).integer(0, 2).string(None).string("rack-1").string("client").string("/10.0.0.1")
    value.array(["orders"], value.string).string(None).integer(5_000, 4).string("uniform").tags(tags)
    return value.data


def records(*pairs: tuple[bytes | None, bytes | None], **columns: Any) -> pa.Table:
    """Records as Spark's Kafka source gives them, of partition 7, their offsets from 0."""
    count = len(pairs)
    known = {
        "key": pa.array([pair[0] for pair in pairs], pa.binary()),
        "value": pa.array([pair[1] for pair in pairs], pa.binary()),
        "partition": pa.array([7] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([AT * 1_000] * count, pa.timestamp("us", "UTC")),
    }
    return pa.table(known | columns)
