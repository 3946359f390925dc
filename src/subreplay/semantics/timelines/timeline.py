"""Timelines: a policy folded over the joins and leaves of one dispatcher, with the owner of each slot over time.

One membership event is one epoch ``[start, end)``. Epoch 0, before the first event, has no consumers. The epochs
describe the changes. The ``OwnerIndex`` finds owners for millions of messages at once and is all that a task needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from subreplay.errors import ConsumerRejected, InputError
from subreplay.kernels.binary_search import count_up_to
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.range_table import NOBODY, Groups, Move, RangeTable, pick
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.policies.base import Policy, is_load_measuring
from subreplay.semantics.timelines.consumer_aliases import find_leaving_member

BEGINNING = Instant(-(2**63), -(2**63))
"""The start of epoch 0: before every instant."""

Ints: TypeAlias = NDArray[np.int64]
T = TypeVar("T")
MAX_UNCOMPILED_LOOKUPS: Final = 16
"""The largest number of slots that are looked up without compiled code, so that a query for one key does not wait for
the kernel."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The interval ``[start, end)`` that one membership event started, and its changes.

    ``since`` is when the change was requested. ``end`` is None while the epoch lasts. ``joined`` is None for a leave
    and for a ``rejected`` consumer. ``left`` are the consumers that left, which a join can cause too (the broker found
    a dead connection).
    """

    index: int
    start: Instant
    since: Instant
    end: Instant | None
    cause: MembershipEvent | None = None
    joined: Consumer | None = None
    left: tuple[Consumer, ...] = ()
    rejected: ConsumerRejected | None = None
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, eq=False)
class SortedInstants:
    """Sorted instants, searched by whole columns of (time, sequence) in exact lexicographic order."""

    times: Ints  # distinct
    sequences: Ints  # distinct
    keys: Ints  # of every instant: rank of its time, then rank of its sequence

    @classmethod
    def from_instants(cls, instants: Iterable[Instant]) -> SortedInstants:
        at, seq = np.array([*instants], np.int64).reshape(-1, 2).T
        times, sequences = np.unique(at), np.unique(seq)
        return cls(times, sequences, _rank_instants(times, sequences, at, seq))

    def count_until(self, at: Ints, seq: Ints) -> Ints:
        """Count the instants at or before each ``(at, seq)``."""
        return np.searchsorted(self.keys, _rank_instants(self.times, self.sequences, at, seq), "right")


def _rank_instants(times: Ints, sequences: Ints, at: Ints, seq: Ints) -> Ints:
    """Return one number per instant that sorts like the pair. A time between two known times ranks after the earlier
    one."""
    time = np.searchsorted(times, at, "right")
    known = (time > 0) & (times[time - 1] == at)
    sequence = np.where(known, np.searchsorted(sequences, seq, "right"), len(sequences))
    return time * (len(sequences) + 1) + sequence


class Tenures(NamedTuple):
    """The result of ``Timeline.tenures``; ``ends`` are event names as in ``Timeline.ends``."""

    until: Ints
    ends: tuple[str, ...]
    before: Ints
    lost: Ints


class _Directory(NamedTuple):
    """A lookup table of an ``OwnerIndex`` that limits each search to a few steps.

    The slots from ``base`` on fall into buckets of ``1 << shift``. The first cut at or after the start of bucket b is
    ``buckets[b]``. The first change of segment i is ``runs[i]``. Both arrays end with the total.
    """

    base: int
    shift: int
    buckets: Ints
    runs: Ints


@dataclass(frozen=True, eq=False)
class OwnerIndex:
    """The owner of each slot in each epoch as flat arrays: picklable, and as small as the changes.

    The slots are cut into segments wherever an owner ever changed; segment i begins at ``cuts[i]``. Its owners are the
    run of ``owners`` whose ``keys``, ``segment << 32 | epoch of the change``, have i in the upper half. Each segment
    begins with ``NOBODY`` in epoch 0.
    """

    starts: SortedInstants
    candidates: SortedInstants
    cuts: Ints
    keys: Ints
    owners: NDArray[np.int32]
    groups: Groups

    @classmethod
    def from_changes(
        cls, starts: SortedInstants, candidates: SortedInstants, changes: Iterable[Ints], groups: Groups = ()
    ) -> OwnerIndex:
        """Build the index from changes as columns: epoch, first slot, last slot, new owner."""
        epoch, start, end, owner = changes
        cuts = np.unique(np.concatenate([[BEGINNING.at], start, end + 1]))
        first = np.searchsorted(cuts, start)
        covered = np.searchsorted(cuts, end + 1) - first  # segments under each move
        within = np.arange(covered.sum()) - np.repeat(np.cumsum(covered) - covered, covered)
        segments = np.repeat(first, covered) + within
        keys = np.concatenate([np.arange(len(cuts)) << 32, segments << 32 | np.repeat(epoch, covered)])
        owners = np.concatenate([np.full(len(cuts), NOBODY), np.repeat(owner, covered)]).astype(np.int32)
        order = np.argsort(keys)
        return OwnerIndex(starts, candidates, cuts, keys[order], owners[order], groups)

    def find_epochs(self, at: Ints, seq: Ints) -> NDArray[np.int32]:
        """Return the epoch of each instant: the last one with ``start <= (at, seq)``."""
        return (self.starts.count_until(at, seq) - 1).astype(np.int32)

    def find_last_candidates(self, at: Ints, seq: Ints) -> NDArray[np.int32]:
        """Return the last epoch that each instant may belong to, seen from outside the broker.

        While a change is in progress (requested but not complete), every epoch from ``find_epochs`` to this one is
        possible. Otherwise the two are equal.
        """
        return (self.candidates.count_until(at, seq) - 1).astype(np.int32)

    def find_owners(self, slots: Ints, hashes: NDArray[np.uint32], epochs: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the index of the consumer that owned each slot in each epoch, or ``NOBODY``.

        ``hashes`` (unsigned, 32 bits) decide between consumers that share a point of the ring.
        """
        return pick(self._owner_codes(slots, epochs), hashes, self.groups)

    def table(self, epoch: int) -> RangeTable:
        """Return the range table of one epoch."""
        codes = self._owner_codes(self.cuts, np.full(len(self.cuts), epoch, np.int32)).astype(np.int64)
        owned = np.flatnonzero(codes != NOBODY)  # never the last segment: it has no end
        return RangeTable(self.cuts[owned], self.cuts[owned + 1] - 1, codes[owned], self.groups).merged()

    def _owner_codes(self, slots: Ints, epochs: NDArray[np.int32]) -> NDArray[np.int32]:
        if len(slots) <= MAX_UNCOMPILED_LOOKUPS:
            segments = np.searchsorted(self.cuts, slots, "right") - 1
            return self.owners[np.searchsorted(self.keys, segments << 32 | epochs, "right") - 1]
        return _find_latest_owners(self.cuts, self.keys, self.owners, *self._directory, slots, epochs)

    @cached_property
    def _directory(self) -> _Directory:
        base, last = (int(self.cuts[1]), int(self.cuts[-1])) if len(self.cuts) > 1 else (0, 0)
        shift = max(0, (last - base).bit_length() - len(self.cuts).bit_length())  # a cut or two in each bucket
        starts = base + (np.arange((last - base >> shift) + 1) << shift)
        buckets = np.append(np.searchsorted(self.cuts, starts), len(self.cuts))
        return _Directory(base, shift, buckets, np.searchsorted(self.keys, np.arange(len(self.cuts) + 1) << 32))


