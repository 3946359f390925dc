"""The overview of a run of several subscriptions: a row each, with what its report says in few figures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from subreplay.reports.data import ReportData

OVERVIEW_VERSION: Final = "1.0"
FAILED: Final = "failed"
"""Stands for the verdict of a subscription whose audit ended with an error."""
WORST_FIRST: Final = (4, 2, 1, 3, 0)
"""Exit codes: what could not be audited comes before what was found."""
_WAITING: Final = frozenset({"STALLED", "STUCK", "STARVED", "LATE", "LOST"})
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_SHOWN: Final = 40  # characters of a name that a folder shows


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """One subscription on one topic. Figures are None where its audit ended with an error.

    ``findings``: of rules that were broken. ``waiting``: messages that waited too long or never came. ``worst_delay``:
    the longest of them, ns past due. ``redelivery_rate``: redeliveries of all deliveries. ``skew``: of the consumer
    with the largest share, over an even one. ``page``: its report, relative to the overview; empty: there is none.
    """

    subscription: str
    topic: str
    owner: str
    verdict: str  # valid, unknown, invalid, failed
    exit_code: int
    sentence: str  # the headline, or what is wrong
    messages: int | None = None
    deliveries: int | None = None
    findings: int | None = None
    waiting: int | None = None
    worst_delay: int | None = None
    redelivery_rate: float | None = None
    skew: float | None = None
    page: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything the overview shows, the worst rows first."""

    schema_version: str
    title: str
    date: str | None
    rows: tuple[OverviewRow, ...]

    @property
    def exit_code(self) -> int:
        """The worst of all rows."""
        return min((row.exit_code for row in self.rows), key=WORST_FIRST.index, default=0)


def overview(title: str, date: str | None, rows: Iterable[OverviewRow]) -> Overview:
    """The overview of rows in any order."""

    def place(row: OverviewRow) -> tuple[int, int, str, str]:
        return WORST_FIRST.index(row.exit_code), -(row.findings or 0), row.subscription, row.topic

    return Overview(OVERVIEW_VERSION, title, date, tuple(sorted(rows, key=place)))


def overview_row(report: ReportData, owner: str, exit_code: int, worst_delay: int | None) -> OverviewRow:
    """The row of a subscription with a report; ``worst_delay``: the longest wait among its findings, ns."""
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
        page=f"{folder_of(run.subscription, run.topic)}/report.html",
    )


def folder_of(subscription: str, topic: str) -> str:
    """The folder of a subscription's report: its names as far as a path can have them, and a digest that tells apart
    those that look alike."""
    names = (_UNSAFE.sub("-", name).strip("-.")[-_SHOWN:].strip("-.") for name in (subscription, topic))
    digest = hashlib.sha256(f"{subscription}\0{topic}".encode()).hexdigest()[:8]
    return "-".join(["subscriptions/" + "-".join(filter(None, names)), digest])
