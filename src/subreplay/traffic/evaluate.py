"""What a plan would have given to whom: one compiled pass over a traffic profile, exact.

No time passes in it: every consumer counts as always having permits, and a message belongs to the epoch in which it was
published. Counts of profiles without a common key (``TrafficProfile.part``) may be added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.murmur3 import MASK_31, murmur3_32
from subreplay.kernels.by_reference import by_reference
from subreplay.kernels.loops import loop, step
from subreplay.model.columns import Ints
from subreplay.model.rows import Scope
from subreplay.policies.base import Policy
from subreplay.profiles import KEYLESS
from subreplay.timelines.timeline import Timeline
from subreplay.traffic.evaluation import Evaluation, Extent
from subreplay.traffic.moves import MOVES, moves_of
from subreplay.traffic.ownership import Ownership, owners
from subreplay.traffic.profile import NO_KEY, Hashes, TrafficProfile

_NEVER_SEEN = NO_KEY - 1


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates plans over one profile; what plans have in common is computed once.

    ``extent``: of all traffic, of which the profile may be a part.
    """

    profile: TrafficProfile
    extent: Extent

    def evaluate(self, policy: Policy, timelines: Mapping[Scope, Timeline], *, moves: bool = False) -> Evaluation:
        """What the plan of ``policy`` and ``timelines`` (one for each scope) would have given to whom.

        ``moves``: tell of every change what it moved, and how much came in its epoch: in rows of ``MOVES`` that have
        neither ``before`` nor ``consumer`` stands the rest, of which no keys are counted. Otherwise ``moves`` tells of
        what nobody got.
        """
        profile, windows = self.profile, self.extent.windows
        found = owners(policy, timelines, profile.scopes, self.extent.first)
        view = self._hashed(policy)
        size = len(found.names) + 1
        sums, of_all, whole = (np.zeros(shape, np.int64) for shape in ((5, len(windows), size), (2, size), 3))
        noted = np.zeros(len(profile), np.int64)
        _add_up(
            view,
            _Rows(profile.at, profile.entry, profile.size),
            found.arrays,
            np.array([*windows[:1], self.extent.width]),
            np.array([policy.routing == "any", moves]),
            _Counts(sums, of_all, whole),
            _Last(np.full((2, len(windows), size), _NEVER_SEEN), np.full((2, size), _NEVER_SEEN)),
            noted,
        )
        told = moves_of(profile, found, noted, every=moves) if whole[2] or moves else MOVES.empty_table()
        return Evaluation(windows, found.names, sums, of_all, whole[:2], told)

    def _hashed(self, policy: Policy) -> _Hashed:
        rule = KEYLESS[policy.profile]
        if policy.routing == "slot" and rule.per_message and len(self.profile.spread):
            view = self._each_keyless
        else:
            view = self._as_runs(murmur3_32(rule.constant))
        return view._replace(slot=np.ascontiguousarray(policy.slots(view.hash.astype(np.uint32)), np.int64))

    def _as_runs(self, keyless: int) -> _Hashed:
        runs, murmur3 = self.profile.runs, np.append(self.profile.keys.murmur3, np.uint32(keyless))  # NO_KEY's
        return _hashed(runs.begin, runs.end, runs.key, runs.scope, murmur3[runs.sticky])

    @cached_property
    def _each_keyless(self) -> _Hashed:
        """Runs, of which those without a sticky key are cut into messages: each has a hash of its own."""
        runs, profile = self.profile.runs, self.profile
        keyless = runs.sticky == NO_KEY
        lengths = np.where(keyless, runs.end - runs.begin, 1)
        run = np.repeat(np.arange(len(runs)), lengths)
        within = np.arange(len(run)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        begin = runs.begin[run] + within
        end = np.where(keyless[run], begin + 1, runs.end[run])
        murmur3 = np.append(profile.keys.murmur3, np.uint32(0))[runs.sticky[run]]
        return _hashed(
            begin, end, runs.key[run], runs.scope[run], np.where(keyless[run], profile.spread[begin], murmur3)
        )


@by_reference
class _Hashed(NamedTuple):
    """Runs with the hash and the slot by which they are dispatched."""

    begin: Ints
    end: Ints
    key: Ints
    scope: Ints
    hash: Ints
    slot: Ints


def _hashed(begin: Ints, end: Ints, key: NDArray[np.int32], scope: NDArray[np.int32], hashes: Hashes) -> _Hashed:
    number = hashes.astype(np.int64)
    first, past = np.ascontiguousarray(begin), np.ascontiguousarray(end)
    return _Hashed(first, past, key.astype(np.int64), scope.astype(np.int64), number, number)


@by_reference
class _Rows(NamedTuple):
    at: Ints
    entry: Ints
    size: Ints


@by_reference
class _Counts(NamedTuple):
    """``sums``: the five counts by window and consumer; ``keys``: keys and keys moved by consumer; ``whole``: of all,
    and how many messages were noted."""

    sums: Ints
    keys: Ints
    whole: Ints


@by_reference
class _Last(NamedTuple):
    """The key that was counted last, and the one that was counted last as moved: by window and consumer, by consumer.

    Runs of one key stand together, so a key is new where it is not the last one.
    """

    of_window: Ints
    of_consumer: Ints


@loop
def _add_up(
    runs: _Hashed, rows: _Rows, owned: Ownership, extent: Ints, told: NDArray[np.bool_], counts: _Counts, last: _Last,
    noted: Ints,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """One pass over all runs, in stretches of messages that have one owner and one window.

    A message of which it is to be told is noted as 1 + before * size + consumer.
    """
    first, width, by_entry, every = extent[0], extent[1], told[0], told[1]
    nobody = counts.keys.shape[1] - 1
    last_key = last_moved = np.int64(_NEVER_SEEN)
    for run in range(len(runs.begin)):
        at, end, key, number = runs.begin[run], runs.end[run], runs.key[run], runs.hash[run] & MASK_31
        if key != last_key:
            counts.whole[0] += 1
            last_key = key
        scope = runs.scope[run]
        segment = _until(owned.cuts, runs.slot[run], owned.segments[scope], owned.segments[scope + 1]) - 1
        begin, past = owned.states[segment], owned.states[segment + 1]
        state = begin
        while at < end:
            state = _until(owned.since, rows.at[at], state + 1, past) - 1
            window = (rows.at[at] - first) // width
            bound = first + (window + 1) * width
            if state + 1 < past:
                bound = min(bound, owned.since[state + 1])
            length, before, start, size = owned.length[state], nobody, at, np.int64(0)
            if by_entry and length > 1:
                while at < end and rows.at[at] < bound:
                    consumer = owned.members[owned.first[state] + rows.entry[at] % length]
                    _count(counts, last, 0, window, consumer, key, 1, rows.size[at])
                    at += 1
                continue
            consumer = _picked(owned, state, number, nobody)
            if rows.at[at] < owned.until[state]:
                bound = min(bound, owned.until[state])
                before = _picked(owned, state - 1, number, nobody) if state > begin else nobody
            while at < end and rows.at[at] < bound:
                size += rows.size[at]
                at += 1
            _count(counts, last, 0, window, consumer, key, at - start, size)
            moved = before not in (nobody, consumer)
            if moved:
                _count(counts, last, 1, window, consumer, key, at - start, size)
                if key != last_moved:
                    last_moved = key
                    counts.whole[1] += 1
            if consumer == nobody or (moved and every):
                noted[start:at] = 1 + before * (nobody + 1) + consumer
                counts.whole[2] += at - start


@step
def _picked(owned: Ownership, state: int, number: int, nobody: int) -> int:  # pragma: no cover - compiled
    """The consumer of a state that gets messages of a number."""
    length = owned.length[state]
    if length == 0:
        return nobody
    return owned.members[owned.first[state] + (number % length if length > 1 else 0)]


@step
def _count(
    counts: _Counts, last: _Last, moved: int, window: int, consumer: int, key: int, messages: Any, size: Any
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Count messages of a key, or (1) that they were moved."""
    counts.sums[3 * moved, window, consumer] += messages
    if not moved:
        counts.sums[1, window, consumer] += size
    if last.of_window[moved, window, consumer] != key:
        last.of_window[moved, window, consumer] = key
        counts.sums[2 + 2 * moved, window, consumer] += 1
    if last.of_consumer[moved, consumer] != key:
        last.of_consumer[moved, consumer] = key
        counts.keys[moved, consumer] += 1


@step
def _until(values: Ints, value: int, low: int, high: int) -> int:  # pragma: no cover - compiled
    """How many of sorted values are at most ``value``, known to be from ``low`` to ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low
