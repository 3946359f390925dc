"""Build the report data of findings: counts of all, and sentences for the worst of each rule.

The described findings are a sample of fixed size, which ``sample_findings`` defines. Code that preselects rows of large
runs must select at least the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from subreplay.audit.explain.upstream_faults import UpstreamFault
from subreplay.audit.needs import Need, describe_needs
from subreplay.audit.rules.registry import RULES, Code, Exemption, find_missing_needs
from subreplay.reports.assemble.fault_matches import FaultMatcher, build_known_faults
from subreplay.reports.figures import MAX_SHOWN_FINDINGS, Figures, Row
from subreplay.reports.finding_data import CodeStatus, CodeSummary, FindingPoint, FindingView, Source
from subreplay.reports.finding_sample import SampleFacet, order_for_sample
from subreplay.rows.model.rows import RuleStatus, Verdict
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.policies.base import Policy


def build_code_summaries(figures: Figures, source: Source = "observed") -> tuple[CodeSummary, ...]:
    """Build one summary for each rule: its findings, and its status under the policy."""
    policy, rule_status = figures.plan.policy, figures.rule_statuses
    lacking = find_missing_needs(policy, figures.terms, figures.lacking)
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in figures.findings:
        counts[row["code"]][row["excuse"]] += row["count"]
    worst = sample_findings(figures.worst, figures.width)
    fault_matcher = FaultMatcher(figures) if source == "observed" else None  # predictions do not match broker faults
    summaries = []
    for code in Code:
        reason, rows = explain_not_evaluated(code, policy, lacking), worst.get(code.name, [])
        matches = [fault_matcher.find_faults(row) if fault_matcher else () for row in rows]
        views = tuple(build_finding_view(row, figures.width, found) for row, found in zip(rows, matches, strict=True))
        summary = _summarize_code(code, rule_status[code], reason, counts[code.name], views, figures, source)
        summaries.append(replace(summary, incidents=build_known_faults(matches)))
    order = {"violated": 0, "unknown": 1, "allowed": 2, "counted": 3, "clean": 4, "not applicable": 5}
    return tuple(sorted(summaries, key=lambda s: order[s.status]))


def count_findings_over_time(figures: Figures) -> tuple[FindingPoint, ...]:
    """Count all findings by window, rule and consumer."""
    return tuple(
        FindingPoint(format_instant(r["window"]), r["code"], r["consumer"] or "nobody", r["count"])
        for r in figures.findings
    )


def sample_findings(rows: Iterable[Row], width: int, most: int = MAX_SHOWN_FINDINGS) -> dict[str, list[Row]]:
    """Sample at most ``most`` rows of table ``violations``, grouped by code; failing ones first, then by time.

    ``finding_sample.order_for_sample`` defines the sample, by consumer and window of ``width`` ns.
    """
    by_code: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_sort_key):
        by_code[row["code"]].append(row)
    codes = sorted(by_code)
    turns = order_for_sample(
        [by_code[code] for code in codes],
        lambda row: SampleFacet(row["verdict"] != "valid", row["consumer"], _find_window(row, width)),
    )
    kept: dict[str, list[Row]] = defaultdict(list)
    for code, position in sorted(islice(turns, most)):
        kept[codes[code]].append(by_code[codes[code]][position])
    return kept


def _sort_key(row: Row) -> tuple[Any, ...]:
    """Sort by failure, time and position in the log; messages that were never delivered have no time and come first."""
    at = row["at"]
    position = row["topic"], row["partition"], row["ledger"], row["entry"], row["batch_index"]
    return (row["verdict"] == "valid", at is not None, at or 0, *position)


def _find_window(row: Row, width: int) -> int | None:
    """Find the start of the window that counts a finding: the recorded one, else that of its delivery."""
    recorded_window: int | None = row.get("window")
    if recorded_window is not None or row["at"] is None:
        return recorded_window
    at: int = row["at"]
    return at - at % width


def _summarize_code(
    code: Code,
    rule_status: RuleStatus,
    reason_not_evaluated: str,
    counts: Mapping[int, int],
    worst: tuple[FindingView, ...],
    figures: Figures,
    source: Source,
) -> CodeSummary:
    rule = RULES[code]
    total = sum(counts.values())
    verdict = max((rule.verdict(rule_status, Exemption(e)) for e in counts), default=Verdict.VALID)
    if code in figures.inconclusive_rules:
        verdict = min(verdict, Verdict.UNKNOWN)
    status: CodeStatus = "clean"
    if rule_status is RuleStatus.NOT_APPLICABLE:
        status = "not applicable"
    elif rule_status is RuleStatus.UNDECIDED or verdict is Verdict.UNKNOWN:
        status = "unknown"
    elif verdict is Verdict.INVALID:
        status = "violated"
    elif total:
        status = "counted" if code in (Code.UNSEEN, Code.UNACKED, Code.REDELIVERED) else "allowed"
    exemptions = [f"{n:,}: {Exemption(e).sentence}" for e, n in sorted(counts.items()) if e != Exemption.NONE]
    note = "; ".join([*exemptions, *([figures.inconclusive_rules[code]] if code in figures.inconclusive_rules else [])])
    if not rule_status.is_evaluated:
        note = reason_not_evaluated
    elif status == "allowed" and not exemptions:
        note = f"{figures.plan.policy.name} allows this under {figures.plan.policy.profile}"
    if code is Code.MIXED_BATCH and total and figures.scattered_keys is not None:
        several, keys = figures.scattered_keys
        batches = f"{total:,} of {figures.totals['entries']:,} batches mix keys"
        note = f"{batches}; {several:,} of {keys:,} keys reached more than one consumer of a steady group"
    return CodeSummary(code.name, rule.title, rule.meaning, status, str(verdict), total, worst, note, source)


def explain_not_evaluated(code: Code, policy: Policy, lacking: Mapping[Code, frozenset[Need]]) -> str:
    """Explain why a rule was not evaluated."""
    if code in lacking:
        return describe_needs(lacking[code])
    return f"{policy.name} does not guarantee this"


def build_finding_view(row: Row, width: int, matches: Sequence[UpstreamFault] = ()) -> FindingView:
    """Build the view of one row of table ``violations``."""
    at, window = row["at"], _find_window(row, width)
    return FindingView(
        at=format_instant(at) if at is not None else "",
        sentence=row["explanation"],
        scope=f"{row['topic']}" if row["partition"] < 0 else f"{row['topic']}, partition {row['partition']}",
        key=row["key"] or "",
        consumer=row["consumer"] or "nobody",
        cause=row["cause"],
        witness=tuple(row["witness"]),
        window=format_instant(window) if window is not None else "",
        attribution=row.get("attribution") or "",
        tickets=tuple(fault.ticket for fault in matches),
    )
