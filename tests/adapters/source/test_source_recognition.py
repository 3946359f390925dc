"""What ``subreplay inspect`` says of a source."""

from __future__ import annotations

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.source.row_conversion import convert_batch
from subreplay.adapters.source.source_presets import PRESETS, build_plan
from subreplay.adapters.source.source_recognition import BY_NAME, CANONICAL, build_section, list_candidates
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import INPUTS
from tests.adapters.source.rows import sources
from tests.adapters.source.test_source_presets import PATHS

SOURCES = sources(5)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_recognised(name: str) -> None:
    _, batch = SOURCES[name]
    best = list_candidates(batch.schema, [PATHS[name]] if name in PATHS else [])[0]
    assert (best.name, best.table, best.missing) == (name, "messages", ())
    assert best.evidence


@pytest.mark.parametrize("name", [n for n in PRESETS if SOURCES[n][0].keys() == {"from"}])
def test_the_section_of_a_source_that_leaves_nothing_open_reads_it(name: str) -> None:
    _, batch = SOURCES[name]
    best = list_candidates(batch.schema, [PATHS[name]] if name in PATHS else [])[0]
    assert not best.questions
    written = yaml.safe_load(yaml.safe_dump(build_section(best)))
    plan = build_plan(written, batch.schema)
    assert plan.lacks == best.lacks
    assert convert_batch(batch, plan, PATHS.get(name, "")).rows.num_rows == 5


@pytest.mark.parametrize(
    ("name", "open_"),
    [("kafka-table.redpanda", {"topic"}), ("streamnative-lakehouse", {"topic", "partition"}),
     ("pulsar-cloud-storage", {"key"})],
)  # fmt: skip
def test_what_its_user_must_state_stands_open_in_the_section(name: str, open_: set[str]) -> None:
    _, batch = SOURCES[name]
    best = list_candidates(batch.schema)[0]
    assert set(best.questions) == open_
    with pytest.raises(ConfigError, match=r"has no value|names no conversion"):
        build_plan(build_section(best), batch.schema)


@pytest.mark.parametrize("table", INPUTS)
def test_our_own_tables_are_recognised_and_need_no_mapping(table: str) -> None:
    best = list_candidates(INPUTS[table])[0]
    assert (best.name, best.table, best.lacks, build_section(best)) == (CANONICAL, table, (), {})


def test_a_table_with_canonical_names_and_other_types_is_not_canonical() -> None:
    at = INPUTS["messages"].get_field_index("publish_time")
    schema = INPUTS["messages"].set(at, pa.field("publish_time", pa.int64()))
    assert CANONICAL not in [each.name for each in list_candidates(schema)]


def test_columns_of_an_unknown_source_are_guessed_by_name_and_type() -> None:
    schema = pa.schema(
        [("stream", pa.struct([("topic", pa.string()), ("partition_id", pa.int32())])), ("kafka_offset", pa.int64()),
         ("msg_key", pa.binary()), ("created_at", pa.timestamp("us")), ("payload", pa.binary()), ("note", pa.string())]
    )  # fmt: skip
    (best,) = list_candidates(schema)
    assert best.name == BY_NAME
    assert build_section(best) == {
        "columns": {
            "topic": "stream.topic", "partition": "stream.partition_id", "offset": "kafka_offset",
            "publish_time": "created_at", "key": "msg_key", "value": "payload",
        }
    }  # fmt: skip
    assert "offset is taken to be kafka_offset (int64), by its name" in best.evidence
    assert best.unjudged == ("created_at may be the application's time instead of the publish time",)
    build_plan(build_section(best), schema)


def test_a_preset_goes_before_a_guess_that_finds_more() -> None:
    _, batch = SOURCES["kafka-table.spark"]
    best = list_candidates(batch.append_column("producer", pa.array(["p"] * 5)).schema)
    assert [each.name for each in best][:: len(best) - 1] == ["kafka-table.spark", BY_NAME]


def test_a_name_of_another_type_is_no_guess() -> None:
    schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.string())])
    (best,) = list_candidates(schema)
    assert best.missing == ("offset", "publish_time")


