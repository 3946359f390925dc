"""The fewest consumers that keep a limit, under each policy, and from which number on the hottest key is the limit.

Numbers are tried one after another from the lower bound on, since under consistent hashing one consumer more may be
worse. The lower bound is what a policy would need that shares all work evenly, but for the thing that nobody can
divide: a key has one owner under Key_Shared, a partition under Failover and in a group.
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
from subreplay.whatif.planning.capacity import quantile, waits_of_anybody, waits_of_owners
from subreplay.whatif.planning.loads import Loads

NEVER_ENOUGH = 0
"""No number of consumers keeps the limit."""
Undivided = Literal["key", "slot", "partition", "message"]
"""What has one owner at a time."""


class Limit(Protocol):
    """What is to be kept: ``measured`` with some owners must be at most ``most``."""

    @property
    def most(self) -> float: ...

    def measured(self, owners: Ints | None, consumers: int) -> float:
        """With the owner of each thing, or None where any consumer may have any message."""

    def least(self, divisible: bool) -> float:
        """What no number of consumers beats: everything alone. ``divisible``: a thing's messages may have several
        owners."""

    def fewest(self, divisible: bool) -> int:
        """No fewer consumers can keep it, given that ``least`` does."""


@dataclass(frozen=True)
class Utilisation:
    """The work of the busiest consumer over what it can do: at most ``most`` in ``share`` of the windows.

    ``loads`` are in ns of work. Windows without traffic are not counted.
    """

    loads: Loads
    most: float
    share: float = 1.0

    def measured(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return self._quantile(-(-self.loads.by_window // consumers))
        return self._quantile(self.loads.of_owners(owners, consumers).max(axis=0))

    def least(self, divisible: bool) -> float:
        return 0.0 if divisible else self._quantile(self.loads.hottest)

    def fewest(self, divisible: bool) -> int:
        most = self.most * self.loads.width
        needed = np.ceil(self.loads.by_window / most * (1 - 1e-12)).astype(np.int64)
        return max(1, int(np.sort(needed)[self._rank]))

    def _quantile(self, work: Ints) -> float:
        return float(np.sort(work)[self._rank]) / self.loads.width

    @property
    def _rank(self) -> int:
        return max(math.ceil(self.share * self.loads.windows) - 1, 0)


@dataclass(frozen=True, eq=False)
class Latency:
    """The latency (ns) that ``share`` of the messages do not exceed: at most ``most``.

    Messages in order of time: when they arrive, their things, and their work (ns).
    """

    at: Ints
    thing: Ints
    work: Ints
    most: float
    share: float = 0.99

    def measured(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return float(quantile(waits_of_anybody(self.at, self.work, consumers), self.share))
        waits = waits_of_owners(self.at, self.work, np.asarray(owners, np.int64)[self.thing], consumers)
        waits = np.where(waits < 0, np.iinfo(np.int64).max, waits)  # nobody ever gets it
        return float(quantile(waits, self.share))

    def least(self, divisible: bool) -> float:
        return float(quantile(self.work if divisible else self._each_alone, self.share))

    def fewest(self, divisible: bool) -> int:
        return self._shared_by_all

    @cached_property
    def _each_alone(self) -> Ints:
        """The latencies if every thing had a consumer of its own."""
        return waits_of_owners(self.at, self.work, self.thing, int(self.thing.max(initial=0)) + 1)

    @cached_property
    def _shared_by_all(self) -> int:
        """The fewest consumers of which any may take any message: more never are slower."""
        low, high = 1, 1
        while self.measured(None, high) > self.most and high < len(self.at):
            low, high = high + 1, high * 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.measured(None, middle) <= self.most else (middle + 1, high)
        return low


@dataclass(frozen=True)
class Drain:
    """A backlog of so many messages, of keys as in the traffic, which goes on arriving meanwhile at its mean rate: it
    is gone after ``most`` ns. ``span`` (ns) is how long the traffic lasted, ``messages`` how many it has."""

    loads: Loads
    span: int
    messages: int
    backlog: int
    most: float

    def measured(self, owners: Ints | None, consumers: int) -> float:
        if owners is None:
            return self._time(float(self.loads.by_thing.sum()) / consumers)
        return self._time(float(self.loads.of_owners(owners, consumers).sum(axis=1).max(initial=0)))

    def least(self, divisible: bool) -> float:
        return 0.0 if divisible else self._time(float(self.loads.by_thing.max(initial=0)))

    def fewest(self, divisible: bool) -> int:
        total = float(self.loads.by_thing.sum())
        needed = total * (self.backlog / max(self.messages, 1) / self.most + 1 / self.span)
        return max(1, math.ceil(needed * (1 - 1e-12)))

    def _time(self, work: float) -> float:
        """How long a consumer takes that has this part of the whole traffic's work."""
        busy = work / self.span
        return math.inf if busy >= 1 else work * self.backlog / max(self.messages, 1) / (1 - busy)


