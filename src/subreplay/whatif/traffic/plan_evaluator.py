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
from subreplay.hashing.profiles import KEYLESS
from subreplay.kernels.binary_search import count_up_to
from subreplay.kernels.inlining import hot, operation
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import NEVER, Ints
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.traffic.evaluation_counts import Evaluation, Extent
from subreplay.whatif.traffic.moved_messages import MOVES, NOTED, moves_of
from subreplay.whatif.traffic.ownership_arrays import Ownership, owners
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile
from subreplay.whatif.traffic.window_cells import Cells, cells_of, cells_of_each_keyless

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
        slots = np.ascontiguousarray(policy.compute_slots(cells.hash.astype(np.uint32)), np.int64)
        size = len(found.names) + 1
        by_window, of_all = _tallies(len(windows) * size), _tallies(size)
        whole, noted = np.zeros(3, np.int64), np.empty((len(NOTED), len(profile)), np.int64)  # few are written to
        _add_up(
            cells,
            slots,
            _Rows(profile.at, profile.entry, profile.size),
            found.arrays,
            np.array([policy.routing == "any", moves]),
            _Counts(by_window, of_all, whole),
            noted,
        )
        told = moves_of(profile, found, noted[:, : whole[2]], every=moves) if whole[2] or moves else MOVES.empty_table()
        sums = np.ascontiguousarray(by_window.T[:_LAST].reshape(_LAST, len(windows), size))
        return Evaluation(windows, found.names, sums, of_all.T[[_KEYS, _KEYS + _MOVED]], whole[:2], told)

    def keyless_alike(self, policy: Policy) -> int:
        """How many messages without a key a broker of that profile takes for those of one key."""
        if policy.routing != "slot" or KEYLESS[policy.profile].per_message:
            return 0
        runs = self.profile.runs
        return int((runs.end - runs.begin)[runs.sticky == NO_KEY].sum())

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


@pass_by_reference
class _Rows(NamedTuple):
    at: Ints
    entry: Ints
    size: Ints


_MESSAGES, _BYTES, _KEYS, _MOVED, _LAST = 0, 1, 2, 2, 5
"""Columns of a tally: the counts of what was got, two further on those of what was moved (messages are 3, keys 4), and
from ``_LAST`` on the key that was counted last, and the one that was counted last as moved.

Runs of one key stand together, so a key is new where it is not the last one. What is counted together lies together:
a row is as long as a line of the processor's cache.
"""


def _tallies(rows: int) -> Ints:
    tallies = np.zeros((rows, 8), np.int64)
    tallies[:, _LAST:] = _NEVER_SEEN
    return tallies


@pass_by_reference
class _Counts(NamedTuple):
    """Tallies by window and consumer, and by consumer; ``whole``: keys and keys moved of all, and how many pieces of
    runs were noted."""

    by_window: Ints
    of_all: Ints
    whole: Ints


