"""What is new, worse or over since the run before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from subreplay.reports.assemble.run_changes import PreviousIncident, PreviousRun, RunChange, find_changes
from subreplay.reports.data import ReportData
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.overview_data import OverviewRow
from tests.reports import made_reports

ROW = OverviewRow("sub", "t", "", "invalid", 1, "It broke.")
BASE = made_reports.report(2, 2, 4, 4, 10)
INCIDENT = replace(
    made_reports.incidents()[0],
    verdict="invalid",
    code="STUCK",
    attribution="consumer application",
    consumers=("c1", "c2"),
)


def now(*incidents: IncidentView, verdict: str = "invalid") -> ReportData:
    return replace(BASE, verdict=verdict, headline="Now.", incidents=incidents)


def before(*incidents: IncidentView, verdict: str = "invalid") -> PreviousRun:
    names = ("title", "verdict", "code", "attribution", "consumers", "findings")
    return PreviousRun(
        verdict, "Before.", tuple(PreviousIncident(**{name: getattr(one, name) for name in names}) for one in incidents)
    )


def changes(report: ReportData | None, earlier: PreviousRun | None) -> list[tuple[str, str]]:
    return [(one.change, one.code) for one in find_changes(ROW, report, earlier)]


def changed(**values: Any) -> IncidentView:
    return replace(INCIDENT, **values)


def test_every_incident_of_a_first_run_is_new() -> None:
    assert changes(now(INCIDENT, changed(code="LATE")), None) == [("new", "STUCK"), ("new", "LATE")]
    assert changes(now(verdict="valid"), None) == []


def test_the_same_incident_is_no_change() -> None:
    assert changes(now(INCIDENT), before(INCIDENT)) == []
    assert changes(now(changed(consumers=("c2", "c1"), title="Other words")), before(INCIDENT)) == []


def test_another_rule_attribution_or_consumer_is_another_incident() -> None:
    for other in ({"code": "LATE"}, {"attribution": "producer"}, {"consumers": ("c1",)}):
        found = changes(now(changed(**other)), before(INCIDENT))
        assert [kind for kind, _ in found] == ["new", "ended"]


def test_which_consumers_a_fault_of_the_broker_meets_is_no_change() -> None:
    others = changed(attribution="broker", consumers=("c3",))
    assert changes(now(others), before(changed(attribution="broker"))) == []
    both = changed(attribution="broker"), others
    (found,) = find_changes(ROW, now(*both), before(replace(others, findings=1)))
    assert found.change == "worse"
    assert f"With 1 more incident of this kind: {found.findings:,} findings." in found.detail


def test_consumers_are_not_told_apart_if_there_are_more_than_an_incident_names() -> None:
    names = tuple("abcde")
    assert changes(now(changed(consumers=names)), before(changed(consumers=(*names[:4], "z")))) == []


def test_twice_as_many_findings_or_a_worse_verdict_are_worse() -> None:
    assert changes(now(changed(findings=19)), before(changed(findings=10))) == []
    assert changes(now(changed(findings=20)), before(changed(findings=10))) == [("worse", "STUCK")]
    assert changes(now(INCIDENT), before(changed(verdict="unknown"), verdict="unknown")) == [("worse", "STUCK")]


def test_equal_incidents_of_one_run_count_together() -> None:
    half = changed(findings=10)
    assert changes(now(half, half), before(changed(findings=20))) == []
    assert changes(now(half, half), before(half)) == [("worse", "STUCK")]


def test_an_incident_that_is_gone_has_ended_unless_the_run_is_unknown() -> None:
    assert changes(now(verdict="valid"), before(INCIDENT)) == [("ended", "STUCK")]
    assert changes(now(verdict="unknown"), before(INCIDENT)) == []


def test_a_verdict_without_incidents_is_a_change_by_itself() -> None:
    assert changes(now(verdict="unknown"), before(verdict="valid")) == [("new", "")]
    assert changes(now(verdict="unknown"), before(verdict="unknown")) == []
    assert changes(now(verdict="invalid"), before(verdict="unknown")) == [("worse", "")]
    assert find_changes(ROW, now(verdict="valid"), before(verdict="unknown")) == (
        RunChange("ended", "Before.", verdict="unknown"),
    )


def test_what_does_not_fail_a_run_is_no_change() -> None:
    assert changes(now(changed(verdict="valid", code="DROPPED"), verdict="valid"), None) == []


def test_a_failed_audit_is_new_each_time() -> None:
    assert find_changes(ROW, None, before(INCIDENT)) == (RunChange("new", "It broke.", verdict="failed"),)


def test_a_change_says_since_when_who_and_what_to_do() -> None:
    (found,) = find_changes(ROW, now(INCIDENT), None)
    assert found.title == INCIDENT.title
    assert found.detail.startswith("Since ")
    assert "Consumers: c1, c2. Attributed to: consumer application." in found.detail
    assert found.next_step == INCIDENT.next_step
