"""Rows given twice are judged once; rows that contradict one another are judged by nobody."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit.passes.repeats import drop_repeated_members
from tests.support.history import History, auto_split, findings_of, history
from tests.support.pure import audit

KEY_SHARED = auto_split()
LOG, STORY = "a1 n1 a2 n2", "+C1 a1>C1 a1^ a1! n1>C1 n1^ n1! a2>C1 a2^ a2! +C2 n2>C1 n2^ n2!"


def doubled(tables: History, name: str, row: int, **changes: Any) -> History:
    """One row stands in its table twice, the second time changed."""
    rows = tables[name].to_pylist()
    return tables | {name: pa.Table.from_pylist([*rows, rows[row] | changes], tables[name].schema)}


def judged(tables: History, batch_rows: int = 1000) -> pa.Table:
    rows = audit(KEY_SHARED, tables, batch_rows)
    return rows.filter(rows["delivered"])


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_two_rows_of_one_delivery_count_once(row: int, batch_rows: int) -> None:
    reported = history(LOG, STORY)
    once, twice = judged(reported), judged(doubled(reported, "deliveries", row), batch_rows)
    assert sum(twice["repeated"].to_pylist()) == 1
    assert once.drop_columns("repeated").to_pylist() == twice.drop_columns("repeated").to_pylist()


def test_a_row_that_knows_less_is_the_same_row() -> None:
    reported = history(LOG, STORY)
    once, twice = judged(reported), judged(doubled(reported, "deliveries", 0, acked_at=None, ack_type=None))
    assert once["acked"].to_pylist() == twice["acked"].to_pylist()
    assert (sum(twice["repeated"].to_pylist()), sum(twice["contradicted"].to_pylist())) == (1, 0)


@pytest.mark.parametrize("change", [{"consumer": "C2"}, {"acked_at": 1_800_000_000_000_000}])
def test_a_contradiction_breaks_no_promise(change: dict[str, Any]) -> None:
    tables = doubled(history(LOG, STORY), "deliveries", 2, **change)
    assert not {code for code, _ in findings_of(KEY_SHARED, tables) if code.isupper()}
    assert judged(tables)["contradicted"].to_pylist() == [0, 0, 1, 0]


@pytest.mark.parametrize("change", [{"redelivery_count": 1}, {"seq": 9}])
def test_a_second_delivery_is_not_a_repeated_row(change: dict[str, Any]) -> None:
    rows = judged(doubled(history(LOG, STORY), "deliveries", 0, **change))
    assert (rows.num_rows, sum(rows["repeated"].to_pylist())) == (5, 0)


def test_two_rows_of_one_message_count_once() -> None:
    reported = history("a1 a2 a3", "+C1 a1>C1 a1! a2>C1 a2!")
    tables = doubled(doubled(reported, "messages", 0), "messages", 2)
    assert findings_of(KEY_SHARED, tables) == findings_of(KEY_SHARED, reported)
    rows = audit(KEY_SHARED, tables)
    assert sum(rows["stored_again"].to_pylist()) == 2  # one was delivered, one never


def test_two_rows_of_one_join_are_one_consumer() -> None:
    rows = history("a1", "+C1:5 +C2 -C1")["membership"].to_pylist()
    assert drop_repeated_members([*rows, rows[0]]) == (rows, 1, 0)
    assert drop_repeated_members([*rows, rows[0] | {"receiver_queue_size": 7}]) == (rows, 0, 1)
    later = rows[0] | {"seq": 99}
    assert drop_repeated_members([*rows, later]).rows == [*rows, later]
