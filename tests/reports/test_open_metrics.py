"""The file of metrics, as Prometheus' own parsers read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from subreplay.reports.data import ReportData
from subreplay.reports.open_metrics import GAUGES, format_open_metrics
from subreplay.reports.overview_data import OverviewRow, build_overview_row

NOW = 1_790_000_000.123
FAILED = OverviewRow('odd "name"\\\n', "t", "", "failed", 4, "No space is left.")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    """The samples of a text, as both parsers read them: that of OpenMetrics, and that of Prometheus' text format."""
    openmetrics = pytest.importorskip(
        "prometheus_client.openmetrics.parser", reason="prometheus-client is not installed"
    )
    parser = pytest.importorskip("prometheus_client.parser")
    found: list[Samples] = []
    for parse in (openmetrics.text_string_to_metric_families, parser.text_string_to_metric_families):
        families = list(parse(text))
        assert {family.type for family in families} == {"gauge"}
        assert all(family.documentation for family in families)
        samples = [sample for family in families for sample in family.samples]
        found.append({(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples})
        assert len(found[-1]) == len(samples)
        assert all(sample.timestamp is None for sample in samples)  # the textfile collector refuses times
    assert found[0] == found[1]
    return found[0]


def of(row: OverviewRow, **more: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"subscription": row.subscription, "topic": row.topic, **more}.items()))


def test_prometheus_reads_every_gauge_of_a_subscription(small: ReportData) -> None:
    row = build_overview_row(small, "ann", 1, 8_500_000_000)
    found = read(format_open_metrics([(row, small)], NOW))
    assert {name for name, _ in found} == {f"subreplay_{gauge}" for gauge in GAUGES}
    assert found["subreplay_verdict", of(row)] == 2
    assert found["subreplay_worst_delay_seconds", of(row)] == 8.5
    assert found["subreplay_skew_ratio", of(row)] == row.skew
    assert found["subreplay_last_run_timestamp_seconds", of(row)] == NOW
    failing = [one for one in small.incidents if one.verdict != "valid"]
    assert found["subreplay_incidents", of(row)] == len(failing)
    by_rule = {dict(labels)["rule"]: value for (name, labels), value in found.items() if name == "subreplay_findings"}
    assert sum(by_rule.values()) == row.findings
    silent = {code.code for code in small.codes if code.status in ("not applicable", "unknown")}
    assert silent
    assert not silent & {*by_rule}


def test_an_audit_that_failed_has_a_verdict_and_no_figures() -> None:
    assert read(format_open_metrics([(FAILED, None)], NOW)) == {("subreplay_verdict", of(FAILED)): 3}


def test_an_unknown_figure_is_absent(small: ReportData) -> None:
    row = replace(build_overview_row(small, "", 3, None), redelivery_rate=None, skew=None)
    names = {name for name, _ in read(format_open_metrics([(row, small)], NOW))}
    assert not {"subreplay_redelivery_ratio", "subreplay_skew_ratio"} & names


def test_one_file_has_all_subscriptions_and_no_sample_twice(small: ReportData) -> None:
    row = build_overview_row(small, "", 1, None)
    text = format_open_metrics([(row, small), (FAILED, None), (FAILED, None)], NOW)
    assert len([labels for name, labels in read(text) if name == "subreplay_verdict"]) == 2
    assert text.endswith("# EOF\n")


def test_the_guide_explains_every_gauge() -> None:
    page = (Path(__file__).parents[2] / "docs/guides/prometheus.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `subreplay_")] == [
        f"| `subreplay_{gauge}` | {meaning} |" for gauge, meaning in GAUGES.items()
    ]
