"""Which findings a report describes: a sample, failing ones first, with some for every rule, consumer and window."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from subreplay.audit.rules.registry import Code, Exemption
from subreplay.reports.assemble.finding_views import build_code_summaries, count_findings_over_time, sample_findings
from subreplay.reports.assemble.report import build_facts
from subreplay.reports.figures import MAX_SHOWN_FINDINGS, Figures, Row
from subreplay.reports.finding_sample import SampleFacet, order_for_sample
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import ScenarioPlan

WIDTH = 1_000


def row(
    code: str, at: int | None, consumer: str | None = "c1", verdict: str = "invalid", **more: Any
) -> dict[str, Any]:
    """A row of table ``violations``, its time in ns."""
    position = {"topic": "t", "partition": -1, "ledger": 5, "entry": at or 0, "batch_index": -1}
    words = {"key": "3fa9", "cause": "unexplained", "witness": ["5:1"], "explanation": f"{code} at {at}"}
    return {"code": code, "at": at, "consumer": consumer, "verdict": verdict, **position, **words, **more}


def taken(*findings: SampleFacet) -> list[int]:
    return [position for _, position in order_for_sample([findings], lambda finding: finding)]


def test_the_first_of_every_consumer_and_window_comes_before_the_second_of_any() -> None:
    a, b, later = SampleFacet(True, "c1", 0), SampleFacet(True, "c2", 0), SampleFacet(True, "c1", 1)
    assert taken(a, a, a, b, later) == [0, 3, 4, 1, 2]


def test_what_fails_comes_before_what_does_not() -> None:
    assert taken(SampleFacet(False, "c1", 0), SampleFacet(True, "c1", 0), SampleFacet(True, "c1", 0)) == [1, 2, 0]


def test_rules_take_turns() -> None:
    some = SampleFacet(True, "c1", 0)
    assert list(order_for_sample([[some] * 3, [], [some]], lambda finding: finding)) == [(0, 0), (2, 0), (0, 1), (0, 2)]


def test_where_even_the_first_are_too_many_every_consumer_and_every_window_is_there() -> None:
    grid = [SampleFacet(True, consumer, window) for window in range(40) for consumer in range(30)]
    kept = [grid[i] for i in taken(*grid)[:80]]
    assert {one.window for one in kept} == set(range(40))
    assert {one.consumer for one in kept} == set(range(30))


def test_a_rule_with_a_million_findings_leaves_room_for_the_others() -> None:
    rows = [row("LOST", at) for at in range(5_000)] + [row("SKIP", at) for at in range(10)]
    kept = sample_findings(rows, WIDTH)
    assert {code: len(found) for code, found in kept.items()} == {"LOST": MAX_SHOWN_FINDINGS - 10, "SKIP": 10}


def test_what_is_kept_stands_in_order_of_time_failing_first() -> None:
    rows = [row("LOST", 7), row("LOST", 3, verdict="valid"), row("LOST", None), row("LOST", 5)]
    assert [r["at"] for r in sample_findings(rows, WIDTH)["LOST"]] == [None, 5, 7, 3]


def test_the_order_of_the_rows_does_not_matter_and_choosing_twice_is_choosing_once() -> None:
    rows = [row("LOST", at, f"c{at % 3}") for at in range(60)] + [row("SKIP", at) for at in range(60)]
    once = sample_findings(rows, WIDTH, most=40)
    assert sample_findings(rows[::-1], WIDTH, most=40) == once
    assert sample_findings([r for found in once.values() for r in found], WIDTH, most=40) == once


def figures(findings: list[Row], worst: list[Row]) -> Figures:
    plan = ScenarioPlan("as recorded", make_policy("pulsar.exclusive", "pulsar-4.0"), {})
    return Figures("t", (), {"first": 0, "last": 9, "messages": 9}, WIDTH, plan, (), findings=findings, worst=worst)


def counted(code: str, count: int, exemption: Exemption = Exemption.NONE) -> Row:
    return {"window": 0, "code": code, "excuse": exemption.value, "consumer": "c1", "count": count}


def test_all_findings_are_counted_and_described_ones_have_their_window() -> None:
    known = figures([counted("PARTITION_ORDER", 1_234)],
                    [row("PARTITION_ORDER", 2_500), row("PARTITION_ORDER", None, window=7_000)])  # fmt: skip
    found = build_code_summaries(known)[0]
    assert (found.code, found.status, found.count, found.source) == ("PARTITION_ORDER", "violated", 1_234, "observed")
    assert [(f.at[-10:], f.window[-10:]) for f in found.worst] == [("", "00.000007Z"), ("00.000002Z", "00.000002Z")]
    assert [p.count for p in count_findings_over_time(known)] == [1_234]


@pytest.mark.parametrize(
    ("days_skipped", "note"), [(False, "findings left open by that run"), (True, "no audit of the day before")]
)
def test_a_daily_run_names_the_run_that_it_continues(days_skipped: bool, note: str) -> None:
    known = replace(figures([], []), previous_run=date(2026, 9, 21), days_skipped=days_skipped)
    (fact,) = (
        fact for fact in build_facts(known.plan.policy, known, ()) if fact.label == "Continues from the audit of"
    )
    assert fact.value == "2026-09-21"
    assert fact.note.startswith(note)


def test_findings_of_predicted_deliveries_are_marked_as_predicted() -> None:
    known = figures([counted("PARTITION_ORDER", 2)], [row("PARTITION_ORDER", 1)])
    observed = build_code_summaries(known)
    predicted = build_code_summaries(known, "predicted")
    assert {s.source for s in predicted} == {"predicted"}
    assert len(predicted) == len(observed) == len(Code)
    assert [(s.code, s.count, s.worst) for s in predicted] == [(s.code, s.count, s.worst) for s in observed]
    assert Counter(s.status for s in observed)["violated"] == 1
