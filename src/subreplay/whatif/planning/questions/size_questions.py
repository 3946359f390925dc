"""How many consumers, and how busy they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.simulation.pulsar.service_model import Service
from subreplay.whatif.planning.capacity import Fit, drawn_work
from subreplay.whatif.planning.consumer_count import (
    NEVER_ENOUGH,
    Ceiling,
    Drain,
    Fewest,
    Latency,
    Limit,
    Utilisation,
    ceiling,
    fewest,
)
from subreplay.whatif.planning.growing_membership import growing
from subreplay.whatif.planning.loads import Loads
from subreplay.whatif.planning.planning_traffic import Traffic
from subreplay.whatif.planning.questions.answer import Answer, Finalist, RunnerUp, Setup, stay
from subreplay.whatif.planning.questions.policy_loads import NAMED, Served, names
from subreplay.whatif.planning.sensitivity import OneLost, OtherTraffic, one_lost, under_traffic

NO_QUEUE = "A consumer works on one message at a time; every window counts by its own work, whatever it left behind."
MOST_REPLAYED = 100
"""Consumers of a finalist that is replayed."""
_QUEUED = {
    "latency": "A consumer works on one message at a time, and is never without permits: the replay of the finalists "
    "has receiver queues and held back keys, too.",
    "drain": "The backlog has the keys of the traffic, which goes on arriving at its mean rate.",
}


@dataclass(frozen=True)
class Wanted:
    """What consumers are to keep: a utilisation in a share of the windows, a latency (ns) of a share of the messages,
    or that a backlog of messages is gone within a time (ns)."""

    kind: Literal["utilisation", "latency", "drain"]
    most: float
    share: float = 1.0
    backlog: int = 0


@dataclass(frozen=True)
class ConsumerFigures:
    """What each policy needs, where the hottest key is the limit, and what it is called."""

    wanted: Wanted
    policies: tuple[Fewest, ...]
    ceiling: Ceiling
    hottest: str


@dataclass(frozen=True)
class Fragility:
    """How the planned consumers do under other traffic, and without one of them."""

    traffic: tuple[OtherTraffic, ...]
    lost: OneLost | None


@dataclass(frozen=True)
class _Tried:
    """A policy that was tried; ``scaled`` is its limit under so many times the work."""

    served: Served
    scaled: Callable[[float], Limit]
    fewest: Fewest

    @property
    def rank(self) -> tuple[bool, int]:
        return self.fewest.consumers == NEVER_ENOUGH, self.fewest.consumers

    @property
    def finalist(self) -> Finalist:
        many = self.fewest.consumers
        return Finalist(f"{many:,} under {self.fewest.policy}", self.served.setup, stay(names(many)))


def consumers(
    traffic: Traffic,
    service: Service,
    factor: float,
    setups: Sequence[Setup],
    wanted: Wanted,
    most: int,
    vary: float,
    ordered: bool,
) -> Answer:
    """The fewest consumers, of up to ``most``, that keep what is ``wanted``, by policy. ``traffic`` is in ns of work.

    ``ordered``: the order of keys has to be kept, so policies that do not are shown and not taken. ``vary``: by which
    part more and less traffic is tried.
    """
    tried = []
    for setup in setups:
        served = Served.of(traffic, setup)
        scaled = _limits(served, traffic, service, factor, wanted)
        tried.append(_Tried(served, scaled, fewest(scaled(1.0), served.candidate, most)))
    fit = [one for one in tried if one.fewest.consumers and (one.served.policy.ordered or not ordered)]
    fit.sort(key=lambda one: one.rank)
    best = fit[0] if fit else None
    hottest = traffic.of_keys
    where = ceiling(hottest, divisible=hottest.things - 1)
    figures = ConsumerFigures(wanted, tuple(one.fewest for one in tried), where, traffic.key_word(where.thing))
    order = ("Only policies that keep the order of keys, as the subscription's does, are taken.",) if ordered else ()
    waits = NO_QUEUE if wanted.kind == "utilisation" else _QUEUED[wanted.kind]
    return Answer(
        question="consumers",
        best=best.finalist.name if best else f"none of up to {most:,} consumers is enough",
        measured="the fewest consumers",
        value=float(best.fewest.consumers) if best else None,
        unit="consumers",
        bound=float(best.fewest.bound) if best else None,
        runner_up=RunnerUp(fit[1].fewest.policy, float(fit[1].fewest.consumers)) if len(fit) > 1 else None,
        assumed=(NAMED, *order, waits),
        found=figures,
        finalists=tuple(one.finalist for one in fit[:2] if one.fewest.consumers <= MOST_REPLAYED),
        fragile=None if best is None else _fragility(best.fewest, best.served, best.scaled, vary),
    )


def _fragility(one: Fewest, served: Served, scaled: Callable[[float], Limit], vary: float) -> Fragility:
    members = served.members
    if members is None:
        without = scaled(1.0).measured(None, one.consumers - 1) if one.consumers > 1 else None
        lost = None if without is None else OneLost(one.consumers - 1, without, without <= scaled(1.0).most)
        return Fragility(under_traffic(scaled, None, one.consumers, (vary, -vary)), lost)
    membership = members()
    for number in range(one.consumers):
        membership.change((), (number,))
    return Fragility(
        under_traffic(scaled, membership.owners(), one.consumers, (vary, -vary)),
        one_lost(scaled(1.0), served.loads, membership, one.consumers),
    )


def _limits(
    served: Served, traffic: Traffic, service: Service, factor: float, wanted: Wanted
) -> Callable[[float], Limit]:
    """The limit under so many times the work."""
    if wanted.kind == "utilisation":
        return lambda times: Utilisation(_times(served.loads, times), wanted.most, wanted.share)
    if wanted.kind == "drain":
        span, messages = traffic.span, len(traffic.profile)
        return lambda times: Drain(_times(served.loads, times), span, messages, wanted.backlog, wanted.most)
    order = traffic.in_time
    at, thing = traffic.profile.at[order], served.thing[order]
    work = drawn_work(service, traffic.profile.size[order], factor)
    return lambda times: Latency(at, thing, _scaled(work, times), wanted.most, wanted.share)


def _times(loads: Loads, times: float) -> Loads:
    return loads if times == 1 else replace(loads, work=_scaled(loads.work, times))


def _scaled(work: Ints, times: float) -> Ints:
    return work if times == 1 else np.asarray(np.rint(work * times), np.int64)


@dataclass(frozen=True)
class CapacityFigures:
    """Utilisation of each consumer, of all windows together and in its worst, under one policy; the service model as
    fitted, where it was."""

    mean: tuple[float, ...]
    worst: tuple[float, ...]
    fit: Fit | None


def capacity(traffic: Traffic, setup: Setup, consumers: int, fitted: Fit | None) -> Answer:
    """How busy so many consumers are; ``traffic`` is in ns of work."""
    served = Served.of(traffic, setup)
    if served.members is None:
        loads = np.tile(-(-served.loads.by_window // consumers), (consumers, 1))
        hottest = 0.0
    else:
        owners = next(growing(served.members(), consumers))
        loads = served.loads.of_owners(owners, consumers)
        hottest = float(served.loads.hottest.max())
    even = float(served.loads.by_window.max()) / consumers
    return Answer(
        question="capacity",
        best=f"{consumers:,} consumers under {setup.policy}",
        measured="the busiest consumer's utilisation in its worst window",
        value=float(loads.max()) / traffic.width,
        unit="share",
        bound=max(even, hottest) / traffic.width,
        runner_up=None,
        assumed=(NAMED, NO_QUEUE),
        found=CapacityFigures(
            tuple((loads.sum(axis=1) / (traffic.width * loads.shape[1])).tolist()),
            tuple((loads.max(axis=1) / traffic.width).tolist()),
            fitted,
        ),
        finalists=(Finalist(f"{consumers:,} consumers", setup, stay(names(consumers))),),
    )
