"""The stages of a run: each takes what the one before it gave, and writes what a user may want to query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession, Window

from subreplay.columns import DAY, NEVER, UNKNOWN, midnight
from subreplay.config import RECORDED, AnyScenario, Member, RunConfig, Spark
from subreplay.errors import NothingThere
from subreplay.figures import Figures
from subreplay.held import Stored, nothing_of
from subreplay.model import MembershipEvent, Scope
from subreplay.policies.base import Policy
from subreplay.policies.pulsar.key_failover import KeyFailover
from subreplay.replay.assign import Assigner, Plan, slot_and_owner
from subreplay.replay.balance import connected
from subreplay.replay.recent_load import RecentLoad
from subreplay.replay.scenario import PlannedMember, plan, planned_events, recorded
from subreplay.rules.beginning import beginnings
from subreplay.rules.clocks import Clocks, failing, shifts
from subreplay.rules.explain import Explainer
from subreplay.rules.judge import Dispatcher, Judge
from subreplay.rules.loads import Span
from subreplay.rules.needs import Need
from subreplay.rules.registry import Code
from subreplay.rules.rejects import Rejects
from subreplay.rules.routing import HASHED, Hashing, warnings
from subreplay.rules.strangers import with_strangers
from subreplay.spark import (
    audit,
    clocks,
    collect,
    dead_letters,
    known_secret,
    lake,
    nights,
    topic_findings,
    whatif,
    withdrawals,
)
from subreplay.spark.census import Census, census
from subreplay.spark.held import held
from subreplay.spark.log import Inputs, Log, as_log, read_inputs
from subreplay.spark.rejects import reasons, rejects
from subreplay.spark.session import fit_batches
from subreplay.spark.windows import bounds, loads, violations
from subreplay.spark.worst import worst

NAMED = 8  # withdrawn findings of a code and night whose places stand in a report, beside how many there are
_TRAFFIC = ("messages", "deliveries")
WINDOWS = 240  # at most so many windows come back to the driver and stand in a report
Events = Mapping[Scope, tuple[MembershipEvent, ...]]


@dataclass(frozen=True)
class Source:
    """A run's checked input: tables, membership by dispatcher, and what was counted at the door; ``held`` is all that
    the tables hold, where they have no delivery or no join of this run."""

    spark: SparkSession
    config: RunConfig
    inputs: Inputs
    log: Log
    before: nights.HandedOn | None
    census: Census
    rejects: Rejects
    held: tuple[Stored, ...] = ()
    prefix: str = ""  # of the names of its output tables

    @property
    def policy(self) -> Policy:
        return self.config.subscription.make_policy()

    @property
    def events(self) -> Events:
        return self.census.events

    @property
    def extent(self) -> Mapping[str, int]:
        return self.census.extent

    @property
    def quiet(self) -> bool:
        """Whether it is a day without a row, of a topic with messages on others."""
        counted = sum(row["valid"] + row["quarantined"] for row in self.census.counts if row["table"] in _TRAFFIC)
        known = any(s.table == "messages" and s.topic == self.inputs.topic for s in self.held)
        return self.config.date is not None and not counted and known

    @property
    def night(self) -> Log:
        """The log that is judged: of a day with what earlier ones left open."""
        return nights.log_of_night(self.spark, self.config, self.inputs, self.log, self.before)

    @property
    def where(self) -> dict[str, str]:
        """What identifies this run's rows in an output table."""
        found = {"subscription": self.config.subscription.name, "topic": self.inputs.topic}
        return found | ({"date": self.config.date.isoformat()} if self.config.date else {})

    @property
    def begin(self) -> int:
        """The first instant (ns) of the audited day; ``UNKNOWN`` where all there is is audited at once."""
        return UNKNOWN if self.config.date is None else midnight(self.config.date)

    @property
    def horizon(self) -> int:
        """The last instant (ns) of the audited day; ``NEVER`` where all there is is audited at once."""
        return NEVER if self.begin == UNKNOWN else self.begin + DAY - 1

    @property
    def width(self) -> int:
        """The width of report windows in ns: the configured one, or as many of it as keep the report readable."""
        width = self.config.windows.width * 1_000
        span = self.extent["last"] - self.extent["first"] + 1
        return width * max(1, -(-span // (width * WINDOWS)))

    @property
    def span(self) -> Span:
        """The configured windows."""
        windows = self.config.windows
        return Span(windows.width * 1_000, windows.step * 1_000)

    @property
    def report_span(self) -> Span:
        """The windows of the report."""
        return Span(self.width, self.width)

    def write(self, frame: DataFrame, name: str) -> DataFrame:
        """Write an output table and read this run's rows back, so that nothing is computed twice."""
        out, name = self.config.output, self.prefix + name
        lake.replace(frame, out.tables, name, "delta", **self.where)
        written = lake.read(self.spark, out.tables, name, "delta")
        for column, value in self.where.items():
            written = written.where(F.col(column) == value)
        return written


def read(spark: SparkSession, config: RunConfig, prefix: str = "") -> Source:
    """Read and check the input tables; the names of output tables begin with ``prefix``.

    A day on which nothing happened is looked at all the same: messages that earlier ones left open are judged again.
    """
    inputs = read_inputs(spark, config)
    before = nights.handed_on(spark, config, inputs.topic)
    if before is not None:
        known_secret.require_same(spark, config, inputs.topic, before.night)
    found = census(inputs, None if before is None else before.carried)
    fit_batches(spark, found.widest)
    rejected = rejects(inputs, found.with_rejected)
    empty = not found.extent["deliveries"] or Need.MEMBERSHIP in found.lacking
    there = held(spark, config) if empty else ()
    source = Source(spark, config, inputs, as_log(inputs), before, found, rejected, there, prefix)
    if found.extent["messages"] or found.extent["deliveries"] or config.date is None:
        return source
    day = {"first": source.begin, "last": source.horizon}
    return replace(source, census=found._replace(extent={**found.extent, **day}))


def read_traffic(spark: SparkSession, config: RunConfig) -> Source:
    """The same for a what-if. Raises ``NothingThere`` where there is no message to replay."""
    source = read(spark, config, prefix="whatif_")
    if not source.extent["messages"]:
        subscription, topic = config.subscription.name, source.inputs.topic
        why = nothing_of(source.held or held(spark, config), "messages", subscription, topic, config.date)
        raise NothingThere(f"{config.traffic.path}: there is nothing to replay: {why}")
    return source


def fold(source: Source) -> Judge:
    """Fold the policy over the membership, and make the judge that goes to the executors.

    Raises ``ConfigError`` where the night before was judged by other rules.
    """
    if source.before is not None:
        nights.check_basis(source.before, source.config)
    folded = _plan(source, RECORDED, source.policy, source.events)
    config, found = source.config, source.census
    others: Mapping[Scope, Dispatcher] = {}
    if found.strangers:
        events = {scope: with_strangers(scope, mine, found.strangers) for scope, mine in source.events.items()}
        timelines = _plan(source, RECORDED, source.policy, events).timelines
        others = {scope: Dispatcher.of(timeline) for scope, timeline in timelines.items()}
    dispatchers = {
        scope: Dispatcher.of(timeline, other=others.get(scope)) for scope, timeline in folded.timelines.items()
    }
    # a night that goes on from another knows what was before it
    begins = beginnings(found.lowest, found.served, folded.timelines) if source.before is None else {}
    return Judge(
        folded.policy,
        dispatchers,
        found.lacking,
        config.topic.terms,
        source.horizon,
        begins,
        found.last,
        found.uncovered,
        source.rejects,
        lookback=config.traffic.lookback_days * DAY,
        basis=nights.basis(config),
        words=config.keys.words,
    )


class Judged(NamedTuple):
    """Judged rows, and ``LOAD`` rows, which add up what all of them say of consumers."""

    rows: DataFrame
    sums: DataFrame


def judge(source: Source, judge: Judge) -> Judged:
    """Judge every delivery; writes table ``audited``, with what the run of a date hands to the next."""
    config = source.config
    spans, findings_only = (source.span, source.report_span), config.output.audited == "findings"
    adding = replace(judge, spans=spans, findings_only=findings_only)
    rows = audit.judged(source.night, adding)
    written = source.write(audit.published(rows, config.subscription.name, judge), "audited")
    return Judged(audit.deliveries(written), audit.sums(written))


def explain(source: Source, judge: Judge, judged: Judged) -> DataFrame:
    """Findings in words, also those that are not about one delivery; writes table ``violations``."""
    spark, config, topic = source.spark, source.config, source.inputs.topic
    subscription = config.subscription.name
    words = audit.violations(judged.rows, Explainer(judge, subscription))
    log = nights.with_earlier_messages(spark, config, topic, source.log)
    told = nights.told(spark, config, topic, Code.KEY_TWO_PARTITIONS)
    since = UNKNOWN if source.before is None else source.before.end
    others = topic_findings.found(log.messages, judge, subscription, told, since)
    found = words.unionByName(others)
    letters = "dead_letters" in source.census.with_rejected
    given_up = dead_letters.found(source.inputs, log, judge, subscription, config.date, letters)
    return source.write(found if given_up is None else found.unionByName(given_up), "violations")


def sum_audit(source: Source, judge: Judge, judged: Judged, found: DataFrame) -> Figures:
    """Aggregate judged rows and their sums; writes tables ``assignments``, ``violations_by_window`` and
    ``finding_counts``."""
    width, (own, slide) = source.width, source.span
    folded = Plan(RECORDED, judge.policy, {s: d.timeline for s, d in judge.dispatchers.items()})
    totals = audit.totals(judged.sums)
    intervals = connected(folded.timelines.values(), max(source.extent["last"], totals["last"]) + 1)
    fine = bounds(audit.assignments(loads(judged.sums, source.span), source.spark, intervals, own), own)
    failing = violations(found, own, slide)
    counts_of_deliveries = audit.finding_counts(judged.rows, judge, own)
    counted = counts_of_deliveries.unionByName(audit.counts_of_others(found, own))
    with collect.together() as start:
        assigned = start(source.write, fine, "assignments")
        windowed = start(source.write, failing, "violations_by_window")
        counts = start(source.write, counted, "finding_counts")
        load = start(collect.rows, loads(judged.sums, source.report_span).orderBy("window", "consumer"))
        consumers = start(collect.rows, audit.load(judged.sums))
        told = start(collect.rows, worst(found, source.config.report.worst, width))
        corrected = start(_withdrawn, source)
    assigned.result()
    windowed.result()
    findings = collect.rows(audit.coarser(counts.result(), width))
    mixed = any(row["code"] == Code.MIXED_BATCH.name for row in findings)
    return Figures(
        topic=source.inputs.topic,
        inputs=source.census.counts,
        extent=source.extent,
        width=width,
        plan=folded,
        connected=intervals,
        totals=totals,
        load=load.result(),
        consumers=consumers.result(),
        findings=findings,
        worst=told.result(),
        terms=judge.terms,
        clocks=_clocks(source, judge, judged, found, findings),
        night=None if source.before is None else source.before.night,
        withdrawn=corrected.result(),
        missed=source.before is not None and source.before.end != source.begin,
        warnings=routing_warnings(source),
        guessable=source.config.keys.guessable,
        begin=min(judge.begins.values(), default=None),
        lacking=judge.lacking,
        held=source.held,
        quiet=source.quiet,
        repeated={
            "messages": totals["stored_again"],
            "membership": source.census.repeated,
            "deliveries": totals["repeated"],
        },
        contradicted={"membership": source.census.contradicted, "deliveries": totals["contradicted"]},
        quarantine=reasons(source.inputs, source.census.with_rejected),
        scattered=audit.scattered_keys(_every_row(source, judge, judged)) if mixed else None,
    )


def _withdrawn(source: Source) -> collect.Rows:
    """What this night withdraws of earlier ones' findings, counted by code and night, with some places; writes table
    ``withdrawn``."""
    found = withdrawals.found(source.spark, source.config, source.inputs)
    if found is None:
        return []
    written = source.write(found, "withdrawn")
    place = F.struct("partition", "ledger", "entry", "batch_index")
    nth = F.row_number().over(Window.partitionBy("code", "told").orderBy(place))
    some = F.sort_array(F.collect_list(F.when(F.col("nth") <= NAMED, place))).alias("places")
    counted = written.withColumn("nth", nth).groupBy("code", "told").agg(F.count("*").alias("count"), some)
    return collect.rows(counted.orderBy("code", "told"))


def _clocks(source: Source, judge: Judge, judged: Judged, found: DataFrame, findings: collect.Rows) -> Clocks:
    """Consumers whose clocks are off, and what fails with these corrected: the log is judged once more where there are
    any. Where table ``audited`` keeps findings only, they are looked for where one of them fails."""
    recorded = failing(findings, judge.standings)
    config = source.config
    if config.output.audited == "findings" and not recorded:
        return Clocks()
    off = shifts(collect.rows(clocks.lags(_every_row(source, judge, judged))), judge.terms.clock_skew)
    if not off:
        return Clocks()
    log = clocks.corrected(source.night, off)
    again = audit.deliveries(audit.judged(log, judge))
    counted = audit.finding_counts(again, judge, source.width)
    counted = counted.unionByName(audit.counts_of_others(found, source.width))
    by_code = counted.groupBy("code", "excuse").agg(F.sum("count").alias("count"))
    return Clocks(off, recorded, failing(collect.rows(by_code), judge.standings))


def _every_row(source: Source, judge: Judge, judged: Judged) -> DataFrame:
    """Every judged row; those that table ``audited`` does not keep are judged once more."""
    config = source.config
    if config.output.audited == "all":
        return judged.rows
    return audit.deliveries(audit.judged(source.night, judge))


def routing_warnings(source: Source) -> tuple[str, ...]:
    """What is dangerous about how producers choose partitions, where the run says how they do."""
    routing = source.config.topic.terms.routing
    if routing is None or routing.mode == "CustomPartition":
        return ()
    rows = collect.rows(whatif.hashing(source.log.messages, Hashing(routing.partitions)))
    return warnings(pa.Table.from_pylist(rows, HASHED), routing.scheme)


def sum_traffic(source: Source) -> Figures:
    """Figures of a what-if, which has no deliveries."""
    folded = _plan(source, RECORDED, source.policy, {s: recorded(e) for s, e in source.events.items()})
    intervals = connected(folded.timelines.values(), source.extent["last"] + 1)
    return Figures(
        source.inputs.topic, source.census.counts, source.extent, source.width, folded, intervals,
        guessable=source.config.keys.guessable,
    )  # fmt: skip


def assign(source: Source, figures: Figures) -> tuple[Figures, tuple[Plan, ...]]:
    """Assign all traffic under every scenario, and under the recorded policy for what moved and which keys are hot."""
    plans = tuple(_scenario_plan(source, s) for s in source.config.scenarios)
    assigner = Assigner((figures.plan, *plans), figures.width, source.extent["first"], moves_of=figures.plan.name)
    # a reader of Parquet may hold all keys of a file, twice: of large ones, one at a time
    with collect.together(1 if source.census.widest > whatif.LARGE else 4) as start:
        traffic = whatif.traffic(source.log.messages, assigner)
        summed = start(collect.rows, whatif.summary(traffic, assigner.moves_of))
        few = max(1, source.config.report.hot_keys)
        hottest = start(collect.rows, whatif.hot_keys(source.log.messages, few, source.census.widest))
    hot = hottest.result()
    figures = replace(
        figures,
        traffic=summed.result(),
        hottest=hot[0]["messages"] if hot else 0,
        hot_keys=[_hot_key(source, figures.plan, row) for row in hot[: source.config.report.hot_keys]],
    )
    return figures, plans


def _plan(source: Source, name: str, policy: Policy, events: Events) -> Plan:
    """A plan over this traffic; a load-aware policy measures it first."""
    if isinstance(policy, KeyFailover):
        load = RecentLoad.of(policy, events)
        policy = load.measured(collect.rows(whatif.recent_load(source.log.messages, load)))
    return plan(name, policy, events)


def _scenario_plan(source: Source, scenario: AnyScenario) -> Plan:
    events = scenario_events(scenario, source.events, source.extent["first"])
    return _plan(source, scenario.name, scenario.make_policy(), events)


def scenario_events(scenario: AnyScenario, events: Events, start: int) -> Events:
    """The members of a scenario: as recorded, or as the run file invents them, which every partition sees."""
    if scenario.members == "recorded":
        return {scope: recorded(mine) for scope, mine in events.items()}
    members = [
        PlannedMember(
            m.consumer,
            m.join * 1_000,
            None if m.leave is None else m.leave * 1_000,
            m.priority,
            None if m.ranges is None else tuple(m.ranges),
            m.instance_id,
            m.rack,
            None if m.crash is None else m.crash * 1_000,
            None if m.restart is None else m.restart * 1_000,
        )
        for m in scenario.members
        if isinstance(m, Member)
    ]
    return {scope: planned_events(members, scope, start) for scope in events}


def plans(config: RunConfig, open_session: Callable[[Spark], SparkSession]) -> list[Plan]:
    """Every plan of a run without its traffic: the recorded one where the run names tables, and the scenarios.

    Members that a scenario invents join at time 0.
    """
    found: list[Plan] = []
    recorded_events: Events = {}
    if "traffic" in config.model_fields_set or any(s.members == "recorded" for s in config.scenarios):
        recorded_events = census(read_inputs(open_session(config.spark), config)).events
        found.append(plan(RECORDED, config.subscription.make_policy(), recorded_events))
    topic = config.subscription.topic or "persistent://public/default/topic"
    somewhere: Events = recorded_events or {Scope(topic): ()}
    for scenario in config.scenarios:
        found.append(plan(scenario.name, scenario.make_policy(), scenario_events(scenario, somewhere, 0)))
    return found


def _hot_key(source: Source, folded: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    """A hot key with its slot and its owner when traffic ended, where the policy has slots and one dispatcher."""
    found: dict[str, Any] = {"key": source.config.keys.words.word(bytes(row["key"])), "messages": row["messages"]}
    if folded.policy.routing != "slot" or len(folded.timelines) != 1:
        return found | {"slot": None, "consumer": None}
    timeline = next(iter(folded.timelines.values()))
    slot, owner = slot_and_owner(timeline, bytes(row["key"]), source.extent["last"])
    return found | {"slot": slot, "consumer": owner}


def write_tables(source: Source, held: Mapping[str, pa.Table]) -> None:
    """Write the result tables that the driver holds, and table ``quarantine``."""
    frames = {name: lake.of_arrow(source.spark, rows) for name, rows in held.items()}
    frames |= {
        name: known_secret.noted(frame, source.config) for name, frame in frames.items() if name.endswith("runs")
    }
    with_some = source.census.with_rejected
    # of tables without any there is nothing to look for
    rejected = [frame if name in with_some else frame.limit(0) for name, frame in source.inputs.rejected.items()]
    frames["quarantine"] = reduce(DataFrame.unionAll, rejected)
    with collect.together() as start:
        written = [start(source.write, frame, name) for name, frame in frames.items()]
    for done in written:
        done.result()
