"""Compare the dispatches of a broker with those of its re-enactment.

A dispatch is an entry sent to a consumer. The n-th dispatch of an entry is compared with the n-th one of the other
side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.fidelity.blocked_entries import BlockedEntries, find_blocked_entries
from subreplay.conformance.fidelity.membership_changes import MAX_WRITE_LAG
from subreplay.conformance.fidelity.read_times import Ints
from subreplay.conformance.fidelity.recorded_dispatchers import RecordedDispatcher
from subreplay.conformance.fidelity.replay_inputs import ReplayInputs
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Scope
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

MIN_SWITCH_WAIT = 100 * MILLISECOND
"""A switch is measured if an entry waited at least this long for it."""
_KEY_FACTOR = 2**20  # more than the dispatches of an entry and than the consumers of a dispatcher


class SwitchTime(NamedTuple):
    """How long a newly active consumer waited for its first entry (ns) while there was one."""

    recorded: int
    replayed: int


class MissedEntry(NamedTuple):
    """An entry that only one side sent to some consumer: its position, and its consumers on each side."""

    ledger: int
    entry: int
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


class DeadLetterCounts(NamedTuple):
    """Messages that arrived on the dead letter topic, in ``rows``, and those that the replay sent there."""

    rows: int
    recorded: int
    replayed: int
    both: int


@dataclass(frozen=True, eq=False)
class DispatcherComparison:
    """The comparison of one dispatcher.

    ``compared`` counts the ``recorded`` dispatches and the replayed ones to a consumer that never got the entry in the
    recording. Of these, ``same_consumer`` have the same consumer on the other side. While a join or a close is in
    progress, or shortly before it, the owners before and after it are both accepted; ``exempt`` counts these.
    ``missed_entries`` are the others. ``ordered`` are the dispatches to a consumer on both sides, and ``same_order``
    those in the longest sequence with the same order. ``same_count`` are the recorded ones with the same redelivery
    count. ``errors`` (ns) are how much later each was replayed.
    """

    subscription: str
    scope: Scope
    type: str
    recorded: int
    replayed: int
    compared: int
    same_consumer: int
    exempt: int
    missed_entries: tuple[MissedEntry, ...]
    ordered: int
    same_order: int
    same_count: int
    errors: Ints
    blocked: BlockedEntries
    switches: tuple[SwitchTime, ...]
    dead: DeadLetterCounts | None


def compare_dispatches(recorded: RecordedDispatcher, inputs: ReplayInputs, reenacted: Records) -> DispatcherComparison:
    """Compare a dispatcher with its re-enactment. Consumers are compared by name, because events contain no more."""
    names = _number_names(recorded)
    dispatched, replayed = _renumber_by_name(inputs.dispatched, names), _renumber_by_name(reenacted, names)
    unmatched, unmatched_replayed = _find_unmatched(dispatched, replayed), _find_unmatched(replayed, dispatched)
    unmatched_entries = np.unique(np.concatenate([dispatched.ordinal[unmatched], replayed.ordinal[unmatched_replayed]]))
    exempt = np.zeros(len(inputs.entries), np.bool_)
    exempt[unmatched_entries] = [
        _is_exempt(recorded, inputs, dispatched, replayed, ordinal) for ordinal in unmatched_entries
    ]
    compared = len(dispatched) + int(unmatched_replayed.sum())
    unlike_count = int(unmatched.sum() + unmatched_replayed.sum())
    wrong = int((~exempt[dispatched.ordinal[unmatched]]).sum() + (~exempt[replayed.ordinal[unmatched_replayed]]).sum())
    orders = [_count_same_order(dispatched, replayed, consumer) for consumer in np.unique(names)]
    own, replayed_rows = _pair_dispatches(dispatched, replayed)
    return DispatcherComparison(
        recorded.subscription,
        recorded.scope,
        recorded.type,
        len(dispatched),
        len(replayed),
        compared,
        compared - wrong,
        unlike_count - wrong,
        tuple(
            _describe_missed(recorded, inputs, dispatched, replayed, ordinal)
            for ordinal in unmatched_entries[~exempt[unmatched_entries]]
        ),
        sum(common for common, _ in orders),
        sum(alike for _, alike in orders),
        int((own.redeliveries == replayed_rows.redeliveries).sum()),
        replayed_rows.at - own.at,
        find_blocked_entries(inputs.entries, dispatched, replayed),
        tuple(_measure_switches(recorded, inputs, dispatched, replayed)),
        _count_dead_letters(recorded, inputs, dispatched, replayed),
    )


def _number_names(recorded: RecordedDispatcher) -> Ints:
    """Number each consumer name by the first consumer that has it."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(c.label, c.index) for c in recorded.timeline.consumers], np.int64)


def _renumber_by_name(dispatched: Records, names: Ints) -> Records:
    by_name = dispatched.copy()
    by_name.consumer = names[dispatched.consumer]
    return by_name


def _find_unmatched(dispatched: Records, others: Records) -> NDArray[np.bool_]:
    """Return which dispatches are of an entry that the ``others`` never send to that consumer."""
    return ~np.isin(
        _combine_key(dispatched.ordinal, dispatched.consumer), _combine_key(others.ordinal, others.consumer)
    )


def _combine_key(ordinals: Ints, numbers: Ints) -> Ints:
    return ordinals.astype(np.int64) * _KEY_FACTOR + numbers


