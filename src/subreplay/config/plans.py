"""The scenarios of a run file as plans: with the members that it names or invents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from subreplay.config.run import RECORDED, RunConfig
from subreplay.config.scenario import AnyScenario, Member
from subreplay.hashing.producer_routing import get_default_scheme
from subreplay.rows.model.partitioners import Part
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.timelines.consumer_aliases import assign_aliases
from subreplay.whatif.message_assignment import Plan
from subreplay.whatif.scenario import PlannedMember, on_partitions, plan, planned_events, recorded, silence
from subreplay.whatif.traffic.producer_rerouting import ProducerRouting

Events = Mapping[Scope, tuple[MembershipEvent, ...]]


def routing_of(
    config: RunConfig, scenario: AnyScenario, events: Events, parts: tuple[Part, ...] = ()
) -> ProducerRouting | None:
    """How producers choose partitions under a scenario; None: as they did. ``parts`` is what the messages show of the
    recorded ones, which counts where the run names no scheme."""
    declared = config.topic.routing
    count = max((scope.partition for scope in events), default=0) + 1
    scheme = (declared and declared.scheme) or get_default_scheme(scenario.policy)
    found = scenario.routing(max(count, 1), scheme)
    if found is None or not parts or scenario.hashing or (declared and declared.scheme):
        return found
    return replace(found, scheme=parts[0].way.scheme, parts=parts)


def scenario_events(config: RunConfig, scenario: AnyScenario, events: Events, start: int) -> Events:
    """The members of a run's scenario: as recorded, or as the run file invents them, which every partition sees. Where
    producers choose partitions anew, every partition sees whoever was at some of the recorded ones."""
    routing = routing_of(config, scenario, events)
    if routing is not None:
        events = on_partitions(events, routing.partitions)
    if scenario.members == "recorded":
        silent = silence(config.subscription.make_policy(), scenario.make_policy())
        return {scope: recorded(mine, silent) for scope, mine in events.items()}
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


def plans(config: RunConfig, events: Events | None) -> list[Plan]:
    """Every plan of a run without its traffic: the recorded one where ``events``, the recorded membership, are given,
    and the scenarios.

    Members that a scenario invents join at time 0.
    """
    told = (
        {} if events is None else {scope: tuple(assign_aliases(mine, assumed=True)) for scope, mine in events.items()}
    )
    found = [] if events is None else [plan(RECORDED, config.subscription.make_policy(), told)]
    topic = config.subscription.topic or "persistent://public/default/topic"
    somewhere: Events = events or {Scope(topic): ()}
    for scenario in config.scenarios:
        found.append(plan(scenario.name, scenario.make_policy(), scenario_events(config, scenario, somewhere, 0)))
    return found
