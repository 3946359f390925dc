"""The stages of a what-if: build the plans over the recorded traffic, and assign the traffic to consumers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from subreplay.audit.needs import Need
from subreplay.config.plans import build_routing, build_scenario_events
from subreplay.config.run import RECORDED
from subreplay.config.scenario import AnyScenario
from subreplay.errors import InputError
from subreplay.hashing.murmur3 import murmur3_32
from subreplay.pipeline.measurements import find_hottest_keys
from subreplay.pipeline.partitioners import describe_producers
from subreplay.pipeline.source import Events, Source
from subreplay.reports.figures import Figures
from subreplay.rows.model.partitioner_text import unexplained
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy, is_load_measuring
from subreplay.semantics.timelines.group_timeline import drop_unused_rebalance_delay
from subreplay.semantics.timelines.recorded_ownership import MembershipEvents
from subreplay.whatif.fair_share import find_connected_intervals
from subreplay.whatif.id_variation import build_partition_plan, depends_on_ids, measure_share_variation
from subreplay.whatif.message_assignment import MessageAssigner, ScenarioPlan, find_slot_and_owner
from subreplay.whatif.scenario import build_plan, build_recorded_events
from subreplay.whatif.traffic.evaluation_counts import Extent
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting
from subreplay.whatif.traffic.recent_load import RecentLoad
from subreplay.whatif.traffic.traffic_profile import HottestKey


def sum_traffic(source: Source) -> Figures:
    """Sum the figures of a what-if, which has no deliveries."""
    folded = build_measured_plan(
        source,
        RECORDED,
        source.config.subscription.make_policy(),
        {s: build_recorded_events(e) for s, e in source.events.items()},
    )
    intervals = find_connected_intervals(folded.timelines.values(), source.extent["last"] + 1)
    return Figures(
        source.inputs.topic, source.statistics.counts, source.extent, source.width, folded, intervals,
        has_guessable_keys=source.config.keys.guessable, stored=source.stored, is_quiet=source.quiet,
        quarantine=source.reasons, producers=describe_producers(source),
        unaudited_topics=source.inputs.other_topics,
        repeated={"messages": source.statistics.copies}, numbered_by_time=source.numbered,
        lacking=source.statistics.lacking,
    )  # fmt: skip


def assign(source: Source, figures: Figures) -> tuple[Figures, tuple[ScenarioPlan, ...]]:
    """Assign all traffic under every scenario. The recorded policy is included, to find moved and hot keys."""
    plans = tuple(build_scenario_plan(source, s) for s in source.config.scenarios)
    first, last = source.extent["first"], source.extent["last"]
    by_partition = {plan.name: build_partition_plan(plan) for plan in plans if depends_on_ids(plan.policy)}
    assigner = MessageAssigner(
        (figures.plan, *plans, *by_partition.values()),
        Extent(first, last, figures.width),
        moves_plan=figures.plan.name,
    )
    limit = max(1, source.config.report.hot_keys)
    found = source.profiled.assign(assigner, limit)
    hot = _find_shown_keys(source, limit) if source.config.keys.words.show else found.hottest
    figures = replace(
        figures,
        traffic=[row for row in found.rows if row["scenario"] not in {plan.name for plan in by_partition.values()}],
        variation_by_ids={
            scenario.name: _measure_variation(source, scenario, by_partition[scenario.name].name, found.rows)
            for scenario in source.config.scenarios
            if scenario.name in by_partition
        },
        hottest=hot[0].messages if hot else 0,
        hot_keys=[_describe_hot_key(source, figures.plan, key) for key in hot[: source.config.report.hot_keys]],
    )
    return figures, plans


def _measure_variation(
    source: Source, scenario: AnyScenario, by_partition: str, rows: Iterable[Mapping[str, Any]]
) -> float:
    """Measure how much shares under a scenario depend on random ids; ``by_partition`` is its plan by partition."""
    events = build_scenario_events(source.config, scenario, source.events, source.extent["first"])
    windows = (row for row in rows if row["scenario"] == by_partition and row["level"] == "window")
    return measure_share_variation(scenario.make_policy(), events, windows)


def _find_shown_keys(source: Source, limit: int) -> list[HottestKey]:
    """Find the hottest keys in plain text, which a profile does not contain."""
    words = source.config.keys.words
    rows = find_hottest_keys(source.engine, source.messages, limit)
    return [HottestKey(str(words.mask_key(key)), murmur3_32(key), messages) for key, messages in rows]


def build_measured_plan(
    source: Source,
    name: str,
    policy: Policy,
    events: Events,
    ownership: Mapping[Scope, MembershipEvents] = MappingProxyType({}),
    routing: PartitionRouting | None = None,
) -> ScenarioPlan:
    """Build a plan over this traffic. A load-aware policy measures the traffic first.

    ``ownership`` is passed to ``plan``. Raises ``InputError`` if the policy routes by key and the messages have no
    keys.
    """
    if policy.routing == "slot" and Need.KEYS in source.statistics.lacking:
        raise InputError(
            f"{name}: under {policy.name} the key of a message decides which consumer gets it, but the messages do not "
            "record their keys. Map them in traffic.messages.columns, or choose a policy without keys (failover, "
            "exclusive, shared)."
        )
    if name == RECORDED and source.config.date is None:  # each day of daily runs would find another delay
        joins = (event.since.at for mine in events.values() for event in mine if event.event == "join")
        policy = drop_unused_rebalance_delay(
            policy, joins, (of_scope.first for of_scope in source.statistics.served.values())
        )
    if is_load_measuring(policy):
        load = RecentLoad.for_events(policy, events, routing)
        policy = load.measure_policy(source.profiled.measure_recent_load(load))
    return build_plan(name, policy, events, ownership)


def build_scenario_plan(source: Source, scenario: AnyScenario) -> ScenarioPlan:
    """Build the plan of one scenario over the traffic of a run."""
    shown = source.partitioners if scenario.is_rerouted else None
    routing = build_routing(source.config, scenario, source.events, () if shown is None else shown.parts)
    events = build_scenario_events(source.config, scenario, source.events, source.extent["first"])
    if routing is not None and shown is not None and not scenario.hashing:
        routing = replace(routing, counter_evidence=unexplained(shown, routing.scheme))
    folded = build_measured_plan(source, scenario.name, scenario.make_policy(), events, routing=routing)
    return replace(folded, routing=routing, retention=scenario.retention_limit)


def _describe_hot_key(source: Source, folded: ScenarioPlan, key: HottestKey) -> dict[str, Any]:
    """Describe a hot key with its slot, and its owner at the end of the traffic, if there are slots and one
    dispatcher."""
    found: dict[str, Any] = {"key": key.word, "messages": key.messages}
    if folded.policy.routing != "slot" or len(folded.timelines) != 1:
        return found | {"slot": None, "consumer": None}
    timeline = next(iter(folded.timelines.values()))
    slot, owner = find_slot_and_owner(timeline, key.hash, source.extent["last"])
    return found | {"slot": slot, "consumer": owner}
