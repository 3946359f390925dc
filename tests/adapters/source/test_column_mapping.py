"""What a declared mapping may say, and how it is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.source.column_mapping import parse_mapping
from subreplay.adapters.source.mapping_plan import bind_mapping
from subreplay.adapters.source.source_columns import CONVERSION_NAMES, find_column
from subreplay.errors import ConfigError, InputError, SubreplayError
from subreplay.rows.model.tables import INPUTS

META = pa.struct([("offset", pa.int64()), ("deep.er", pa.struct([("at", pa.int64())]))])
SCHEMA = pa.schema(
    [
        ("key_b64", pa.string()), ("t", pa.string()), ("p", pa.int32()), ("their_offset", pa.int64()),
        ("at", pa.timestamp("us")), ("at_ms", pa.int64()), ("a.b", pa.int64()), ("meta", META), ("id", pa.binary()),
        ("twice", pa.int64()), ("twice", pa.int64()), ("file", pa.string()),
    ]
)  # fmt: skip
POSITION = {"topic": "t", "partition": "p", "offset": "their_offset", "timestamp": "at"}


def refused(columns: dict[str, Any], values: dict[str, Any] | None = None, table: str = "messages") -> str:
    with pytest.raises(SubreplayError) as error:
        bind_mapping(parse_mapping({"columns": columns, "values": values}, table), SCHEMA)
    return str(error.value)


def test_an_offset_stands_in_ledger_0_outside_any_batch() -> None:
    plan = bind_mapping(parse_mapping({"columns": POSITION}), SCHEMA)
    assert {name: value.as_py() for name, value in plan.values.items()} == {"ledger": 0, "batch_index": -1}
    assert {"topic", "partition", "entry", "publish_time", "date"} <= plan.filled


def test_what_a_source_lacks_may_be_null_even_where_the_table_requires_it() -> None:
    plan = bind_mapping(parse_mapping({"columns": POSITION}), SCHEMA)
    assert {"key", "producer", "sequence_id", "size"} <= set(plan.lacks)
    assert plan.schema.field("size").nullable
    assert not plan.schema.field("entry").nullable
    assert plan.schema.names == INPUTS["messages"].names


@pytest.mark.parametrize(
    ("name", "path"),
    [("meta.offset", ("meta", "offset")), ("`a.b`", ("a.b",)), ("meta.`deep.er`.at", ("meta", "deep.er", "at"))],
)
def test_dots_lead_into_structs_and_backquotes_hold_a_name_together(name: str, path: tuple[str, ...]) -> None:
    assert find_column(SCHEMA, name).path == path


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("their_ofset", "Did you mean their_offset?"),
        ("THEIR_OFFSET", "Did you mean their_offset?"),
        ("a.b", "Did you mean `a.b`?"),
        ("meta.ofset", "Did you mean meta.offset?"),
        ("coalesce(p, 0)", "Its columns are key_b64, t, p,"),
        ("p; DROP TABLE x", "Its columns are key_b64"),
        ("twice", "several columns"),
        ("", "is not a valid column name"),
        ("meta..offset", "is not a valid column name"),
        ("`a.b", "is not a valid column name"),
    ],
)
def test_a_name_that_is_no_column_is_refused_with_those_there_are(name: str, near: str) -> None:
    with pytest.raises(InputError) as error:
        find_column(SCHEMA, name)
    assert near in str(error.value)


def test_an_unknown_conversion_is_refused_with_all_that_are_known() -> None:
    reported = refused(POSITION | {"key": {"column": "key_b64", "as": "b64"}})
    assert all(name in reported for name in CONVERSION_NAMES)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        (POSITION | {"key": "key_b64"}, "Write as: base64 or as: hex or as: utf8"),
        (POSITION | {"timestamp": "at_ms"}, "Write as: epoch_s or as: epoch_ms"),
        (POSITION | {"partition": "t"}, "Write as: integer"),
        (POSITION | {"key": {"column": "id", "as": "base64"}}, "Write no conversion"),
        (POSITION | {"offset": "meta"}, "no conversion fits"),
    ],
)
def test_a_column_of_another_type_is_refused_with_the_conversions_that_fit(columns: dict[str, Any], rule: str) -> None:
    assert rule in refused(columns)


@pytest.mark.parametrize(
    ("columns", "values", "rule"),
    [
        (POSITION | {"topik": "t"}, {}, "Did you mean topic?"),
        (POSITION | {"date": "at"}, {}, "It is derived"),
        (POSITION, {"topik": "t"}, "Did you mean topic?"),
        (POSITION | {"key": {"colum": "t"}}, {}, "Did you mean column?"),
        (POSITION | {"key": {"as": "utf8"}}, {}, "has no source column. Name one"),
        (POSITION | {"key": ["t"]}, {}, "is list, but must be a mapping of names"),
        (POSITION | {"key": {"column": 7}}, {}, "is 7, but must be text"),
        (POSITION | {"topic": "?"}, {}, "has no source column. Name one"),
        (POSITION | {"key": {"column": "key_b64", "as": "?"}}, {}, "names no conversion"),
        (POSITION, {"producer": "?"}, "has no value. Write one"),
        (POSITION, {"topic": "orders"}, "topic has two sources"),
        (POSITION | {"entry": "a.b"}, {}, "no column"),
        (POSITION | {"entry": "p"}, {}, "entry has two sources"),
        (POSITION | {"ledger": "p"}, {}, "ledger has two sources"),
        (POSITION | {"message_id": "id"}, {}, "maps offset and message_id, but a message has only one"),
        ({"topic": "t"}, {}, "partition, ledger, entry, batch_index, publish_time has no source"),
        (POSITION, {"size": -1}, "a size is from 0"),
        (POSITION, {"size": "big"}, "is not int64"),
        (POSITION, {"size": 2**70}, "is not int64"),
        (POSITION, {"deliver_at": "soon"}, "a time in text must be ISO 8601"),
        (POSITION, {"deliver_at": 5}, "is not a time"),
        (POSITION | {"path": {"column": "file", "as": "base64"}}, {}, "path: {as: …}"),
        (POSITION | {"topic": {"column": "t", "as": "aiven_path"}}, {}, "path: {as: …}"),
        (POSITION | {"topic": {"column": "t", "prefix": "x"}}, {}, "Only confluent_path"),
        (POSITION | {"key": {"column": "key_b64", "as": "utf8", "words": {"a": "b"}}}, {}, "has no set of values"),
        (
            POSITION | {"topic": {"column": "t", "words": {"a": 1}}},
            {},
            "must be a mapping from source values to canonical values",
        ),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is(columns: dict[str, Any], values: dict[str, Any], rule: str) -> None:
    assert rule in refused(columns, values)


@pytest.mark.parametrize("raw", [[], "kafka", 7, {"colums": {}}, {"columns": "t"}, {"values": [1]}])
def test_a_mapping_is_of_columns_and_values(raw: Any) -> None:
    with pytest.raises(ConfigError):
        parse_mapping(raw)


def test_no_other_table_is_known() -> None:
    with pytest.raises(ConfigError, match="Use one of messages, membership, deliveries"):
        parse_mapping({}, "offsets")


@pytest.mark.parametrize(
    ("table", "missing"), [("membership", "consumer, event, at, seq"), ("deliveries", "delivered_at or received_at")]
)
def test_every_table_says_what_it_needs(table: str, missing: str) -> None:
    assert missing in refused({"topic": "t"}, table=table)
