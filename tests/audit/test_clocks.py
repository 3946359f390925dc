"""A clock that is off by a constant is found, and nobody who is only slow is taken for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subreplay.audit.clocks import LAGS, Clocks, ClockShift, compute_size_bounds, count_failing, find_shifts, may_be_off
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.passes.lags import LagCounts
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.rows import RuleStatus
from tests.support.clocks import OWN_LOG, lag, lags, off
from tests.support.recordings import ROOT, ingested

MS, SECOND = 1_000_000, 1_000_000_000
LOGGED = ROOT.parent / "recordings-with-logs"
FOLDERS = sorted(path.parent for root in (ROOT, LOGGED) for path in root.glob("*/*/scenario.json"))
QUICK = [1 * MS] * 100
ALL = ("at", "received_at", "acked_at", "nacked_at")
CLIENT = ("received_at", "acked_at", "nacked_at")


def consumer(
    name: str, dispatch: Sequence[int] = QUICK, receipt: Sequence[int] = QUICK, end: Sequence[int] = QUICK
) -> dict[str, Any]:
    return {"consumer": name, "dispatch": lag([*dispatch]), "receipt": lag([*receipt]), "end": lag([*end])}


def moved(by: int, values: Sequence[int] = QUICK) -> list[int]:
    return [value + by for value in values]


def found(*rows: dict[str, Any], least: int = SECOND) -> list[ClockShift]:
    return [*find_shifts(rows, least)]


C1 = consumer("c1")


@pytest.mark.parametrize("by", [-5 * SECOND, 5 * SECOND])
def test_which_columns_a_clock_wrote(by: int) -> None:
    wrong = moved(by)
    assert found(C1, consumer("c2", wrong)) == [ClockShift("c2", by, ALL)]
    assert found(C1, consumer("c2", QUICK, wrong, wrong)) == [ClockShift("c2", by, CLIENT)]
    assert found(C1, consumer("c2", QUICK, wrong)) == [ClockShift("c2", by, ("received_at",))]
    assert found(C1, consumer("c2", QUICK, wrong, [])) == [ClockShift("c2", by, ("received_at",))]


def test_an_acknowledgement_before_the_dispatch_is_a_clock_and_a_late_one_may_be_work() -> None:
    assert found(C1, consumer("c2", end=moved(-5 * SECOND))) == [
        ClockShift("c2", -5 * SECOND, ("acked_at", "nacked_at"))
    ]
    assert found(C1, consumer("c2", end=moved(5 * SECOND))) == []


def test_without_another_consumer_in_time_a_dispatch_before_its_message_may_be_the_producers_clock() -> None:
    assert found(consumer("c1", moved(-5 * SECOND)), consumer("c2", moved(-5 * SECOND))) == []


def test_two_clocks_are_two_shifts() -> None:
    rows = consumer("c1", moved(-5 * SECOND)), C1 | {"consumer": "c2"}, consumer("c3", moved(3 * SECOND))
    assert found(*rows) == [ClockShift("c1", -5 * SECOND, ALL), ClockShift("c3", 3 * SECOND, ALL)]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param([ms * 10 * MS for ms in range(1_000)], id="a queue that fills"),
        pytest.param([5 * SECOND + ms * 5 * MS for ms in range(1_000)], id="a queue that is full from the beginning"),
        pytest.param([2 * MS] * 50 + [9 * SECOND] * 950, id="stuck, after a few"),
    ],
)
def test_the_delays_of_a_slow_consumer_vary(late: list[int]) -> None:
    assert found(C1, consumer("c2", late, late, late)) == []


def test_few_deliveries_or_small_shifts_prove_no_clock_offset() -> None:
    assert found(C1, consumer("c2", receipt=moved(-5 * SECOND, QUICK[:19]))) == []
    assert found(C1, consumer("c2", receipt=moved(-900 * MS))) == []
    assert found(C1, consumer("c2", receipt=moved(-900 * MS)), least=500 * MS) != []


def test_one_impossible_time_is_no_clock() -> None:
    assert found(C1, consumer("c2", receipt=[*QUICK[5:], *[-5 * SECOND] * 5])) == []


each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")


@each
def test_clocks_of_one_machine_agree_and_one_that_is_off_is_found(folder: Path) -> None:
    tables = ingested(folder).tables
    rows = lags(tables)
    assert find_shifts(rows, SECOND) == ()
    busy = [row["consumer"] for row in rows if all(row[name]["count"] >= 100 for name in LAGS)]
    for by in (-5_000_000, 5_000_000) if len(busy) > 1 else ():
        for columns, written in ((OWN_LOG, ALL), (OWN_LOG[1:], CLIENT)):
            reported = find_shifts(lags(off(tables, busy[-1], by, columns)), SECOND)
            if not reported:  # what another one holds back is late by something else each time
                assert (by > 0, columns, "stuck" in folder.name) == (True, OWN_LOG, True)
                continue
            ((who, shift, wrote),) = reported
            assert (who, wrote) == (busy[-1], written)
            assert abs(shift - by * 1_000) < 50 * MS


def counted(split_lags: dict[str, dict[str, list[int]]], least: int) -> list[dict[str, Any]]:
    """LagCounts of consumers as they are counted by size."""
    return [
        {"consumer": who, "lag": name, "size": int(size), "messages": 1}
        for who, of in split_lags.items()
        for name in LAGS
        for size in np.searchsorted(compute_size_bounds(least), of[name], "right")
    ]


def spread(around: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(around - 2 * SECOND, around + 2 * SECOND), max_size=40)


clock = st.sampled_from([-9 * SECOND, -2 * SECOND, 0, 0, SECOND, 9 * SECOND]).flatmap(
    lambda around: st.one_of(spread(around), st.integers(0, 60).map(lambda n: [around] * n))
)
consumers = st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries(dict.fromkeys(LAGS, clock)), min_size=1)


@given(consumers, st.sampled_from([0, 1, 1000, SECOND]))
@example({"a": dict.fromkeys(LAGS, QUICK), "b": dict.fromkeys(LAGS, moved(SECOND))}, SECOND)
@example({"a": dict.fromkeys(LAGS, QUICK), "b": dict.fromkeys(LAGS, moved(-SECOND))}, SECOND)
def test_counts_of_lags_rule_no_clock_out_that_is_off(given: dict[str, dict[str, list[int]]], least: int) -> None:
    rows = [{"consumer": who} | {name: lag(of[name]) for name in LAGS} for who, of in given.items()]
    assert may_be_off(counted(given, least), least) or not find_shifts(rows, least)


@pytest.mark.parametrize("late", [1 * MS, 400 * MS, -400 * MS, 20 * SECOND])
def test_counts_of_lags_show_that_no_clock_is_off(late: int) -> None:
    busy = [late + 7 * MS * n for n in range(1_000)]
    of = dict.fromkeys(LAGS, busy) | {"end": moved(20 * SECOND)}
    assert may_be_off(counted({"a": of, "b": of}, SECOND), SECOND) is (late == 20 * SECOND)
    assert may_be_off(counted({"a": of, "b": of | {"receipt": moved(-5 * SECOND)}}, SECOND), SECOND)


def test_lags_are_counted_while_deliveries_are_judged() -> None:
    counts = LagCounts(SECOND)
    facts = {
        "at": [10, 20, 30, 40],
        "published": [5, 5, 0, 5],
        "due": [5, 7, 5, 5],
        "nth": [0, 1, 0, 0],
        "received": [11, UNKNOWN, 31, 41],
        "by_receipt": [False, False, True, False],
        "acked": [UNKNOWN, 21, UNKNOWN, 40 + 3 * SECOND],
    }
    counts.add(pa.table(facts), np.array([0, 40, 0, 40]))
    counts.add(pa.table({name: values[:1] for name, values in facts.items()}), np.array([0]))
    zero, late = np.searchsorted(compute_size_bounds(SECOND), [1, 3 * SECOND], "right").tolist()
    names = [f"c{n}" for n in range(41)]
    assert [tuple(row.values()) for row in counts.rows(names).to_pylist()] == [
        ("c0", "dispatch", zero, 2),
        ("c0", "receipt", zero, 2),
        ("c40", "dispatch", zero, 1),
        ("c40", "receipt", zero, 1),
        ("c40", "end", zero, 1),
        ("c40", "end", late, 1),
    ]


STANDINGS = dict.fromkeys(Code, RuleStatus.PROMISED)


def test_a_finding_under_either_clock_is_not_explained_by_clocks() -> None:
    recorded = count_failing(
        [
            {"code": "KEY_ORDER", "excuse": Exemption.NONE, "count": 2},
            {"code": "KEY_ORDER", "excuse": Exemption.NONE, "count": 3},
            {"code": "WRONG_OWNER", "excuse": Exemption.NONE, "count": 100},
            {"code": "LOST", "excuse": Exemption.DELIVERY_REJECTED, "count": 7},
        ],
        STANDINGS,
    )
    assert recorded == {Code.KEY_ORDER: 5, Code.WRONG_OWNER: 100}
    clocks = Clocks((ClockShift("c2", -5 * SECOND, ALL),), recorded, {Code.KEY_ORDER: 1})
    assert (clocks.explain, clocks.inconclusive) == ({Code.WRONG_OWNER}, True)
    assert clocks.sentence == (
        "the clock of c2 is 5.00 s behind the broker's: 105 findings as recorded, 1 with it corrected"
    )


def test_a_backlog_is_no_clock_that_is_ahead() -> None:
    late, receipts, behind = (
        ClockShift("c1", SECOND, ALL),
        ClockShift("c2", SECOND, ("received_at",)),
        ClockShift("c3", -SECOND, ALL),
    )
    worse = Clocks((late, receipts, behind), {Code.LOST: 1}, {Code.NOT_CONNECTED: 2})
    assert worse.likely == (receipts, behind)
    better = Clocks((late, receipts, behind), {Code.LOST: 2}, {Code.NOT_CONNECTED: 2})
    assert better.likely == better.shifts


def test_of_many_clocks_a_few_are_named() -> None:
    many = Clocks(tuple(ClockShift(f"c{n}", n * SECOND, ALL) for n in range(1, 8)))
    assert many.sentence.startswith("clocks differ from the broker's: c1 (1.00 s ahead of it), c2 (2.00 s ahead of it)")
    assert "c4 (4.00 s ahead of it) and 3 more: 0 findings" in many.sentence
