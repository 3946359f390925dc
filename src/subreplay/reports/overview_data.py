"""The overview of a run of several subscriptions: one row each, with the main figures of its report."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from subreplay.reports.data import ReportData
from subreplay.reports.history_data import DayResult

OVERVIEW_VERSION: Final = "1.2"
FAILED: Final = "failed"
"""The verdict of a subscription whose audit ended with an error."""
WORST_FIRST: Final = (4, 2, 1, 3, 0)
"""Exit codes in order of severity: failed audits come before findings."""
_WAITING: Final = frozenset({"STALLED", "STUCK", "STARVED", "LATE", "LOST"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SHOWN: Final = 40  # characters of each name in a folder name


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """One subscription on one topic. The figures are None if its audit ended with an error.

    ``findings`` counts findings of violated rules. ``waiting`` counts messages that waited too long or were never
    delivered, and ``worst_delay`` is the longest delay (ns past due). ``redelivery_rate`` is redeliveries / deliveries.
    ``skew`` is the largest share divided by the fair share. ``page`` is the report's path relative to the overview; it
    is empty if there is no report. ``worst_incident`` is the title of the most severe of ``incidents``. ``trend`` has
    the results of the days up to this one; it is empty for a run without a date.
    """

    subscription: str
    topic: str
    owner: str
    verdict: str  # valid, unknown, invalid, failed
    exit_code: int
    sentence: str  # the headline, or the error
    messages: int | None = None
    deliveries: int | None = None
    findings: int | None = None
    waiting: int | None = None
    worst_delay: int | None = None
    redelivery_rate: float | None = None
    skew: float | None = None
    page: str = ""
    incidents: int | None = None
    worst_incident: str = ""
    trend: tuple[DayResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """All data of the overview, the worst rows first. ``failed_alerts`` says why alerts of this run were not sent."""

    schema_version: str
    title: str
    date: str | None
    rows: tuple[OverviewRow, ...]
    failed_alerts: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """The worst exit code of all rows."""
        return min((row.exit_code for row in self.rows), key=WORST_FIRST.index, default=0)


def build_overview(title: str, date: str | None, rows: Iterable[OverviewRow]) -> Overview:
    """Build the overview from rows in any order."""

    def sort_key(row: OverviewRow) -> tuple[int, int, str, str]:
        return WORST_FIRST.index(row.exit_code), -(row.findings or 0), row.subscription, row.topic

    return Overview(OVERVIEW_VERSION, title, date, tuple(sorted(rows, key=sort_key)))


def build_overview_row(report: ReportData, owner: str, exit_code: int, worst_delay: int | None) -> OverviewRow:
    """Build the row of a subscription from its report; ``worst_delay`` is the longest delay of its findings (ns)."""
    run = report.run
    broken = {code.code: code.count for code in report.codes if code.status == "violated" and code.source == "observed"}
    served = [total for total in report.totals if total.messages]
    deliveries = sum(total.messages for total in served)
    messages = next((count.valid for count in report.inputs if count.table == "messages"), 0)
    return OverviewRow(
        subscription=run.subscription,
        topic=run.topic,
        owner=owner,
        verdict=report.verdict,
        exit_code=exit_code,
        sentence=report.headline,
        messages=messages,
        deliveries=deliveries,
        findings=sum(broken.values()),
        waiting=sum(count for code, count in broken.items() if code in _WAITING),
        worst_delay=worst_delay,
        redelivery_rate=sum(total.redelivered for total in served) / deliveries if deliveries else None,
        skew=max((total.skew for total in served), default=None),
        page=f"{name_report_folder(run.subscription, run.topic)}/report.html",
        incidents=len(report.incidents),
        worst_incident=report.incidents[0].title if report.incidents else "",
    )


def name_report_folder(subscription: str, topic: str) -> str:
    """Name the folder of a subscription's report by its path-safe names and a digest of them."""
    names = (_UNSAFE.sub("-", name).strip("-.")[-_SHOWN:].strip("-.") for name in (subscription, topic))
    digest = hashlib.sha256(f"{subscription}\0{topic}".encode()).hexdigest()[:8]
    return "-".join(["subscriptions/" + "-".join(filter(None, names)), digest])
