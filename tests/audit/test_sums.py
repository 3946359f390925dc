"""What is counted of findings part by part is what is counted of all of them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.audit import sums
from subreplay.rows import groups
from subreplay.rows.model.tables import VIOLATIONS
from tests.support.properties import examples

SECOND = 1_000_000_000
WIDTH = 10 * SECOND
ORIGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


@st.composite
def findings(draw: st.DrawFn) -> dict[str, Any]:
    """A row of table ``violations``; messages share entries, and some were never delivered."""
    moment = ORIGIN + timedelta(seconds=draw(st.integers(0, 40)))
    reported = {"date": moment.date(), "subscription": "s", "key": None, "slot": 0, "epoch": 1, "witness": []}
    position = {"topic": "t", "partition": draw(st.integers(0, 1)), "ledger": 1, "batch_index": -1}
    return reported | position | {
        "entry": draw(st.integers(0, 9)), "moment": moment, "at": draw(st.sampled_from([None, moment])),
        "code": draw(st.sampled_from(["LOST", "SKIP"])), "verdict": draw(st.sampled_from(["valid", "invalid"])),
        "excuse": None, "consumer": draw(st.sampled_from(["a", "b", None])), "explanation": "",
        "cause": draw(st.sampled_from(["unexplained", "b left"])),
    }  # fmt: skip


@examples(60)
@given(rows=st.lists(findings(), max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4), most=st.integers(0, 12))
def test_the_worst_of_all_are_those_of_the_first_of_each_part(
    rows: list[dict[str, Any]], cuts: list[int], most: int
) -> None:
    found = table(rows)
    few = VIOLATIONS.empty_table()
    for part in parts(found, cuts):
        few = sums.select_first(pa.concat_tables([few, part]), 2, WIDTH, most)
    of_parts = pa.concat_tables(sums.select_first(part, 2, WIDTH, most) for part in parts(found, cuts))
    for chosen in (few, of_parts, sums.select_first(of_parts, 2, WIDTH, most)):
        assert sums.select_worst(chosen, 2, WIDTH, most) == sums.select_worst(found, 2, WIDTH, most)
    assert all(counted["counts"] <= 5 * most for counted in few["code"].value_counts().to_pylist())


@pytest.mark.parametrize("held", [0, 1_000])
@examples(30)
@given(rows=st.lists(findings(), max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_failing_findings_counted_by_part_add_up_to_those_of_all(
    held: int, rows: list[dict[str, Any]], cuts: list[int]
) -> None:
    found = table(rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "MOST_PENDING", held)
        adding = sums.make_pane_adder()
        for part in parts(found, cuts):
            adding.add(sums.count_panes(part, 5 * SECOND))
    together, at_once = adding.compute_sum(), sums.count_panes(found, 5 * SECOND)
    of_all = sums.sum_violations(at_once, 10 * SECOND, 5 * SECOND)
    assert sums.sum_violations(together, 10 * SECOND, 5 * SECOND) == of_all
    assert sum(together["count"].to_pylist()) == sum(row["verdict"] != "valid" for row in rows)
    assert len(together) == len(at_once)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, VIOLATIONS)


def parts(rows: pa.Table, cuts: list[int]) -> list[pa.Table]:
    """Rows cut into parts, of which some may be empty."""
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    return [rows.slice(begin, end - begin) for begin, end in pairwise(ends)]
