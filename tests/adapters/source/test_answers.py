"""What columns leave open is answered by what some rows hold, and every answer is told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from subreplay.adapters.source.answers import Answered, answered
from subreplay.adapters.source.recognise import BY_NAME, Candidate, recognise

NOTHING_KNOWN = Candidate(BY_NAME, "messages", {}, ("offset", "topic", "partition", "publish_time"))


def answer(rows: pa.Table) -> Answered:
    found = recognise(rows.schema)
    return answered(found[0] if found else NOTHING_KNOWN, rows, "orders")


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
    why = "its name speaks of offsets, and no number in it comes twice in one shard"
    assert f"offset is taken to be evt_off: {why}" in found.assumed
    assert len(found.assumed) == 7


@pytest.mark.parametrize(("per_second", "unit"), [(1, "s"), (1_000, "ms"), (1_000_000, "us"), (1_000_000_000, "ns")])
def test_the_unit_of_a_time_is_that_in_which_all_are_times(per_second: int, unit: str) -> None:
    found = answer(rows(happened=[1_760_000_000 * per_second + n for n in range(4)]))
    assert found.section["columns"]["publish_time"] == {"column": "happened", "as": f"epoch_{unit}"}


def test_a_number_that_comes_twice_in_a_partition_is_no_offset() -> None:
    assert answer(rows(evt_off=[5, 5, 5, 6])).open == ("offset",)


def test_without_a_partition_numbers_may_not_come_twice_at_all() -> None:
    assert answer(rows(shard=None)).open == ("offset",)
    found = answer(rows(shard=None, evt_off=[1, 2, 3, 4]))
    assert (found.open, found.section["values"]) == ((), {"topic": "orders", "partition": -1})


def test_a_column_of_no_telling_name_is_an_offset_only_if_it_rises() -> None:
    assert answer(rows(evt_off=None, x=[3, 1, 4, 2])).open == ()
    assert answer(rows(evt_off=None, x=[4, 2, 3, 1])).open == ("offset",)


def test_no_rows_answer_nothing() -> None:
    found = answer(rows().slice(0, 0))
    assert set(found.open) == {"offset", "publish_time"}
