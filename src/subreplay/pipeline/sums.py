"""Sum the results of an audit: counts of judged rows and findings for the report and for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from subreplay.audit import sums
from subreplay.audit.acts import SeenAct, list_seen_acts
from subreplay.audit.clocks import Clocks, ClockShift, count_failing, find_shifts, may_be_off
from subreplay.audit.codes import Exemption
from subreplay.audit.judge import Judge
from subreplay.audit.retractions import CODES
from subreplay.audit.rules.registry import Code
from subreplay.audit.selectors import find_best_fit
from subreplay.audit.window_sums import ASSIGNMENTS, VIOLATIONS_BY_WINDOW
from subreplay.config.run import RECORDED
from subreplay.engine.interface import Dataset
from subreplay.pipeline import daily_runs, window_sums
from subreplay.pipeline.audit import ExplainedFindings, JudgedRows, judge_again
from subreplay.pipeline.measurements import count_scattered_keys, measure_lags
from subreplay.pipeline.partitioners import describe_producers
from subreplay.pipeline.retractions import retract
from subreplay.pipeline.source import Source
from subreplay.reports.figures import MAX_SHOWN_FINDINGS, Figures
from subreplay.rows.model.tables import AUDITED, RETRACTED_FINDINGS
from subreplay.whatif.fair_share import ConnectedInterval, find_connected_intervals
from subreplay.whatif.message_assignment import ScenarioPlan


def sum_audit(source: Source, judge: Judge, judged: JudgedRows, found: ExplainedFindings) -> Figures:
    """Sum the judged rows, and write tables ``assignments``, ``violations_by_window``, ``finding_counts`` and
    ``withdrawn``."""
    folded = ScenarioPlan(RECORDED, judge.policy, {s: d.timeline for s, d in judge.dispatchers.items()})
    given, width = judged.loads.sum_overall(), source.width
    totals = sums.sum_totals(given)
    intervals = _find_connected(source, judge, totals)
    _write_assignments(source, judged, intervals)
    _write_violations_by_window(source, found)
    counts = _write_finding_counts(source, found)
    findings = sums.widen_counts(pa.concat_tables(counts), width)
    mixed = any(row["code"] == Code.MIXED_BATCH.name for row in findings)
    return Figures(
        topic=source.inputs.topic,
        inputs=source.statistics.counts,
        extent=source.extent,
        width=width,
        plan=folded,
        connected=intervals,
        totals=totals,
        load=judged.loads.sum_by_window(source.report_span).to_pylist(),
        published=judged.loads.count_published(source.report_span),
        consumers=sums.sum_consumers(given),
        findings=findings,
        worst=sums.select_worst(found.first, source.config.report.worst, width, MAX_SHOWN_FINDINGS),
        incident_parts=found.parts,
        terms=judge.terms,
        clocks=_check_clocks(source, judge, counts[1], findings, sums.sum_lags(given)),
        fit=find_best_fit(judge.policy, sums.sum_fits(given)),
        previous_run=None if source.before is None else source.before.day,
        retracted=_retract_findings(source),
        days_skipped=source.before is not None and source.before.end != source.begin,
        producers=describe_producers(source),
        has_guessable_keys=source.config.keys.guessable,
        judged_from=min(judge.begins.values(), default=None),
        lacking=judge.lacking,
        stored=source.stored,
        unknown_consumers=tuple(sorted(source.statistics.unknown_consumers)),
        members=tuple(sorted({e.consumer for events in source.events.values() for e in events if e.event == "join"})),
        is_quiet=source.quiet,
        repeated={
            "messages": totals["stored_again"],
            "membership": source.statistics.repeated,
            "deliveries": totals["repeated"],
        },
        contradicted={"membership": source.statistics.contradicted, "deliveries": totals["contradicted"]},
        quarantine=source.reasons,
        numbered_by_time=source.numbered,
        unneeded_tables=_find_needless(source, findings),
        scattered_keys=count_scattered_keys(source.engine, _get_all_rows(source, judge)) if mixed else None,
        acts=_list_acts(judge, sums.sum_acts(given)),
    )


def _write_assignments(source: Source, judged: JudgedRows, intervals: Sequence[ConnectedInterval]) -> None:
    span = source.span
    if judged.loads.collected is not None:
        loads = judged.loads.sum_by_window(span)
        source.put(sums.make_assignments(loads, intervals, span.width), "assignments")
        return
    new = source.begin_write("assignments", ASSIGNMENTS)
    window_sums.write_assignments(source.engine, judged.loads.rows, span, intervals, new)
    source.tables.commit(new)


def _write_violations_by_window(source: Source, found: ExplainedFindings) -> None:
    collected = window_sums.collect_small(found.panes)
    if collected is not None:
        panes = window_sums.add_up(sums.make_pane_adder(), pa.concat_tables(collected))
        source.put(sums.sum_violations(panes, *source.span), "violations_by_window")
        return
    new = source.begin_write("violations_by_window", VIOLATIONS_BY_WINDOW)
    window_sums.write_violations_by_window(source.engine, found.panes, source.span, new)
    source.tables.commit(new)


def _write_finding_counts(source: Source, found: ExplainedFindings) -> list[pa.Table]:
    """Write table ``finding_counts``, and return the counts by windows of the report."""
    collected = window_sums.collect_small(found.counts)
    if collected is not None:
        counts = [sums.sort_counts(window_sums.add_up(sums.make_count_adder(), each)) for each in collected]
        source.put(pa.concat_tables(counts), "finding_counts")
        return [sums.assign_windows(each, source.width) for each in counts]
    new = source.begin_write("finding_counts", sums.COUNTS)
    coarser = window_sums.write_finding_counts(source.engine, found.counts, source.width, new)
    source.tables.commit(new)
    return coarser


def _retract_findings(source: Source) -> sums.Rows:
    """Retract findings of earlier days, write table ``withdrawn``, and return their counts."""
    tables, topic = source.tables, source.inputs.topic
    reported = daily_runs.find_earlier_findings(tables, source.config, topic, *CODES)
    if reported is None:
        return []
    columns = pa.schema([field for field in RETRACTED_FINDINGS if field.name not in source.where])
    new = tables.begin_write("withdrawn", columns, source.where)
    earlier = tables.find("withdrawn")
    before = None if earlier is None else earlier.where(daily_runs.match_earlier_runs(source.config, topic))
    members = source.membership.to_table()
    found = retract(source.engine, reported, before, source.deliveries, source.messages, members, new)
    tables.commit(new)
    return found


def _list_acts(judge: Judge, rows: sums.Rows) -> tuple[SeenAct, ...]:
    """List the acts of operators and clients that the rows count."""
    if not rows:
        return ()
    return tuple(list_seen_acts({s.partition: judge.list_acts(d.timeline) for s, d in judge.dispatchers.items()}, rows))


def _find_connected(source: Source, judge: Judge, totals: Mapping[str, int]) -> tuple[ConnectedInterval, ...]:
    """Count the connected consumers over time, until the run's log ends."""
    timelines = [dispatcher.timeline for dispatcher in judge.dispatchers.values()]
    return find_connected_intervals(timelines, max(source.extent["last"], totals["last"]) + 1)


