"""In which order, and how many at a time, to restart or to add consumers.

Whatever passes from one consumer to another may be delivered twice or has to wait: so what is handed over is counted,
change by change, as a part of the traffic. A restart that never stops anything has to take each key away from its
consumer at least once; adding consumers has to hand over at least what the last assignment gives to others than the
first. Nothing can be below that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.growing_membership import Membership
from subreplay.whatif.planning.loads import Loads
from subreplay.whatif.planning.policy_comparison import handed_over

MOST_IN_ALL_ORDERS = 5
"""Of so many consumers every order is tried."""
Batches = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Rollout:
    """A way to do it: ``batches`` of consumers, one after another.

    ``handed_over``: parts of the traffic that pass to another consumer, summed over all changes; 2.0 means that
    everything does so twice on average. ``busiest`` is the largest part that one consumer has meanwhile. ``unowned`` is
    the part of the traffic that nobody has while a batch is away. ``lasts`` is in ns.
    """

    name: str
    batches: Batches
    handed_over: float
    busiest: float
    unowned: float
    lasts: int


@dataclass(frozen=True)
class RolloutPlan:
    """Every way that was tried, the best first, and what no way can beat that leaves nothing unowned."""

    ways: tuple[Rollout, ...]
    bound: float

    @property
    def best(self) -> Rollout:
        """That which leaves nothing unowned, of these hands over the least, of these is lightest on whoever stays, and
        of these is over first."""
        return self.ways[0]


def plan_restart(loads: Loads, members: Callable[[], Membership], consumers: int, away: int, pause: int) -> RolloutPlan:
    """Restart all of ``consumers``: each is away for ``away`` ns, and ``pause`` ns pass before the next ones go."""
    ways = [
        _restart(name, batches, loads, members(), consumers, away + pause)
        for name, batches in _ways(tuple(range(consumers)))
    ]
    return RolloutPlan(_ranked(ways), 1.0 if consumers > 1 else 0.0)


def plan_scaling(loads: Loads, members: Callable[[], Membership], consumers: int, to: int, pause: int) -> RolloutPlan:
    """Add consumers up to ``to``, with ``pause`` ns between one batch and the next; or take the last ones away."""
    many = max(consumers, to)
    changed = tuple(range(min(consumers, to), many))
    start, end = members(), members()
    for membership, number in ((start, consumers), (end, to)):
        for one in range(number):
            membership.change((), (one,))
    bound = handed_over(loads, start.owners(), end.owners()) if to > consumers else 0.0
    ways = [
        _scale(name, batches, loads, members(), consumers, to > consumers, pause) for name, batches in _ways(changed)
    ]
    return RolloutPlan(_ranked(ways), min(bound, min(way.handed_over for way in ways)))


def _ways(consumers: tuple[int, ...]) -> Iterator[tuple[str, Batches]]:
    """Names of the ways, and their batches."""
    one_by_one = tuple((one,) for one in consumers)
    yield "one by one, the first to join first", one_by_one
    yield "one by one, the last to join first", one_by_one[::-1]
    for size in (size for size in (2, 4, 8, 16, 32, 64, 128) if size < len(consumers)):
        yield f"{size} at a time", tuple(consumers[at : at + size] for at in range(0, len(consumers), size))
    yield "all at once", (consumers,)
    if 2 < len(consumers) <= MOST_IN_ALL_ORDERS:
        for order in permutations(consumers):
            if order not in (consumers, consumers[::-1]):
                yield f"one by one, {', '.join(str(one + 1) for one in order)}", tuple((one,) for one in order)


def _ranked(ways: Sequence[Rollout]) -> tuple[Rollout, ...]:
    def cost(way: Rollout) -> tuple[float, float, float, int]:
        return way.unowned, round(way.handed_over, 9), round(way.busiest, 9), way.lasts

    return tuple(sorted(ways, key=cost))


def _restart(name: str, batches: Batches, loads: Loads, members: Membership, consumers: int, step: int) -> Rollout:
    changes = [change for batch in batches for change in ((batch, ()), ((), batch))]
    return _way(name, batches, loads, members, consumers, changes, len(batches) * step, consumers)


def _scale(
    name: str, batches: Batches, loads: Loads, members: Membership, consumers: int, grows: bool, pause: int
) -> Rollout:
    changes = [((), batch) if grows else (batch, ()) for batch in batches]
    many = max(consumers, 1 + max(one for batch in batches for one in batch))
    return _way(name, batches, loads, members, consumers, changes, (len(batches) - 1) * pause, many)


def _way(
    name: str, batches: Batches, loads: Loads, members: Membership, consumers: int,
    changes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], lasts: int, many: int,
) -> Rollout:  # fmt: skip
    for number in range(consumers):
        members.change((), (number,))
    before, passed, busiest, unowned = members.owners(), 0.0, 0.0, 0.0
    for leaving, joining in changes:
        members.change(leaving, joining)
        after = members.owners()
        passed += handed_over(loads, before, after)
        parts = _parts(loads, after, many)
        busiest, unowned, before = max(busiest, float(parts[:many].max())), max(unowned, float(parts[many])), after
    return Rollout(name, batches, passed, busiest, unowned, lasts)


def _parts(loads: Loads, owners: Ints, many: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The part of the traffic that each consumer has; the last one is nobody's."""
    mine = np.bincount(owners % (many + 1), loads.by_thing, many + 1)
    return mine / max(float(mine.sum()), 1.0)