@pytest.mark.parametrize(
    ("name", "conversion"),
    [("ts_ms", "epoch_ms"), ("publishTimeMillis", "epoch_ms"), ("timestamp_us", "epoch_us"), ("ts", None)],
)
def test_the_unit_of_a_number_follows_from_its_name_or_stays_open(name: str, conversion: str | None) -> None:
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("record_offset", pa.int64()), (name, pa.int64())]
    )
    (best,) = list_candidates(schema)
    assert best.found["publish_time"].as_ == conversion
    assert set(best.questions) == (set() if conversion else {"publish_time"})


def test_the_offset_of_confluents_files_is_guessed_and_the_time_stays_open() -> None:
    schema = pa.schema([("id", pa.int64()), ("kafka_offset", pa.int64())])
    best = list_candidates(schema, ["topics/o/partition=1/o+1+000.avro", "topics/_SUCCESS"])[0]
    assert best.name == "kafka-table.confluent-s3"
    assert "1 of 2 file names fit confluent_path" in best.evidence
    assert build_section(best) == {
        "from": "kafka-table.confluent-s3", "columns": {"offset": "kafka_offset", "timestamp": "?"},
    }  # fmt: skip


def test_an_export_of_a_user_interface_is_not_taken_for_files_of_aivens_sink() -> None:
    fields = [("value", pa.string()), ("offset", pa.int64()), ("key", pa.string()), ("timestamp", pa.string())]
    assert list_candidates(pa.schema(fields))[0].name == "kafka-table.aiven-s3"
    for column in ("partition", "partitionID"):
        found = list_candidates(pa.schema([*fields, (column, pa.int64())]))
        assert "kafka-table.aiven-s3" not in {each.name for each in found}
    assert {each.name for each in list_candidates(pa.schema(fields), ["orders-1-0.json"])} >= {"kafka-table.aiven-s3"}
    assert {each.name for each in list_candidates(pa.schema(fields), ["export.json"])} == {BY_NAME}


def test_a_column_with_the_producer_is_taken_beside_a_preset() -> None:
    schema = pa.schema([*SOURCES["kafka-table.spark"][1].schema, ("producer_name", pa.string())])
    best = list_candidates(schema)[0]
    assert (best.name, best.found["producer"].column) == ("kafka-table.spark", "producer_name")
    assert build_section(best)["columns"]["producer"] == "producer_name"


def test_the_size_of_a_key_is_not_the_size_of_its_message() -> None:
    sized = pa.struct([("payload", pa.string()), ("size", pa.int64())])
    columns = [("partition", pa.int32()), ("offset", pa.int64()), ("time", pa.timestamp("ms")), ("key", sized)]
    assert "size" not in list_candidates(pa.schema(columns))[0].found
    assert list_candidates(pa.schema([*columns, ("value", sized)]))[0].found["size"].column == "value.size"


def test_a_variant_is_said_to_need_another_reading() -> None:
    schema = pa.schema([("__meta", pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))])
    best = list_candidates(schema)[0]
    assert best.name == "streamnative-lakehouse"
    assert not best.fits
    assert "Read it as a struct with __messageOffset, __publishTime" in best.evidence[0]


NAMES = st.sampled_from(["topic", "partition", "offset", "ts", "key", "__meta", "redpanda", "a.b", "`", "", "é"])
KINDS = st.recursive(
    st.sampled_from([pa.string(), pa.int64(), pa.binary(), pa.timestamp("ns"), pa.null(), pa.list_(pa.int8())]),
    lambda inner: st.lists(st.tuples(NAMES, inner), max_size=3).map(pa.struct),
    max_leaves=4,
)


@given(st.lists(st.tuples(NAMES, KINDS), max_size=8), st.lists(st.text(max_size=5), max_size=3))
def test_any_schema_is_looked_at_without_failing(fields: list[tuple[str, pa.DataType]], files: list[str]) -> None:
    for candidate in list_candidates(pa.schema(fields), files):
        yaml.safe_dump(build_section(candidate))