def _check_clocks(source: Source, judge: Judge, of_others: pa.Table, findings: sums.Rows, counted: sums.Rows) -> Clocks:
    """Find consumers whose clocks are off, and count the failures after correcting them.

    The log is judged again if there are any. If table ``audited`` contains only findings, clocks are checked only if a
    finding fails. The counts of ``lags`` by size rule out wrong clocks in most logs.
    """
    recorded = count_failing(findings, judge.rule_statuses)
    if source.config.output.audited == "findings" and not recorded:
        return Clocks()
    if not may_be_off(counted, judge.terms.clock_skew):
        return Clocks()
    off = find_shifts(measure_lags(source.engine, _get_all_rows(source, judge)), judge.terms.clock_skew)
    while off:
        given = Clocks(off, recorded, _count_corrected(source, judge, of_others, off))
        if given.likely == off:
            return given
        off = given.likely
    return Clocks()


def _count_corrected(
    source: Source, judge: Judge, of_others: pa.Table, off: Sequence[ClockShift]
) -> Mapping[Code, int]:
    """Count the failures by rule after correcting clocks."""
    counts = judge_again(source, judge, off).counts(source.width)
    return count_failing([*counts.to_pylist(), *of_others.to_pylist()], judge.rule_statuses)


def _find_needless(source: Source, findings: sums.Rows) -> frozenset[str]:
    """Return the membership if its quarantined rows neither explain a finding nor hide one."""
    doubted = any(row["excuse"] in (Exemption.MEMBERSHIP_REJECTED, Exemption.MEMBER_REJECTED) for row in findings)
    hides = doubted or source.rejects.may_hide_a_leave(source.statistics.last_served)
    return frozenset() if hides else frozenset({"membership"})


def _get_all_rows(source: Source, judge: Judge) -> Dataset:
    """Return every judged row. The log is judged again if table ``audited`` does not contain all rows."""
    if source.config.output.audited != "findings":
        return source.tables.written["audited"].select([n for n in AUDITED.names if n not in source.where])
    return judge_again(source, judge).rows
