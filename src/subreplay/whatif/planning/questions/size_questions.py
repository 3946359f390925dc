"""Answer the questions about size: how many consumers are needed, and how busy they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.simulation.pulsar.service_model import Service
from subreplay.whatif.planning.capacity import ServiceFit, draw_work
from subreplay.whatif.planning.consumer_count import (
    NO_COUNT,
    ConsumerCount,
    DrainTime,
    LatencyLimit,
    Limit,
    ScalingLimit,
    UtilisationLimit,
    find_consumer_count,
    find_scaling_limit,
)
from subreplay.whatif.planning.growing_membership import iterate_growth
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.planning_traffic import PlanTraffic
from subreplay.whatif.planning.questions.answer import Finalist, PlanAnswer, RunnerUp, Setup, build_permanent_members
from subreplay.whatif.planning.questions.policy_loads import NAMES_ASSUMED, PolicyLoads, name_consumers
from subreplay.whatif.planning.sensitivity import ConsumerLoss, TrafficChange, find_worst_loss, measure_under_traffic

NO_QUEUE = (
    "A consumer processes one message at a time. Each window counts only its own work, not the backlog before it."
)
MOST_REPLAYED = 100
"""The largest number of consumers of a finalist that is replayed."""
_QUEUE_ASSUMPTIONS = {
    "latency": "A consumer processes one message at a time and always has permits. The replay of the finalists also "
    "has receiver queues and blocked keys.",
    "drain": "The backlog has the keys of the traffic, and traffic continues at its mean rate.",
}


@dataclass(frozen=True)
class SizingTarget:
    """What the consumers must achieve.

    A utilisation in a share of the windows, a latency (ns) of a share of the messages, or the time (ns) to drain a
    backlog of messages.
    """

    kind: Literal["utilisation", "latency", "drain"]
    most: float
    share: float = 1.0
    backlog: int = 0


@dataclass(frozen=True)
class ConsumerFigures:
    """What each policy needs, where the hottest key is the limit, and the name of that key."""

    wanted: SizingTarget
    policies: tuple[ConsumerCount, ...]
    ceiling: ScalingLimit
    hottest: str


@dataclass(frozen=True)
class Fragility:
    """How the planned consumers do under other traffic, and without one of them."""

    traffic: tuple[TrafficChange, ...]
    lost: ConsumerLoss | None


@dataclass(frozen=True)
class _TriedPolicy:
    """A policy that was tried. ``scaled`` returns its limit for a multiple of the work."""

    served: PolicyLoads
    scaled: Callable[[float], Limit]
    fewest: ConsumerCount

    @property
    def rank(self) -> tuple[bool, int]:
        return self.fewest.consumers == NO_COUNT, self.fewest.consumers

    @property
    def finalist(self) -> Finalist:
        count = self.fewest.consumers
        return Finalist(
            f"{count:,} under {self.fewest.policy}", self.served.setup, build_permanent_members(name_consumers(count))
        )


def answer_consumers(
    traffic: PlanTraffic,
    service: Service,
    factor: float,
    setups: Sequence[Setup],
    wanted: SizingTarget,
    most: int,
    vary: float,
    ordered: bool,
) -> PlanAnswer:
    """Answer the smallest number of consumers, up to ``most``, that achieves the target, by policy.

    ``traffic`` is in ns of work. ``ordered``: policies that do not keep the order of keys are shown but not chosen.
    ``vary`` is the part by which more and less traffic is tried.
    """
    tried = []
    for setup in setups:
        served = PolicyLoads.prepare(traffic, setup)
        scaled = _build_limits(served, traffic, service, factor, wanted)
        tried.append(_TriedPolicy(served, scaled, find_consumer_count(scaled(1.0), served.candidate, most)))
    fit = [one for one in tried if one.fewest.consumers and (one.served.policy.ordered or not ordered)]
    fit.sort(key=lambda one: one.rank)
    best = fit[0] if fit else None
    hottest = traffic.key_loads
    scaling_limit = find_scaling_limit(hottest, divisible=hottest.things - 1)
    figures = ConsumerFigures(
        wanted, tuple(one.fewest for one in tried), scaling_limit, traffic.name_key(scaling_limit.thing)
    )
    order_assumption = (
        ("Only policies that keep the order of keys are considered, because the subscription keeps it.",)
        if ordered
        else ()
    )
    waiting_assumption = NO_QUEUE if wanted.kind == "utilisation" else _QUEUE_ASSUMPTIONS[wanted.kind]
    return PlanAnswer(
        question="consumers",
        best=best.finalist.name if best else f"no number of consumers up to {most:,} is enough",
        measured="the smallest number of consumers",
        value=float(best.fewest.consumers) if best else None,
        unit="consumers",
        bound=float(best.fewest.bound) if best else None,
        runner_up=RunnerUp(fit[1].fewest.policy, float(fit[1].fewest.consumers)) if len(fit) > 1 else None,
        assumed=(NAMES_ASSUMED, *order_assumption, waiting_assumption),
        figures=figures,
        finalists=tuple(one.finalist for one in fit[:2] if one.fewest.consumers <= MOST_REPLAYED),
        sensitivity=None if best is None else _measure_fragility(best.fewest, best.served, best.scaled, vary),
    )


def _measure_fragility(
    one: ConsumerCount, served: PolicyLoads, scaled: Callable[[float], Limit], vary: float
) -> Fragility:
    members = served.members
    if members is None:
        without = scaled(1.0).measure(None, one.consumers - 1) if one.consumers > 1 else None
        lost = None if without is None else ConsumerLoss(one.consumers - 1, without, without <= scaled(1.0).most)
        return Fragility(measure_under_traffic(scaled, None, one.consumers, (vary, -vary)), lost)
    membership = members()
    for number in range(one.consumers):
        membership.change_members((), (number,))
    return Fragility(
        measure_under_traffic(scaled, membership.find_owners(), one.consumers, (vary, -vary)),
        find_worst_loss(scaled(1.0), served.loads, membership, one.consumers),
    )


def _build_limits(
    served: PolicyLoads, traffic: PlanTraffic, service: Service, factor: float, wanted: SizingTarget
) -> Callable[[float], Limit]:
    """Return a function that builds the limit for a multiple of the work."""
    if wanted.kind == "utilisation":
        return lambda times: UtilisationLimit(_scale_loads(served.loads, times), wanted.most, wanted.share)
    if wanted.kind == "drain":
        span, messages = traffic.span, len(traffic.profile)
        return lambda times: DrainTime(_scale_loads(served.loads, times), span, messages, wanted.backlog, wanted.most)
    order_assumption = traffic.time_order
    at, thing = traffic.profile.at[order_assumption], served.thing[order_assumption]
    work = draw_work(service, traffic.profile.size[order_assumption], factor)
    return lambda times: LatencyLimit(at, thing, _scale_work(work, times), wanted.most, wanted.share)


def _scale_loads(loads: WorkLoads, times: float) -> WorkLoads:
    return loads if times == 1 else replace(loads, work=_scale_work(loads.work, times))


def _scale_work(work: Ints, times: float) -> Ints:
    return work if times == 1 else np.asarray(np.rint(work * times), np.int64)


@dataclass(frozen=True)
class CapacityFigures:
    """Utilisation of each consumer, over all windows and in its worst one, and the fitted service model."""

    mean: tuple[float, ...]
    worst: tuple[float, ...]
    fit: ServiceFit | None


def answer_capacity(traffic: PlanTraffic, setup: Setup, consumers: int, fitted: ServiceFit | None) -> PlanAnswer:
    """Answer how busy a number of consumers is. ``traffic`` is in ns of work."""
    served = PolicyLoads.prepare(traffic, setup)
    if served.members is None:
        loads = np.tile(-(-served.loads.by_window // consumers), (consumers, 1))
        hottest = 0.0
    else:
        owners = next(iterate_growth(served.members(), consumers))
        loads = served.loads.sum_by_owner(owners, consumers)
        hottest = float(served.loads.hottest.max())
    fair_share = float(served.loads.by_window.max()) / consumers
    return PlanAnswer(
        question="capacity",
        best=f"{consumers:,} consumers under {setup.policy}",
        measured="the busiest consumer's utilisation in its worst window",
        value=float(loads.max()) / traffic.width,
        unit="share",
        bound=max(fair_share, hottest) / traffic.width,
        runner_up=None,
        assumed=(NAMES_ASSUMED, NO_QUEUE),
        figures=CapacityFigures(
            tuple((loads.sum(axis=1) / (traffic.width * loads.shape[1])).tolist()),
            tuple((loads.max(axis=1) / traffic.width).tolist()),
            fitted,
        ),
        finalists=(Finalist(f"{consumers:,} consumers", setup, build_permanent_members(name_consumers(consumers))),),
    )
