"""Answer the questions about the layout: sticky ranges, number of partitions, and policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from subreplay.errors import InputError
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.partitioners import Part
from subreplay.rows.model.range_table import Range
from subreplay.semantics.policies.kafka.share import is_share_group
from subreplay.semantics.policies.pulsar.key_sticky import StickyPolicy
from subreplay.whatif.planning.partition_counts import ANY, PartitionCount, compare_partitions
from subreplay.whatif.planning.planning_traffic import PlanTraffic
from subreplay.whatif.planning.policy_comparison import PolicyRow, evaluate_policy, evaluate_share_group, find_front
from subreplay.whatif.planning.questions.answer import (
    Finalist,
    PlanAnswer,
    RunnerUp,
    Setup,
    Unit,
    build_permanent_members,
)
from subreplay.whatif.planning.questions.policy_loads import NAMES_ASSUMED, PolicyLoads, name_consumers
from subreplay.whatif.planning.sensitivity import leave_one_out
from subreplay.whatif.planning.sticky_ranges import find_worst_load, plan_ranges, sum_loads_before
from subreplay.whatif.scenario import PlannedMember


def answer_ranges(traffic: PlanTraffic, unit: Unit, profile: str, consumers: Sequence[int]) -> PlanAnswer:
    """Answer the best sticky ranges of consumers with these weights."""
    sticky = StickyPolicy(profile)
    hashed, hashes = traffic.load_by_hash(sticky)
    space = sticky.space[1] + 1
    slots, row = np.unique(sticky.compute_slots(hashes), return_inverse=True)
    if len(slots) < len(consumers):  # some consumers get slots without traffic
        unused = np.setdiff1d(np.arange(space), slots)[: len(consumers) - len(slots)]
        slots = np.union1d(slots, unused)
        row = np.searchsorted(slots, sticky.compute_slots(hashes))
    loads = hashed.regroup(row, len(slots))
    dense = loads.build_table()
    plan = plan_ranges(dense, consumers, slots, space)
    consumer_names = name_consumers(len(consumers))
    width = np.arange(len(consumers) + 1) * space // len(consumers)
    equal_ranges = tuple((a, b - 1) for a, b in pairwise(width.tolist()))
    setup = Setup(sticky.name, profile)

    def make_cuts(day_loads: Ints) -> Ints:
        return np.searchsorted(slots, plan_ranges(day_loads, consumers, slots, space).cuts)

    def judge_cuts(day_loads: Ints, cuts: Ints) -> float:
        return float(find_worst_load(sum_loads_before(day_loads), cuts, consumers))

    return PlanAnswer(
        question="ranges",
        best=f"{len(consumer_names)} contiguous ranges",
        measured="the busiest consumer's load in its worst window" + (", by weight" if len({*consumers}) > 1 else ""),
        value=float(plan.worst),
        unit=unit,
        bound=float(plan.bound),
        runner_up=RunnerUp("ranges of equal width", float(plan.even)),
        assumed=(
            f"Windows of traffic are {traffic.width / 1e9:,.10g} s wide; all partitions have the same ranges.",
            "No contiguous ranges in this order of consumers are better; the bound holds for any ranges.",
        ),
        figures=plan,
        finalists=(
            Finalist("planned ranges", setup, _build_members(consumer_names, plan.ranges)),
            Finalist("ranges of equal width", setup, _build_members(consumer_names, equal_ranges)),
        ),
        sensitivity=leave_one_out(dense, loads.starts, make_cuts, judge_cuts),
    )


def _build_members(consumer_names: Sequence[str], slot_ranges: Sequence[Range | None]) -> tuple[PlannedMember, ...]:
    return tuple(
        PlannedMember(name, 0, None, ranges=(one,))
        for name, one in zip(consumer_names, slot_ranges, strict=True)
        if one is not None
    )


@dataclass(frozen=True)
class RecordedRouting:
    """How producers choose partitions (``PartitionRouting``), and the evidence for it in the messages."""

    scheme: str
    parts: tuple[Part, ...] = ()
    evidence: tuple[str, ...] = ()


def answer_partitions(
    traffic: PlanTraffic,
    unit: Unit,
    counts: Sequence[int],
    consumers: int,
    routed: RecordedRouting,
    now: int | None = None,
) -> PlanAnswer:
    """Answer what each number of partitions does.

    ``now`` None: the number that the traffic has, where nothing moves.

    Raises ``InputError`` if no message has a key that chooses its partition.
    """
    loads, keys, recorded, hashes = traffic.load_by_routing(routed.scheme, routed.parts)
    if not loads.by_thing[hashes != ANY].any():
        raise InputError(
            "plan partitions: no message has a key, so messages spread evenly over any number of "
            "partitions. There is nothing to plan."
        )
    recorded_count = max(max(scope.partition for scope in traffic.profile.scopes) + 1, 1)
    present = now or recorded_count
    recorded_partitions = np.maximum(recorded, 0) if present == recorded_count else None
    counts_compared = compare_partitions(
        loads, hashes, present, dict.fromkeys((present, *counts)), consumers, keys=keys, recorded=recorded_partitions
    )
    best, runner_up = [*sorted(counts_compared, key=_rank_key), None][:2]
    assert best
    return PlanAnswer(
        question="partitions",
        best=f"{best.partitions:,} partitions" + (", as now" if best.partitions == present and runner_up else ""),
        measured="the busiest partition's load in its worst window",
        value=float(best.worst),
        unit=unit,
        bound=float(best.bound),
        runner_up=None
        if runner_up is None
        else RunnerUp(f"{runner_up.partitions:,} partitions", float(runner_up.worst)),
        assumed=(
            f"Producers choose the partition by the {routed.scheme} hash of the key; there are {present:,} now.",
            *routed.evidence,
            "Messages without a key go to all partitions evenly."
            if recorded_partitions is None
            else "The present number is evaluated as recorded. With other numbers, messages without a key go to all "
            "partitions evenly.",
        ),
        figures=counts_compared,
    )


def _rank_key(one: PartitionCount) -> tuple[float, float, int]:
    """Return the sort key: the busiest partition first, then what moves, then fewer partitions."""
    return one.worst, one.moved, one.partitions


@dataclass(frozen=True)
class PolicyFigures:
    """The compared policies, and which of them are on the Pareto front."""

    rows: tuple[PolicyRow, ...]
    front: tuple[bool, ...]


def answer_policy(traffic: PlanTraffic, setups: Sequence[Setup], consumers: int) -> PlanAnswer:
    """Compare policies with a number of consumers. The best one is the most balanced one that keeps order."""
    rows = tuple(_evaluate_setup(traffic, setup, consumers) for setup in setups)
    on_front = find_front([row.measures for row in rows])
    ranked = sorted(zip(rows, setups, strict=True), key=lambda pair: (not pair[0].ordered, pair[0].skew))
    best, runner_up = ranked[0], ranked[1] if len(ranked) > 1 else None
    return PlanAnswer(
        question="policy",
        best=f"{best[0].policy} ({best[0].profile})",
        measured="the busiest consumer's load in its worst window divided by the fair share of the busiest window",
        value=best[0].skew,
        unit="times",
        bound=best[0].bound,
        runner_up=None if runner_up is None else RunnerUp(runner_up[0].policy, runner_up[0].skew),
        assumed=(
            NAMES_ASSUMED,
            "The best policy is the most balanced one that keeps the order of keys. The Pareto front has all "
            "trade-offs.",
        ),
        figures=PolicyFigures(rows, on_front),
        finalists=tuple(
            Finalist(row.policy, setup, build_permanent_members(name_consumers(consumers)))
            for (row, setup), shown in zip(zip(rows, setups, strict=True), on_front, strict=True)
            if shown
        ),
    )


def _evaluate_setup(traffic: PlanTraffic, setup: Setup, consumers: int) -> PolicyRow:
    loads_of_policy = PolicyLoads.prepare(traffic, setup)
    if loads_of_policy.members is not None:
        return evaluate_policy(
            setup.policy,
            setup.profile,
            loads_of_policy.policy.ordered,
            loads_of_policy.loads,
            loads_of_policy.members(),
            consumers,
        )
    if is_share_group(loads_of_policy.policy):
        return evaluate_share_group(
            loads_of_policy.policy, traffic.profile.scopes, traffic.partition_loads, name_consumers(consumers)
        )
    busiest = int(loads_of_policy.loads.by_window.max())
    skew = -(-busiest // consumers) * consumers / busiest
    return PolicyRow(setup.policy, setup.profile, False, skew, 1.0, 0.0, 0.0, 0)
