"""The sums of an audit: what it counts of judged rows and of findings, which a report tells and tables keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, Window

from subreplay.audit import sums
from subreplay.audit.acts import Seen, acts_seen
from subreplay.audit.clocks import Clocks, Shift, failing, may_be_off, shifts
from subreplay.audit.codes import Excuse
from subreplay.audit.judge import Judge
from subreplay.audit.rules.registry import Code
from subreplay.audit.selectors import best_fit
from subreplay.audit.sums import Counted
from subreplay.config.run import RECORDED
from subreplay.engine.spark import collect
from subreplay.engine.spark.audit import passes, withdrawals
from subreplay.engine.spark.audit.stages import Judged, framed
from subreplay.engine.spark.audit.windows import bounds, loads, violations
from subreplay.engine.spark.audit.worst import worst
from subreplay.engine.spark.read import clocks
from subreplay.engine.spark.read.partitioners import producers_of
from subreplay.engine.spark.read.rejects import reasons
from subreplay.engine.spark.read.source import Source
from subreplay.reports.figures import MOST_TOLD, Figures
from subreplay.whatif.assign import Plan
from subreplay.whatif.balance import Connected, connected

MOST_IN_WINDOWS: Final = 1 << 21
"""Rows that the driver adds up, each once for every window that it is in."""
NAMED = 8  # withdrawn findings of a code and night whose positions stand in a report, beside how many there are


class _Sums(NamedTuple):
    """What is counted of judged rows and findings, as ``Figures`` has it; ``lags`` are counted by size."""

    connected: tuple[Connected, ...]
    totals: dict[str, int]
    load: collect.Rows
    consumers: collect.Rows
    findings: collect.Rows
    worst: collect.Rows
    lags: collect.Rows
    withdrawn: collect.Rows
    fits: collect.Rows
    acts: collect.Rows


def sum_audit(source: Source, judge: Judge, judged: Judged, found: DataFrame | pa.Table | Counted) -> Figures:
    """Aggregate judged rows and their sums; writes tables ``assignments``, ``violations_by_window`` and
    ``finding_counts``."""
    folded = Plan(RECORDED, judge.policy, {s: d.timeline for s, d in judge.dispatchers.items()})
    counted = _counted_here(source, judge, judged, found)
    if counted is not None:
        summed = _summed_here(source, judge, judged.sums, counted)
    else:
        summed = _summed(source, judge, *(framed(source, judge, rows) for rows in (*judged, found)))
    findings = summed.findings
    mixed = any(row["code"] == Code.MIXED_BATCH.name for row in findings)
    return Figures(
        topic=source.inputs.topic,
        inputs=source.statistics.counts,
        extent=source.extent,
        width=source.width,
        plan=folded,
        connected=summed.connected,
        totals=summed.totals,
        load=summed.load,
        consumers=summed.consumers,
        findings=findings,
        worst=summed.worst,
        terms=judge.terms,
        clocks=_clocks(source, judge, judged, found, findings, summed.lags),
        fit=best_fit(judge.policy, summed.fits),
        night=None if source.before is None else source.before.night,
        withdrawn=summed.withdrawn,
        missed=source.before is not None and source.before.end != source.begin,
        producers=producers_of(source),
        guessable=source.config.keys.guessable,
        begin=min(judge.begins.values(), default=None),
        lacking=judge.lacking,
        held=source.held,
        unknown_consumers=tuple(sorted(source.statistics.unknown_consumers)),
        members=tuple(sorted({e.consumer for events in source.events.values() for e in events if e.event == "join"})),
        quiet=source.quiet,
        repeated={
            "messages": summed.totals["stored_again"],
            "membership": source.statistics.repeated,
            "deliveries": summed.totals["repeated"],
        },
        contradicted={"membership": source.statistics.contradicted, "deliveries": summed.totals["contradicted"]},
        quarantine=reasons(source.inputs, source.statistics.with_rejected),
        numbered=source.numbered,
        needless=_needless(source, findings),
        scattered=_scattered(source, judge, judged) if mixed else None,
        acts=_acts(judge, summed.acts),
    )


def _acts(judge: Judge, rows: collect.Rows) -> tuple[Seen, ...]:
    """The acts of operators and clients that rows count."""
    if not rows:
        return ()
    return tuple(acts_seen({s.partition: judge.acts(d.timeline) for s, d in judge.dispatchers.items()}, rows))


def _summed(source: Source, judge: Judge, rows: DataFrame, mine: DataFrame, found: DataFrame) -> _Sums:
    """Of many judged rows, ``LOAD`` rows and findings, by Spark."""
    width, (own, slide) = source.width, source.span
    totals = passes.totals(mine)
    intervals = _connected(source, judge, totals)
    fine = bounds(passes.assignments(loads(mine, source.span), source.spark, intervals, own), own)
    failing = violations(found, own, slide)
    counts_of_deliveries = passes.finding_counts(rows, judge, own)
    counted = counts_of_deliveries.unionByName(passes.counts_of_others(found, own))
    with collect.together() as start:
        assigned = start(source.write, fine, "assignments", likely_few=True)
        windowed = start(source.write, failing, "violations_by_window", likely_few=True)
        counts = start(source.write, counted, "finding_counts", likely_few=True)
        load = start(collect.rows, loads(mine, source.report_span).orderBy("window", "consumer"))
        consumers = start(collect.rows, passes.load(mine))
        lags = start(collect.rows, passes.lags(mine))
        acts = start(collect.rows, passes.acts(mine))
        told = start(collect.rows, worst(found, source.config.report.worst, width))
        withdrawn = start(_withdrawn, source)
        fits = start(collect.rows, passes.fits(mine))
    assigned.result()
    windowed.result()
    findings = collect.rows(passes.coarser(counts.result(), width))
    of_each = (told, lags, withdrawn, fits, acts)
    return _Sums(intervals, totals, load.result(), consumers.result(), findings, *(job.result() for job in of_each))


def _counted_here(
    source: Source, judge: Judge, judged: Judged, found: DataFrame | pa.Table | Counted
) -> Counted | None:
    """What is counted of findings, where the driver can do so, and add up what consumers were given, too."""
    own, slide = source.span
    if isinstance(judged.rows, pa.Table) and isinstance(found, pa.Table):
        counts = [sums.finding_counts(judged.rows, judge.applicable, own)]
        counts.append(sums.counts_of_others(found, own))
        found = Counted(pa.concat_tables(counts), sums.panes(found, slide), found)
    if not (isinstance(found, Counted) and isinstance(judged.sums, pa.Table)):
        return None
    return found if max(len(found.panes), len(judged.sums)) * (own // slide) <= MOST_IN_WINDOWS else None


def _summed_here(source: Source, judge: Judge, mine: pa.Table, counted: Counted) -> _Sums:
    """The same by the driver, which has ``LOAD`` rows and what is counted of findings."""
    width, (own, slide) = source.width, source.span
    totals = sums.totals(mine)
    intervals = _connected(source, judge, totals)
    source.put(sums.assignments(sums.loads(mine, source.span), intervals, own), "assignments")
    source.put(sums.violations(counted.panes, own, slide), "violations_by_window")
    source.put(counted.counts, "finding_counts")
    return _Sums(
        intervals,
        totals,
        sums.loads(mine, source.report_span).to_pylist(),
        sums.consumers(mine),
        sums.coarser(counted.counts, width),
        sums.worst(counted.first, source.config.report.worst, width, MOST_TOLD),
        sums.lags(mine),
        _withdrawn(source),
        sums.fits(mine),
        sums.acts(mine),
    )


def _connected(source: Source, judge: Judge, totals: Mapping[str, int]) -> tuple[Connected, ...]:
    """How many consumers were connected until the run's log ends."""
    timelines = [dispatcher.timeline for dispatcher in judge.dispatchers.values()]
    return connected(timelines, max(source.extent["last"], totals["last"]) + 1)


