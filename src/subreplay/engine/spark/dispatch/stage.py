"""The dispatch replay as a stage of a run: predict, count, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.audit.context import Dispatcher
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.terms import Terms
from subreplay.config.dispatch import Dispatch
from subreplay.config.plans import scenario_events
from subreplay.config.scenario import GroupScenario, Scenario
from subreplay.engine.spark import collect
from subreplay.engine.spark.audit import passes
from subreplay.engine.spark.audit.worst import worst
from subreplay.engine.spark.dispatch import replay
from subreplay.engine.spark.read.log import as_log
from subreplay.engine.spark.read.source import WINDOWS, Source
from subreplay.engine.spark.session import partitions
from subreplay.errors import ConfigError
from subreplay.reports.figures import DispatchFigures, Figures
from subreplay.rows.model.words import KeyWords
from subreplay.simulation.pulsar.choice import ignores_delays
from subreplay.simulation.pulsar.service import Empirical, Fixed, Service
from subreplay.whatif.assign import Plan
from subreplay.whatif.predicted import Predictor, Simulation
from subreplay.whatif.predicted_group import GroupPredictor, GroupSimulation, retold
from subreplay.whatif.scenario import group_events

MOST_BLOCKED = 12
BY_HASH = ("consumer", "holder", "hash")


def dispatch_asked(source: Source, plans: Sequence[Plan]) -> str:
    """Which scenarios are replayed, and how much each is, in words; empty where none is."""
    asked = [p for s, p in zip(source.config.scenarios, plans, strict=True) if s.dispatch is not None]
    consumers = [len({consumer.label for consumer in p.consumers}) for p in asked]
    told = [f"{p.name} ({many:,} consumers)" for p, many in zip(asked, consumers, strict=True)]
    each = f" over {source.extent['messages']:,} messages" + (" each" if len(told) > 1 else "")
    return ", ".join(told) + each if told else ""


def replay_dispatch(source: Source, plans: Sequence[Plan]) -> tuple[DispatchFigures, ...]:
    """Replay the dispatch of the scenarios that ask for it; writes table ``predicted``.

    The rules judge predicted deliveries as they judge observed ones.
    """
    asked = [(s, s.dispatch, p) for s, p in zip(source.config.scenarios, plans, strict=True) if s.dispatch is not None]
    if not asked:
        return ()
    recorded_times = _recorded_times(source) if any(d.needs_recorded_times for _, d, _ in asked) else Fixed()
    dispatchers = _dispatchers(source, plans, recorded_times)
    groups = _groups(source, plans, recorded_times)
    width, shuffles = source.width, partitions(source.spark)
    parts = [
        *([replay.predicted(source.inputs.messages, dispatchers, shuffles)] if dispatchers.scenarios else []),
        *([replay.consumed(source.inputs.messages, groups, shuffles)] if groups.scenarios else []),
    ]
    rows = source.write(reduce(DataFrame.unionByName, parts), "predicted")
    last = source.extent["last"]
    outcomes = collect.rows(replay.outcomes(rows, last, width))
    ends = {s.name: max([last, *(r["last"] or 0 for r in outcomes if r["scenario"] == s.name)]) for s, _, _ in asked}
    tick = source.config.topic.delivery_tick * 1_000
    ticks = {s.name: 0 if ignores_delays(p.policy) else tick for s, _, p in asked}
    with collect.together() as begin:
        jobs = {
            "taken": begin(collect.rows, replay.taken(rows, width, ends, source.extent["first"], WINDOWS)),
            "pending": begin(collect.rows, replay.pending(rows)),
            "latencies": begin(collect.rows, replay.latencies(rows, ticks)),
            "backlog": begin(collect.rows, replay.backlog(rows, width)),
            "held": begin(collect.rows, replay.held(rows, width)),
            "waits": begin(collect.rows, replay.waits(rows, ("consumer", "holder"), MOST_BLOCKED)),
            "hash_waits": begin(collect.rows, replay.waits(rows, (*BY_HASH, "generation"), MOST_BLOCKED)),
            "drains": begin(collect.rows, replay.drains(rows, last)),
        }
        changed = begin(collect.rows, replay.changes(rows))
    found = {name: job.result() for name, job in jobs.items()} | {"outcomes": outcomes}
    told = {
        name: retold(group, [row for row in changed.result() if row["scenario"] == name])
        for name, group in groups.scenarios.items()
    }
    judged = _judge(source, {s.name: told.get(s.name, p) for s, _, p in asked}, rows)
    return tuple(
        DispatchFigures(
            plan=p,
            service=d.consumers.service.words,
            seed=d.seed if d.draws else None,
            settings=d.words,
            last_published=last,
            steps=replay.STEPS,
            end=ends[s.name],
            halts=d.halts(p.consumers),
            judged=judged[s.name],
            **{name: [row for row in mine if row["scenario"] == s.name] for name, mine in found.items()},
        )
        for s, d, p in asked
    )


def _dispatchers(source: Source, plans: Sequence[Plan], recorded_times: Service) -> Predictor:
    """What is assumed of the scenarios whose partitions have a dispatcher each."""
    start, width = source.extent["first"], source.width
    return Predictor(
        {
            s.name: Simulation(p, s.dispatch.prediction(recorded_times, start, width), s.dispatch.settings)
            for s, p in zip(source.config.scenarios, plans, strict=True)
            if isinstance(s, Scenario) and s.dispatch is not None
        },
        source.config.keys.words,
    )


def _groups(source: Source, plans: Sequence[Plan], recorded_times: Service) -> GroupPredictor:
    """What is assumed of the scenarios with a Kafka group."""
    start, width = source.extent["first"], source.width
    return GroupPredictor(
        {
            s.name: GroupSimulation(
                s.name,
                p.policy,
                group_events(scenario_events(source.config, s, source.events, start)),
                tuple(p.timelines),
                s.dispatch.parameters(recorded_times, start, width),
            )
            for s, p in zip(source.config.scenarios, plans, strict=True)
            if isinstance(s, GroupScenario) and s.dispatch is not None
        }
    )


def _cumulative(section: Dispatch | None) -> Column:
    """Whether a consumer acknowledges cumulatively, as the run supposes."""
    if section is None:
        return F.lit(False)
    found = F.lit(section.consumers.cumulative)
    for other, consumers in section.others.items():
        found = F.when(F.col("consumer") == other, F.lit(consumers.cumulative)).otherwise(found)
    return found


def _judge(source: Source, scenarios: Mapping[str, Plan], rows: DataFrame) -> dict[str, Figures]:
    """What the rules find in the predicted deliveries of each scenario; writes table ``predicted_audited``."""
    config = source.config
    section = {s.name: s.dispatch for s in config.scenarios if isinstance(s, Scenario)}
    terms, words = config.terms, config.keys.words
    judges = {
        name: _judge_of(folded, terms, section.get(name), words, source.dates) for name, folded in scenarios.items()
    }
    parts = []
    for name, judge in judges.items():
        mine = rows.where(F.col("scenario") == name)
        deliveries = replay.as_deliveries(mine, config.subscription.name, _cumulative(section.get(name)))
        log = as_log(source.inputs.having(deliveries=deliveries))
        judged = passes.published(
            passes.deliveries(passes.judged(log, judge)),
            config.subscription.name,
            judge,
        )
        parts.append(judged.withColumn("scenario", F.lit(name)))
    written = source.write(reduce(DataFrame.unionByName, parts), "predicted_audited")
    found = {}
    for name, judge in judges.items():
        mine = written.where(F.col("scenario") == name).drop("scenario")
        told = passes.violations(mine, Explainer(judge, config.subscription.name))
        counted = passes.finding_counts(mine, judge, config.windows.width * 1_000)
        found[name] = Figures(
            source.inputs.topic,
            source.statistics.counts,
            source.extent,
            source.width,
            scenarios[name],
            (),
            findings=collect.rows(passes.coarser(counted, source.width)),
            worst=collect.rows(worst(told, config.report.worst, source.width)),
            terms=judge.terms,
        )
    return found


def _judge_of(folded: Plan, terms: Terms, section: Dispatch | None, words: KeyWords, dates: bool) -> Judge:
    dispatchers = {}
    for scope, timeline in folded.timelines.items():
        queues = (
            {} if section is None else {c.label: section.of(c.name).receiver_queue_size for c in timeline.consumers}
        )
        dispatchers[scope] = Dispatcher.of(timeline, queues)
    return Judge(folded.policy, dispatchers, terms=terms, words=words, dates=dates)


def _recorded_times(source: Source) -> Empirical:
    """Service times as recorded: from receipt, or else delivery, to acknowledgement."""
    received = F.coalesce("received_at", "delivered_at")
    times = source.inputs.deliveries.select((F.unix_micros("acked_at") - F.unix_micros(received)).alias("us"))
    known = times.where("us >= 0")
    steps = [i / 100 for i in range(101)]
    row = known.agg(F.percentile("us", F.array(*[F.lit(p) for p in steps])).alias("quantiles")).first()
    found = row["quantiles"] if row is not None else None
    if not found:
        raise ConfigError("service: model recorded needs recorded deliveries with acknowledgements, and there are none")
    return Empirical(tuple(us * 1_000.0 for us in found))