@compiled
def _find_latest_owners(
    cuts: Ints, keys: Ints, owners: NDArray[np.int32], base: int, shift: int, buckets: Ints, runs: Ints, slots: Ints,
    epochs: NDArray[np.int32],
) -> NDArray[np.int32]:  # fmt: skip  # pragma: no cover - compiled
    """Return the owner of each slot after its latest change up to an epoch."""
    latest_owners = np.empty(len(slots), np.int32)
    for i in range(len(slots)):
        bucket = min((max(slots[i], base) - base) >> shift, len(buckets) - 2)
        segment = count_up_to(cuts, slots[i], buckets[bucket], buckets[bucket + 1]) - 1
        latest_owners[i] = owners[count_up_to(keys, segment << 32 | epochs[i], runs[segment], runs[segment + 1]) - 1]
    return latest_owners


def make_consumer(index: int, event: MembershipEvent) -> Consumer:
    """Create the consumer of the ``index``-th join."""
    return Consumer(index, event.consumer, event.priority, event.ranges, True, event.instance, event.alias)


def compute_epoch_bounds(epochs: Sequence[Epoch]) -> tuple[SortedInstants, SortedInstants]:
    """Return the starts of all epochs, and the earliest possible start of each."""
    # a change can only be over once those before it are: never earlier than their since
    reached = accumulate((epoch.since for epoch in epochs), max)
    return SortedInstants.from_instants(epoch.start for epoch in epochs), SortedInstants.from_instants(reached)


