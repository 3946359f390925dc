"""Compare the incidents of an audit with those of the run before it: what is new, worse, or has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from subreplay.audit.attribution import Party
from subreplay.config.alerts import ChangeKind
from subreplay.reports.assemble.incidents import MOST_NAMED, describe_time
from subreplay.reports.data import ReportData
from subreplay.reports.formatting import format_plural
from subreplay.reports.incident_data import IncidentView
from subreplay.reports.overview_data import FAILED, OverviewRow

WORSE: Final = 2
"""An incident is worse if it has at least so many times the findings of the run before."""
VERDICTS: Final = ("valid", "unknown", "invalid", FAILED)
"""The worst verdict last."""
CONSUMER: Final[Party] = "consumer application"
IncidentKey = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class PreviousIncident:
    """What table ``incidents`` says about an incident that failed the run before this one."""

    title: str
    verdict: str  # invalid, unknown
    code: str
    attribution: str
    consumers: tuple[str, ...]
    findings: int


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The run before this one, of the same subscription and topic."""

    verdict: str
    headline: str
    incidents: tuple[PreviousIncident, ...] = ()


@dataclass(frozen=True, slots=True)
class RunChange:
    """A change since the run before: of an incident, or of the verdict if ``code`` is empty."""

    change: ChangeKind
    title: str
    detail: str = ""
    next_step: str = ""
    verdict: str = "valid"
    code: str = ""
    attribution: str = ""
    consumers: tuple[str, ...] = ()
    findings: int = 0


@dataclass(frozen=True, slots=True)
class AuditedSubscription:
    """The row of a subscription in an overview, and what changed since the run before."""

    row: OverviewRow
    changes: tuple[RunChange, ...] = ()

    @property
    def has_new(self) -> bool:
        """Whether something is new or worse."""
        return any(change.change != "ended" for change in self.changes)


def find_changes(row: OverviewRow, report: ReportData | None, before: PreviousRun | None) -> tuple[RunChange, ...]:
    """Find what changed since the run before; everything is new if there was none.

    Two incidents are the same if rule and attribution are and, if a consumer application causes them, the consumers.
    Those that do not fail a run are not compared. A run with the verdict *unknown* cannot show that an incident has
    ended. An audit that failed has no rows to compare with, so its failure is new each time.
    """
    if report is None:
        return (RunChange("new", row.sentence, verdict=FAILED),)
    earlier = _group(before.incidents if before else ())
    found = [*_compare(_group(one for one in report.incidents if one.verdict != "valid"), earlier, report)]
    was = "valid" if before is None else before.verdict
    if VERDICTS.index(report.verdict) > VERDICTS.index(was) and all(one.change == "ended" for one in found):
        kind: ChangeKind = "new" if was == "valid" else "worse"
        found.insert(0, RunChange(kind, report.headline, report.detail, verdict=report.verdict))
    if report.verdict == "valid" and was != "valid" and not found:
        assert before is not None
        found.append(RunChange("ended", before.headline, verdict=was))
    return tuple(found)


def _compare(
    now: Mapping[IncidentKey, list[Any]], earlier: Mapping[IncidentKey, list[Any]], report: ReportData
) -> Iterator[RunChange]:
    day = report.run.date
    for key, mine in now.items():
        before = earlier.get(key)
        if before is None:
            yield _build_change("new", mine, day)
        elif _is_worse(mine, before):
            yield _build_change("worse", mine, day)
    if report.verdict != "unknown":
        for key, before in earlier.items():
            if key not in now:
                yield _build_change("ended", before, day)


def _group(incidents: Iterable[IncidentView | PreviousIncident]) -> dict[IncidentKey, list[Any]]:
    """Group incidents by what identifies them from run to run. Which consumers a fault of a broker or a producer meets
    changes from day to day. The names of many consumers are ignored, because an incident names only the first ones."""
    found: dict[IncidentKey, list[Any]] = {}
    for one in incidents:
        names_consumers = one.attribution == CONSUMER and len(one.consumers) < MOST_NAMED
        consumers = tuple(sorted(one.consumers)) if names_consumers else ()
        found.setdefault((one.code, one.attribution, consumers), []).append(one)
    return found


def _is_worse(now: list[Any], before: list[Any]) -> bool:
    verdicts = [max(VERDICTS.index(one.verdict) for one in some) for some in (now, before)]
    counts = [sum(one.findings for one in some) for some in (now, before)]
    return verdicts[0] > verdicts[1] or counts[0] >= WORSE * counts[1]


def _build_change(kind: ChangeKind, incidents: list[Any], day: str | None) -> RunChange:
    first = incidents[0]
    view = first if isinstance(first, IncidentView) else None
    return RunChange(
        kind,
        first.title,
        "" if view is None else _describe_incident(view, day) + _count_further(incidents),
        "" if view is None else view.next_step,
        max((one.verdict for one in incidents), key=VERDICTS.index),
        first.code,
        first.attribution,
        first.consumers,
        sum(one.findings for one in incidents),
    )


def _count_further(incidents: list[IncidentView]) -> str:
    """Say how many incidents of this kind there are beside the first, and what they amount to together."""
    if len(incidents) == 1:
        return ""
    further = format_plural(len(incidents) - 1, "more incident")
    return f" With {further} of this kind: {format_plural(sum(one.findings for one in incidents), 'finding')}."


def _describe_incident(view: IncidentView, day: str | None) -> str:
    """Say since when, who, and whose doing it is."""
    who = f" Consumers: {', '.join(view.consumers)}." if view.consumers else ""
    whose = f" Attributed to: {view.attribution}." if view.attribution else ""
    return f"{describe_time(view, day)}{who}{whose}"
