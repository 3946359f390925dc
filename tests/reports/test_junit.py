"""JUnit XML: what continuous integration shows of an audit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from xml.etree import ElementTree as ET

from subreplay.reports.data import ReportData
from subreplay.reports.junit import format_junit
from subreplay.reports.overview_data import OverviewRow, build_overview_row

FAILED = OverviewRow("mail", "t", "", "failed", 4, "No space\x00 is <left>.")


def suites(*audits: tuple[OverviewRow, ReportData | None]) -> list[ET.Element]:
    """The test suites of a document, whose counts are right."""
    root = ET.fromstring(format_junit(audits))
    assert root.tag == "testsuites"
    for counted in (root, *root):
        cases = [*counted.iter("testcase")]
        outcomes = Counter(child.tag for case in cases for child in case)
        assert all(len(case) <= 1 for case in cases)
        assert {name: int(counted.get(name, "-1")) for name in ("tests", "failures", "errors", "skipped")} == {
            "tests": len(cases),
            "failures": outcomes["failure"],
            "errors": outcomes["error"],
            "skipped": outcomes["skipped"],
        }
    return [*root]


def cases(suite: ET.Element) -> dict[str, ET.Element]:
    return {case.get("name", "").partition(":")[0]: case for case in suite.iter("testcase")}


def test_each_rule_is_a_test_case_and_each_subscription_a_suite(small: ReportData) -> None:
    row = build_overview_row(small, "", 1, None)
    first, second = suites((row, small), (FAILED, None))
    assert first.get("name") == f"{row.subscription} on {row.topic}"
    observed = [code for code in small.codes if code.source == "observed"]
    assert [*cases(first)] == [code.code for code in observed] + ["DATA"]
    for code in observed:
        case = cases(first)[code.code]
        assert (case.find("failure") is not None) == (code.verdict == "invalid")
        assert (case.find("error") is not None) == (code.verdict == "unknown")
    (only,) = second
    assert only[0].tag == "error"
    assert only[0].get("message") == "No space\\x00 is <left>."


def test_a_failure_has_the_worst_finding(small: ReportData) -> None:
    (suite,) = suites((build_overview_row(small, "", 1, None), small))
    broken = next(
        code for code in small.codes if code.verdict == "invalid" and code.source == "observed" and code.worst
    )
    failure = cases(suite)[broken.code][0]
    assert failure.get("message") == broken.worst[0].sentence
    assert failure.get("type") == "invalid"
    assert f"Cause: {broken.worst[0].cause}" in (failure.text or "")


def test_a_verdict_that_no_rule_explains_is_an_error(small: ReportData) -> None:
    clean = tuple(replace(code, status="clean", verdict="valid", count=0, worst=()) for code in small.codes)
    valid = replace(small, verdict="valid", codes=clean, doubts=())
    unknown = replace(valid, verdict="unknown", doubts=("3 rows are in quarantine",))
    row = build_overview_row(valid, "", 0, None)
    first, second, third = suites((row, valid), (row, unknown), (row, replace(unknown, doubts=())))
    assert (first.get("failures"), first.get("errors")) == ("0", "0")
    assert cases(second)["DATA"][0].get("message") == "3 rows are in quarantine"
    assert cases(third)["DATA"][0].get("message") == small.headline


def test_names_from_the_data_stay_text(hostile: ReportData) -> None:
    row = replace(build_overview_row(hostile, "", 1, None), subscription='"><x>\x1b', topic="]]>&amp;")
    (suite,) = suites((row, hostile))
    assert suite.get("name") == '"><x>\\x1b on ]]>&amp;'
