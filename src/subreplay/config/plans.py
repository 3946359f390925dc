"""Build the plans of a run file's scenarios, with recorded or configured members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from subreplay.config.run import RECORDED, RunConfig
from subreplay.config.scenario import AnyScenario, Member
from subreplay.hashing.producer_routing import get_default_scheme
from subreplay.rows.model.partitioners import Part
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.timelines.consumer_aliases import assign_aliases
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.scenario import (
    PlannedMember,
    build_plan,
    build_planned_events,
    build_recorded_events,
    copy_to_partitions,
    find_silence,
)
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting

Events = Mapping[Scope, tuple[MembershipEvent, ...]]


def build_routing(
    config: RunConfig, scenario: AnyScenario, events: Events, parts: tuple[Part, ...] = ()
) -> PartitionRouting | None:
    """Return how producers choose partitions under a scenario; None if they choose as recorded.

    ``parts`` describes the recorded producers as the messages show them. It applies if the run names no scheme.
    """
    declared = config.topic.routing
    count = max((scope.partition for scope in events), default=0) + 1
    scheme = (declared and declared.scheme) or get_default_scheme(scenario.policy)
    found = scenario.routing(max(count, 1), scheme)
    if found is None or not parts or scenario.hashing or (declared and declared.scheme):
        return found
    return replace(found, scheme=parts[0].way.scheme, parts=parts)


def build_scenario_events(config: RunConfig, scenario: AnyScenario, events: Events, start: int) -> Events:
    """Return the membership events of a scenario: recorded ones, or those of configured members in every partition.

    If producers choose partitions differently, every partition has the members of all recorded ones.
    """
    routing = build_routing(config, scenario, events)
    if routing is not None:
        events = copy_to_partitions(events, routing.partitions)
    if scenario.members == "recorded":
        silent = find_silence(config.subscription.make_policy(), scenario.make_policy())
        return {scope: build_recorded_events(mine, silent) for scope, mine in events.items()}
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
    return {scope: build_planned_events(members, scope, start) for scope in events}


def build_plans(config: RunConfig, events: Events | None) -> list[ScenarioPlan]:
    """Return every plan of a run: with recorded membership ``events`` the recorded plan, then the scenarios.

    Configured members of a scenario join at time 0.
    """
    aliased = (
        {} if events is None else {scope: tuple(assign_aliases(mine, assumed=True)) for scope, mine in events.items()}
    )
    found = [] if events is None else [build_plan(RECORDED, config.subscription.make_policy(), aliased)]
    topic = config.subscription.topic or "persistent://public/default/topic"
    scopes: Events = events or {Scope(topic): ()}
    for scenario in config.scenarios:
        found.append(
            build_plan(scenario.name, scenario.make_policy(), build_scenario_events(config, scenario, scopes, 0))
        )
    return found