def _withdrawn(source: Source) -> collect.Rows:
    """What this night withdraws of earlier ones' findings, counted by code and night, with some positions; writes table
    ``withdrawn``."""
    found = withdrawals.found(source.spark, source.sink, source.config, source.inputs)
    if found is None:
        return []
    if isinstance(found, pa.Table):  # without rows
        source.put(found, "withdrawn")
        return []
    written = source.write(found, "withdrawn")
    position = F.struct("partition", "ledger", "entry", "batch_index")
    nth = F.row_number().over(Window.partitionBy("code", "told").orderBy(position))
    some = F.sort_array(F.collect_list(F.when(F.col("nth") <= NAMED, position))).alias("positions")
    counted = written.withColumn("nth", nth).groupBy("code", "told").agg(F.count("*").alias("count"), some)
    return collect.rows(counted.orderBy("code", "told"))


def _clocks(
    source: Source,
    judge: Judge,
    judged: Judged,
    found: DataFrame | pa.Table | Counted,
    findings: collect.Rows,
    lags: collect.Rows,
) -> Clocks:
    """Consumers whose clocks are off, and what fails with these corrected: the log is judged once more where there are
    any. Where table ``audited`` keeps findings only, they are looked for where one of them fails. How many ``lags``
    there are of each size tells of most logs that there are none."""
    recorded = failing(findings, judge.standings)
    config = source.config
    if config.output.audited == "findings" and not recorded:
        return Clocks()
    if not may_be_off(lags, judge.terms.clock_skew):
        return Clocks()
    rows = framed(source, judge, _every_row(source, judge, judged))
    off = shifts(collect.rows(clocks.lags(rows)), judge.terms.clock_skew)
    while off:
        given = Clocks(off, recorded, _corrected(source, judge, found, off))
        if given.likely == off:
            return given
        off = given.likely
    return Clocks()


def _corrected(
    source: Source, judge: Judge, found: DataFrame | pa.Table | Counted, off: Sequence[Shift]
) -> Mapping[Code, int]:
    """What fails with clocks corrected, by rule."""
    log = clocks.corrected(source.log_of_night(), off)
    again = passes.deliveries(passes.judged(log, judge))
    counted = passes.finding_counts(again, judge, source.width)
    counted = counted.unionByName(passes.counts_of_others(framed(source, judge, found), source.width))
    by_code = counted.groupBy("code", "excuse").agg(F.sum("count").alias("count"))
    return failing(collect.rows(by_code), judge.standings)


def _needless(source: Source, findings: collect.Rows) -> frozenset[str]:
    """The membership, where rows of it are in quarantine, explain no finding and hide none."""
    doubted = any(row["excuse"] in (Excuse.MEMBERSHIP_REJECTED, Excuse.MEMBER_REJECTED) for row in findings)
    hides = doubted or source.rejects.may_hide_a_leave(source.statistics.last_served)
    return frozenset() if hides else frozenset({"membership"})


def _every_row(source: Source, judge: Judge, judged: Judged) -> DataFrame | pa.Table:
    """Every judged row; those that table ``audited`` does not keep are judged once more."""
    if source.config.output.audited == "findings":
        return passes.deliveries(passes.judged(source.log_of_night(), judge))
    return judged.rows if source.few else passes.deliveries(source.sink.written["audited"])


def _scattered(source: Source, judge: Judge, judged: Judged) -> tuple[int, int]:
    """Keys that reached several consumers within one epoch, and keys in all."""
    rows = _every_row(source, judge, judged)
    return sums.scattered_keys(rows) if isinstance(rows, pa.Table) else passes.scattered_keys(rows)
