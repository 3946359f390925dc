"""The stages of a what-if: plans over the recorded traffic, and what they assign to whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from subreplay.audit.needs import Need
from subreplay.config.run import RECORDED, AnyScenario, Member, RunConfig, Spark
from subreplay.errors import InputError
from subreplay.figures import Figures
from subreplay.model.rows import Scope
from subreplay.policies.base import Measuring, Policy
from subreplay.spark import collect, whatif
from subreplay.spark.read.input_statistics import census
from subreplay.spark.read.log import read_inputs
from subreplay.spark.read.source import Events, Source
from subreplay.spark.read.traffic import Frames
from subreplay.timelines.ownership import Story
from subreplay.traffic.evaluation import Extent
from subreplay.traffic.recent_load import RecentLoad
from subreplay.traffic.routing import ProducerRouting
from subreplay.whatif.assign import Assigner, Plan, slot_and_owner
from subreplay.whatif.balance import connected
from subreplay.whatif.scenario import PlannedMember, on_partitions, plan, planned_events, recorded


def sum_traffic(source: Source) -> Figures:
    """Figures of a what-if, which has no deliveries."""
    folded = measured_plan(
        source, RECORDED, source.config.subscription.make_policy(), {s: recorded(e) for s, e in source.events.items()}
    )
    intervals = connected(folded.timelines.values(), source.extent["last"] + 1)
    return Figures(
        source.inputs.topic, source.census.counts, source.extent, source.width, folded, intervals,
        guessable=source.config.keys.guessable, held=source.held, quiet=source.quiet,
    )  # fmt: skip


def assign(source: Source, figures: Figures) -> tuple[Figures, tuple[Plan, ...]]:
    """Assign all traffic under every scenario, and under the recorded policy for what moved and which keys are hot."""
    plans = tuple(_scenario_plan(source, s) for s in source.config.scenarios)
    first, last = source.extent["first"], source.extent["last"]
    assigner = Assigner((figures.plan, *plans), Extent(first, last, figures.width), moves_of=figures.plan.name)
    # a reader of Parquet may hold all keys of a file, twice: of large ones, one at a time
    with collect.together(1 if source.census.widest > whatif.LARGE else 4) as start:
        summed = start(source.profiled.assigned, assigner)
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


def measured_plan(
    source: Source,
    name: str,
    policy: Policy,
    events: Events,
    told: Mapping[Scope, Story] = MappingProxyType({}),
    routing: ProducerRouting | None = None,
) -> Plan:
    """A plan over this traffic; a load-aware policy measures it first; ``told`` as for ``plan``. Raises ``InputError``
    where keys decide, and the messages do not tell them."""
    if policy.routing == "slot" and Need.KEYS in source.census.lacking:
        raise InputError(
            f"{name}: under {policy.name} keys decide who gets a message, and the messages do not tell their keys; "
            "map them under traffic.messages.columns, or ask for a policy without keys (failover, exclusive, shared)"
        )
    if isinstance(policy, Measuring):
        load = RecentLoad.of(policy, events, routing)
        policy = load.measured(source.profiled.recent(load))
    return plan(name, policy, events, told)


def _scenario_plan(source: Source, scenario: AnyScenario) -> Plan:
    routing = _routing(source.config, scenario, source.events)
    events = scenario_events(scenario, source.events, source.extent["first"], routing)
    folded = measured_plan(source, scenario.name, scenario.make_policy(), events, routing=routing)
    return replace(folded, routing=routing, retention=scenario.kept_by)


def _routing(config: RunConfig, scenario: AnyScenario, events: Events) -> ProducerRouting | None:
    declared = config.topic.routing
    count = max((scope.partition for scope in events), default=0) + 1
    return scenario.routing(max(count, 1), "JavaStringHash" if declared is None else declared.scheme)


def scenario_events(
    scenario: AnyScenario, events: Events, start: int, routing: ProducerRouting | None = None
) -> Events:
    """The members of a scenario: as recorded, or as the run file invents them, which every partition sees. Where
    producers choose partitions anew, every partition sees whoever was at some of the recorded ones."""
    if routing is not None:
        events = on_partitions(events, routing.partitions)
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


def plans(config: RunConfig, open_session: Callable[[Spark], SparkSession], frames: Frames | None = None) -> list[Plan]:
    """Every plan of a run without its traffic: the recorded one where the run names tables, and the scenarios.

    Members that a scenario invents join at time 0.
    """
    found: list[Plan] = []
    recorded_events: Events = {}
    named = bool(frames) or "traffic" in config.model_fields_set
    if named or any(s.members == "recorded" for s in config.scenarios):
        recorded_events = census(read_inputs(open_session(config.spark), config, frames, messages_only=True)).events
        found.append(plan(RECORDED, config.subscription.make_policy(), recorded_events))
    topic = config.subscription.topic or "persistent://public/default/topic"
    somewhere: Events = recorded_events or {Scope(topic): ()}
    for scenario in config.scenarios:
        members = scenario_events(scenario, somewhere, 0, _routing(config, scenario, somewhere))
        found.append(plan(scenario.name, scenario.make_policy(), members))
    return found


def _hot_key(source: Source, folded: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    """A hot key with its slot and its owner when traffic ended, where the policy has slots and one dispatcher."""
    found: dict[str, Any] = {"key": source.config.keys.words.word(bytes(row["key"])), "messages": row["messages"]}
    if folded.policy.routing != "slot" or len(folded.timelines) != 1:
        return found | {"slot": None, "consumer": None}
    timeline = next(iter(folded.timelines.values()))
    slot, owner = slot_and_owner(timeline, bytes(row["key"]), source.extent["last"])
    return found | {"slot": slot, "consumer": owner}