@operation
def _add_up(
    cells: Cells, slots: Ints, rows: _Rows, owned: Ownership, told: NDArray[np.bool_], counts: _Counts, noted: Ints
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """One pass over all runs: for each state that the run's owner is in, all cells that end in it, and then the part
    of a cell that is cut by the change after it. Pieces of runs of which it is to be told are ``noted``.
    """
    by_entry, every = told[0], told[1]
    size = counts.of_all.shape[0]
    nobody = size - 1
    last_key = last_moved = np.int64(_NEVER_SEEN)
    for run in range(len(cells.key)):
        key, scope, number = cells.key[run], cells.scope[run], cells.hash[run] & MASK_31
        if key != last_key:
            counts.whole[0] += 1
            last_key = key
        segment = count_up_to(owned.cuts, slots[run], owned.segments[scope], owned.segments[scope + 1]) - 1
        first_state, past = owned.states[segment], owned.states[segment + 1]
        state, cell, past_cell = first_state, cells.first[run], cells.first[run + 1]
        at = cells.begin[cell] if cell < past_cell else 0
        while cell < past_cell:
            now = rows.at[at]
            if state + 1 < past and owned.since[state + 1] <= now:
                state = count_up_to(owned.since, now, state + 1, past) - 1
            bound = owned.since[state + 1] if state + 1 < past else NEVER
            length, before, in_turn = owned.length[state], nobody, False
            consumer = _picked(owned, state, number, nobody)
            if by_entry:
                in_turn = length > 1
            if not in_turn and owned.until[state] > owned.since[state] and now < owned.until[state]:
                bound = min(bound, owned.until[state])
                before = _picked(owned, state - 1, number, nobody) if state > first_state else nobody
            moved = before not in (nobody, consumer)
            noting = consumer == nobody or (moved and every)
            if moved and key != last_moved:
                last_moved = key
                counts.whole[1] += 1
            start = at
            while cell < past_cell and cells.last[cell] < bound:
                row, end = cells.window[cell] * size, cells.end[cell]
                if in_turn:
                    _deal(counts, row, key, rows, at, end, owned, owned.first[state], length)
                else:
                    many = cells.size[cell] if at == cells.begin[cell] else _bytes(rows, at, end)
                    _count(counts, row, consumer, key, end - at, many, moved)
                cell += 1
                at = end
            if cell < past_cell and rows.at[at] < bound:
                row, end = cells.window[cell] * size, at + 1
                while rows.at[end] < bound:  # the last one of the cell is not
                    end += 1
                if in_turn:
                    _deal(counts, row, key, rows, at, end, owned, owned.first[state], length)
                else:
                    _count(counts, row, consumer, key, end - at, _bytes(rows, at, end), moved)
                at = end
            if noting and at > start:
                piece = counts.whole[2]
                noted[0, piece], noted[1, piece], noted[2, piece], noted[3, piece] = start, at, scope, key
                noted[4, piece], noted[5, piece] = before, consumer
                counts.whole[2] += 1


@hot
def _bytes(rows: _Rows, begin: int, end: int) -> Any:  # pragma: no cover - compiled
    """How large some messages are together."""
    total = np.int64(0)
    for i in range(begin, end):
        total += rows.size[i]
    return total


@hot
def _deal(
    counts: _Counts, row: int, key: int, rows: _Rows, begin: int, end: int, owned: Ownership, first: int, length: int
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Messages of a key whose entries go round so many consumers: without a branch, which nobody could foretell."""
    for i in range(begin, end):
        consumer = owned.members[first + _remainder(rows.entry[i], length)]
        tally, whole = counts.by_window[row + consumer], counts.of_all[consumer]
        tally[_MESSAGES] += 1
        tally[_BYTES] += rows.size[i]
        tally[_KEYS] += np.int64(tally[_LAST] != key)
        tally[_LAST] = key
        whole[_KEYS] += np.int64(whole[_LAST] != key)
        whole[_LAST] = key


@hot
def _remainder(number: Any, by: Any) -> Any:  # pragma: no cover - compiled
    """``number % by`` of numbers that are not negative; a division of 32 bits takes a fraction of the time."""
    if (number | by) >> 32 == 0:
        return np.int64(np.uint32(number) % np.uint32(by))
    return number % by


@hot
def _picked(owned: Ownership, state: int, number: int, nobody: int) -> int:  # pragma: no cover - compiled
    """The consumer of a state that gets messages of a number."""
    length = owned.length[state]
    if length == 0:
        return nobody
    return owned.members[owned.first[state] + (number % length if length > 1 else 0)]


@hot
def _count(
    counts: _Counts, row: int, consumer: int, key: int, messages: Any, size: Any, moved: bool
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Count messages of a key that a consumer gets in the window of a row, and whether they were moved."""
    tally = counts.by_window[row + consumer]
    tally[_MESSAGES] += messages
    tally[_BYTES] += size
    if tally[_LAST] != key:
        tally[_LAST] = key
        tally[_KEYS] += 1
        whole = counts.of_all[consumer]
        if whole[_LAST] != key:
            whole[_LAST] = key
            whole[_KEYS] += 1
    if moved:
        tally[3] += messages
        if tally[_LAST + 1] != key:
            tally[_LAST + 1] = key
            tally[_KEYS + _MOVED] += 1
            whole = counts.of_all[consumer]
            if whole[_LAST + 1] != key:
                whole[_LAST + 1] = key
                whole[_KEYS + _MOVED] += 1
