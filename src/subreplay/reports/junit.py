"""Format audits as JUnit XML, which continuous integration shows: a test suite for each subscription, a test case for
each rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree as ET

from subreplay.reports.data import ReportData
from subreplay.reports.finding_data import CodeSummary
from subreplay.reports.formatting import format_plural
from subreplay.reports.overview_data import OverviewRow
from subreplay.reports.text_cleaning import escape_unsafe

_COUNTED: Final = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""The attributes of a test suite, and the elements that they count."""


def format_junit(audits: Iterable[tuple[OverviewRow, ReportData | None]]) -> str:
    """Format audits as one document.

    A broken guarantee is a failure with its worst finding. What leaves the verdict unknown is an error, and so is an
    audit that failed (its report is None). A rule that does not apply is skipped.
    """
    root = ET.Element("testsuites", name="subreplay")
    for row, report in audits:
        name = f"{row.subscription} on {row.topic}" if row.topic else row.subscription
        suite = ET.SubElement(root, "testsuite", name=escape_unsafe(name))
        if report is None:
            _add_case(suite, name, "audit", ("error", "failed", row.sentence, row.sentence))
        else:
            _add_cases(suite, name, report)
        _count(suite, [suite])
    _count(root, [*root])
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_cases(suite: ET.Element, name: str, report: ReportData) -> None:
    properties = ET.SubElement(suite, "properties")
    for key in ("verdict", "headline"):
        ET.SubElement(properties, "property", name=key, value=escape_unsafe(getattr(report, key)))
    ET.SubElement(properties, "property", name="run_id", value=escape_unsafe(report.run.run_id))
    for code in report.codes:
        if code.source == "observed":
            _add_case(suite, name, f"{code.code}: {code.title}", _judge(code))
    text = "\n".join(report.doubts) or report.headline
    fails = (
        report.verdict != "valid" and suite.find("testcase/failure") is None and suite.find("testcase/error") is None
    )
    suffices = not (report.doubts or fails)
    _add_case(
        suite, name, "DATA: the data suffice for a verdict", None if suffices else ("error", "unknown", text, text)
    )


def _judge(code: CodeSummary) -> tuple[str, str, str, str] | None:
    """Return the element that says why a test case of a rule has not passed: its name, type, message and text."""
    worst = code.worst[0] if code.worst else None
    if code.verdict in ("invalid", "unknown"):
        message = worst.sentence if worst is not None and code.verdict == "invalid" else code.note or code.title
        lines = [f"{format_plural(code.count, 'finding')}. {code.meaning}"]
        if worst is not None:
            lines += [worst.sentence, f"Cause: {worst.cause}", *worst.witness]
        return ("failure" if code.verdict == "invalid" else "error"), code.verdict, message, "\n".join(lines)
    if code.status == "not applicable":
        return "skipped", "", code.note or "not applicable", ""
    return None


def _add_case(suite: ET.Element, name: str, case: str, outcome: tuple[str, str, str, str] | None) -> None:
    found = ET.SubElement(suite, "testcase", classname=escape_unsafe(name), name=escape_unsafe(case))
    if outcome is not None:
        element, kind, message, text = outcome
        reason = ET.SubElement(found, element, message=escape_unsafe(message))
        if kind:
            reason.set("type", kind)
        reason.text = "\n".join(map(escape_unsafe, text.splitlines())) or None


def _count(element: ET.Element, suites: Iterable[ET.Element]) -> None:
    """Write how many test cases of suites have which outcome."""
    cases = [case for suite in suites for case in suite.findall("testcase")]
    element.set("tests", str(len(cases)))
    for attribute, outcome in _COUNTED.items():
        element.set(attribute, str(sum(case.find(outcome) is not None for case in cases)))
