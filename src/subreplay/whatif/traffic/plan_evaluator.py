"""Count what each consumer would have received under a plan, in one compiled and exact pass over a traffic profile.

Time is not simulated: every consumer counts as always having permits, and a message belongs to the epoch in which it
was published. Counts of profiles without a common key (``TrafficProfile.parts``) can be added.
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
from subreplay.whatif.traffic.moved_messages import MOVES, PIECE_COLUMNS, build_moves
from subreplay.whatif.traffic.ownership_arrays import Ownership, build_owners
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile
from subreplay.whatif.traffic.window_cells import WindowCells, build_cells, build_keyless_cells

_NEVER_SEEN = NO_KEY - 1


@dataclass(frozen=True, eq=False)
class PlanEvaluator:
    """Evaluates plans over one profile.

    What plans have in common is computed once.

    ``extent`` covers all traffic, of which the profile may be a part. Raises ValueError if the profile has messages
    outside of it.
    """

    profile: TrafficProfile
    extent: Extent

    def __post_init__(self) -> None:
        first, last = self.profile.extent
        if len(self.profile) and not self.extent.first <= first <= last <= self.extent.last:
            raise ValueError(f"messages from {first} to {last} are not within {self.extent}")

    def evaluate(self, policy: Policy, timelines: Mapping[Scope, Timeline], *, moves: bool = False) -> Evaluation:
        """Count what the plan of ``policy`` and ``timelines`` (one for each scope) would have delivered to each
        consumer.

        ``moves``: report what every change moved, and how much traffic its epoch had. In rows of ``MOVES`` without
        ``before`` and ``consumer`` is the rest, of which no keys are counted. Otherwise only messages without an owner
        are reported.
        """
        profile, windows = self.profile, self.extent.windows
        ownership = build_owners(policy, timelines, profile.scopes, self.extent.first)
        cells = self._choose_cells(policy)
        slots = np.ascontiguousarray(policy.compute_slots(cells.hash.astype(np.uint32)), np.int64)
        size = len(ownership.names) + 1
        window_tallies, consumer_tallies = _create_tallies(size * len(windows)), _create_tallies(size)
        total_counts, pieces = (
            np.zeros(3, np.int64),
            np.empty((len(PIECE_COLUMNS), len(profile)), np.int64),
        )  # only a few rows are written
        _count_runs(
            cells,
            slots,
            _MessageRows(profile.at, profile.entry, profile.size),
            ownership.arrays,
            np.array([policy.routing == "any", moves]),
            _Counts(window_tallies, consumer_tallies, total_counts),
            pieces,
        )
        moved_rows = (
            build_moves(profile, ownership, pieces[:, : total_counts[2]], all_messages=moves)
            if total_counts[2] or moves
            else MOVES.empty_table()
        )
        by_consumer = window_tallies.T[:_LAST].reshape(_LAST, size, len(windows))
        sums = np.ascontiguousarray(by_consumer.transpose(0, 2, 1))
        return Evaluation(
            windows, ownership.names, sums, consumer_tallies.T[[_KEYS, _KEYS + _MOVED]], total_counts[:2], moved_rows
        )

    def count_keyless_alike(self, policy: Policy) -> int:
        """Count the messages without a key that a broker of this profile dispatches as one key."""
        if policy.routing != "slot" or KEYLESS[policy.profile].per_message:
            return 0
        runs = self.profile.runs
        return int((runs.end - runs.begin)[runs.sticky == NO_KEY].sum())

    def _choose_cells(self, policy: Policy) -> WindowCells:
        """Return the cells with the hash by which a broker of this profile dispatches each run."""
        rule = KEYLESS[policy.profile]
        if policy.routing == "slot" and rule.per_message and len(self.profile.spread):
            return self._keyless_cells
        keyless = self.profile.runs.sticky == NO_KEY
        return self._run_cells._replace(hash=np.where(keyless, murmur3_32(rule.constant), self._run_cells.hash))

    @cached_property
    def _run_cells(self) -> WindowCells:
        return build_cells(self.profile, self.extent)

    @cached_property
    def _keyless_cells(self) -> WindowCells:
        return build_keyless_cells(self.profile, self.extent)


@pass_by_reference
class _MessageRows(NamedTuple):
    at: Ints
    entry: Ints
    size: Ints


_MESSAGES, _BYTES, _KEYS, _MOVED, _LAST = 0, 1, 2, 2, 5
"""Columns of a tally.

First come the counts of received messages, bytes and keys; moved messages are column 3 and moved keys column 4. From
``_LAST`` on come the key that was counted last, and the key that was counted last as moved.

