"""Records of ``__consumer_offsets`` that nobody can decode: each is in quarantine, with its reason."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.group_records import decode_record
from subreplay.adapters.kafka_group.protocol_bytes import MalformedBytes
from subreplay.errors import InputError
from tests.adapters.kafka_group import encoding as encode
from tests.adapters.kafka_group.copies import decoded
from tests.adapters.kafka_group.encoding import AT, Writer, key, modern_member, records
from tests.adapters.kafka_group.scenarios import plain

GOOD = [
    (key(1, "g", "t", partition=3), encode.commit(3, 7, 1, "note", AT)),
    (key(1, "g", "t", partition=3), encode.commit(4, 7, 1, "note", AT)),
    (key(0, "g", "t", partition=3), encode.commit(3, 7, -1, "", AT)),
    (key(2, "g"), encode.classic_group(3, 3, {"protocol_type": "consumer", "generation": 1, "protocol": "range",
                                              "leader": "m", "state_since": AT, "members": []})),
    (key(5, "g", "m"), modern_member()),
    (key(3, "g"), Writer(True).integer(0, 2).integer(4, 4).tags().data),
]  # fmt: skip


@pytest.mark.parametrize("pair", GOOD)
def test_every_truncation_and_every_addition_is_quarantined(pair):
    wrong = [(pair[0][:cut], pair[1]) for cut in range(len(pair[0]))]
    wrong += [(pair[0], pair[1][:cut]) for cut in range(len(pair[1]))]
    wrong += [(pair[0] + b"\0", pair[1]), (pair[0], pair[1] + b"\0")]
    found = decoded(*wrong, pair)
    assert [rejected.row for rejected in found.rejected] == list(range(len(wrong)))
    [count] = found.counts
    assert (count.file, count.rows_in, count.valid) == ("__consumer_offsets-7", len(wrong) + 1, 1)
    columns = [rejected.reasons[0].column for rejected in found.rejected]
    assert columns == ["key"] * len(pair[0]) + ["value"] * len(pair[1]) + ["key", "value"]


BYTES = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([part for pair in GOOD for part in pair]),
    st.tuples(st.integers(0, 20), st.binary(max_size=60)).map(lambda cut: cut[0].to_bytes(2, "big") + cut[1]),
)


@given(st.lists(st.tuples(BYTES, BYTES), max_size=30))
def test_of_any_bytes_each_record_ends_once(pairs):
    found = decoded(*pairs)
    valid = [row["record_offset"] for table in found.tables.values() for row in plain(table)]
    assert sorted([*valid, *[rejected.row for rejected in found.rejected]]) == list(range(len(pairs)))
    assert sum(count.rows_in for count in found.counts) == len(pairs)
    assert sum(count.quarantined for count in found.counts) == len(found.rejected)


@given(st.lists(st.tuples(st.sampled_from([pair[0] for pair in GOOD[:3]]), st.binary(max_size=50)), max_size=30),
       st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=3))  # fmt: skip
def test_columns_and_single_records_are_read_alike(pairs, changes):
    pairs = pairs + [(name, changed(value, changes)) for name, value in GOOD[:3]]
    found = decoded(*pairs)
    rows = {row["record_offset"]: row for row in plain(found.tables["offset_commits"])}
    for offset, (name, value) in enumerate(pairs):
        try:
            _, row = decode_record(name, value)
        except MalformedBytes:
            assert offset not in rows
        else:
            assert {column: rows[offset][column] for column in row} == row


def changed(value, changes):
    data = bytearray(value)
    for index, byte in changes:
        data[index % len(data)] = byte
    return bytes(data)


@pytest.mark.parametrize(
    ("pair", "column", "rule"),
    [
        ((key(24, "g"), b"\0\0"), "key", "key version 24"),
        ((key(1, "g", "t", partition=-1), None), "key", "a partition must be from 0"),
        ((key(1, "", "t", partition=1), None), "key", "a name must not be empty"),
        (
            (key(1, "g", "t", partition=1), encode.commit(3, -5, 1, "", AT)),
            "value",
            "a committed offset must be from 0",
        ),
        ((key(1, "g", "t", partition=1), encode.commit(3, 5, 1, "", 0)), "value", "a time is from 1971"),
        ((key(1, "g", "t", partition=1), b"\0\5" + bytes(30)), "value", "must be from 0 to 4"),
        ((b"\0\1\0\1\xff\0\1t\0\0\0\1", None), "key", "a string must be UTF-8"),
        ((key(2, "g"), b"\0\7" + bytes(30)), "value", "must be from 0 to 4"),
        (
            (key(8, "g", "m"), Writer(True).integer(0, 2).integer(1, 4).integer(1, 4).integer(9, 1).data),
            "value",
            "state",
        ),
        ((None, b"x"), "key", "a group record must have a key"),
    ],
)
def test_the_reason_names_the_rule(pair, column, rule):
    [rejected] = decoded(pair).rejected
    [reason] = rejected.reasons
    assert reason.column == column
    assert rule in reason.rule
    assert reason.remedy
    shown = {"key": pair[0], "value": pair[1]}[column]
    assert reason.value == ("null" if shown is None else shown.hex())


def test_long_bytes_are_shortened_where_they_are_shown():
    [rejected] = decoded((key(99, "g"), bytes(5_000))).rejected
    assert rejected.raw.endswith("… (5,000 bytes)")
    assert len(rejected.raw) < 400


@pytest.mark.parametrize(
    ("name", "value"), [("partition", None), ("partition", -1), ("offset", None), ("offset", -4), ("timestamp", None)]
)
def test_a_record_without_its_place_is_quarantined(name, value):
    table = records(GOOD[0], GOOD[0])
    index = table.schema.get_field_index(name)
    good = table.column(name)[1].as_py()
    found = decode_records(table.set_column(index, name, pa.array([value, good], table.schema.field(name).type)))
    [rejected] = found.rejected
    assert rejected.reasons[0].column == name
    assert found.tables["offset_commits"].num_rows == 1


def test_a_missing_column_is_reported():
    with pytest.raises(InputError, match=r"the copy has no column value. Copy all columns of Spark's Kafka source"):
        decode_records(records(GOOD[0]).drop_columns("value"))
    with pytest.raises(InputError, match="column key is list"):
        decode_records(records(GOOD[0], key=pa.array([[1]])))
