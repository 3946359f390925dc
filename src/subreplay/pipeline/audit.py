"""The stages of an audit. Each stage takes the result of the previous one, and writes tables that users may query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from subreplay.audit import explaining, incidents, judging, sums, topic_findings
from subreplay.audit.clocks import ClockShift
from subreplay.audit.context import Dispatcher
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.explaining import FindingCounting, FindingExplainer, OtherFindingCounter
from subreplay.audit.judge import Judge
from subreplay.audit.judging import AuditedRows, JudgeRows
from subreplay.audit.passes.beginning import find_beginnings
from subreplay.audit.passes.loads import LOADS_OF_RUN
from subreplay.audit.rules.assignments import find_assignment_findings
from subreplay.audit.rules.registry import Code
from subreplay.audit.sessions import Sessions, add_unknown_consumers
from subreplay.audit.terms import Terms
from subreplay.config.run import RECORDED
from subreplay.engine.interface import Dataset, Output
from subreplay.pipeline import daily_runs
from subreplay.pipeline.missing_dead_letters import build_dead_letters, find_dead_letter_findings
from subreplay.pipeline.source import Source
from subreplay.pipeline.topic_findings import find_early_children, find_keyless_strays, find_keys_in_two_partitions
from subreplay.pipeline.whatif import build_measured_plan
from subreplay.pipeline.window_sums import Loads, add_up, select_first_findings, write_rows
from subreplay.reports.figures import MAX_SHOWN_FINDINGS
from subreplay.rows.model.columns import DAY, UNKNOWN, gather_batches
from subreplay.rows.model.partitioner_text import WARNING, build_statements
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import AUDITED, STATE, VIOLATIONS
from subreplay.semantics.timelines.recorded_ownership import find_abandonment_time
from subreplay.semantics.timelines.timeline import Timeline, compute_once_per_index


def build_judge(source: Source) -> Judge:
    """Apply the policy to the membership, and build the judge that is sent to the tasks.

    Raises ``ConfigError`` if the previous daily run was judged by other rules.
    """
    if source.before is not None:
        daily_runs.check_basis(source.before, source.config)
    config, found = source.config, source.statistics
    policy = config.subscription.make_policy()
    folded = build_measured_plan(source, RECORDED, policy, source.events, found.group.ownership)
    others: Mapping[Scope, Dispatcher] = {}
    if found.unknown_consumers:
        events = {
            scope: add_unknown_consumers(scope, mine, found.unknown_consumers) for scope, mine in source.events.items()
        }
        timelines = build_measured_plan(source, RECORDED, policy, events).timelines
        others = {scope: Dispatcher(timelines[scope], of) for scope, of in _list_sessions(timelines).items()}
    group_events = found.group.ownership
    dispatchers = {
        scope: Dispatcher(
            folded.timelines[scope],
            sessions,
            None,
            others.get(scope),
            find_abandonment_time(policy, group_events.get(scope, ()), source.events.get(scope, ())),
        )
        for scope, sessions in _list_sessions(folded.timelines).items()
    }
    # a daily run that continues from another knows the earlier days
    goes_on = source.before is not None
    begins = {} if goes_on else find_beginnings(found.lowest, found.served, folded.timelines, found.group.ownership)
    return Judge(
        folded.policy,
        dispatchers,
        found.lacking,
        _build_terms(source),
        source.horizon,
        found.last,
        found.uncovered,
        source.rejects,
        build_dead_letters(source.letters, "dead_letters" in found.with_rejected),
        config.keys.words,
        begins=begins,
        ledgers={} if config.date is not None else {scope: stored[0] for scope, stored in found.lowest.items()},
        lookback=config.traffic.lookback_days * DAY,
        end=found.end,
        basis=daily_runs.build_basis(config),
        dates=source.dates,
    )


def _list_sessions(timelines: Mapping[Scope, Timeline]) -> dict[Scope, Sessions]:
    """Return who was connected when, by dispatcher. Dispatchers with equal events share one object."""
    return dict(zip(timelines, compute_once_per_index(timelines.values(), Sessions.of), strict=True))


def _build_terms(source: Source) -> Terms:
    """Build the terms of the run, including what the messages show about their producers."""
    terms, found = source.config.terms, source.partitioners
    if terms.routing is None or found is None:
        return terms
    statements = build_statements(found, terms.routing.scheme, terms.routing.scheme)
    reason = next((one.sentence for one in statements if one.value == WARNING), "")
    return replace(terms, routing=replace(terms.routing, as_bytes=found.as_bytes, why=reason))


class JudgedRows(NamedTuple):
    """The judged rows with a finding (``JUDGED``), and the loads of consumers."""

    findings: Dataset
    loads: Loads


def judge(source: Source, judge: Judge) -> JudgedRows:
    """Judge every delivery, and write tables ``audited``, ``loads`` and, for a daily run, ``state``."""
    config, tables = source.config, source.tables
    spans, findings_only = (source.span, source.report_span), config.output.audited == "findings"
    adding = replace(judge, spans=spans, findings_only=findings_only)
    audited = tables.begin_write("audited", AUDITED, source.where)
    outputs: dict[str, Output] = {**judging.OUTPUTS, "audited": audited}
    state = None if config.date is None else tables.begin_write("state", STATE, source.where)
    if state is not None:
        outputs["state"] = state
    found = source.sorted_log().split(JudgeRows(adding, config.subscription.name), outputs)
    tables.commit(audited)
    if state is not None:
        tables.commit(state)
    loads = Loads.of(found["sums"])
    if loads.collected is not None:
        tables.put("loads", loads.collected, source.where)
    else:
        new = tables.begin_write("loads", LOADS_OF_RUN, source.where)
        write_rows(loads.rows, new)
        tables.commit(new)
    return JudgedRows(found["findings"], loads)


class ExplainedFindings(NamedTuple):
    """The findings, counted by tasks.

    ``counts`` (``sums.COUNTS``) and ``panes`` (``sums.PANES``, failing findings only) have two parts: findings about
    deliveries and other findings. ``first`` are the rows of table ``violations`` that a report may show, and ``parts``
    those of incidents (``incidents.PARTS``).
    """

    counts: tuple[Dataset, Dataset]
    panes: tuple[Dataset, Dataset]
    first: pa.Table
    parts: pa.Table


def explain(source: Source, judge: Judge, judged: JudgedRows) -> ExplainedFindings:
    """Explain all findings in sentences, write table ``violations``, and count the findings."""
    subscription, config = source.config.subscription.name, source.config
    explainer = Explainer(judge, subscription)
    since = UNKNOWN if source.before is None else source.before.end
    assigned = find_assignment_findings(judge.policy, source.statistics.group, judge.dates)
    ranges = topic_findings.find_range_violations(judge, subscription, since, assigned)
    counting = FindingCounting(source.span, source.width, config.report.worst, MAX_SHOWN_FINDINGS)
    new = source.tables.begin_write("violations", VIOLATIONS, source.where)
    outputs = {**explaining.OUTPUTS, "violations": new}
    words = judged.findings.split(FindingExplainer(explainer, counting), outputs)
    others = source.engine.concat([source.engine.create_dataset(ranges), *_find_message_findings(source, judge, since)])
    more = others.split(OtherFindingCounter(counting), outputs)
    source.tables.commit(new)
    first = select_first_findings(source.engine, [words["first"], more["first"]], counting)
    parts = incidents.IncidentParts(source.width)
    for each in (words["parts"], more["parts"]):
        parts.add(each.to_table())
    return ExplainedFindings(
        (words["counts"], more["counts"]), (words["panes"], more["panes"]), first, parts.compute_sum()
    )


def _find_message_findings(source: Source, judge: Judge, since: int) -> Iterator[Dataset]:
    """Find what is wrong with messages rather than deliveries. Messages are only read if the rules apply."""
    config, topic, engine = source.config, source.inputs.topic, source.engine
    subscription = config.subscription.name
    if len(judge.dispatchers) > 1 and source.may_scatter:
        reported = daily_runs.find_earlier_findings(source.tables, config, topic, Code.KEY_TWO_PARTITIONS)
        messages = source.read_messages_with_earlier()
        yield find_keys_in_two_partitions(engine, messages, judge, subscription, reported, source.partitioners)
    if judge.terms.segments and judge.rule_statuses[Code.KEY_ORDER].is_evaluated:
        yield engine.create_dataset(find_early_children(source.deliveries, judge, subscription))
    if topic_findings.may_have_keyless_strays(judge):
        yield find_keyless_strays(engine, source.read_messages_with_earlier(), judge, subscription)
    rejected = "dead_letters" in source.statistics.with_rejected
    letters = find_dead_letter_findings(
        engine,
        source.deliveries,
        source.read_messages_with_earlier(),
        source.letters,
        judge,
        subscription,
        config.date,
        rejected,
    )
    if letters is not None:
        yield letters


class RejudgedRows(NamedTuple):
    """A log that was judged again: rows as in table ``audited``, which are not written."""

    rows: Dataset
    applicable: int

    def counts(self, width: int) -> pa.Table:
        """Count its findings by window of ``width`` ns (``sums.COUNTS``)."""
        counted = self.rows.map(partial(_count_findings, self.applicable, width), sums.COUNTS).to_table()
        return add_up(sums.make_count_adder(), counted)


def judge_again(source: Source, judge: Judge, off: Sequence[ClockShift] = ()) -> RejudgedRows:
    """Judge every delivery again, after correcting the clocks in ``off``."""
    step = AuditedRows(JudgeRows(judge, source.config.subscription.name))
    return RejudgedRows(source.sorted_log(off).map(step, AUDITED), judge.applicable)


def _count_findings(applicable: int, width: int, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    counts = sums.make_count_adder()
    for some in gather_batches(rows):
        counts.add(sums.count_by_window(some, applicable, width))
    yield from counts.compute_sum().combine_chunks().to_batches()
