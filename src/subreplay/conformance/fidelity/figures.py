"""What a broker did against what its re-enactment does, in figures.

A dispatch is an entry handed to a consumer. Of what both sides did, the n-th dispatch of an entry is compared with the
n-th.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.conformance.fidelity.changes import WRITE_LAG
from subreplay.conformance.fidelity.held import Held, held
from subreplay.conformance.fidelity.inputs import Inputs
from subreplay.conformance.fidelity.reads import Ints
from subreplay.conformance.fidelity.recording import RecordedDispatcher
from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Scope
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

WAITED = 100 * MILLISECOND
"""A switch shows where an entry waited at least this long for it."""
_SHARES = 2**20  # more than the dispatches of an entry and than the consumers of a dispatcher


class Switch(NamedTuple):
    """How long a newly active consumer waited for its first entry (ns), while there was one."""

    recorded: int
    replayed: int


class Missed(NamedTuple):
    """An entry that one side handed to a consumer to whom the other did not: its position, who got it on each side."""

    ledger: int
    entry: int
    recorded: tuple[str, ...]
    replayed: tuple[str, ...]


class DeadLetters(NamedTuple):
    """Messages that arrived on the dead letter topic, in ``rows``, and that went all the way to it in the replay."""

    rows: int
    recorded: int
    replayed: int
    both: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """One dispatcher.

    ``compared`` counts what was ``recorded``, and what was replayed to a consumer who never got the entry in the
    recording. Of these, ``same_consumer`` are alike: the other side hands that entry to that consumer too. Where the
    entry was read or dispatched while a join or close was under way, or so shortly before one that it may have been
    written in vain, the owners before and after it are both right: ``excused`` counts these. ``missed`` are the others.

    ``ordered`` are the dispatches that both sides made to a consumer, ``same_order`` those in the longest sequence that
    both made in the same order. ``same_count`` are the recorded ones that carry the same redelivery count. ``errors``
    (ns) tell how much later each was replayed.
    """

    subscription: str
    scope: Scope
    type: str
    recorded: int
    replayed: int
    compared: int
    same_consumer: int
    excused: int
    missed: tuple[Missed, ...]
    ordered: int
    same_order: int
    same_count: int
    errors: Ints
    held: Held
    switches: tuple[Switch, ...]
    dead: DeadLetters | None


def compare(recorded: RecordedDispatcher, given: Inputs, again: Records) -> Comparison:
    """The figures of a dispatcher and its re-enactment. Consumers are compared by name: events tell no more."""
    names = _names(recorded)
    dispatched, replayed = _by_name(given.dispatched, names), _by_name(again, names)
    strange, foreign = _strange(dispatched, replayed), _strange(replayed, dispatched)
    unlike = np.unique(np.concatenate([dispatched.ordinal[strange], replayed.ordinal[foreign]]))
    excused = np.zeros(len(given.entries), np.bool_)
    excused[unlike] = [_is_excused(recorded, given, dispatched, replayed, ordinal) for ordinal in unlike]
    compared = len(dispatched) + int(foreign.sum())
    unlike_count = int(strange.sum() + foreign.sum())
    wrong = int((~excused[dispatched.ordinal[strange]]).sum() + (~excused[replayed.ordinal[foreign]]).sum())
    orders = [_order(dispatched, replayed, consumer) for consumer in np.unique(names)]
    mine, other = _paired(dispatched, replayed)
    return Comparison(
        recorded.subscription,
        recorded.scope,
        recorded.type,
        len(dispatched),
        len(replayed),
        compared,
        compared - wrong,
        unlike_count - wrong,
        tuple(_missed(recorded, given, dispatched, replayed, ordinal) for ordinal in unlike[~excused[unlike]]),
        sum(common for common, _ in orders),
        sum(alike for _, alike in orders),
        int((mine.redeliveries == other.redeliveries).sum()),
        other.at - mine.at,
        held(given.entries, dispatched, replayed),
        tuple(_switches(recorded, given, dispatched, replayed)),
        _dead_letters(recorded, given, dispatched, replayed),
    )


def _names(recorded: RecordedDispatcher) -> Ints:
    """A number for what each consumer is called: the first consumer that was."""
    first: dict[str, int] = {}
    return np.array([first.setdefault(c.label, c.index) for c in recorded.timeline.consumers], np.int64)


def _by_name(dispatched: Records, names: Ints) -> Records:
    by_name = dispatched.copy()
    by_name.consumer = names[dispatched.consumer]
    return by_name


def _strange(dispatched: Records, others: Records) -> NDArray[np.bool_]:
    """Which dispatches are of an entry that the ``others`` never hand to that consumer."""
    return ~np.isin(_key(dispatched.ordinal, dispatched.consumer), _key(others.ordinal, others.consumer))


def _key(ordinals: Ints, numbers: Ints) -> Ints:
    return ordinals.astype(np.int64) * _SHARES + numbers


def _missed(
    recorded: RecordedDispatcher, given: Inputs, dispatched: Records, replayed: Records, ordinal: int
) -> Missed:
    def called(side: Records) -> tuple[str, ...]:
        return tuple(recorded.timeline.consumers[one].label for one in side.consumer[side.ordinal == ordinal])

    position = next(position for position, number in given.ordinals.items() if number == ordinal)
    return Missed(*position, called(dispatched), called(replayed))


def _is_excused(
    recorded: RecordedDispatcher, given: Inputs, dispatched: Records, replayed: Records, ordinal: int
) -> bool:
    """Whether an entry's consumers on both sides were all owners before or after a change that was under way."""
    if recorded.policy.routing == "any":
        return False
    here = dispatched[dispatched.ordinal == ordinal]
    consumers = {*here.consumer.tolist(), *replayed.consumer[replayed.ordinal == ordinal].tolist()}
    times = {int(given.read_by[ordinal]), *here.at.tolist()}
    return any(consumers <= _owners(recorded, given.entries[ordinal], at) for at in times)


