"""The dispatch replay as a stage of a run, on any engine: predict deliveries, count them, and judge them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from subreplay.audit import explaining, judging, sums
from subreplay.audit.context import Dispatcher
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.explaining import FindingCounting, FindingExplainer
from subreplay.audit.judge import Judge
from subreplay.audit.judging import JudgeRows
from subreplay.audit.terms import Terms
from subreplay.config.dispatch import Dispatch
from subreplay.config.plans import build_scenario_events
from subreplay.config.scenario import GroupScenario, Scenario, ShareScenario
from subreplay.engine.interface import Dataset, NewRows, Splitter, Step
from subreplay.errors import ConfigError
from subreplay.pipeline.source import WINDOWS, Source
from subreplay.reports.figures import MAX_SHOWN_FINDINGS, DispatchFigures, Figures
from subreplay.rows.groups import Accumulator
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.tables import AUDITED
from subreplay.rows.sorted_blocks import BY_POSITION
from subreplay.simulation.pulsar.dispatcher_choice import ignores_delays
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, Service
from subreplay.whatif import dispatch_sums, recorded_service_times, wait_sums
from subreplay.whatif.dispatch_replay import PREDICTED, DispatchPredictor, DispatchScenario
from subreplay.whatif.dispatch_sums import SumReceived, SumReplay, WidenWindows, name_log_output
from subreplay.whatif.group_replay import GroupPredictor, GroupSimulation, ShareSimulation, build_recorded_plan
from subreplay.whatif.grouped_sums import Rows
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.replay_rows import (
    CONSUMED,
    PUBLISHED,
    REPLAYED,
    CumulativeAcks,
    OrderReadyRecords,
    PredictDispatch,
    PredictGroups,
    SplitMessages,
)
from subreplay.whatif.rerouted_messages import KEYLESS, NUMBERED, REROUTED, RerouteMessages, TakeTurns, number_messages
from subreplay.whatif.scenario import find_group_events
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting
from subreplay.whatif.wait_sums import SumWaits

MOST_BLOCKED: Final = 12
PREDICTED_AUDITED: Final = pa.schema([*AUDITED, pa.field("scenario", pa.string())])


def describe_replays(source: Source, plans: Sequence[ScenarioPlan]) -> str:
    """Describe which scenarios are replayed, and how large each is; empty if there is none."""
    replayed = [p for s, p in zip(source.config.scenarios, plans, strict=True) if s.dispatch is not None]
    consumers = [len({consumer.label for consumer in p.consumers}) for p in replayed]
    texts = [f"{p.name} ({many:,} consumers)" for p, many in zip(replayed, consumers, strict=True)]
    each = f" over {source.extent['messages']:,} messages" + (" each" if len(texts) > 1 else "")
    return ", ".join(texts) + each if texts else ""


def replay_dispatch(source: Source, plans: Sequence[ScenarioPlan]) -> tuple[DispatchFigures, ...]:
    """Replay the dispatch of the scenarios that configure it, and write tables ``predicted`` and ``predicted_audited``.

    The rules judge predicted deliveries in the same way as observed ones.
    """
    replayed = [
        (s, s.dispatch, p) for s, p in zip(source.config.scenarios, plans, strict=True) if s.dispatch is not None
    ]
    if not replayed:
        return ()
    recorded = _read_recorded_times(source) if any(d.needs_recorded_times for _, d, _ in replayed) else Fixed()
    dispatchers = _build_predictor(source, plans, recorded)
    groups = _build_group_predictor(source, plans, recorded)
    tick = source.config.topic.delivery_tick * 1_000
    ticks = {s.name: 0 if ignores_delays(p.policy) else tick for s, _, p in replayed}
    sections = {s.name: s.dispatch for s in source.config.scenarios if isinstance(s, Scenario)}
    cumulative = {name: _get_cumulative(sections.get(name)) for name in ticks}
    counting = SumReplay(tuple(ticks), source.extent["last"], source.width, ticks, cumulative)
    messages, replays = _prepare_replays(source, plans, dispatchers, groups)
    new = source.tables.begin_write("predicted", PREDICTED, source.build_where(PREDICTED))
    parts = [_replay(rows, step, counting, new) for rows, step in replays]
    source.tables.commit(new)
    found, ends = _sum_replays(source, counting, parts)
    changes = _concat_rows(parts, "changes").to_pylist()
    as_replayed = {
        name: build_recorded_plan(group, [row for row in changes if row["scenario"] == name])
        for name, group in groups.scenarios.items()
        if isinstance(group, GroupSimulation)
    }
    logs = {name: [part[name_log_output(number)] for part in parts] for number, name in enumerate(counting.scenarios)}
    judged = _judge(source, {s.name: as_replayed.get(s.name, p) for s, _, p in replayed}, messages, logs)
    return tuple(
        DispatchFigures(
            plan=p,
            service=d.consumers.service.words,
            seed=d.seed if d.draws else None,
            settings=d.words,
            last_published=counting.last_published,
            steps=dispatch_sums.STEPS,
            end=ends[s.name],
            halts=d.halts(p.consumers),
            judged=judged[s.name],
            **{name: [row for row in mine if row["scenario"] == s.name] for name, mine in found.items()},
        )
        for s, d, p in replayed
    )


def _build_predictor(source: Source, plans: Sequence[ScenarioPlan], recorded: Service) -> DispatchPredictor:
    """Build the simulations of scenarios whose partitions have one dispatcher each."""
    start, width = source.extent["first"], source.width
    return DispatchPredictor(
        {
            s.name: DispatchScenario(
                p, s.dispatch.prediction(recorded, start, width), s.dispatch.build_settings(p.policy.profile)
            )
            for s, p in zip(source.config.scenarios, plans, strict=True)
            if isinstance(s, Scenario) and s.dispatch is not None
        },
        source.config.keys.words,
    )


def _build_group_predictor(source: Source, plans: Sequence[ScenarioPlan], recorded: Service) -> GroupPredictor:
    """Build the simulations of scenarios with a Kafka group."""
    start, width = source.extent["first"], source.width
    found: dict[str, GroupSimulation | ShareSimulation] = {}
    for s, p in zip(source.config.scenarios, plans, strict=True):
        if isinstance(s, GroupScenario | ShareScenario) and s.dispatch is not None:
            events = find_group_events(build_scenario_events(source.config, s, source.events, start))
            scopes = tuple(p.timelines)
            if isinstance(s, ShareScenario):
                policy = s.make_policy()
                shared = s.dispatch.parameters(policy, recorded, start, width)
                found[s.name] = ShareSimulation(s.name, policy, events, scopes, shared, start)
            else:
                found[s.name] = GroupSimulation(
                    s.name, p.policy, events, scopes, s.dispatch.parameters(recorded, start, width)
                )
    return GroupPredictor(found)


def _get_cumulative(section: Dispatch | None) -> CumulativeAcks:
    """Return which consumers of a scenario acknowledge cumulatively."""
    if section is None:
        return CumulativeAcks()
    others = {name: consumers.cumulative for name, consumers in section.others.items()}
    return CumulativeAcks(section.consumers.cumulative, others)


def _prepare_replays(
    source: Source, plans: Sequence[ScenarioPlan], dispatchers: DispatchPredictor, groups: GroupPredictor
) -> tuple[Mapping[str, Dataset], list[tuple[Dataset, Step]]]:
    """Return the messages of each scenario as rows of the log, and those in replay order with the steps that replay
    them. Scenarios whose producers choose other partitions have messages of their own."""
    names, group_names = tuple(dispatchers.scenarios), tuple(groups.scenarios)
    topics = tuple(sorted({scope.topic for group in groups.scenarios.values() for scope in group.scopes}))
    routings: dict[PartitionRouting | None, list[str]] = {}
    for plan in plans:
        if plan.name in names or plan.name in group_names:
            routings.setdefault(plan.routing, []).append(plan.name)
    logs, replayed, consumed = dict[str, Dataset](), list[Dataset](), list[Dataset]()
    for routing, chosen in routings.items():
        of_groups = tuple(name for name in chosen if name in group_names)
        step = SplitMessages(tuple(names.index(name) for name in chosen if name in names), bool(of_groups))
        rows = _read_messages(source, routing).split(step, step.outputs)
        logs |= dict.fromkeys(chosen, rows["log"])
        replayed += [rows["replayed"]] if step.scenarios else []
        if of_groups:
            published = source.engine.sort([rows["published"]], PUBLISHED)
            consumed.append(published.map(OrderReadyRecords(of_groups, topics), CONSUMED.schema))
    replays = list[tuple[Dataset, Step]]()
    if replayed:
        replays.append((source.engine.sort(replayed, REPLAYED), PredictDispatch(dispatchers, names)))
    if consumed:
        replays.append((source.engine.sort(consumed, CONSUMED), PredictGroups(groups, topics)))
    return logs, replays


def _read_messages(source: Source, routing: PartitionRouting | None) -> Dataset:
    """Read the messages, in the partitions of a routing."""
    if routing is None:
        return source.messages
    found = source.partitioners
    step = RerouteMessages(routing, found is not None and any(part.way.of_bytes for part in found.parts))
    moved = source.messages.split(step, step.outputs)
    turned = source.engine.sort([moved["keyless"]], KEYLESS).map(TakeTurns(routing), REROUTED.schema)
    return source.engine.sort([moved["keyed"], turned], REROUTED).map(number_messages, NUMBERED)


@dataclass(frozen=True)
class _PredictAndSum:
    """Splits messages in order into the outputs of ``SumReplay`` for the predicted rows."""

    predict: Step
    counting: SumReplay

    def __call__(self, messages: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return self.counting(self.predict(messages))


def _replay(messages: Dataset, step: Step, counting: SumReplay, new: NewRows) -> Mapping[str, Dataset]:
    """Predict rows, write them, and return their sums."""
    logs = {name_log_output(number): BY_POSITION for number in range(len(counting.scenarios))}
    return messages.split(_PredictAndSum(step, counting), {**counting.outputs, "predicted": new, **logs})


def _concat_rows(parts: Sequence[Mapping[str, Dataset]], name: str) -> pa.Table:
    return pa.concat_tables([part[name].to_table() for part in parts])


def _sum_replays(
    source: Source, counting: SumReplay, parts: Sequence[Mapping[str, Dataset]]
) -> tuple[dict[str, Rows], dict[str, int]]:
    """Sum the replays for the report. Also returns the instant of each scenario's last event, or of the last
    publication."""
    engine, last = source.engine, counting.last_published

    def added(name: str, *more: pa.Table) -> Rows:
        return dispatch_sums.SUMS[name].build_rows(_concat_rows(parts, name), *more)

    outcomes = added("outcomes")
    ends = {
        name: max([last, *(row["last"] or 0 for row in outcomes if row["scenario"] == name)])
        for name in counting.scenarios
    }
    wider = WidenWindows(dispatch_sums.choose_window_widths(source.width, ends, source.extent["first"], WINDOWS))
    taken = [part["taken"].map(wider, dispatch_sums.TAKEN.schema).to_table() for part in parts]
    received = engine.sort([part["received"] for part in parts], dispatch_sums.RECEIVED)
    first_received = SumReceived(counting.scenarios, counting.ticks)
    slots = engine.sort([part["slots"] for part in parts], dispatch_sums.SLOTS)
    waits = engine.sort([part["waits"] for part in parts], wait_sums.WAITS)
    outputs = {"longest": wait_sums.LONGEST, "counted": wait_sums.COUNTED}
    longest, counted = (rows.to_table() for rows in waits.split(SumWaits(MOST_BLOCKED), outputs).values())
    found = {
        "taken": dispatch_sums.build_taken_rows(*taken),
        "pending": added("pending"),
        "latencies": added("latencies", received.map(first_received, dispatch_sums.LATENCIES.schema).to_table()),
        "backlog": added("backlog"),
        "unacked": added("held"),
        "waits": wait_sums.build_wait_rows(wait_sums.BY_HOLDER, longest, counted, MOST_BLOCKED),
        "hash_waits": wait_sums.build_wait_rows(wait_sums.BY_PLACE, longest, counted, MOST_BLOCKED),
        "drains": dispatch_sums.build_drain_rows(
            _concat_rows(parts, "drains"),
            slots.map(dispatch_sums.find_hottest_slots, dispatch_sums.DRAINS.schema).to_table(),
        ),
        "outcomes": outcomes,
    }
    return found, ends


def _judge(
    source: Source,
    scenarios: Mapping[str, ScenarioPlan],
    messages: Mapping[str, Dataset],
    logs: Mapping[str, Sequence[Dataset]],
) -> dict[str, Figures]:
    """Judge the predicted deliveries of each scenario, and write table ``predicted_audited``."""
    config = source.config
    section = {s.name: s.dispatch for s in config.scenarios if isinstance(s, Scenario)}
    new = source.tables.begin_write("predicted_audited", PREDICTED_AUDITED, source.build_where(PREDICTED_AUDITED))
    found = {}
    for name, plan in scenarios.items():
        terms = config.terms if plan.routing is None else replace(config.terms, routing=None)
        judge = _build_judge(plan, terms, section.get(name), config.keys.words, source.dates)
        log = source.engine.sort([messages[name], *logs[name]], BY_POSITION)
        found[name] = _build_figures(source, plan, judge, log, name, new)
    source.tables.commit(new)
    return found


def _build_figures(
    source: Source, plan: ScenarioPlan, judge: Judge, log: Dataset, scenario: str, new: NewRows
) -> Figures:
    config, subscription = source.config, source.config.subscription.name
    judged = log.split(
        _JudgePredicted(JudgeRows(judge, subscription), scenario),
        {"audited": new, "findings": judging.OUTPUTS["findings"]},
    )
    counting = FindingCounting(source.span, source.width, config.report.worst, MAX_SHOWN_FINDINGS)
    words = FindingExplainer(Explainer(judge, subscription), counting)
    outputs = {name: explaining.OUTPUTS[name] for name in ("counts", "first")}
    texts = judged["findings"].split(_SelectedOutputs(words, tuple(outputs)), outputs)
    counts = _add_up(sums.make_count_adder(), texts["counts"].to_table())
    first = _add_up(counting.make_first_collector(), texts["first"].to_table())
    return Figures(
        source.inputs.topic,
        source.statistics.counts,
        source.extent,
        source.width,
        plan,
        (),
        findings=sums.widen_counts(counts, source.width),
        worst=sums.select_worst(first, config.report.worst, source.width, MAX_SHOWN_FINDINGS),
        terms=judge.terms,
    )


@dataclass(frozen=True)
class _JudgePredicted:
    """Splits a log into rows of table ``predicted_audited`` (``audited``) and ``findings``."""

    judge_rows: JudgeRows
    scenario: str

    def __call__(self, log: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for name, batch in self.judge_rows(log):
            if name == "audited":
                yield name, batch.append_column("scenario", pa.repeat(self.scenario, batch.num_rows))
            elif name == "findings":
                yield name, batch


@dataclass(frozen=True)
class _SelectedOutputs:
    """Some outputs of a step."""

    step: Splitter
    names: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        return ((name, batch) for name, batch in self.step(batches) if name in self.names)


def _add_up(adding: Accumulator, rows: pa.Table) -> pa.Table:
    adding.add(rows)
    return adding.compute_sum()


def _build_judge(plan: ScenarioPlan, terms: Terms, section: Dispatch | None, words: KeyMasking, dates: bool) -> Judge:
    dispatchers = {}
    for scope, timeline in plan.timelines.items():
        queues = (
            {} if section is None else {c.label: section.of(c.name).receiver_queue_size for c in timeline.consumers}
        )
        dispatchers[scope] = Dispatcher.of(timeline, queues)
    return Judge(plan.policy, dispatchers, terms=terms, words=words, dates=dates)


def _read_recorded_times(source: Source) -> Empirical:
    """Read the recorded service times. Raises ``ConfigError`` if there are none."""
    outputs = {"times": recorded_service_times.TIMES, "counted": recorded_service_times.COUNTED}
    found = source.deliveries.split(recorded_service_times.measure_service_times, outputs)
    count = sum(found["counted"].to_table()["count"].to_pylist())
    if not count:
        raise ConfigError(
            "service: model recorded needs recorded deliveries with acknowledgements, but there are none. Choose "
            "another model."
        )
    times = source.engine.sort([found["times"]], recorded_service_times.TIMES)
    ranked = times.map(
        recorded_service_times.SelectRanks(recorded_service_times.list_ranks(count)), recorded_service_times.RANKED
    ).to_table()
    at = dict(zip(*(ranked[name].to_pylist() for name in ("rank", "us")), strict=True))
    return Empirical(tuple(us * 1_000.0 for us in recorded_service_times.interpolate_quantiles(count, at)))
