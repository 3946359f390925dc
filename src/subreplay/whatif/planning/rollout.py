"""Find the order and the batch size in which to restart or to add consumers.

What passes from one consumer to another may be delivered twice or has to wait. So each change counts what is handed
over, as a part of the traffic. A restart without interruption takes each key away from its consumer at least once.
Adding consumers hands over at least the difference between the first and the last assignment. These are the lower
bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.policy_comparison import measure_handed_over

MOST_IN_ALL_ORDERS = 5
"""Up to this number of consumers, every order is tried."""
Batches = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rollout:
    """One way to do a rollout: ``batches`` of consumers, one after another.

    ``handed_over`` is the part of the traffic that passes to another consumer, summed over all changes; 2.0 means that
    everything passes twice on average. ``busiest`` is the largest part that one consumer has meanwhile. ``unowned`` is
    the part of the traffic without an owner while a batch is away. ``lasts`` is in ns.
    """

    name: str
    batches: Batches
    handed_over: float
    busiest: float
    unowned: float
    lasts: int


@dataclass(frozen=True)
class RolloutPlan:
    """Every way that was tried, the best first, and the lower bound of ways that leave nothing unowned."""

    ways: tuple[Rollout, ...]
    bound: float

    @property
    def best(self) -> Rollout:
        """The way that leaves the least unowned; ties by what is handed over, the busiest consumer, then duration."""
        return self.ways[0]


def plan_restart(
    loads: WorkLoads, members: Callable[[], Membership], consumers: int, away: int, pause: int
) -> RolloutPlan:
    """Plan the restart of all ``consumers``: each is away for ``away`` ns, with ``pause`` ns before the next batch."""
    ways = [
        _evaluate_restart(name, batches, loads, members(), consumers, away + pause)
        for name, batches in _list_ways(tuple(range(consumers)))
    ]
    return RolloutPlan(_rank_ways(ways), 1.0 if consumers > 1 else 0.0)


def plan_scaling(
    loads: WorkLoads, members: Callable[[], Membership], consumers: int, to: int, pause: int
) -> RolloutPlan:
    """Plan to add consumers up to ``to``, with ``pause`` ns between batches; or to remove the last ones."""
    consumer_limit = max(consumers, to)
    changed = tuple(range(min(consumers, to), consumer_limit))
    start, end = members(), members()
    for membership, number in ((start, consumers), (end, to)):
        for one in range(number):
            membership.change_members((), (one,))
    bound = measure_handed_over(loads, start.find_owners(), end.find_owners()) if to > consumers else 0.0
    ways = [
        _evaluate_scaling(name, batches, loads, members(), consumers, to > consumers, pause)
        for name, batches in _list_ways(changed)
    ]
    return RolloutPlan(_rank_ways(ways), min(bound, min(way.handed_over for way in ways)))


def _list_ways(consumers: tuple[int, ...]) -> Iterator[tuple[str, Batches]]:
    """Yield the names of the ways, and their batches."""
    one_by_one = tuple((one,) for one in consumers)
    yield "one by one, in the order of joining", one_by_one
    yield "one by one, in reverse order of joining", one_by_one[::-1]
    for size in (size for size in (2, 4, 8, 16, 32, 64, 128) if size < len(consumers)):
        yield f"{size} at a time", tuple(consumers[at : at + size] for at in range(0, len(consumers), size))
    yield "all at once", (consumers,)
    if 2 < len(consumers) <= MOST_IN_ALL_ORDERS:
        for order in permutations(consumers):
            if order not in (consumers, consumers[::-1]):
                yield f"one by one, {', '.join(str(one + 1) for one in order)}", tuple((one,) for one in order)


def _rank_ways(ways: Sequence[Rollout]) -> tuple[Rollout, ...]:
    def compute_cost(way: Rollout) -> tuple[float, float, float, int]:
        return way.unowned, round(way.handed_over, 9), round(way.busiest, 9), way.lasts

    return tuple(sorted(ways, key=compute_cost))


def _evaluate_restart(
    name: str, batches: Batches, loads: WorkLoads, members: Membership, consumers: int, step: int
) -> Rollout:
    changes = [change for batch in batches for change in ((batch, ()), ((), batch))]
    return _evaluate_way(name, batches, loads, members, consumers, changes, len(batches) * step, consumers)


def _evaluate_scaling(
    name: str, batches: Batches, loads: WorkLoads, members: Membership, consumers: int, grows: bool, pause: int
) -> Rollout:
    changes = [((), batch) if grows else (batch, ()) for batch in batches]
    consumer_limit = max(consumers, 1 + max(one for batch in batches for one in batch))
    return _evaluate_way(name, batches, loads, members, consumers, changes, (len(batches) - 1) * pause, consumer_limit)


def _evaluate_way(
    name: str, batches: Batches, loads: WorkLoads, members: Membership, consumers: int,
    changes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], lasts: int, consumer_limit: int,
) -> Rollout:  # fmt: skip
    for number in range(consumers):
        members.change_members((), (number,))
    before, passed, busiest, unowned = members.find_owners(), 0.0, 0.0, 0.0
    for leaving, joining in changes:
        members.change_members(leaving, joining)
        after = members.find_owners()
        passed += measure_handed_over(loads, before, after)
        parts = _measure_parts(loads, after, consumer_limit)
        busiest, unowned, before = (
            max(busiest, float(parts[:consumer_limit].max())),
            max(unowned, float(parts[consumer_limit])),
            after,
        )
    return Rollout(name, batches, passed, busiest, unowned, lasts)


def _measure_parts(loads: WorkLoads, owners: Ints, consumer_limit: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the part of the traffic that each consumer owns. The last element has no owner."""
    work_by_consumer = np.bincount(owners % (consumer_limit + 1), loads.by_thing, consumer_limit + 1)
    return work_by_consumer / max(float(work_by_consumer.sum()), 1.0)
