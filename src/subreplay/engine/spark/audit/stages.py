"""The stages of an audit: each takes what the one before it gave, and writes what a user may want to query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from subreplay.audit import audited
from subreplay.audit.context import Dispatcher
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.passes.beginning import beginnings
from subreplay.audit.rules.assignments import assignment_findings
from subreplay.audit.rules.registry import Code
from subreplay.audit.sessions import with_unknown_consumers
from subreplay.audit.sums import Counted
from subreplay.audit.terms import Terms
from subreplay.audit.topic_findings import may_stray, of_ranges
from subreplay.config.run import RECORDED
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.audit import dead_letters, judged_files, passes, told_files, topic_findings
from subreplay.engine.spark.audit.judged_files import InFiles
from subreplay.engine.spark.audit.told_files import Telling
from subreplay.engine.spark.read import checkpoint
from subreplay.engine.spark.read.source import Source
from subreplay.engine.spark.whatif.stages import measured_plan
from subreplay.rows.model.columns import DAY, UNKNOWN
from subreplay.rows.model.partitioner_words import WARNING, sentences
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import JUDGED, VIOLATIONS
from subreplay.semantics.timelines.ownership import abandoned


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
    told = found.group.told
    dispatchers = {
        scope: Dispatcher.of(
            timeline, None, others.get(scope), abandoned(policy, told.get(scope, ()), source.events.get(scope, ()))
        )
        for scope, timeline in folded.timelines.items()
    }
    # a night that goes on from another knows what was before it
    goes_on = source.before is not None
    begins = {} if goes_on else beginnings(found.lowest, found.served, folded.timelines, found.group.told)
    return Judge(
        folded.policy,
        dispatchers,
        found.lacking,
        _terms(source),
        source.horizon,
        found.last,
        found.uncovered,
        source.rejects,
        dead_letters.arrived(source.inputs, "dead_letters" in found.with_rejected),
        config.keys.words,
        begins=begins,
        ledgers={} if config.date is not None else {scope: stored[0] for scope, stored in found.lowest.items()},
        lookback=config.traffic.lookback_days * DAY,
        end=found.end,
        basis=checkpoint.basis(config),
        dates=source.dates,
    )


def _terms(source: Source) -> Terms:
    """The terms of the run, with what the messages show of their producers."""
    terms, found = source.config.terms, source.partitioners
    if terms.routing is None or found is None:
        return terms
    why = sentences(found, terms.routing.scheme, terms.routing.scheme)
    said = next((one.sentence for one in why if one.value == WARNING), "")
    return replace(terms, routing=replace(terms.routing, as_bytes=found.as_bytes, why=said))


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
    assigned = assignment_findings(judge.policy, source.statistics.group, judge.dates)
    ranges = of_ranges(judge, subscription, since, assigned)
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
        counted = told_files.tell(source.spark, judged.rows.rows, _together(frames) if frames else None, telling)
        return source.sink.written["violations"] if counted is None else counted
    told = passes.violations(framed(source, judge, judged.rows), explainer)
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
        yield topic_findings.of_keys(log.messages, judge, subscription, told, source.partitioners)
    if may_stray(judge):
        yield topic_findings.astray(log.messages, judge, subscription)
    letters = "dead_letters" in source.statistics.with_rejected
    given_up = dead_letters.found(source.inputs, log, judge, subscription, config.date, letters)
    if given_up is not None:
        yield given_up


def framed(source: Source, judge: Judge, rows: DataFrame | pa.Table | InFiles | Counted) -> DataFrame:
    """Rows as a frame: judged ones that wait in files as table ``audited`` has them, which may not show slots; of
    findings that are counted, table ``violations``."""
    if isinstance(rows, Counted):
        return source.sink.written["violations"]
    if isinstance(rows, InFiles):
        return passes.deliveries(passes.published(rows.frame(source.spark), source.config.subscription.name, judge))
    return collect.of_rows(source.spark, rows, rows.schema) if isinstance(rows, pa.Table) else rows
