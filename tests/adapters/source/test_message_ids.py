from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.source.message_ids import ID_PARTS, MAX_FIELDS, parse_message_ids, parse_text_positions
from tests.adapters.source.rows import field, message_id, varint

INT_63 = st.integers(0, 2**63 - 1)
INT_31 = st.integers(-1, 2**31 - 1)
IDS = st.tuples(INT_63, INT_63, st.none() | INT_31, st.none() | INT_31, st.none() | st.integers(1, 2**31 - 1))
Parts = tuple[int | None, ...]


def parts(values: list[bytes] | list[str]) -> list[Parts]:
    """What ids say, part by part."""
    return [tuple(row[name] for name in ID_PARTS) for row in parse_message_ids(pa.array(values)).values.to_pylist()]


def broken(values: list[bytes] | list[str]) -> list[bool]:
    outcome = parse_message_ids(pa.array(values))
    return [any(bool(each.rows[row]) for each in outcome.broken) for row in range(len(values))]


def said(given: Parts) -> Parts:
    ledger, entry, partition, batch_index, size = given
    return ledger, entry, -1 if partition is None else partition, -1 if batch_index is None else batch_index, size


def test_the_worked_example_of_pulsar() -> None:
    assert parts(["CLYREAAYASAAMOgH"]) == [(2230, 0, 1, 0, 1000)]


@given(st.lists(IDS, min_size=1, max_size=20))
def test_what_was_encoded_is_decoded(ids: list[tuple[int, int, int | None, int | None, int | None]]) -> None:
    encoded = [message_id(*each) for each in ids]
    assert parts(encoded) == parts([base64.b64encode(each).decode() for each in encoded]) == [said(i) for i in ids]


@given(IDS, st.data())
def test_an_id_that_is_cut_is_rejected_or_says_less_but_raises_nothing(
    given_id: tuple[int, int, int | None, int | None, int | None], data: st.DataObject
) -> None:
    encoded = message_id(*given_id)
    needed = len(message_id(*given_id[:2]))
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    ends = [len(message_id(*given_id[:2], *given_id[2:][:count])) for count in range(4)]  # of whole fields
    assert broken([cut, encoded]) == [len(cut) < needed or len(cut) not in ends, False]


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_any_bytes_are_read_as_a_plain_decoder_reads_them(values: list[bytes]) -> None:
    found = parse_message_ids(pa.array(values, pa.binary())).values.to_pylist()
    for value, row in zip(values, found, strict=True):
        assert tuple(row[name] for name in ID_PARTS) == (plainly(value) or (None,) * 5)


def plainly(data: bytes) -> Parts | None:
    """``MessageIdData`` byte by byte; None where it is none."""
    found: dict[int, int] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= 2**64 - 1
                return value - 2**64 if value >= 2**63 else value
        raise IndexError

    try:
        while at < len(data):
            tag = number()
            name, wire = tag >> 3, tag & 7
            if name <= 0 or wire not in (0, 1, 2, 5):
                return None
            if wire == 0:
                found[name] = number()
            else:
                size = {1: 8, 5: 4}.get(wire)
                size = number() if size is None else size
                if size < 0 or at + size > len(data):
                    return None
                at += size
    except IndexError:
        return None
    if not {1, 2} <= set(found):
        return None
    return found[1], found[2], found.get(3, -1), found.get(4, -1), found.get(6) or None


def test_unknown_fields_of_a_message_id_are_ignored() -> None:
    ack_set = b"".join(field(5, -1) for _ in range(10))
    first_chunk = varint(7 << 3 | 2) + varint(4) + message_id(1, 2)
    assert parts([ack_set + message_id(5, 6) + first_chunk]) == [(5, 6, -1, -1, None)]


@pytest.mark.parametrize(
    "damage",
    [
        field(5, 0) * MAX_FIELDS,  # more than any id has
        field(0, 1),
        varint(1 << 3 | 3),  # a group
        varint(1 << 3 | 6),
        varint(7 << 3 | 2) + varint(3) + b"..",  # bytes beyond the end
        varint(7 << 3 | 2) + varint(2**64 - 1),
        varint(7 << 3 | 1) + b"." * 7,
        varint(7 << 3 | 5) + b"." * 3,
        varint(1 << 3) + b"\x80" * 9 + b"\x80",  # a varint of more than ten bytes
    ],
)
def test_an_id_with_damaged_fields_is_rejected_and_spoils_no_other_row(damage: bytes) -> None:
    assert broken([message_id(3, 4), message_id(1, 2) + damage, message_id(5, 6)]) == [False, True, False]
    assert parts([message_id(3, 4), message_id(1, 2) + damage, message_id(5, 6)])[2][:2] == (5, 6)


def test_the_last_of_a_repeated_field_counts() -> None:
    assert parts([message_id(1, 2) + field(2, 3)]) == [(1, 3, -1, -1, None)]


@pytest.mark.parametrize(
    "text", ["", "1:2", "a:b:c", "1:2:3:4:5", "-1:2:3", "1:2:3:", "9" * 19 + ":1:1", "no id", "CLYR"]
)
def test_text_that_is_no_id_is_rejected(text: str) -> None:
    assert broken([text, "1:2:3"]) == [True, False]


def test_ids_as_text_stand_beside_ids_as_base64() -> None:
    given_ids = ["7:8:-1", "CLYREAAYASAAMOgH", "7:8:2:5", "1:1:-1;7:9:-1"]
    assert parts(given_ids) == [
        (7, 8, -1, -1, None), (2230, 0, 1, 0, 1000), (7, 8, 2, 5, None), (7, 9, -1, -1, None),
    ]  # fmt: skip


def test_no_id_is_no_id_and_not_rejected() -> None:
    outcome = parse_message_ids(pa.array([None, b"\x08\x01\x10\x02"]))
    assert outcome.values.field("ledger").to_pylist() == [None, 1]
    assert not outcome.broken


def test_a_place_of_kafka_is_a_partition_and_an_offset() -> None:
    found = parse_text_positions(pa.array(["2:140", "Partition:0 , Offset:7", "10:00:00", "x", None]))
    assert [row and (row["partition"], row["ledger"], row["entry"]) for row in found.values.to_pylist()] == [
        (2, 0, 140), (0, 0, 7), *[(None, None, None)] * 3,
    ]  # fmt: skip
    assert found.broken[0].rows.tolist() == [False, False, True, True, False]