@dataclass(frozen=True, eq=False)
class Timeline:
    """The epochs of one dispatcher under one policy.

    ``consumers[i]`` is the consumer of index i, including rejected ones. ``orphans`` are leaves of consumers that were
    not connected; they changed nothing. ``ends`` is how the ownership in each epoch ended (an event name, ``closed``,
    or "" if it did not), if that was recorded.
    """

    policy: Policy
    scope: Scope
    epochs: tuple[Epoch, ...]
    consumers: tuple[Consumer, ...]
    orphans: tuple[MembershipEvent, ...]
    index: OwnerIndex
    ends: tuple[str, ...] = ()

    @classmethod
    def fold(cls, policy: Policy, scope: Scope, events: Iterable[MembershipEvent]) -> Timeline:
        """Build the timeline of ``events``, which must be in order of ``at``; raises InputError if they are not.

        Every join creates a consumer, even if its name is connected already. ``find_leaving_member`` decides which
        consumer of that name a leave removes.
        """
        events_in_order = tuple(events)
        fold = _TimelineFold(policy, scope, events_in_order)
        for event in events_in_order:
            fold.apply(event)
        return fold.timeline()

    def find_epochs(self, at: Ints, seq: Ints) -> NDArray[np.int32]:
        """See ``OwnerIndex.find_epochs``."""
        return self.index.find_epochs(at, seq)

    def find_last_candidates(self, at: Ints, seq: Ints) -> NDArray[np.int32]:
        """See ``OwnerIndex.find_last_candidates``."""
        return self.index.find_last_candidates(at, seq)

    def find_owners(self, slots: Ints, hashes: NDArray[np.uint32], epochs: NDArray[np.int32]) -> NDArray[np.int32]:
        """See ``OwnerIndex.find_owners``."""
        return self.index.find_owners(slots, hashes, epochs)

    def table(self, epoch: int) -> RangeTable:
        """See ``OwnerIndex.table``."""
        return self.index.table(epoch)

    def list_connected(self, epoch: int) -> tuple[Consumer, ...]:
        """Return the consumers that are connected in an epoch, in the order of their joins."""
        joined, left = self.presence_epochs
        connected = np.flatnonzero((joined <= epoch) & (epoch < left))
        return tuple([self.consumers[i] for i in connected.tolist()])

    @cached_property
    def tenures(self) -> Tenures:
        """For a partition with one owner: until when (ns) the owner of each epoch keeps it and how that ends.

        ``before`` is the previous owner (``NOBODY`` if there is none), and ``lost`` is when (ns) it lost the partition.
        """
        epochs = np.arange(len(self.epochs))
        slots, hashes = np.full(len(epochs), self.policy.space[0]), np.zeros(len(epochs), np.uint32)
        owners = self.find_owners(slots, hashes, epochs.astype(np.int32))
        after = np.append(np.flatnonzero(owners[1:] != owners[:-1]) + 1, len(epochs))  # where another one has it
        following = after[np.searchsorted(after, epochs, "right")]
        starts = np.array([*(epoch.start.at for epoch in self.epochs), np.iinfo(np.int64).max], np.int64)
        causes = [*("" if epoch.cause is None else epoch.cause.event for epoch in self.epochs), ""]
        changed = after[:-1]
        lost = changed[owners[changed - 1] != NOBODY]
        latest = np.searchsorted(lost, epochs, "right") - 1  # -1: nobody had lost it yet
        before = np.append(owners[lost - 1], NOBODY)[latest]
        ends = self.ends or tuple(causes[epoch] for epoch in following.tolist())
        return Tenures(starts[following], ends, before, np.append(starts[lost], 0)[latest])

    @cached_property
    def presence_epochs(self) -> tuple[Ints, Ints]:
        """The epochs in which each consumer joined and left; one past the last epoch if it never did."""
        joined, left = np.full((2, len(self.consumers)), len(self.epochs))
        for epoch in self.epochs:
            if epoch.joined is not None:
                joined[epoch.joined.index] = epoch.index
            left[[consumer.index for consumer in epoch.left]] = epoch.index
        return joined, left


