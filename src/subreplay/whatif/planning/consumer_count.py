"""Find the smallest number of consumers that keeps a limit under each policy, and where the hottest key is the limit.

Counts are tried one by one from the lower bound, because under consistent hashing one more consumer may be worse. The
lower bound is the count of an ideal policy that shares all divisible work evenly. Some work cannot be divided: a key
has one owner under Key_Shared, and a partition has one owner under Failover and in a group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Literal, Protocol

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.whatif.planning.capacity import find_quantile, measure_shared_waits, measure_waits_of_owners
from subreplay.whatif.planning.loads import WorkLoads

NO_COUNT = 0
"""No number of consumers keeps the limit."""
Undivided = Literal["key", "slot", "partition", "message"]
"""What has one owner at a time."""


class Limit(Protocol):
    """A limit to keep: the value of ``measure`` for some owners must be at most ``most``."""

    @property
    def most(self) -> float: ...

    def measure(self, owners: Ints | None, consumers: int) -> float:
        """Return the measured value with this owner of each thing, or None where any consumer may take any message."""

    def find_minimum(self, divisible: bool) -> float:
        """Return the value that no number of consumers beats: every thing has its own consumer.

        ``divisible``: the messages of a thing may have several owners.
        """

    def find_lower_bound(self, divisible: bool) -> int:
        """Return a lower bound of the number of consumers, if ``find_minimum`` keeps the limit."""


@dataclass(frozen=True)
class UtilisationLimit:
    """Limits the work of the busiest consumer divided by what it can do: at most ``most`` in ``share`` of the windows.

    ``loads`` are in ns of work. Windows without traffic are not counted.
    """

    loads: WorkLoads
    most: float
    share: float = 1.0

    def measure(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return self._find_quantile(-(-self.loads.by_window // consumers))
        return self._find_quantile(self.loads.sum_by_owner(owners, consumers).max(axis=0))

    def find_minimum(self, divisible: bool) -> float:
        return 0.0 if divisible else self._find_quantile(self.loads.hottest)

    def find_lower_bound(self, divisible: bool) -> int:
        most = self.most * self.loads.width
        needed = np.ceil(self.loads.by_window / most * (1 - 1e-12)).astype(np.int64)
        return max(1, int(np.sort(needed)[self._rank]))

    def _find_quantile(self, work: Ints) -> float:
        return float(np.sort(work)[self._rank]) / self.loads.width

    @property
    def _rank(self) -> int:
        return max(math.ceil(self.share * self.loads.windows) - 1, 0)


@dataclass(frozen=True, eq=False)
class LatencyLimit:
    """Limits the latency (ns) that ``share`` of the messages do not exceed: at most ``most``.

    The arrays are in order of time: when messages arrive, their things, and their work (ns).
    """

    at: Ints
    thing: Ints
    work: Ints
    most: float
    share: float = 0.99

    def measure(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return float(find_quantile(measure_shared_waits(self.at, self.work, consumers), self.share))
        waits = measure_waits_of_owners(self.at, self.work, np.asarray(owners, np.int64)[self.thing], consumers)
        waits = np.where(waits < 0, np.iinfo(np.int64).max, waits)  # never delivered
        return float(find_quantile(waits, self.share))

    def find_minimum(self, divisible: bool) -> float:
        return float(find_quantile(self.work if divisible else self._separate_latencies, self.share))

    def find_lower_bound(self, divisible: bool) -> int:
        return self._shared_count

    @cached_property
    def _separate_latencies(self) -> Ints:
        """The latencies if every thing had its own consumer."""
        return measure_waits_of_owners(self.at, self.work, self.thing, int(self.thing.max(initial=0)) + 1)

    @cached_property
    def _shared_count(self) -> int:
        """The smallest number of consumers if any may take any message. More consumers are never slower then."""
        low, high = 1, 1
        while self.measure(None, high) > self.most and high < len(self.at):
            low, high = high + 1, high * 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.measure(None, middle) <= self.most else (middle + 1, high)
        return low


@dataclass(frozen=True)
class DrainTime:
    """Limits the time (ns) to work off a backlog while traffic continues at its mean rate: at most ``most``.

    The ``backlog`` (messages) has the keys of the traffic. ``span`` (ns) is how long the traffic lasted, ``messages``
    how many messages it has.
    """

    loads: WorkLoads
    span: int
    messages: int
    backlog: int
    most: float

    def measure(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return self._compute_time(float(self.loads.by_thing.sum()) / consumers)
        return self._compute_time(float(self.loads.sum_by_owner(owners, consumers).sum(axis=1).max(initial=0)))

    def find_minimum(self, divisible: bool) -> float:
        return 0.0 if divisible else self._compute_time(float(self.loads.by_thing.max(initial=0)))

    def find_lower_bound(self, divisible: bool) -> int:
        total = float(self.loads.by_thing.sum())
        needed = total * (self.backlog / max(self.messages, 1) / self.most + 1 / self.span)
        return max(1, math.ceil(needed * (1 - 1e-12)))

    def _compute_time(self, work: float) -> float:
        """Return the drain time of a consumer that has this part of all work of the traffic."""
        busy = work / self.span
        return math.inf if busy >= 1 else work * self.backlog / max(self.messages, 1) / (1 - busy)


@dataclass(frozen=True)
class PolicyCandidate:
    """A policy by name, with the owners of each thing for growing numbers of consumers.

    ``owners`` is None if any consumer may take any message. ``useful`` is the number above which consumers are idle
    (None: no such number).
    """

    name: str
    undivided: Undivided
    owners: Callable[[int], Iterator[Ints]] | None
    useful: int | None = None


@dataclass(frozen=True)
class ConsumerCount:
    """The number of consumers that a policy needs.

    ``consumers`` is ``NO_COUNT`` if no number up to ``tried`` keeps the limit. ``bound`` is a lower bound of it.
    ``measured`` is the value with that number, or the best of all tried ones; ``before`` is the value with one consumer
    less. ``least`` is the value that no number of consumers beats: if it is above the limit, the hottest thing breaks
    the limit.
    """

    policy: str
    undivided: Undivided
    consumers: int
    bound: int
    measured: float
    before: float | None
    least: float
    tried: int


def find_consumer_count(limit: Limit, candidate: PolicyCandidate, most: int = 1000) -> ConsumerCount:
    """Find the smallest number of consumers, up to ``most``, with which a candidate keeps a limit."""
    divisible = candidate.owners is None
    minimum, tried = limit.find_minimum(divisible), min(most, candidate.useful or most)
    best, before = math.inf, None
    if minimum > limit.most:
        return ConsumerCount(candidate.name, candidate.undivided, NO_COUNT, NO_COUNT, minimum, None, minimum, tried)
    bound = limit.find_lower_bound(divisible)
    first = max(min(bound, tried) - 1, 1)  # also one consumer less, to compare
    owners_by_count = repeat(None) if candidate.owners is None else candidate.owners(first)
    for number, owners in zip(range(first, tried + 1), owners_by_count, strict=False):
        value = limit.measure(owners, number)
        if value <= limit.most:
            return ConsumerCount(candidate.name, candidate.undivided, number, bound, value, before, minimum, tried)
        best, before = min(best, value), value
    return ConsumerCount(candidate.name, candidate.undivided, NO_COUNT, bound, best, None, minimum, tried)


@dataclass(frozen=True)
class ScalingLimit:
    """The number of consumers from which on the hottest thing limits the busiest window (0: never), and its share of
    all work."""

    thing: int
    share: float
    consumers: int


def find_scaling_limit(loads: WorkLoads, divisible: int = -1) -> ScalingLimit:
    """Find where more consumers stop helping: there the fair share of the worst window is no more than its hottest
    thing.

    The thing ``divisible`` may have several owners.

    >>> loads = WorkLoads.from_messages(np.array([0, 0, 0, 1, 2]), np.zeros(5, np.int64), np.ones(5, np.int64), 3, 1)
    >>> find_scaling_limit(loads).consumers
    2
    """
    is_indivisible = loads.thing != divisible
    if not is_indivisible.any():
        return ScalingLimit(-1, 0.0, 0)
    at = int(np.argmax(np.where(is_indivisible, loads.work, -1)))
    most, hottest, thing = int(loads.by_window.max()), int(loads.work[at]), int(loads.thing[at])
    share = float(loads.by_thing[thing] / max(int(loads.by_thing.sum()), 1))
    return ScalingLimit(thing, share, -(-most // hottest) if hottest else 0)
