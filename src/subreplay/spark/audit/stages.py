"""The stages of an audit: each takes what the one before it gave, and writes what a user may want to query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, Window

from subreplay.audit import audited, sums
from subreplay.audit.clocks import Clocks, failing, may_be_off, shifts
from subreplay.audit.context import Dispatcher
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.passes.beginning import beginnings
from subreplay.audit.routing import HASHED, Hashing, warnings
from subreplay.audit.rules.assignments import assignment_findings
from subreplay.audit.rules.registry import Code
from subreplay.audit.sessions import with_unknown_consumers
from subreplay.audit.sums import Counted
from subreplay.config.run import RECORDED
from subreplay.figures import MOST_TOLD, Figures
from subreplay.model.columns import DAY, UNKNOWN
from subreplay.model.rows import Scope
from subreplay.model.tables import JUDGED, VIOLATIONS
from subreplay.spark import collect, keys, lake
from subreplay.spark.audit import dead_letters, judged_files, passes, told_files, topic_findings, withdrawals
from subreplay.spark.audit.judged_files import InFiles
from subreplay.spark.audit.told_files import Telling
from subreplay.spark.audit.windows import bounds, loads, violations
from subreplay.spark.audit.worst import worst
from subreplay.spark.read import checkpoint, clocks
from subreplay.spark.read.rejects import reasons
from subreplay.spark.read.source import Source
from subreplay.spark.whatif.stages import measured_plan
from subreplay.whatif.assign import Plan
from subreplay.whatif.balance import Connected, connected

MOST_IN_WINDOWS: Final = 1 << 21
"""Rows that the driver adds up, each once for every window that it is in."""
NAMED = 8  # withdrawn findings of a code and night whose positions stand in a report, beside how many there are


def fold(source: Source) -> Judge:
    """Fold the policy over the membership, and make the judge that goes to the executors.

    Raises ``ConfigError`` where the night before was judged by other rules.
    """
    if source.before is not None:
        checkpoint.check_basis(source.before, source.config)
    config, found = source.config, source.statistics
    policy = config.subscription.make_policy()
    folded = measured_plan(source, RECORDED, policy, source.events, found.group.told)
    others: Mapping[Scope, Dispatcher] = {}
    if found.unknown_consumers:
        events = {
            scope: with_unknown_consumers(scope, mine, found.unknown_consumers) for scope, mine in source.events.items()
        }
        timelines = measured_plan(source, RECORDED, policy, events).timelines
        others = {scope: Dispatcher.of(timeline) for scope, timeline in timelines.items()}
    dispatchers = {
        scope: Dispatcher.of(timeline, other=others.get(scope)) for scope, timeline in folded.timelines.items()
    }
    # a night that goes on from another knows what was before it
    goes_on = source.before is not None
    begins = {} if goes_on else beginnings(found.lowest, found.served, folded.timelines, found.group.told)
    return Judge(
        folded.policy,
        dispatchers,
        found.lacking,
        config.topic.terms,
        source.horizon,
        found.last,
        found.uncovered,
        source.rejects,
        config.keys.words,
        begins=begins,
        lookback=config.traffic.lookback_days * DAY,
        basis=checkpoint.basis(config),
    )


class Judged(NamedTuple):
    """Judged rows, at least those with a finding, and ``LOAD`` rows, which add up what all of them say of consumers;
    few are tables, which the driver has, and so are the sums where rows wait in files."""

    rows: DataFrame | pa.Table | InFiles
    sums: DataFrame | pa.Table


def judge(source: Source, judge: Judge) -> Judged:
    """Judge every delivery; writes table ``audited``, with what the run of a date hands to the next."""
    config = source.config
    subscription = config.subscription.name
    spans, findings_only = (source.span, source.report_span), config.output.audited == "findings"
    adding = replace(judge, spans=spans, findings_only=findings_only)
    log = source.log_of_night()
    in_files = log.waits and not source.few
    by_tasks = _by_tasks(source, judge) if in_files else None
    rows: DataFrame | pa.Table | InFiles
    if source.few:
        rows = passes.judged_here(log, adding)
    elif in_files and (findings_only or by_tasks):
        rows = judged_files.findings(log, adding, by_tasks)
    else:
        rows = passes.judged(log, adding)
    if isinstance(rows, pa.Table):
        rows = audited.published(rows, subscription, judge)
        if by_tasks is None:
            rows = source.put(rows, "audited")
        return Judged(audited.deliveries(rows), audited.sums(rows))
    told = passes.published(rows.frame(source.spark) if isinstance(rows, InFiles) else rows, subscription, judge)
    if by_tasks is None:
        told = source.write(told, "audited")
    if isinstance(rows, InFiles) and rows.sums is not None:
        return Judged(rows, audited.sums(rows.sums))
    return Judged(passes.deliveries(told), source.here_if_few(passes.added_up(passes.sums(told))))


def _by_tasks(source: Source, judge: Judge) -> judged_files.Audited | None:
    """Table ``audited`` as tasks write it; None where Spark has to."""
    subscription = source.config.subscription.name
    rows = audited.published(JUDGED.empty_table(), subscription, judge)
    new = source.sink.begin(rows.schema, "audited", **source.where)
    return None if new is None else judged_files.Audited(new, subscription, judge)


def explain(source: Source, judge: Judge, judged: Judged) -> DataFrame | pa.Table | Counted:
    """Findings in words, also those that are not about one delivery; writes table ``violations``. Of many, which it
    writes as they are told, what is counted of them."""
    subscription = source.config.subscription.name
    explainer = Explainer(judge, subscription)
    since = UNKNOWN if source.before is None else source.before.end
    assigned = assignment_findings(judge.policy, source.statistics.group)
    ranges = topic_findings.of_ranges(judge, subscription, since, assigned)
    others = [*_of_messages(source, judge, since)]
    if isinstance(judged.rows, pa.Table):
        words = explainer.violations(audited.worth_words(judged.rows, judge).to_batches())
        of_rows = pa.concat_tables([pa.Table.from_batches(words, VIOLATIONS), ranges.cast(VIOLATIONS)])
        few = source.rows_if_few(_together(others)) if others else VIOLATIONS.empty_table()
        if few is not None:
            return source.put(pa.concat_tables([of_rows, few.cast(VIOLATIONS)]), "violations")
        frames = [lake.of_arrow(source.spark, of_rows), *others]
        return source.write(_together(frames), "violations")
    frames = [*others, *([lake.of_arrow(source.spark, ranges)] if len(ranges) else [])]
    if isinstance(judged.rows, InFiles) and (new := source.sink.begin(VIOLATIONS, "violations", **source.where)):
        path, worst_of = f"{judged.rows.rows[0]}-told", source.config.report.worst
        telling = Telling(new, path, explainer, source.span, source.width, worst_of)
        counted = told_files.told(source.spark, judged.rows.rows, _together(frames) if frames else None, telling)
        return source.sink.written["violations"] if counted is None else counted
    told = passes.violations(_frame(source, judge, judged.rows), explainer)
    return source.write(_together([told, *frames]), "violations", likely_few=True)


def _together(frames: Iterable[DataFrame]) -> DataFrame:
    """Rows of table ``violations`` from several places."""
    return reduce(DataFrame.unionByName, frames).select(*VIOLATIONS.names)


def _of_messages(source: Source, judge: Judge, since: int) -> Iterator[DataFrame]:
    """Findings about messages, and not about a delivery: only where there may be any is a message looked at."""
    config, topic = source.config, source.inputs.topic
    subscription = config.subscription.name
    scattered = len(judge.dispatchers) > 1 and source.may_scatter
    log = source.log_with_earlier_messages()
    if scattered:
        told = checkpoint.told(source.spark, source.sink, config, topic, Code.KEY_TWO_PARTITIONS)
        yield topic_findings.of_keys(log.messages, judge, subscription, told)
    if topic_findings.may_stray(judge):
        yield topic_findings.astray(log.messages, judge, subscription)
    letters = "dead_letters" in source.statistics.with_rejected
    given_up = dead_letters.found(source.inputs, log, judge, subscription, config.date, letters)
    if given_up is not None:
        yield given_up


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


def sum_audit(source: Source, judge: Judge, judged: Judged, found: DataFrame | pa.Table | Counted) -> Figures:
    """Aggregate judged rows and their sums; writes tables ``assignments``, ``violations_by_window`` and
    ``finding_counts``."""
    folded = Plan(RECORDED, judge.policy, {s: d.timeline for s, d in judge.dispatchers.items()})
    counted = _counted_here(source, judge, judged, found)
    if counted is not None:
        summed = _summed_here(source, judge, judged.sums, counted)
    else:
        summed = _summed(source, judge, *(_frame(source, judge, rows) for rows in (*judged, found)))
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
        night=None if source.before is None else source.before.night,
        withdrawn=summed.withdrawn,
        missed=source.before is not None and source.before.end != source.begin,
        warnings=routing_warnings(source),
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
        scattered=_scattered(source, judge, judged) if mixed else None,
    )


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
        told = start(collect.rows, worst(found, source.config.report.worst, width))
        withdrawn = start(_withdrawn, source)
    assigned.result()
    windowed.result()
    findings = collect.rows(passes.coarser(counts.result(), width))
    of_each = (load, consumers, told, lags, withdrawn)
    load_rows, of_consumers, worst_rows, lag_rows, withdrawn_rows = (job.result() for job in of_each)
    return _Sums(intervals, totals, load_rows, of_consumers, findings, worst_rows, lag_rows, withdrawn_rows)


def _frame(source: Source, judge: Judge, rows: DataFrame | pa.Table | InFiles | Counted) -> DataFrame:
    """Rows as a frame: judged ones that wait in files as table ``audited`` has them, which may not show slots; of
    findings that are counted, table ``violations``."""
    if isinstance(rows, Counted):
        return source.sink.written["violations"]
    if isinstance(rows, InFiles):
        return passes.deliveries(passes.published(rows.frame(source.spark), source.config.subscription.name, judge))
    return collect.of_rows(source.spark, rows, rows.schema) if isinstance(rows, pa.Table) else rows


def _counted_here(
    source: Source, judge: Judge, judged: Judged, found: DataFrame | pa.Table | Counted
) -> Counted | None:
    """What is counted of findings, where the driver can do so, and add up what consumers were given, too."""
    own, slide = source.span
    if isinstance(judged.rows, pa.Table) and isinstance(found, pa.Table):
        counts = [sums.finding_counts(judged.rows, judge.applicable, own)]
        counts.append(sums.counts_of_others(found, passes.NOT_OF_DELIVERIES, own))
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
    rows = _frame(source, judge, _every_row(source, judge, judged))
    off = shifts(collect.rows(clocks.lags(rows)), judge.terms.clock_skew)
    if not off:
        return Clocks()
    log = clocks.corrected(source.log_of_night(), off)
    again = passes.deliveries(passes.judged(log, judge))
    counted = passes.finding_counts(again, judge, source.width)
    counted = counted.unionByName(passes.counts_of_others(_frame(source, judge, found), source.width))
    by_code = counted.groupBy("code", "excuse").agg(F.sum("count").alias("count"))
    return Clocks(off, recorded, failing(collect.rows(by_code), judge.standings))


def _every_row(source: Source, judge: Judge, judged: Judged) -> DataFrame | pa.Table:
    """Every judged row; those that table ``audited`` does not keep are judged once more."""
    if source.config.output.audited == "findings":
        return passes.deliveries(passes.judged(source.log_of_night(), judge))
    return judged.rows if source.few else passes.deliveries(source.sink.written["audited"])


def _scattered(source: Source, judge: Judge, judged: Judged) -> tuple[int, int]:
    """Keys that reached several consumers within one epoch, and keys in all."""
    rows = _every_row(source, judge, judged)
    return sums.scattered_keys(rows) if isinstance(rows, pa.Table) else passes.scattered_keys(rows)


def routing_warnings(source: Source) -> tuple[str, ...]:
    """What is dangerous about how producers choose partitions, where the run says how they do."""
    routing = source.config.topic.terms.routing
    if routing is None or routing.mode == "CustomPartition":
        return ()
    rows = collect.rows(keys.hashing(source.log.messages, Hashing(routing.partitions)))
    return warnings(pa.Table.from_pylist(rows, HASHED), routing.scheme)