@dataclass(frozen=True)
class Candidate:
    """A policy by name: the owners of each thing, from so many consumers on; None where any consumer may have any
    message. ``useful``: more consumers than this have nothing to do (None: no such number)."""

    name: str
    undivided: Undivided
    owners: Callable[[int], Iterator[Ints]] | None
    useful: int | None = None


@dataclass(frozen=True)
class Fewest:
    """What a policy needs: ``consumers`` (``NEVER_ENOUGH``: none of up to ``tried``), never fewer than ``bound``.

    ``measured`` is with so many consumers, or the best of all that were tried; ``before`` with one consumer less.
    ``least`` is what no number of consumers beats: above the limit, it is the hottest thing that breaks it.
    """

    policy: str
    undivided: Undivided
    consumers: int
    bound: int
    measured: float
    before: float | None
    least: float
    tried: int


def fewest(limit: Limit, candidate: Candidate, most: int = 1000) -> Fewest:
    """The fewest consumers, up to ``most``, with which a candidate keeps a limit."""
    divisible = candidate.owners is None
    least, tried = limit.least(divisible), min(most, candidate.useful or most)
    best, before = math.inf, None
    if least > limit.most:
        return Fewest(candidate.name, candidate.undivided, NEVER_ENOUGH, NEVER_ENOUGH, least, None, least, tried)
    bound = limit.fewest(divisible)
    first = max(min(bound, tried) - 1, 1)  # also the number before, to tell what it costs
    endless = repeat(None) if candidate.owners is None else candidate.owners(first)
    for number, owners in zip(range(first, tried + 1), endless, strict=False):
        measured = limit.measured(owners, number)
        if measured <= limit.most:
            return Fewest(candidate.name, candidate.undivided, number, bound, measured, before, least, tried)
        best, before = min(best, measured), measured
    return Fewest(candidate.name, candidate.undivided, NEVER_ENOUGH, bound, best, None, least, tried)


@dataclass(frozen=True)
class Ceiling:
    """From how many ``consumers`` on the hottest thing alone is the busiest window's limit (0: nothing is), and its
    share of all work."""

    thing: int
    share: float
    consumers: int


def ceiling(loads: Loads, divisible: int = -1) -> Ceiling:
    """Where more consumers stop helping: an even share of the worst window is then no more than what its hottest thing
    brings. The thing ``divisible`` may have several owners.

    >>> ceiling(Loads.of(np.array([0, 0, 0, 1, 2]), np.zeros(5, np.int64), np.ones(5, np.int64), 3, 1)).consumers
    2
    """
    whole = loads.thing != divisible
    if not whole.any():
        return Ceiling(-1, 0.0, 0)
    at = int(np.argmax(np.where(whole, loads.work, -1)))
    most, hottest, thing = int(loads.by_window.max()), int(loads.work[at]), int(loads.thing[at])
    share = float(loads.by_thing[thing] / max(int(loads.by_thing.sum()), 1))
    return Ceiling(thing, share, -(-most // hottest) if hottest else 0)
