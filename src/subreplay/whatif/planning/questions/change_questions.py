"""Answer the questions about changing what runs: rollout, upgrade and static membership."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConfigError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.whatif.planning.planning_traffic import PlanTraffic
from subreplay.whatif.planning.profile_comparison import compare_profiles
from subreplay.whatif.planning.questions.answer import Finalist, PlanAnswer, RunnerUp, Setup
from subreplay.whatif.planning.questions.policy_loads import NAMES_ASSUMED, PolicyLoads, name_consumers
from subreplay.whatif.planning.rollout import Rollout, plan_restart, plan_scaling
from subreplay.whatif.planning.static_membership import plan_static
from subreplay.whatif.scenario import PlannedMember, build_partitions, find_group_events

Events = Mapping[Scope, tuple[MembershipEvent, ...]]


@dataclass(frozen=True)
class RolloutRequest:
    """The requested rollout: restart ``consumers``, or scale them to the number ``to``.

    ``away`` and ``pause`` are in ns.
    """

    consumers: int
    to: int | None
    away: int
    pause: int


def answer_rollout(traffic: PlanTraffic, setup: Setup, request: RolloutRequest) -> PlanAnswer:
    """Answer in which order, and how many at a time, to roll out."""
    served = PolicyLoads.prepare(traffic, setup)
    if served.members is None:
        raise ConfigError(
            f"plan rollout: {setup.policy} assigns no owners, so a rollout hands nothing over. Plan with a Key_Shared, "
            "Failover or Kafka policy."
        )
    if request.to is None:
        plan = plan_restart(served.loads, served.members, request.consumers, request.away, request.pause)
    else:
        plan = plan_scaling(served.loads, served.members, request.consumers, request.to, request.pause)
    best = plan.best
    runner_up = next((way for way in plan.ways[1:] if not way.unowned), None)
    shown = {way.name: way for way in plan.ways if way.name in _ALWAYS_REPLAYED} | {best.name: best}
    return PlanAnswer(
        question="rollout",
        best=best.name,
        measured="the traffic handed over to other consumers, as multiples of the whole traffic",
        value=best.handed_over,
        unit="times",
        bound=plan.bound,
        runner_up=None if runner_up is None else RunnerUp(runner_up.name, runner_up.handed_over),
        assumed=(
            NAMES_ASSUMED,
            "The key distribution is that of the whole traffic; the replay of the finalists uses the recorded order.",
        ),
        figures=plan,
        finalists=tuple(Finalist(way.name, setup, _build_members(way, traffic, request)) for way in shown.values()),
    )


_ALWAYS_REPLAYED = ("one by one, in the order of joining", "all at once")


def _build_members(way: Rollout, traffic: PlanTraffic, request: RolloutRequest) -> tuple[PlannedMember, ...]:
    """Return the members during the rollout, which begins after a quarter of the traffic."""
    begin = traffic.span // 4
    batch = {one: number for number, batch in enumerate(way.batches) for one in batch}
    members = []
    for number, name in enumerate(name_consumers(max(request.consumers, request.to or 0))):
        if request.to is None:
            at = begin + batch[number] * (request.away + request.pause)
            members.append(PlannedMember(name, 0, at, restart=request.away))
        elif number not in batch:
            members.append(PlannedMember(name, 0, None))
        else:
            at = begin + batch[number] * request.pause
            grows = request.to > request.consumers
            members.append(PlannedMember(name, at if grows else 0, None if grows else at))
    return tuple(members)


def answer_upgrade(traffic: PlanTraffic, setup: Setup, events: Events, recorded: bool) -> PlanAnswer:
    """Compare every profile with the present one, with the members of ``events``."""
    policy = make_policy(setup.policy, setup.profile, **setup.options)
    loads, scope, hashes = traffic.load_by_dispatcher(policy)
    index = {one: number for number, one in enumerate(events)}
    of_events = np.array([index[one] for one in traffic.profile.scopes], np.int64)[scope]

    def find_things(_: Policy) -> tuple[Ints, NDArray[np.uint32]]:
        return of_events, hashes

    rows = compare_profiles(setup.policy, setup.options, setup.profile, events, loads, find_things)
    changed = sorted((row for row in rows[1:] if not row.refused), key=lambda row: row.traffic)
    stays = tuple(PlannedMember(event.consumer, 0, None) for event in next(iter(events.values())))
    return PlanAnswer(
        question="upgrade",
        best=f"{changed[0].profile} changes the least" if changed else f"{setup.profile}: there is no other profile",
        measured="the part of the traffic that gets another owner",
        value=changed[0].traffic if changed else None,
        unit="share",
        bound=0.0 if changed else None,
        runner_up=RunnerUp(changed[1].profile, changed[1].traffic) if len(changed) > 1 else None,
        assumed=(
            "Members are those recorded, after their last event." if recorded else NAMES_ASSUMED,
            "Messages without a key are spread as under the present profile.",
        ),
        figures=rows,
        finalists=tuple(
            Finalist(row.profile, Setup(setup.policy, row.profile, setup.options), None if recorded else stays)
            for row in rows
            if not row.refused
        ),
    )


def answer_static(setup: Setup, events: Events, timeouts: Sequence[int]) -> PlanAnswer:
    """Answer what static membership would have avoided. Raises ``ConfigError`` if no membership is recorded."""
    group_changes = find_group_events(events)
    if not group_changes:
        raise ConfigError(
            "plan static: the input has no membership events, which this question replays. Add table "
            "`membership` to the input."
        )
    policy = make_policy(setup.policy, setup.profile, **setup.options)
    plan = plan_static(policy, build_partitions(events), group_changes, sorted({*timeouts}))
    best = min(plan.timeouts, key=lambda one: (one.rebalances, one.timeout))
    runner_up = next((one for one in plan.timeouts if one is not best), None)
    return PlanAnswer(
        question="static",
        best=f"a session timeout of {best.timeout / 1e9:g} s",
        measured="rebalances in the recorded period",
        value=float(best.rebalances),
        unit="rebalances",
        bound=float(plan.bound),
        runner_up=None
        if runner_up is None
        else RunnerUp(f"{runner_up.timeout / 1e9:g} s", float(runner_up.rebalances)),
        assumed=("A member that comes back with the same client id, or else the same name, is the same member.",),
        figures=plan,
    )
