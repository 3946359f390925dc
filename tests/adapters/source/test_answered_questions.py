"""What columns leave open is answered by what some rows hold, and every answer is told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.adapters.source.answered_questions import AnsweredCandidate, answer_questions
from subreplay.adapters.source.sample_contents import SampleContents
from subreplay.adapters.source.source_recognition import BY_NAME, Candidate, list_candidates

BY_TIME = {"as": "by_time"}
NOTHING_KNOWN = Candidate(BY_NAME, "messages", {}, ("offset", "topic", "partition", "publish_time"))


def answer(rows: pa.Table) -> AnsweredCandidate:
    found = list_candidates(rows.schema, (), SampleContents(rows))
    return answer_questions(found[0] if found else NOTHING_KNOWN, rows, "orders")


def rows(**columns: object) -> pa.Table:
    known = {"shard": [0, 1, 0, 1], "evt_off": [5, 5, 6, 6], "customer": ["a", "b", "a", None],
             "happened": [1_760_000_000_000 + n for n in range(4)]}  # fmt: skip
    return pa.table({name: values for name, values in (known | columns).items() if values is not None})


def test_columns_of_unknown_names_are_known_by_what_they_hold() -> None:
    found = answer(rows())
    assert found.open == ()
    assert found.section == {
        "columns": {
            "publish_time": {"column": "happened", "as": "epoch_ms"},
            "partition": "shard",
            "offset": "evt_off",
            "key": {"column": "customer", "as": "utf8"},
        },
        "values": {"topic": "orders"},
    }
    why = "its name suggests offsets, and no number in it repeats within one shard"
    assert f"offset is taken to be evt_off: {why}" in found.assumed
    assert len(found.assumed) == 7


@pytest.mark.parametrize(("per_second", "unit"), [(1, "s"), (1_000, "ms"), (1_000_000, "us"), (1_000_000_000, "ns")])
def test_the_unit_of_a_time_is_that_in_which_all_are_times(per_second: int, unit: str) -> None:
    found = answer(rows(happened=[1_760_000_000 * per_second + n for n in range(4)]))
    assert found.section["columns"]["publish_time"] == {"column": "happened", "as": f"epoch_{unit}"}


def test_a_number_that_comes_twice_in_a_partition_is_no_offset() -> None:
    assert answer(rows(evt_off=[5, 5, 5, 6])).section["columns"]["offset"] == BY_TIME


def test_without_a_partition_numbers_may_not_come_twice_at_all() -> None:
    assert answer(rows(shard=None)).section["columns"]["offset"] == BY_TIME
    found = answer(rows(shard=None, evt_off=[1, 2, 3, 4]))
    assert (found.open, found.section["values"]) == ((), {"topic": "orders", "partition": -1})


def test_a_column_without_a_known_name_is_an_offset_only_if_its_values_rise() -> None:
    assert answer(rows(evt_off=None, x=[3, 1, 4, 2])).open == ()
    assert answer(rows(evt_off=None, x=[4, 2, 3, 1])).section["columns"]["offset"] == BY_TIME


def test_no_rows_answer_nothing() -> None:
    found = answer(rows().slice(0, 0))
    assert set(found.open) == {"offset", "publish_time"}


def orders(**columns: object) -> pa.Table:
    """Orders of a shop, 40 of them, without an offset."""
    known = {
        "order_ref": [f"SO-{n}" for n in range(40)],
        "customer": [f"C{n * 7 % 11}" for n in range(40)],
        "placed": [f"2026-11-20T08:00:{n:02}.277+01:00" for n in range(40)],
        "status": [("NEW", "SENT")[n % 2] for n in range(40)],
    }
    return pa.table({name: values for name, values in (known | columns).items() if values is not None})


def columns_of(found: AnsweredCandidate) -> dict[str, object]:
    return {ours: each["column"] if isinstance(each, dict) and "column" in each else each
            for ours, each in found.section["columns"].items()}  # fmt: skip


def test_a_file_without_offsets_is_numbered_by_its_times_and_says_so() -> None:
    found = answer(orders())
    assert columns_of(found) == {"publish_time": "placed", "key": "customer", "offset": BY_TIME}
    assert any("numbered by publish_time" in assumed for assumed in found.assumed)


@pytest.mark.parametrize("name", ["customer", "who", "Kunde", "用户", "x"])
def test_the_key_is_a_column_that_repeats_whatever_its_name(name: str) -> None:
    values = [f"C{n * 7 % 11}" for n in range(40)]
    assert columns_of(answer(orders(**({"customer": None} | {name: values}))))["key"] == name


def test_a_column_that_is_different_in_every_row_is_no_key() -> None:
    found = answer(orders(customer=None, status=None, session_id=[f"s{n}" for n in range(40)]))
    assert "key" not in columns_of(found)


def test_a_column_named_key_is_the_key_even_if_no_value_repeats() -> None:
    rows_ = orders(key=[f"k{n}" for n in range(40)], partition=[n % 2 for n in range(40)])
    assert columns_of(answer(rows_))["key"] == "key"


@pytest.mark.parametrize(
    ("values", "conversion"),
    [
        ([f"2026-11-20 08:00:{n:02},123" for n in range(40)], "iso8601"),
        ([f"2026/11/20 08:00:{n:02} UTC" for n in range(40)], "iso8601"),
        ([str(1_795_158_000_000 + n) for n in range(40)], "epoch_ms"),
        (["-1", "0", "null", "", *(str(1_795_158_000 + n) for n in range(36))], "epoch_s"),
        ([f"{1_795_158_000 + n}.25" for n in range(40)], "epoch_s"),
        ([1_795_158_000.5 + n for n in range(40)], "epoch_s"),
        ([-1, 0, None, *(1_795_158_000_000_000 + n for n in range(37))], "epoch_us"),
    ],
)
def test_a_time_is_known_by_its_values(values: list[object], conversion: str) -> None:
    found = answer(orders(placed=None, x=values))
    assert found.section["columns"]["publish_time"] == {"column": "x", "as": conversion}


def test_a_name_that_speaks_of_times_without_times_in_it_is_none() -> None:
    found = answer(orders(timestamp=["soon"] * 40, topic=["t"] * 40))
    assert columns_of(found)["publish_time"] == "placed"


@pytest.mark.parametrize("name", ["timestamp(ms since 1970)", "Timestamp (ms)", "timestamp_millis"])
def test_a_unit_in_a_name_belongs_to_it(name: str) -> None:
    found = answer(orders(placed=None, topic=["t"] * 40, **{name: [str(1_795_158_000_000 + n) for n in range(40)]}))
    assert found.section["columns"]["publish_time"]["as"] == "epoch_ms"
    assert name in found.section["columns"]["publish_time"]["column"]


def test_partitions_and_offsets_in_text_are_known_by_name_and_converted() -> None:
    found = answer(orders(Partition=[str(n % 3) for n in range(40)], Offset=[f"{n // 3}.0" for n in range(39)] + [""]))
    assert found.section["columns"]["partition"] == {"column": "Partition", "as": "integer"}
    assert found.section["columns"]["offset"] == {"column": "Offset", "as": "integer"}


def test_a_column_without_a_known_name_is_the_partition_if_offsets_rise_within_it() -> None:
    found = answer(
        orders(lane=[n % 4 for n in range(40)], pos=[n // 4 for n in range(40)], day=[n // 20 for n in range(40)])
    )
    assert columns_of(found) | {"partition": "lane", "offset": "pos"} == columns_of(found)


def test_a_column_of_floats_with_a_missing_offset_is_an_offset() -> None:
    found = answer(orders(topic=["t"] * 40, offset=[float("nan"), *map(float, range(39))]))
    assert columns_of(found)["offset"] == "offset"


def test_an_offset_that_is_the_same_in_every_row_is_none() -> None:
    found = answer(orders(topic=["t"] * 40, offset=[0] * 40))
    assert columns_of(found)["offset"] == BY_TIME
    assert "offset is not offset, which is the same in every row" in found.assumed


def test_a_key_in_a_struct_is_the_field_that_holds_it() -> None:
    keys = [{"schema": "int32", "payload": {"id": n % 5}} for n in range(40)]
    found = answer(orders(customer=None, key=pa.array(keys), topic=["t"] * 40))
    assert found.section["columns"]["key"] == {"column": "key.payload.id", "as": "utf8"}


def test_exact_copies_of_rows_do_not_make_a_number_come_twice() -> None:
    table = rows(evt_off=[5, 5, 6, 6])
    assert answer(pa.concat_tables([table, table])).section["columns"]["offset"] == "evt_off"


def test_a_partition_is_found_though_offsets_of_partitions_happen_not_to_overlap() -> None:
    found = answer(orders(ramo=[n % 3 for n in range(40)], versatz=[1_000 * (n % 3) + n // 3 for n in range(40)]))
    assert columns_of(found) | {"partition": "ramo", "offset": "versatz"} == columns_of(found)


@pytest.mark.parametrize("form", ["({ledger},{entry},-1,0)", "{ledger}:{entry}:-1:0", "{ledger}:{entry}:3"])
def test_message_ids_are_known_by_their_values(form: str) -> None:
    ids = [form.format(ledger=17, entry=n) for n in range(40)]
    assert columns_of(answer(orders(order_ref=None, id=ids)))["message_id"] == "id"


def test_times_of_a_day_are_no_message_ids() -> None:
    found = answer(orders(message_clock=[f"08:{n:02}:00" for n in range(40)]))
    assert columns_of(found)["offset"] == BY_TIME


def test_a_known_source_may_have_times_in_digits_and_keys_in_structs() -> None:
    table = pa.table({"topic": ["t"] * 40, "partition": [0] * 40, "offset": list(range(40)),
                      "timestamp": [str(1_795_158_000_000 + n) for n in range(40)],
                      "key": pa.array([{"schema": "s", "payload": n % 7} for n in range(40)])})  # fmt: skip
    found = answer(table)
    assert found.section == {
        "from": "kafka-table.spark",
        "columns": {
            "timestamp": {"column": "timestamp", "as": "epoch_ms"},
            "key": {"column": "key.payload", "as": "utf8"},
        },
    }


@pytest.mark.parametrize("name", ["Partition:Offset", "partition_offset"])
def test_one_column_may_hold_partition_and_offset(name: str) -> None:
    found = answer(rows(shard=None, evt_off=None, **{name: ["0:5", "1:5", "0:6", "1:6"]}))
    assert found.section["columns"]["message_id"] == {"column": name, "as": "partition_offset"}
    assert found.section["values"] == {"topic": "orders"}


def test_a_column_may_be_called_the_number_of_a_partition() -> None:
    found = answer(rows(shard=None, evt_off=None, **{"partition no": [0, 1, 0, 1], "offset nr": [5, 5, 6, 6]}))
    assert (found.section["columns"]["partition"], found.section["columns"]["offset"]) == ("partition no", "offset nr")
