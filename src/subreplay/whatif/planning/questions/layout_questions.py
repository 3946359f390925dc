"""Which ranges, how many partitions, which policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from subreplay.errors import InputError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.partitioners import Part
from subreplay.rows.model.range_table import Range
from subreplay.semantics.policies.pulsar.key_sticky import StickyPolicy
from subreplay.whatif.planning.partition_counts import ANY, PartitionCount, compare_partitions
from subreplay.whatif.planning.planning_traffic import Traffic
from subreplay.whatif.planning.policy_comparison import PolicyRow, front, policy_row
from subreplay.whatif.planning.questions.answer import Answer, Finalist, RunnerUp, Setup, Unit, stay
from subreplay.whatif.planning.questions.policy_loads import NAMED, Served, names
from subreplay.whatif.planning.sensitivity import leave_one_out
from subreplay.whatif.planning.sticky_ranges import loads_before, plan_ranges, worst_load
from subreplay.whatif.scenario import PlannedMember


def ranges(traffic: Traffic, unit: Unit, profile: str, consumers: Sequence[int]) -> Answer:
    """The best sticky ranges of consumers with these weights."""
    policy = StickyPolicy(profile)
    hashed, hashes = traffic.of_hashes(policy)
    space = policy.space[1] + 1
    slots, row = np.unique(policy.compute_slots(hashes), return_inverse=True)
    if len(slots) < len(consumers):  # then some have slots without traffic
        unused = np.setdiff1d(np.arange(space), slots)[: len(consumers) - len(slots)]
        slots = np.union1d(slots, unused)
        row = np.searchsorted(slots, policy.compute_slots(hashes))
    loads = hashed.regrouped(row, len(slots))
    dense = loads.dense()
    found = plan_ranges(dense, consumers, slots, space)
    called = names(len(consumers))
    width = np.arange(len(consumers) + 1) * space // len(consumers)
    even = tuple((a, b - 1) for a, b in pairwise(width.tolist()))
    setup = Setup(policy.name, profile)

    def made(mine: Ints) -> Ints:
        return np.searchsorted(slots, plan_ranges(mine, consumers, slots, space).cuts)

    def judged(mine: Ints, cuts: Ints) -> float:
        return float(worst_load(loads_before(mine), cuts, consumers))

    return Answer(
        question="ranges",
        best=f"{len(called)} contiguous ranges",
        measured="the busiest consumer's load in its worst window" + (", by weight" if len({*consumers}) > 1 else ""),
        value=float(found.worst),
        unit=unit,
        bound=float(found.bound),
        runner_up=RunnerUp("ranges of equal width", float(found.even)),
        assumed=(
            f"Windows of traffic are {traffic.width / 1e9:,.10g} s wide; all partitions have the same ranges.",
            "No contiguous ranges in this order of consumers are better; the bound is of any ranges at all.",
        ),
        found=found,
        finalists=(
            Finalist("planned ranges", setup, _with_ranges(called, found.ranges)),
            Finalist("ranges of equal width", setup, _with_ranges(called, even)),
        ),
        fragile=leave_one_out(dense, loads.starts, made, judged),
    )


def _with_ranges(called: Sequence[str], given: Sequence[Range | None]) -> tuple[PlannedMember, ...]:
    return tuple(
        PlannedMember(name, 0, None, ranges=(one,)) for name, one in zip(called, given, strict=True) if one is not None
    )


@dataclass(frozen=True)
class Routed:
    """How producers choose partitions (``ProducerRouting``), and what the messages say of it."""

    scheme: str
    parts: tuple[Part, ...] = ()
    evidence: tuple[str, ...] = ()


def partitions(
    traffic: Traffic,
    unit: Unit,
    counts: Sequence[int],
    consumers: int,
    routed: Routed,
    now: int | None = None,
) -> Answer:
    """What each number of partitions does; ``now`` None: as many as the traffic has. There all stays where it is.

    Raises ``InputError`` where no message has a key that chooses its partition.
    """
    loads, keys, recorded, hashes = traffic.routed(routed.scheme, routed.parts)
    if not loads.by_thing[hashes != ANY].any():
        raise InputError("plan partitions: no message has a key, so any number of partitions gets an even share each")
    has = max(max(scope.partition for scope in traffic.profile.scopes) + 1, 1)
    there = now or has
    where = np.maximum(recorded, 0) if there == has else None
    found = compare_partitions(
        loads, hashes, there, dict.fromkeys((there, *counts)), consumers, keys=keys, recorded=where
    )
    best, second = [*sorted(found, key=_cost), None][:2]
    assert best
    return Answer(
        question="partitions",
        best=f"{best.partitions:,} partitions" + (", as now" if best.partitions == there and second else ""),
        measured="the busiest partition's load in its worst window",
        value=float(best.worst),
        unit=unit,
        bound=float(best.bound),
        runner_up=None if second is None else RunnerUp(f"{second.partitions:,} partitions", float(second.worst)),
        assumed=(
            f"Producers choose the partition by the {routed.scheme} hash of the key; there are {there:,} now.",
            *routed.evidence,
            "Messages without a key go to all partitions evenly."
            if where is None
            else "What there is now is what is recorded. Of other numbers, messages without a key go to all partitions "
            "evenly.",
        ),
        found=found,
    )


def _cost(one: PartitionCount) -> tuple[float, float, int]:
    """The busiest partition first, then what moves; of equals fewer partitions."""
    return one.worst, one.moved, one.partitions


@dataclass(frozen=True)
class PolicyFigures:
    """The table, and who is on the front."""

    rows: tuple[PolicyRow, ...]
    front: tuple[bool, ...]


def policy(traffic: Traffic, setups: Sequence[Setup], consumers: int) -> Answer:
    """One table of policies with so many consumers; the best is the most even one that keeps order."""
    rows = tuple(_row(traffic, setup, consumers) for setup in setups)
    on_front = front([row.measures for row in rows])
    ranked = sorted(zip(rows, setups, strict=True), key=lambda pair: (not pair[0].ordered, pair[0].skew))
    best, second = ranked[0], ranked[1] if len(ranked) > 1 else None
    return Answer(
        question="policy",
        best=f"{best[0].policy} ({best[0].profile})",
        measured="the busiest consumer's load in its worst window over an even share of the busiest window",
        value=best[0].skew,
        unit="times",
        bound=best[0].bound,
        runner_up=None if second is None else RunnerUp(second[0].policy, second[0].skew),
        assumed=(NAMED, "Of policies that keep the order of keys the most even one is best; the front has all trades."),
        found=PolicyFigures(rows, on_front),
        finalists=tuple(
            Finalist(row.policy, setup, stay(names(consumers)))
            for (row, setup), shown in zip(zip(rows, setups, strict=True), on_front, strict=True)
            if shown
        ),
    )


def _row(traffic: Traffic, setup: Setup, consumers: int) -> PolicyRow:
    served = Served.of(traffic, setup)
    if served.members is not None:
        return policy_row(setup.policy, setup.profile, served.policy.ordered, served.loads, served.members(), consumers)
    busiest = int(served.loads.by_window.max())
    skew = -(-busiest // consumers) * consumers / busiest
    return PolicyRow(setup.policy, setup.profile, False, skew, 1.0, 0.0, 0.0, 0)
