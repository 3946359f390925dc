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
from subreplay.kernels.search import up_to
from subreplay.model.columns import NEVER, Ints
from subreplay.model.rows import Scope
from subreplay.policies.base import Policy
from subreplay.profiles import KEYLESS
from subreplay.timelines.timeline import Timeline
from subreplay.traffic.cells import Cells, cells_of, cells_of_each_keyless
from subreplay.traffic.evaluation import Evaluation, Extent
from subreplay.traffic.moves import MOVES, moves_of
from subreplay.traffic.ownership import Ownership, owners
from subreplay.traffic.profile import NO_KEY, TrafficProfile

_NEVER_SEEN = NO_KEY - 1


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluates plans over one profile; what plans have in common is computed once.

    ``extent``: of all traffic, of which the profile may be a part. Raises ValueError where the profile has messages
    outside of it.
    """

    profile: TrafficProfile
    extent: Extent

    def __post_init__(self) -> None:
        first, last = self.profile.extent
        if len(self.profile) and not self.extent.first <= first <= last <= self.extent.last:
            raise ValueError(f"messages from {first} to {last} are not within {self.extent}")

    def evaluate(self, policy: Policy, timelines: Mapping[Scope, Timeline], *, moves: bool = False) -> Evaluation:
        """What the plan of ``policy`` and ``timelines`` (one for each scope) would have given to whom.

        ``moves``: tell of every change what it moved, and how much came in its epoch: in rows of ``MOVES`` that have
        neither ``before`` nor ``consumer`` stands the rest, of which no keys are counted. Otherwise ``moves`` tells of
        what nobody got.
        """
        profile, windows = self.profile, self.extent.windows
        found = owners(policy, timelines, profile.scopes, self.extent.first)
        cells = self._cells(policy)
        slots = np.ascontiguousarray(policy.slots(cells.hash.astype(np.uint32)), np.int64)
        size = len(found.names) + 1
        sums, of_all, whole = (np.zeros(shape, np.int64) for shape in ((5, len(windows), size), (2, size), 3))
        noted = np.zeros(len(profile), np.int64)
        _add_up(
            cells,
            slots,
            _Rows(profile.at, profile.entry, profile.size),
            found.arrays,
            np.array([policy.routing == "any", moves]),
            _Counts(sums, of_all, whole),
            _Last(np.full((2, len(windows), size), _NEVER_SEEN), np.full((2, size), _NEVER_SEEN)),
            noted,
        )
        told = moves_of(profile, found, noted, every=moves) if whole[2] or moves else MOVES.empty_table()
        return Evaluation(windows, found.names, sums, of_all, whole[:2], told)

    def _cells(self, policy: Policy) -> Cells:
        """With the hash by which a broker of that profile dispatches each run."""
        rule = KEYLESS[policy.profile]
        if policy.routing == "slot" and rule.per_message and len(self.profile.spread):
            return self._each_keyless
        keyless = self.profile.runs.sticky == NO_KEY
        return self._of_runs._replace(hash=np.where(keyless, murmur3_32(rule.constant), self._of_runs.hash))

    @cached_property
    def _of_runs(self) -> Cells:
        return cells_of(self.profile, self.extent)

    @cached_property
    def _each_keyless(self) -> Cells:
        return cells_of_each_keyless(self.profile, self.extent)


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
    cells: Cells, slots: Ints, rows: _Rows, owned: Ownership, told: NDArray[np.bool_], counts: _Counts, last: _Last,
    noted: Ints,
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """One pass over all cells, in stretches of messages that have one owner.

    A message of which it is to be told is noted as 1 + before * size + consumer.
    """
    by_entry, every = told[0], told[1]
    nobody = counts.keys.shape[1] - 1
    last_key = last_moved = np.int64(_NEVER_SEEN)
    for run in range(len(cells.key)):
        key, scope, number = cells.key[run], cells.scope[run], cells.hash[run] & MASK_31
        if key != last_key:
            counts.whole[0] += 1
            last_key = key
        segment = up_to(owned.cuts, slots[run], owned.segments[scope], owned.segments[scope + 1]) - 1
        state, past = owned.states[segment], owned.states[segment + 1]
        begin = state
        for cell in range(cells.first[run], cells.first[run + 1]):
            at, end, window = cells.begin[cell], cells.end[cell], cells.window[cell]
            while at < end:
                if state + 1 < past and owned.since[state + 1] <= rows.at[at]:
                    state = up_to(owned.since, rows.at[at], state + 1, past) - 1
                bound = owned.since[state + 1] if state + 1 < past else NEVER
                length, before, start = owned.length[state], nobody, at
                if by_entry and length > 1:
                    while at < end and rows.at[at] < bound:
                        consumer = owned.members[owned.first[state] + _remainder(rows.entry[at], length)]
                        _count(counts, last, 0, window, consumer, key, 1, rows.size[at])
                        at += 1
                    continue
                consumer = _picked(owned, state, number, nobody)
                if owned.until[state] > owned.since[state] and rows.at[at] < owned.until[state]:
                    bound = min(bound, owned.until[state])
                    before = _picked(owned, state - 1, number, nobody) if state > begin else nobody
                if rows.at[end - 1] < bound and at == cells.begin[cell]:
                    at, size = end, cells.size[cell]
                else:
                    size = np.int64(0)
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
def _remainder(number: Any, by: Any) -> Any:  # pragma: no cover - compiled
    """``number % by`` of numbers that are not negative; a division of 32 bits takes a fraction of the time."""
    if (number | by) >> 32 == 0:
        return np.int64(np.uint32(number) % np.uint32(by))
    return number % by


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
