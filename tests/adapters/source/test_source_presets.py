"""Known sources: what their rows become, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.source.row_conversion import convert_batch
from subreplay.adapters.source.source_presets import PRESETS, build_plan
from subreplay.errors import ConfigError, InputError
from tests.adapters.source.rows import T0, sources

ROWS = 50
SOURCES = sources(ROWS)
PATHS = {
    "kafka-table.confluent-s3": "topics/orders/partition=1/orders+1+0000000000.avro",
    "kafka-table.aiven-s3": "orders-1-0000000000.parquet",
    "pulsar-cloud-storage": "public/default/orders-partition-1/2230.0.-1.json",
}
PULSAR = ("pulsar-table", "pulsar-cloud-storage")


def test_every_preset_is_tried() -> None:
    assert set(SOURCES) == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_row_of_a_preset_is_valid_and_in_its_place(name: str) -> None:
    section, batch = SOURCES[name]
    found = convert_batch(batch, build_plan(section, batch.schema), PATHS.get(name, ""))
    assert found.rejected == ()
    rows = found.rows
    assert rows["entry"].to_pylist() == list(range(ROWS))
    assert rows["publish_time"].cast(pa.int64()).to_pylist() == [(T0 + i) * 1000 for i in range(ROWS)]
    if name in PULSAR:
        assert set(rows["topic"].to_pylist()) == {"persistent://public/default/orders"}
        assert rows["ledger"].to_pylist() == [2230] * ROWS
        assert rows["batch_index"].to_pylist() == [i % 100 for i in range(ROWS)]
        assert rows["batch_size"].to_pylist() == [100] * ROWS
    else:
        assert set(rows["topic"].to_pylist()) == {"orders"}
        assert rows["ledger"].to_pylist() == [0] * ROWS
        assert rows["batch_index"].to_pylist() == [-1] * ROWS
    several = name not in ("streamnative-lakehouse", "kafka-table.confluent-s3", "kafka-table.aiven-s3")
    assert rows["partition"].to_pylist() == [i % 4 if several else rows["partition"][0].as_py() for i in range(ROWS)]


@pytest.mark.parametrize(
    ("name", "key", "size"),
    [
        ("kafka-table.spark", b"key-7", 20), ("kafka-table.iceberg-smt", None, None),
        ("kafka-table.redpanda", b"key-7", 20), ("kafka-table.confluent-s3", None, None),
        ("kafka-table.aiven-s3", b"key-7", 20), ("pulsar-table", b"key-7", 20),
        ("pulsar-cloud-storage", b"key-7", None), ("streamnative-lakehouse", None, None),
    ],
)  # fmt: skip
def test_what_a_source_lacks_is_null(name: str, key: bytes | None, size: int | None) -> None:
    section, batch = SOURCES[name]
    row = convert_batch(batch, build_plan(section, batch.schema), PATHS.get(name, "")).rows.slice(7, 1).to_pylist()[0]
    assert (row["key"], row["size"]) == (key, size)
    assert (row["producer"], row["sequence_id"], row["event_time"]) == (None, None, None)


@pytest.mark.parametrize("name", ["kafka-table.redpanda", "pulsar-table", "streamnative-lakehouse"])
def test_a_preset_that_does_not_fit_is_refused_with_the_one_that_does(name: str) -> None:
    with pytest.raises(InputError, match=rf"{name} does not fit: .* no .*\. Instead, kafka-table.spark fits"):
        build_plan({"from": name}, SOURCES["kafka-table.spark"][1].schema)


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"preset 'kafka' does not exist. Presets of messages are kafka-table.spark"):
        build_plan({"from": "kafka"}, SOURCES["kafka-table.spark"][1].schema)


@pytest.mark.parametrize(("name", "requested"), [("kafka-table.redpanda", "topic"),
                                             ("streamnative-lakehouse", "partition"),
                                             ("kafka-table.confluent-s3", "offset")])  # fmt: skip
def test_a_column_that_no_source_of_this_kind_has_stays_open(name: str, requested: str) -> None:
    with pytest.raises(ConfigError, match=rf"no known column for .*{requested}.*\. Write each under columns or values"):
        build_plan({"from": name}, SOURCES[name][1].schema)


def test_a_key_in_text_must_be_said_to_be_base64_or_not() -> None:
    _, batch = SOURCES["pulsar-cloud-storage"]
    with pytest.raises(ConfigError, match="does not say whether it encodes bytes"):
        build_plan({"from": "pulsar-cloud-storage"}, batch.schema)
    assert "key" in build_plan({"from": "pulsar-cloud-storage", "columns": {"key": None}}, batch.schema).lacks
    as_text = {"key": {"column": "__message_metadata__.messageKey", "as": "utf8"}}
    plan = build_plan({"from": "pulsar-cloud-storage", "columns": as_text}, batch.schema)
    assert convert_batch(batch, plan).rows["key"][0].as_py() == b"a2V5LTA="


@pytest.mark.parametrize("ours", ["columns", "values"])
def test_what_its_user_says_goes_before_a_preset(ours: str) -> None:
    _, batch = SOURCES["kafka-table.spark"]
    batch = batch.append_column("stream", pa.array(["mine"] * ROWS))
    given: dict[str, Any] = {"columns": {"topic": "stream"}} if ours == "columns" else {"values": {"topic": "mine"}}
    plan = build_plan({"from": "kafka-table.spark"} | given, batch.schema)
    assert set(convert_batch(batch, plan).rows["topic"].to_pylist()) == {"mine"}


def test_without_its_topic_a_message_of_cloud_storage_is_placed_by_its_path() -> None:
    section, batch = SOURCES["pulsar-cloud-storage"]
    metadata = batch["__message_metadata__"]
    kept = [field.name for field in metadata.type.fields if field.name != "topic"]
    short = pa.RecordBatch.from_pydict(
        {"__message_metadata__": pa.StructArray.from_arrays([metadata.field(name) for name in kept], kept)}
    )
    plan = build_plan(section, short.schema)
    found = convert_batch(short, plan, PATHS["pulsar-cloud-storage"])
    assert set(found.rows["topic"].to_pylist()) == {"persistent://public/default/orders"}
    assert set(found.rows["partition"].to_pylist()) == {1}
    assert {reason.rule for each in found.rejected for reason in each.reasons} == {
        "the columns with the partition must agree"
    }