Runs of one key stand together, so a key is new if it differs from the last one. A row is as long as a cache line of the
processor.
"""


def _create_tallies(rows: int) -> Ints:
    tallies = np.zeros((rows, 8), np.int64)
    tallies[:, _LAST:] = _NEVER_SEEN
    return tallies


@pass_by_reference
class _Counts(NamedTuple):
    """Tallies by consumer and window, and by consumer, and the counts over everything.

    The windows of a consumer stand together, because a key mostly stays with its consumer from window to window.

    The last array has the keys, the moved keys, and the number of recorded pieces of runs.
    """

    window_tallies: Ints
    consumer_tallies: Ints
    total_counts: Ints


@operation
def _count_runs(
    cells: WindowCells,
    slots: Ints,
    rows: _MessageRows,
    owned: Ownership,
    flags: NDArray[np.bool_],
    counts: _Counts,
    pieces: Ints,
) -> None:  # pragma: no cover - compiled
    """Pass over all runs once: for each state of the run's owner, count all cells that end in it.

    A cell that a membership change cuts is counted in parts. Pieces of runs to be reported are written to ``pieces``.
    """
    by_entry, reports_all = flags[0], flags[1]
    size = counts.consumer_tallies.shape[0]
    no_owner, windows = size - 1, counts.window_tallies.shape[0] // size
    last_key = last_moved = np.int64(_NEVER_SEEN)
    for run in range(len(cells.key)):
        key, scope, number = cells.key[run], cells.scope[run], cells.hash[run] & MASK_31
        if key != last_key:
            counts.total_counts[0] += 1
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
            length, before, round_robin = owned.length[state], no_owner, False
            consumer = _pick_consumer(owned, state, number, no_owner)
            if by_entry:
                round_robin = length > 1
            if not round_robin and owned.until[state] > owned.since[state] and now < owned.until[state]:
                bound = min(bound, owned.until[state])
                before = _pick_consumer(owned, state - 1, number, no_owner) if state > first_state else no_owner
            moved = before not in (no_owner, consumer)
            reports_piece = consumer == no_owner or (moved and reports_all)
            if moved and key != last_moved:
                last_moved = key
                counts.total_counts[1] += 1
            start = at
            while cell < past_cell and cells.last[cell] < bound:
                window, end = cells.window[cell], cells.end[cell]
                if round_robin:
                    _count_round_robin(counts, window, windows, key, rows, at, end, owned, owned.first[state], length)
                else:
                    many = cells.size[cell] if at == cells.begin[cell] else _sum_bytes(rows, at, end)
                    _count_messages(counts, consumer * windows + window, consumer, key, end - at, many, moved)
                cell += 1
                at = end
            if cell < past_cell and rows.at[at] < bound:
                window, end = cells.window[cell], at + 1
                while rows.at[end] < bound:  # the last message of the cell ends the loop
                    end += 1
                if round_robin:
                    _count_round_robin(counts, window, windows, key, rows, at, end, owned, owned.first[state], length)
                else:
                    _count_messages(
                        counts, consumer * windows + window, consumer, key, end - at, _sum_bytes(rows, at, end), moved
                    )
                at = end
            if reports_piece and at > start:
                piece = counts.total_counts[2]
                pieces[0, piece], pieces[1, piece], pieces[2, piece], pieces[3, piece] = start, at, scope, key
                pieces[4, piece], pieces[5, piece] = before, consumer
                counts.total_counts[2] += 1


@hot
def _sum_bytes(rows: _MessageRows, begin: int, end: int) -> Any:  # pragma: no cover - compiled
    """Return the total size of some messages."""
    total = np.int64(0)
    for i in range(begin, end):
        total += rows.size[i]
    return total


@hot
def _count_round_robin(
    counts: _Counts,
    window: int,
    windows: int,
    key: int,
    rows: _MessageRows,
    begin: int,
    end: int,
    owned: Ownership,
    first: int,
    length: int,
) -> None:  # pragma: no cover - compiled
    """Count messages of a key whose entries are partitioned round robin over consumers, without a branch in the
    loop."""
    for i in range(begin, end):
        consumer = owned.members[first + _find_remainder(rows.entry[i], length)]
        tally, total_counts = counts.window_tallies[consumer * windows + window], counts.consumer_tallies[consumer]
        tally[_MESSAGES] += 1
        tally[_BYTES] += rows.size[i]
        tally[_KEYS] += np.int64(tally[_LAST] != key)
        tally[_LAST] = key
        total_counts[_KEYS] += np.int64(total_counts[_LAST] != key)
        total_counts[_LAST] = key


@hot
def _find_remainder(number: Any, by: Any) -> Any:  # pragma: no cover - compiled
    """Return ``number % by`` of non-negative numbers; a 32-bit division takes a fraction of the time."""
    if (number | by) >> 32 == 0:
        return np.int64(np.uint32(number) % np.uint32(by))
    return number % by


@hot
def _pick_consumer(owned: Ownership, state: int, number: int, no_owner: int) -> int:  # pragma: no cover - compiled
    """Return the consumer of a state that receives messages of a number."""
    length = owned.length[state]
    if length == 0:
        return no_owner
    return owned.members[owned.first[state] + (number % length if length > 1 else 0)]


@hot
def _count_messages(
    counts: _Counts, row: int, consumer: int, key: int, messages: Any, size: Any, moved: bool
) -> None:  # fmt: skip  # pragma: no cover - compiled
    """Count messages of a key that a consumer receives in a window (``row``), and whether they were moved."""
    tally = counts.window_tallies[row]
    tally[_MESSAGES] += messages
    tally[_BYTES] += size
    if tally[_LAST] != key:
        tally[_LAST] = key
        tally[_KEYS] += 1
        total_counts = counts.consumer_tallies[consumer]
        if total_counts[_LAST] != key:
            total_counts[_LAST] = key
            total_counts[_KEYS] += 1
    if moved:
        tally[3] += messages
        if tally[_LAST + 1] != key:
            tally[_LAST + 1] = key
            tally[_KEYS + _MOVED] += 1
            total_counts = counts.consumer_tallies[consumer]
            if total_counts[_LAST + 1] != key:
                total_counts[_LAST + 1] = key
                total_counts[_KEYS + _MOVED] += 1
