"""Format the figures of audited subscriptions as OpenMetrics text, which Prometheus' node exporter reads, too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from subreplay.reports.data import ReportData
from subreplay.reports.overview_data import FAILED, OverviewRow

_VERDICTS: Final = {"valid": 0, "unknown": 1, "invalid": 2, FAILED: 3}
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Sample(NamedTuple):
    """The value of a gauge, and the value of its label ``rule`` if it has one."""

    gauge: str
    value: float
    rule: str | None = None


GAUGES: Final = {
    "verdict": "Verdict of the last audit: 0 valid, 1 unknown, 2 invalid, 3 failed.",
    "findings": "Findings of a rule that break a guarantee; absent if the rule could not judge.",
    "incidents": "Incidents that make the verdict invalid or unknown.",
    "waiting_messages": "Messages that waited too long or were never delivered.",
    "worst_delay_seconds": "Longest delay of a message past the time when it was due; 0 if none is reported.",
    "redelivery_ratio": "Redeliveries divided by deliveries; absent without deliveries.",
    "skew_ratio": "Largest share of a consumer divided by the fair share; absent without deliveries.",
    "last_run_timestamp_seconds": "When the last audit that did not fail was finished, in Unix time.",
}
"""Each gauge without the prefix ``subreplay_``, and what it means."""


def format_open_metrics(audits: Iterable[tuple[OverviewRow, ReportData | None]], now: float) -> str:
    """Format gauges with labels ``subscription`` and ``topic``; ``now`` is the time of the run in s.

    A figure that is unknown is absent, so an audit that failed has a verdict only.
    """
    samples: dict[str, dict[str, float]] = {gauge: {} for gauge in GAUGES}
    for row, report in audits:
        labels = {"subscription": row.subscription, "topic": row.topic}
        for gauge, value, rule in _list_samples(row, report, now):
            named = labels if rule is None else {**labels, "rule": rule}
            text = ",".join(f'{name}="{each.translate(_ESCAPES)}"' for name, each in named.items())
            samples[gauge].setdefault(text, value)
    lines = []
    for gauge, values in samples.items():
        lines += [f"# HELP subreplay_{gauge} {GAUGES[gauge]}", f"# TYPE subreplay_{gauge} gauge"]
        lines += [f"subreplay_{gauge}{{{labels}}} {value}" for labels, value in sorted(values.items())]
    return "\n".join([*lines, "# EOF", ""])


def _list_samples(row: OverviewRow, report: ReportData | None, now: float) -> Iterator[_Sample]:
    yield _Sample("verdict", _VERDICTS[row.verdict])
    if report is None:
        return
    for code in report.codes:
        if code.source == "observed" and code.status not in ("not applicable", "unknown"):
            yield _Sample("findings", code.count if code.status == "violated" else 0, code.code)
    yield _Sample("incidents", sum(one.verdict != "valid" for one in report.incidents))
    yield _Sample("waiting_messages", row.waiting or 0)
    yield _Sample("worst_delay_seconds", (row.worst_delay or 0) / 1_000_000_000)
    if row.redelivery_rate is not None:
        yield _Sample("redelivery_ratio", row.redelivery_rate)
    if row.skew is not None:
        yield _Sample("skew_ratio", row.skew)
    yield _Sample("last_run_timestamp_seconds", round(now, 3))
