"""Batches of a source: each row is valid, or rejected with every reason, and nothing secret leaves with it."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.source.row_conversion import (
    BROKEN_COLUMN,
    FILE_COLUMN,
    LINE_COLUMN,
    ConvertedBatch,
    convert_batch,
)
from subreplay.adapters.source.source_presets import build_plan
from subreplay.errors import ConfigError
from subreplay.rows.check import find_breaches
from subreplay.rows.model.contracts import ENTRY, FIRST_TIME, LAST_TIME, PARTITION
from subreplay.rows.model.tables import INPUTS, TIME
from tests.adapters.source.rows import T0, message_id, sources
from tests.adapters.source.test_source_presets import PATHS

AT = datetime.fromtimestamp(T0 / 1000, timezone.utc)
COLUMNS = {
    "key": {"column": "k", "as": "base64"}, "topic": "t", "partition": "p", "offset": "o", "value": "v",
    "timestamp": {"column": "at", "as": "epoch_ms"},
}  # fmt: skip
ROW = {"k": "a2V5", "t": "orders", "p": 3, "o": 17, "v": "geheim", "at": T0}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    kinds = {"k": pa.string(), "t": pa.string(), "p": pa.int64(), "o": pa.int64(), "v": pa.string(), "at": pa.int64()}
    return pa.RecordBatch.from_pylist([ROW | row for row in rows], schema=pa.schema(list(kinds.items())))


def converted(*rows: dict[str, Any], **beside: Any) -> ConvertedBatch:
    given_rows = batch(*rows)
    return convert_batch(given_rows, build_plan({"columns": COLUMNS} | beside, given_rows.schema), "day/1.parquet", 1)


def test_a_row_of_kafka_becomes_a_canonical_message() -> None:
    row = converted({}).rows.to_pylist()[0]
    assert {name: value for name, value in row.items() if value is not None} == {
        "date": date(2023, 11, 14), "topic": "orders", "partition": 3, "ledger": 0, "entry": 17, "batch_index": -1,
        "key": b"key", "publish_time": AT, "size": 6,
    }  # fmt: skip


def test_constants_stand_in_every_row() -> None:
    rows = converted({}, {"o": 18}, values={"producer": "p1", "sequence_id": -1}).rows
    assert rows["producer"].to_pylist() == ["p1", "p1"]


@pytest.mark.parametrize(
    ("row", "column", "value", "rule"),
    [
        ({"k": "!"}, "k", "(1 bytes)", "base64 text has"),
        ({"t": None}, "t", "null", "the column is required"),
        ({"t": ""}, "t", "(empty)", "a name is not empty"),
        ({"p": None}, "p", "null", "the column is required"),
        ({"p": -2}, "p", "-2", "a partition is"),
        ({"p": PARTITION.most + 1}, "p", "1000000", "a partition is"),
        ({"p": 2**40}, "p", str(2**40), "a partition is"),
        ({"o": -1}, "o", "-1", "an entry id"),
        ({"o": ENTRY.most + 1}, "o", str(ENTRY.most + 1), "an entry id"),
        ({"o": None}, "o", "null", "the column is required"),
        ({"at": FIRST_TIME // 1000 - 1}, "at", str(FIRST_TIME // 1000 - 1), "a time is from 1971"),
        ({"at": LAST_TIME // 1000 + 1}, "at", str(LAST_TIME // 1000 + 1), "a time is from 1971"),
        ({"at": 2**62}, "at", str(2**62), "a time is from 1971"),
        ({"at": None}, "at", "null", "the column is required"),
    ],
)
def test_a_row_that_breaks_one_rule_is_rejected_for_it_alone(
    row: dict[str, Any], column: str, value: str, rule: str
) -> None:
    found = converted({}, row, {})
    assert found.rows.num_rows == 2
    (rejected,) = found.rejected
    assert (rejected.table, rejected.file, rejected.row) == ("messages", "day/1.parquet", 2)
    (reason,) = rejected.reasons
    assert (reason.column, reason.value) == (column, value)
    assert reason.rule.startswith(rule)
    assert reason.remedy


def test_a_row_is_rejected_with_every_reason() -> None:
    (rejected,) = converted({"o": -1, "p": -9, "t": None}).rejected
    assert {reason.column for reason in rejected.reasons} == {"t", "p", "o"}


def test_keys_and_payloads_leave_by_their_length_only() -> None:
    (rejected,) = converted({"o": -1}).rejected
    shown = json.loads(rejected.raw)
    assert (shown["k"], shown["v"], shown["o"]) == ("(4 bytes)", "(6 bytes)", "-1")
    assert "geheim" not in str(rejected)


def test_rows_of_a_table_have_no_number() -> None:
    given_rows = batch({"o": -1})
    (rejected,) = convert_batch(given_rows, build_plan({"columns": COLUMNS}, given_rows.schema)).rejected
    assert rejected.row == -1


VALUES = {
    "k": st.none() | st.text(max_size=8) | st.just("a2V5"),
    "t": st.none() | st.text(max_size=3),
    "p": st.none() | st.integers(-3, 4) | st.integers(-(2**63), 2**63 - 1),
    "o": st.none() | st.integers(-3, 4) | st.integers(-(2**63), 2**63 - 1),
    "v": st.none() | st.text(max_size=3),
    "at": st.none() | st.just(T0) | st.integers(-(2**63), 2**63 - 1),
}


@given(st.lists(st.fixed_dictionaries(VALUES), max_size=12))
def test_every_row_is_valid_or_rejected_whatever_it_holds(rows: list[dict[str, Any]]) -> None:
    found = converted(*rows)
    assert found.rows.num_rows + len(found.rejected) == len(rows)
    assert all(each.reasons for each in found.rejected)
    found.rows.validate(full=True)
    columns = {name: found.rows[name] for name in found.rows.schema.names}
    assert not list(find_breaches("messages", columns, {"producer", "sequence_id"}))


@given(st.lists(st.binary(max_size=20) | st.just(message_id(1, 2)) | st.none(), max_size=12))
def test_every_row_of_pulsar_is_valid_or_rejected_whatever_its_id(ids: list[bytes | None]) -> None:
    given_rows = pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.binary()), "at": pa.array([AT] * len(ids), TIME)})
    section = {"columns": {"message_id": "id", "publish_time": "at"}, "values": {"topic": "o"}}
    found = convert_batch(given_rows, build_plan(section, given_rows.schema))
    assert found.rows.num_rows + len(found.rejected) == len(ids)
    assert found.rows.num_rows >= ids.count(message_id(1, 2))


def test_a_row_whose_topic_and_id_name_different_partitions_is_rejected() -> None:
    ids = [message_id(1, 2, 3), message_id(1, 3, 4), message_id(1, 4)]
    given_rows = pa.RecordBatch.from_pydict({"id": ids, "topic": ["o-partition-3"] * 3, "at": pa.array([AT] * 3, TIME)})
    columns = {"message_id": "id", "publish_time": "at", "topic": {"column": "topic", "as": "pulsar_topic"}}
    found = convert_batch(given_rows, build_plan({"columns": columns}, given_rows.schema))
    assert found.rows["entry"].to_pylist() == [2, 4]
    assert found.rows["partition"].to_pylist() == [3, 3]
    assert found.rejected[0].reasons[0].rule == "the columns with the partition must agree"


def test_topic_and_partition_of_files_come_row_by_row() -> None:
    given_rows = batch({}, {"o": 18}, {"o": 19})
    columns = {name: COLUMNS[name] for name in ("offset", "timestamp")} | {"path": {"as": "confluent_path"}}
    files = pa.array(["topics/a/partition=0/a+0+17.avro", "topics/b/partition=5/b+5+17.avro", "other.avro"])
    found = convert_batch(given_rows, build_plan({"columns": columns}, given_rows.schema), files)
    assert found.rows.select(["topic", "partition"]).to_pylist() == [
        {"topic": "a", "partition": 0}, {"topic": "b", "partition": 5},
    ]  # fmt: skip
    assert found.rejected[0].file == "other.avro"


def test_membership_and_deliveries_are_mapped_like_messages() -> None:
    rows = pa.RecordBatch.from_pylist(
        [{"who": "c1", "what": "JOINED", "ns": T0 * 1_000_000 + 5, "n": 1}, {"who": "c1", "what": "?", "ns": 0, "n": 2}]
    )
    columns = {
        "consumer": "who", "seq": "n", "event": {"column": "what", "words": {"JOINED": "join", "LEFT": "leave"}},
        "at": {"column": "ns", "as": "epoch_ns"}, "at_nanos": {"column": "ns", "as": "epoch_ns"},
    }  # fmt: skip
    values = {"subscription": "s", "topic": "o", "type": "Key_Shared"}
    found = convert_batch(rows, build_plan({"columns": columns, "values": values}, rows.schema, "membership"))
    (row,) = found.rows.to_pylist()
    assert (row["event"], row["at"], row["at_nanos"], row["partition"]) == ("join", AT, 5, None)
    assert {reason.column for reason in found.rejected[0].reasons} == {"what", "ns"}


@pytest.mark.parametrize(("how", "unset"), [("epoch_ms", -1), ("epoch_s", 0), ("iso8601", "-1"), ("iso8601", "N/A")])
def test_a_time_that_never_happened_is_null_where_it_may_be(how: str, unset: int | str) -> None:
    got = {"epoch_ms": T0, "epoch_s": T0 // 1_000}.get(how, "2026-11-20T10:00:00Z")
    rows = pa.RecordBatch.from_pylist([{"n": 0, "got": got, "done": unset}, {"n": 1, "got": unset, "done": got}])
    columns = {"received_at": {"column": "got", "as": how}, "acked_at": {"column": "done", "as": how}, "offset": "n"}
    values = {"subscription": "s", "topic": "o", "partition": 0, "consumer": "c", "source": "observed", "seq": 0,
              "redelivery_count": 0}  # fmt: skip
    found = convert_batch(rows, build_plan({"columns": columns, "values": values}, rows.schema, "deliveries"))
    first, second = found.rows.to_pylist()
    assert (first["acked_at"], second["received_at"]) == (None, None)
    assert None not in (first["received_at"], second["acked_at"])


def test_an_empty_batch_is_an_empty_table() -> None:
    found = converted()
    assert (found.rows.num_rows, found.rejected) == (0, ())


@pytest.mark.parametrize(
    ("table", "row", "column"),
    [
        ("messages", {"ledger": 1, "entry": 2**31}, "entry"),
        ("messages", {"batch_index": 2, "batch_size": 2}, "batch_index"),
        ("messages", {"chunk_id": 1}, "chunk_id"),
        ("messages", {"chunk_id": 2, "chunk_count": 2}, "chunk_id"),
        ("messages", {"origin": {"topic": "o", "partition": -5, "ledger": 0, "entry": 0, "batch_index": -1}}, "origin"),
        ("membership", {"since": LAST_TIME}, "since"),
        ("membership", {"ranges": [{"start": 0, "end": 5}, {"start": 5, "end": 4}]}, "ranges"),
        ("membership", {"ranges": [{"start": -1, "end": 4}]}, "ranges"),
        ("deliveries", {"delivered_at": None}, "delivered_at"),
        ("deliveries", {"nacked_at": T0 * 1000 - 1}, "nacked_at"),
        ("deliveries", {"ack_type": "individual"}, "ack_type"),
    ],
)
def test_conditions_on_several_columns_and_inner_ones(table: str, row: dict[str, Any], column: str) -> None:
    filled = {
        "topic": "o", "partition": 0, "ledger": 0, "entry": 1, "batch_index": -1, "producer": "p", "sequence_id": 0,
        "publish_time": T0 * 1000, "size": 1, "subscription": "s", "type": "Shared", "consumer": "c", "event": "join",
        "at": T0 * 1000, "seq": 0, "delivered_at": T0 * 1000, "redelivery_count": 0, "source": "observed",
        "date": date(2023, 11, 14),
    }  # fmt: skip
    one = {f.name: filled.get(f.name) for f in INPUTS[table]}
    columns = {f.name: pa.array([one[f.name], (one | row)[f.name]], f.type) for f in INPUTS[table]}
    assert [(each.column, each.rows.tolist()) for each in find_breaches(table, columns, set())] == [
        (column, [False, True])
    ]


def test_nested_canonical_columns_are_taken_whole_or_rejected() -> None:
    of_range = pa.struct([("start", pa.int64()), ("end", pa.int64())])
    whole, half = {"start": 0, "end": 9}, {"start": 0, "end": None}
    rows = pa.RecordBatch.from_pydict(
        {"r": pa.array([[half], [whole], None, [], [whole, half], [whole, whole]], pa.list_(of_range)), "n": range(6)}
    ).slice(1)
    values = {"subscription": "s", "topic": "o", "type": "Key_Shared", "consumer": "c", "event": "join", "at": AT}
    found = convert_batch(
        rows, build_plan({"columns": {"ranges": "r", "seq": "n"}, "values": values}, rows.schema, "membership")
    )
    found.rows.validate(full=True)
    assert found.rows["ranges"].to_pylist() == [[whole], None, [], [whole, whole]]
    assert [reason.rule for each in found.rejected for reason in each.reasons] == ["no field of the value is null"]


def test_the_origin_of_a_dead_letter_is_taken_whole_or_rejected() -> None:
    position = {"topic": "o", "partition": 0, "ledger": 1, "entry": 2, "batch_index": -1}
    kind = pa.struct([(f.name, f.type) for f in INPUTS["messages"].field("origin").type])
    columns = {name: pa.array([each] * 3) for name, each in ROW.items()}
    columns["origin"] = pa.array([position, None, position | {"entry": None}], kind)
    rows = pa.RecordBatch.from_pydict(columns)
    found = convert_batch(rows, build_plan({"columns": COLUMNS | {"origin": "origin"}}, rows.schema))
    found.rows.validate(full=True)
    assert found.rows["origin"].to_pylist() == [position, None]
    assert [reason.column for reason in found.rejected[0].reasons] == ["origin"]


@pytest.mark.parametrize("name", sources(1))
def test_a_part_of_a_batch_is_converted_as_in_the_whole(name: str) -> None:
    section, rows = sources(40)[name]
    path = PATHS.get(name, "")
    plan = build_plan(section, rows.schema)
    assert convert_batch(rows.slice(7, 20), plan, path).rows.equals(convert_batch(rows, plan, path).rows.slice(7, 20))


def test_a_line_that_cannot_be_read_is_rejected_with_its_number_and_nothing_else_is_said_of_it() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"p": [0, None], "o": [5, None], "t": [T0, None], FILE_COLUMN: ["a.json", "b.json"], LINE_COLUMN: [7, 51],
         BROKEN_COLUMN: [None, "19 characters that are not a JSON object"]}
    )  # fmt: skip
    columns = {"partition": "p", "offset": "o", "publish_time": {"column": "t", "as": "epoch_ms"}}
    found = convert_batch(batch, build_plan({"columns": columns, "values": {"topic": "t"}}, batch.schema), "folder")
    (rejected,) = found.rejected
    assert (rejected.file, rejected.row, rejected.raw) == ("b.json", 51, "(19 characters that are not a JSON object)")
    assert [(why.column, why.value) for why in rejected.reasons] == [
        ("(line)", "line 51: 19 characters that are not a JSON object")
    ]
    assert found.rows.num_rows == 1


def test_a_position_that_is_the_same_in_every_row_is_refused() -> None:
    schema = pa.schema([("t", pa.int64())])
    section = {"columns": {"publish_time": {"column": "t", "as": "epoch_ms"}}, "values": {"topic": "t", "partition": 0}}
    values = {"ledger": 0, "entry": 0, "batch_index": -1}
    with pytest.raises(ConfigError, match=r"every row would have the same position .*as: by_time"):
        build_plan(section | {"values": section["values"] | values}, schema)
    plan = build_plan(section | {"columns": section["columns"] | {"offset": {"as": "by_time"}}}, schema)
    assert plan.by_time
    with pytest.raises(ConfigError, match="only the offset of messages"):
        build_plan(section | {"columns": section["columns"] | {"partition": {"as": "by_time"}}}, schema)
