"""The first sentence of a section says what to see there, with its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subreplay.reports.data import ConsumerTotal, ReportData
from subreplay.reports.page.chart_time import group_windows
from subreplay.reports.page.html import to_html
from subreplay.reports.page.section_sentences import (
    describe_findings,
    describe_hot_keys,
    describe_incidents,
    describe_input,
    describe_load,
    describe_map,
    describe_rules,
    describe_skew,
)


def consumer(name: str, messages: int, share: float, skew: float) -> ConsumerTotal:
    return ConsumerTotal(name, messages, 0, 0, share, skew, 0, 0)


@pytest.mark.parametrize(
    ("totals", "sentence"),
    [
        ([], ""),
        ([consumer("a", 120, 1, 1), consumer("b", 0, 0, 0)], "a received all 120 messages. b received nothing."),
        (
            [consumer("c1", 52, 0.52, 1.04), consumer("c2", 48, 0.48, 0.96)],
            "All 2 consumers are within 10% of their fair share of 100 messages.",
        ),
        (
            [consumer("c1", 26, 0.26, 1.04), consumer("c2", 48, 0.48, 1.92), consumer("c3", 26, 0.26, 1.04)],
            "c2 received 48.0% of the messages, 1.92× its fair share; the others are within 10% of their fair share.",
        ),
        (
            [consumer("c1", 80, 0.8, 1.6), consumer("c2", 20, 0.2, 0.4)],
            "c1 received 80.0% of the messages, 1.60× its fair share; the other received 0.40×.",
        ),
    ],
)
def test_the_load_names_the_consumer_with_the_most(totals: list[ConsumerTotal], sentence: str) -> None:
    assert describe_load(totals) == sentence


def test_each_section_with_figures_begins_with_them(small: ReportData) -> None:
    load = group_windows(small.load)
    assert describe_incidents(small) == (
        "1,290 findings in 7 incidents, the most severe first: 6 violate a guarantee and 1 is inconclusive."
    )
    assert describe_findings(small, None).startswith(
        "1,753 findings: 1,204 of KEY_TWO_OWNERS, 512 of REDELIVERED and 37 of KEY_ORDER. The window from 2026-05-01"
    )
    assert describe_skew(small.totals, load) == (
        "The largest excess: c1 received 1.34× its fair share from 12:00:45 to 12:00:50, 244 messages more."
    )
    assert describe_map(small.range_maps, "2026-05-01").startswith(
        "The owners changed 4 times. In the last epoch from "
    )
    assert (
        describe_hot_keys(small) == "Key 3fa900c1d0 has 8.3% of the messages. The 10 hottest keys have 24.3% together."
    )
    assert describe_rules(small.codes) == (
        "Of 6 rules, 1 is violated, 1 is inconclusive, 1 has findings that the policy allows, 1 only counts, "
        "1 found nothing and 1 does not apply."
    )
    assert describe_input(small) == "3 of 241,408 rows (<0.01%) are in quarantine and not judged."
    assert to_html(small).count('<p class="lede">') >= 10


def test_an_input_without_quarantine_is_valid(small: ReportData) -> None:
    inputs = (replace(small.inputs[0], rows_in=7, valid=7, quarantined=0),)
    assert describe_input(replace(small, inputs=inputs)) == "All 7 rows of the input are valid."


def test_a_map_of_partitions_counts_them(failover: ReportData) -> None:
    assert describe_map(failover.range_maps, None) == (
        "The owners changed 8 times. In the last epoch, C owned 2 of 4 partitions, the most."
    )