def _owners(recorded: RecordedDispatcher, entry: Records, at: int) -> set[int]:
    """The possible owners of an entry's slot at a time, by name: several while a change is under way, or begins before
    what was handed out then is written."""
    index, none = recorded.timeline.index, np.zeros(1, np.int64)
    first, last = (
        index.find_epochs(np.array([at]), none)[0],
        index.find_last_candidates(np.array([at + WRITE_LAG]), none)[0],
    )
    epochs = np.arange(first, last + 1, dtype=np.int32)
    slots, hashes = np.full(len(epochs), entry.slot, np.int64), np.full(len(epochs), entry.hash, np.uint32)
    owners = index.find_owners(slots, hashes, epochs)
    return {*_names(recorded)[owners[owners != NOBODY]].tolist()}


def _order(dispatched: Records, replayed: Records, consumer: int) -> tuple[int, int]:
    """How many dispatches to the consumer both sides made, and how many of them in the same order."""
    mine = _numbered(dispatched[dispatched.consumer == consumer])
    other = _numbered(replayed[replayed.consumer == consumer])
    common, at, _ = np.intersect1d(mine, other, assume_unique=True, return_indices=True)
    positions = dict(zip(common.tolist(), at.tolist(), strict=True))
    return len(common), _longest_rise(positions[key] for key in other.tolist() if key in positions)


def _numbered(dispatched: Records) -> Ints:
    """A key for each dispatch: its entry and which one of the entry's it is."""
    order = np.argsort(dispatched.ordinal, kind="stable")
    ordinals = dispatched.ordinal[order]
    numbers = np.empty(len(ordinals), np.int64)
    numbers[order] = np.arange(len(ordinals)) - np.searchsorted(ordinals, ordinals)
    return _key(dispatched.ordinal, numbers)


def _longest_rise(values: Iterable[int]) -> int:
    """The length of a longest rising subsequence of distinct numbers."""
    lasts: list[int] = []
    for value in values:
        at = bisect_left(lasts, value)
        lasts[at : at + 1] = [value]
    return len(lasts)


def _paired(dispatched: Records, replayed: Records) -> tuple[Records, Records]:
    """The n-th dispatches of each entry that both sides made."""
    keys = _numbered(dispatched), _numbered(replayed)
    _, mine, other = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    return dispatched[mine], replayed[other]


def _switches(recorded: RecordedDispatcher, given: Inputs, dispatched: Records, replayed: Records) -> Iterable[Switch]:
    """The switches of a Failover subscription that an entry waited for."""
    if not recorded.broker.failover:
        return
    names = _names(recorded)
    changes = [(e.start.at, e.moves[0].after) for e in recorded.timeline.epochs if e.moves]
    for (begin, active), (end, _) in zip(changes, [*changes[1:], (NEVER, NOBODY)], strict=True):
        if active == NOBODY:
            continue
        firsts = [_first(side, names[active], begin, end) for side in (dispatched, replayed)]
        if all(len(first) and first[0].at - given.entries[first[0].ordinal].at >= WAITED for first in firsts):
            yield Switch(*(int(first[0].at) - begin for first in firsts))


def _first(dispatched: Records, consumer: int, begin: int, end: int) -> Records:
    mine = (dispatched.consumer == consumer) & (dispatched.at >= begin) & (dispatched.at < end)
    return dispatched[np.flatnonzero(mine)[:1]]


def _dead_letters(
    recorded: RecordedDispatcher, given: Inputs, dispatched: Records, replayed: Records
) -> DeadLetters | None:
    """A client gives a message up at the redelivery count at which those that were given up were last handed out."""
    dead = {given.ordinals[position] for position in recorded.dead if position in given.ordinals}
    if not dead:
        return None
    highest = _highest_counts(dispatched, len(given.entries))
    limit = Counter(highest[sorted(dead)].tolist()).most_common(1)[0][0]
    reached = {*np.flatnonzero(_highest_counts(replayed, len(given.entries)) >= limit).tolist()}
    return DeadLetters(len(recorded.dead), len(dead), len(reached), len(dead & reached))


def _highest_counts(dispatched: Records, entries: int) -> Ints:
    highest = np.full(entries, -1)
    np.maximum.at(highest, dispatched.ordinal, dispatched.redeliveries)
    return highest
