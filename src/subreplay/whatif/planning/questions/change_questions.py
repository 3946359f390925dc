"""The questions of changing what runs: a rollout, an upgrade, static membership."""

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
from subreplay.whatif.planning.planning_traffic import Traffic
from subreplay.whatif.planning.profile_comparison import compare_profiles
from subreplay.whatif.planning.questions.answer import Answer, Finalist, RunnerUp, Setup
from subreplay.whatif.planning.questions.policy_loads import NAMED, Served, names
from subreplay.whatif.planning.rollout import Rollout, plan_restart, plan_scaling
from subreplay.whatif.planning.static_membership import plan_static
from subreplay.whatif.scenario import PlannedMember, group_events, partitions_of

Events = Mapping[Scope, tuple[MembershipEvent, ...]]


@dataclass(frozen=True)
class Rolled:
    """What a rollout does: restart ``consumers``, or bring them to the number ``to``; ``away`` and ``pause`` in ns."""

    consumers: int
    to: int | None
    away: int
    pause: int


def rollout(traffic: Traffic, setup: Setup, asked: Rolled) -> Answer:
    """In which order and how many at a time."""
    served = Served.of(traffic, setup)
    if served.members is None:
        raise ConfigError(f"plan rollout: under {setup.policy} nobody owns anything, so nothing is handed over")
    if asked.to is None:
        found = plan_restart(served.loads, served.members, asked.consumers, asked.away, asked.pause)
    else:
        found = plan_scaling(served.loads, served.members, asked.consumers, asked.to, asked.pause)
    best = found.best
    second = next((way for way in found.ways[1:] if not way.unowned), None)
    shown = {way.name: way for way in found.ways if way.name in _ALWAYS} | {best.name: best}
    return Answer(
        question="rollout",
        best=best.name,
        measured="what is handed over, in parts of the traffic",
        value=best.handed_over,
        unit="times",
        bound=found.bound,
        runner_up=None if second is None else RunnerUp(second.name, second.handed_over),
        assumed=(
            NAMED,
            "The traffic has the keys that it has over all; the replay of the finalists has them as they come.",
        ),
        found=found,
        finalists=tuple(Finalist(way.name, setup, _members(way, traffic, asked)) for way in shown.values()),
    )


_ALWAYS = ("one by one, the first to join first", "all at once")


def _members(way: Rollout, traffic: Traffic, asked: Rolled) -> tuple[PlannedMember, ...]:
    """The members while it is done, from a quarter of the traffic on."""
    begin = traffic.span // 4
    batch = {one: number for number, batch in enumerate(way.batches) for one in batch}
    members = []
    for number, name in enumerate(names(max(asked.consumers, asked.to or 0))):
        if asked.to is None:
            at = begin + batch[number] * (asked.away + asked.pause)
            members.append(PlannedMember(name, 0, at, restart=asked.away))
        elif number not in batch:
            members.append(PlannedMember(name, 0, None))
        else:
            at = begin + batch[number] * asked.pause
            grows = asked.to > asked.consumers
            members.append(PlannedMember(name, at if grows else 0, None if grows else at))
    return tuple(members)


def upgrade(traffic: Traffic, setup: Setup, events: Events, recorded: bool) -> Answer:
    """Every profile beside the present one, with the members of ``events``."""
    made = make_policy(setup.policy, setup.profile, **setup.options)
    loads, scope, hashes = traffic.of_dispatchers(made)
    index = {one: number for number, one in enumerate(events)}
    of_events = np.array([index[one] for one in traffic.profile.scopes], np.int64)[scope]

    def things(_: Policy) -> tuple[Ints, NDArray[np.uint32]]:
        return of_events, hashes

    rows = compare_profiles(setup.policy, setup.options, setup.profile, events, loads, things)
    changed = sorted((row for row in rows[1:] if not row.refused), key=lambda row: row.traffic)
    stays = tuple(PlannedMember(event.consumer, 0, None) for event in next(iter(events.values())))
    return Answer(
        question="upgrade",
        best=f"{changed[0].profile} changes the least" if changed else f"{setup.profile}: there is no other",
        measured="the traffic that gets another owner",
        value=changed[0].traffic if changed else None,
        unit="share",
        bound=0.0 if changed else None,
        runner_up=RunnerUp(changed[1].profile, changed[1].traffic) if len(changed) > 1 else None,
        assumed=(
            "Members are as recorded, at the end of their story." if recorded else NAMED,
            "Messages without a key are spread as the present profile does.",
        ),
        found=rows,
        finalists=tuple(
            Finalist(row.profile, Setup(setup.policy, row.profile, setup.options), None if recorded else stays)
            for row in rows
            if not row.refused
        ),
    )


def static(setup: Setup, events: Events, timeouts: Sequence[int]) -> Answer:
    """What static membership would have spared; raises ``ConfigError`` where no membership is recorded."""
    seen = group_events(events)
    if not seen:
        raise ConfigError("plan static: no membership is recorded; it is the recorded members that are folded again")
    made = make_policy(setup.policy, setup.profile, **setup.options)
    found = plan_static(made, partitions_of(events), seen, sorted({*timeouts}))
    best = min(found.timeouts, key=lambda one: (one.rebalances, one.timeout))
    second = next((one for one in found.timeouts if one is not best), None)
    return Answer(
        question="static",
        best=f"a session timeout of {best.timeout / 1e9:g} s",
        measured="rebalances in the recorded time",
        value=float(best.rebalances),
        unit="rebalances",
        bound=float(found.bound),
        runner_up=None if second is None else RunnerUp(f"{second.timeout / 1e9:g} s", float(second.rebalances)),
        assumed=("Who comes back under the same client id, else under the same name, is the same member.",),
        found=found,
    )