def _describe_missed(
    recorded: RecordedDispatcher, inputs: ReplayInputs, dispatched: Records, replayed: Records, ordinal: int
) -> MissedEntry:
    def list_names(side: Records) -> tuple[str, ...]:
        return tuple(recorded.timeline.consumers[one].label for one in side.consumer[side.ordinal == ordinal])

    position = next(position for position, number in inputs.ordinals.items() if number == ordinal)
    return MissedEntry(*position, list_names(dispatched), list_names(replayed))


def _is_exempt(
    recorded: RecordedDispatcher, inputs: ReplayInputs, dispatched: Records, replayed: Records, ordinal: int
) -> bool:
    """Check whether all consumers of an entry on both sides were owners before or after a change in progress."""
    if recorded.policy.routing == "any":
        return False
    here = dispatched[dispatched.ordinal == ordinal]
    consumers = {*here.consumer.tolist(), *replayed.consumer[replayed.ordinal == ordinal].tolist()}
    times = {int(inputs.read_by[ordinal]), *here.at.tolist()}
    return any(consumers <= _find_possible_owners(recorded, inputs.entries[ordinal], at) for at in times)


def _find_possible_owners(recorded: RecordedDispatcher, entry: Records, at: int) -> set[int]:
    """Return the possible owners of an entry's slot at a time, by name.

    There are several while a change is in progress, or if one begins before a dispatch of that time is written.
    """
    index, none = recorded.timeline.index, np.zeros(1, np.int64)
    first, last = (
        index.find_epochs(np.array([at]), none)[0],
        index.find_last_candidates(np.array([at + MAX_WRITE_LAG]), none)[0],
    )
    epochs = np.arange(first, last + 1, dtype=np.int32)
    slots, hashes = np.full(len(epochs), entry.slot, np.int64), np.full(len(epochs), entry.hash, np.uint32)
    owners = index.find_owners(slots, hashes, epochs)
    return {*_number_names(recorded)[owners[owners != NOBODY]].tolist()}


def _count_same_order(dispatched: Records, replayed: Records, consumer: int) -> tuple[int, int]:
    """Count the dispatches to the consumer on both sides, and those in the same order."""
    own = _number_dispatches(dispatched[dispatched.consumer == consumer])
    replayed_rows = _number_dispatches(replayed[replayed.consumer == consumer])
    common, at, _ = np.intersect1d(own, replayed_rows, assume_unique=True, return_indices=True)
    positions = dict(zip(common.tolist(), at.tolist(), strict=True))
    return len(common), _measure_longest_rise(positions[key] for key in replayed_rows.tolist() if key in positions)


def _number_dispatches(dispatched: Records) -> Ints:
    """Return a key for each dispatch: its entry, and the number of this dispatch of the entry."""
    order = np.argsort(dispatched.ordinal, kind="stable")
    ordinals = dispatched.ordinal[order]
    numbers = np.empty(len(ordinals), np.int64)
    numbers[order] = np.arange(len(ordinals)) - np.searchsorted(ordinals, ordinals)
    return _combine_key(dispatched.ordinal, numbers)


def _measure_longest_rise(values: Iterable[int]) -> int:
    """Return the length of the longest rising subsequence of distinct numbers."""
    lasts: list[int] = []
    for value in values:
        at = bisect_left(lasts, value)
        lasts[at : at + 1] = [value]
    return len(lasts)


def _pair_dispatches(dispatched: Records, replayed: Records) -> tuple[Records, Records]:
    """Return the n-th dispatches of each entry on both sides."""
    keys = _number_dispatches(dispatched), _number_dispatches(replayed)
    _, own, replayed_rows = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    return dispatched[own], replayed[replayed_rows]


def _measure_switches(
    recorded: RecordedDispatcher, inputs: ReplayInputs, dispatched: Records, replayed: Records
) -> Iterable[SwitchTime]:
    """Yield the switches of a Failover subscription for which an entry waited."""
    if not recorded.broker.failover:
        return
    names = _number_names(recorded)
    changes = [(e.start.at, e.moves[0].after) for e in recorded.timeline.epochs if e.moves]
    for (begin, active), (end, _) in zip(changes, [*changes[1:], (NEVER, NOBODY)], strict=True):
        if active == NOBODY:
            continue
        firsts = [_find_first(side, names[active], begin, end) for side in (dispatched, replayed)]
        if all(len(first) and first[0].at - inputs.entries[first[0].ordinal].at >= MIN_SWITCH_WAIT for first in firsts):
            yield SwitchTime(*(int(first[0].at) - begin for first in firsts))


def _find_first(dispatched: Records, consumer: int, begin: int, end: int) -> Records:
    own = (dispatched.consumer == consumer) & (dispatched.at >= begin) & (dispatched.at < end)
    return dispatched[np.flatnonzero(own)[:1]]


def _count_dead_letters(
    recorded: RecordedDispatcher, inputs: ReplayInputs, dispatched: Records, replayed: Records
) -> DeadLetterCounts | None:
    """Count dead letters. A client gives a message up at the most common redelivery count of the recorded dead
    letters."""
    dead = {inputs.ordinals[position] for position in recorded.dead if position in inputs.ordinals}
    if not dead:
        return None
    highest = _find_highest_counts(dispatched, len(inputs.entries))
    limit = Counter(highest[sorted(dead)].tolist()).most_common(1)[0][0]
    reached = {*np.flatnonzero(_find_highest_counts(replayed, len(inputs.entries)) >= limit).tolist()}
    return DeadLetterCounts(len(recorded.dead), len(dead), len(reached), len(dead & reached))


def _find_highest_counts(dispatched: Records, entries: int) -> Ints:
    highest = np.full(entries, -1)
    np.maximum.at(highest, dispatched.ordinal, dispatched.redeliveries)
    return highest
