"""Sources as their connectors write them: for each preset a section of a run file and a batch of rows."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

T0 = 1_700_000_000_000  # ms
TIMES = np.array([T0], np.int64)


def varint(number: int) -> bytes:
    """A varint of Protocol Buffers; a negative number has ten bytes."""
    number &= 2**64 - 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def message_id(
    ledger: int, entry: int, partition: int | None = None, batch_index: int | None = None, batch_size: int | None = None
) -> bytes:
    """``MessageIdData``."""
    given = {1: ledger, 2: entry, 3: partition, 4: batch_index, 6: batch_size}
    return b"".join(field(number, value) for number, value in given.items() if value is not None)


def struct(**columns: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def sources(rows: int) -> dict[str, tuple[dict[str, Any], pa.RecordBatch]]:
    """By preset."""
    number = np.arange(rows, dtype=np.int64)
    keys = pa.array([b"key-%d" % (i % 1_000) for i in range(rows)])
    value = pa.array([b"v" * 20] * rows)
    topic = pa.array(["orders"] * rows)
    internal = pa.array([f"persistent://public/default/orders-partition-{i % 4}" for i in range(rows)])
    partition = pa.array(number % 4, pa.int32())
    ids = [message_id(2230 + i // 50_000, i % 50_000, i % 4, i % 100, 100) for i in range(rows)]
    millis = pa.array(T0 + number)
    at = millis.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    kafka = {"partition": partition, "offset": pa.array(number), "timestamp": at}
    smt = {"topic": topic, "partition": partition, "offset": pa.array(number), "timestamp": millis}
    text_ids = pa.array([base64.b64encode(each).decode() for each in ids])
    text_keys = pa.array([base64.b64encode(each).decode() for each in keys.to_pylist()])
    spark = {"key": keys, "value": value, "topic": topic, **kafka, "timestampType": pa.array([0] * rows, pa.int32())}
    pulsar = {"value": value, "__key": keys, "__topic": internal, "__messageId": pa.array(ids), "__publishTime": at}
    metadata = struct(messageId=text_ids, publishTime=millis, messageKey=text_keys, topic=internal)
    of_key = {"key": {"column": "__message_metadata__.messageKey", "as": "base64"}}
    aiven = {"key": keys, "value": value, "offset": pa.array(number), "timestamp": at}
    given: dict[str, tuple[dict[str, Any], dict[str, pa.Array]]] = {
        "kafka-table.spark": ({}, spark),
        "kafka-table.iceberg-smt": ({}, {f"_kafka_metadata_{name}": each for name, each in smt.items()}),
        "kafka-table.iceberg-smt-nested": ({}, {"_kafka_metadata": struct(**smt)}),
        "kafka-table.redpanda": (
            {"values": {"topic": "orders"}},
            {"redpanda": struct(key=keys, **kafka), "value": value},
        ),
        "kafka-table.confluent-s3": (
            {"columns": {"offset": "o", "timestamp": "at"}},
            {"id": pa.array(number), "o": pa.array(number), "at": at},
        ),
        "kafka-table.aiven-s3": ({}, aiven),
        "pulsar-table": ({}, pulsar),
        "pulsar-cloud-storage": ({"columns": of_key}, {"id": pa.array(number), "__message_metadata__": metadata}),
        "streamnative-lakehouse": (
            {"values": {"topic": "orders", "partition": 0}},
            {
                "__meta": struct(
                    __messageOffset=pa.array(number), __publishTime=millis, __eventTime=pa.array(number * 0)
                )
            },
        ),
    }
    return {
        name: ({"from": name} | section, pa.RecordBatch.from_pydict(columns))
        for name, (section, columns) in given.items()
    }