def compute_once_per_index(timelines: Iterable[Timeline], make: Callable[[Timeline], T]) -> Iterator[T]:
    """Yield ``make(timeline)`` for each timeline, computed once for timelines that share their index."""
    known: dict[int, tuple[OwnerIndex, T]] = {}
    for timeline in timelines:
        if id(timeline.index) not in known:
            known[id(timeline.index)] = timeline.index, make(timeline)
        yield known[id(timeline.index)][1]


class _TimelineFold:
    """The builder of a timeline."""

    def __init__(self, policy: Policy, scope: Scope, events_in_order: tuple[MembershipEvent, ...]) -> None:
        self.policy, self.scope = policy, scope
        self.leaves = [event for event in events_in_order if event.event in ("leave", "crash")]
        self.state = policy.start(scope)
        self.epochs = [Epoch(0, BEGINNING, BEGINNING, None)]
        self.consumers: list[Consumer] = []
        self.orphans: list[MembershipEvent] = []
        self.changes = _OwnerChanges()

    def apply(self, event: MembershipEvent) -> None:
        if event.at < self.epochs[-1].start:
            last = self.epochs[-1].start
            raise InputError(f"membership of {self.scope.full_name} is not in order: {event.at} after {last}")
        if is_load_measuring(self.policy):
            self.state = self.policy.advance_to(self.state, event.at)
        if event.event == "join":
            self._join(event)
        elif gone := self._find_leaving(event, self.state):
            self._start_epoch(event, self.policy.leave(self.state, gone))
        else:
            self.orphans.append(event)

    def _join(self, event: MembershipEvent) -> None:
        consumer = make_consumer(len(self.consumers), event)
        self.consumers.append(consumer)
        for state in self._possible_states(event.at):
            try:
                self._start_epoch(event, self.policy.join(state, consumer), joined=consumer)
            except ConsumerRejected as error:
                rejected = error.with_traceback(None)
            else:
                return
        self._start_epoch(event, self.state, rejected=rejected)

    def _possible_states(self, at: Instant) -> Iterator[Any]:
        """Yield the current state, then the state without the consumers that have requested to leave.

        A broker may accept a new consumer before it reports that another one left.
        """
        yield self.state
        state = self.state
        for leave in self.leaves:
            if leave.since <= at < leave.at and (member := self._find_leaving(leave, state)):
                state = self.policy.leave(state, member)
        yield state

    def _find_leaving(self, leave: MembershipEvent, state: Any) -> Consumer | None:
        of_that_name = (member for member in state.members if member.name == leave.consumer)
        return find_leaving_member(leave.instance, sorted(of_that_name, key=lambda member: member.index))

    def _start_epoch(
        self,
        event: MembershipEvent,
        state: Any,
        joined: Consumer | None = None,
        rejected: ConsumerRejected | None = None,
    ) -> None:
        connected = {member.index for member in state.members}
        left = tuple(member for member in self.state.members if member.index not in connected)
        moves = self.changes.add(len(self.epochs), self.state.table, state.table)
        since = min(event.since, event.at)
        self.epochs[-1] = replace(self.epochs[-1], end=event.at)
        self.epochs.append(Epoch(len(self.epochs), event.at, since, None, event, joined, left, rejected, moves))
        self.state = state

    def timeline(self) -> Timeline:
        epochs = tuple(self.epochs)
        index = self.changes.index(*compute_epoch_bounds(epochs))
        return Timeline(self.policy, self.scope, epochs, tuple(self.consumers), tuple(self.orphans), index)


class _OwnerChanges:
    """All owner changes so far, as columns."""

    def __init__(self) -> None:
        self.columns: list[tuple[Ints, ...]] = [(np.zeros(0, np.int64),) * 4]
        self.groups: Groups = ()

    def add(self, epoch: int, before: RangeTable, after: RangeTable) -> tuple[Move, ...]:
        """Record and return the changes from table ``before`` to table ``after``."""
        moves = before.diff(after)
        start, end, _, owner = np.array(moves, np.int64).reshape(-1, 4).T
        self.columns.append((np.full(len(moves), epoch), start, end, owner))
        self.groups = max(self.groups, after.groups, key=len)  # tables only ever add groups
        return tuple(moves)

    def index(self, starts: SortedInstants, candidates: SortedInstants) -> OwnerIndex:
        changes = (np.concatenate(column) for column in zip(*self.columns, strict=True))
        return OwnerIndex.from_changes(starts, candidates, changes, self.groups)
