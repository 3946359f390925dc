"""Re-enact a share partition: the broker decides every acquisition, acknowledgement and lock expiry anew.

The inputs are the log and the requests, with the times between which the broker acted. Requests that were under way
together may have been handled in either order, and only the answers show it. If a decision differs from the recorded
one, actions that may have come first are therefore tried before it. If it still differs, it is counted, and the
recorded decision is used from there on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby, islice, permutations
from typing import Any, Final

import numpy as np

from subreplay.conformance.fidelity_share.partition_requests import (
    Acknowledgements,
    AcquiredRange,
    BrokerAction,
    FetchAnswer,
    PartitionActions,
    SessionEnd,
)
from subreplay.conformance.fidelity_share.shared_log import MAX_APPEND_TIME, SharedLog
from subreplay.simulation.kafka.share import share_partition
from subreplay.simulation.kafka.share.share_window import (
    MS,
    Acknowledgement,
    RecordState,
    ShareSettings,
    ShareWindows,
    create_windows,
)

EARLY, LATE = 2 * MS, 60 * MS
"""How much earlier or later than due a lock expires (-0.6 to +34 ms were measured)."""
MAX_ANSWER_TIME: Final = 100 * MS
MAX_TRIALS: Final = 400
"""How many orders of actions are tried before a decision counts as different."""
StateChange = tuple[int, int, int]
"""An offset, its new state and its delivery count."""


@dataclass(frozen=True)
class LockEnd(BrokerAction):
    """The expiry of the locks of a range (offsets), which are due at ``due``."""

    first: int
    last: int
    due: int


@dataclass
class PartitionReenactment:
    """A partition that is decided anew.

    ``acquired`` counts the records acquired in the recording, in the replay, and in both by the same member with the
    same delivery count. ``answers`` counts the acknowledgements, and those with the same answer. ``changes`` are the
    states that records got, other than acquired. ``starts`` are all start offsets. ``reordered`` counts the decisions
    that needed another order than that of the answers.
    """

    log: SharedLog
    settings: ShareSettings
    acquired: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    changes: list[StateChange] = field(default_factory=list)
    starts: set[int] = field(default_factory=set)
    reordered: int = 0

    def __post_init__(self) -> None:
        self._windows: ShareWindows = create_windows([self.log.batch_ends], self.settings)
        self._windows.slots.hidden = self.log.hidden
        self._pending: list[tuple[int, int, BrokerAction]] = []  # by the latest time
        self._entered = 0

    def play(self, actions: Sequence[BrokerAction], start: int) -> None:
        """Play all actions on a partition with that start offset."""
        for name in ("start", "end", "lowest", "log_end"):
            self._partition[name] = start
        self.starts.add(start)
        for action in actions:
            self._add(action)
        while self._pending:
            action = heappop(self._pending)[2]
            before = self._copy_state()
            if self._apply(action) or self._apply_after_others(action, before):
                self._count(action, True)
            else:
                self._restore_state(before)
                self._apply(action)
                self._count(action, False)
                self._restore_state(before)
                self._adopt(action)

    @property
    def _partition(self) -> Any:
        return self._windows.partitions[0]

    def _add(self, action: BrokerAction) -> None:
        heappush(self._pending, (action.latest, self._entered, action))
        self._entered += 1

    # orders

    def _apply_after_others(self, action: BrokerAction, before: Any) -> bool:
        """Apply an action after others that were under way, if it is then decided as recorded."""
        others = sorted(
            (one for _, _, one in self._pending if one.earliest <= action.latest), key=lambda one: one.earliest
        )
        for trial in islice(_list_orders(others), MAX_TRIALS):
            self._restore_state(before)
            if all(self._apply(one) for one in (*trial, action)):
                self._pending = [one for one in self._pending if not any(one[2] is other for other in trial)]
                heapify(self._pending)
                for one in trial:
                    self._count(one, True)
                self.reordered += 1
                return True
        return False

    def _copy_state(self) -> Any:
        lengths = self._entered, len(self.changes)
        return self._windows.partitions.copy(), self._windows.slots.copy(), list(self._pending), lengths

    def _restore_state(self, state: Any) -> None:
        self._windows.partitions[:], self._windows.slots[:] = state[0], state[1]
        self._pending = list(state[2])
        self._entered = state[3][0]
        del self.changes[state[3][1] :]

    # decisions

    def _apply(self, action: BrokerAction) -> bool:
        """Apply an action; return whether it is decided as recorded."""
        slots = self._windows.slots
        states = slots.state.copy()
        is_same = self._decide(action)
        changed = (slots.state != states) & (slots.state != RecordState.ACQUIRED) & ~self.log.hidden
        changed &= (states != RecordState.AVAILABLE) | (slots.state != RecordState.AVAILABLE)
        self.changes += [(o, int(slots.state[o]), int(slots["count"][o])) for o in np.flatnonzero(changed).tolist()]
        self.starts.add(int(self._partition.start))
        return is_same

    def _decide(self, action: BrokerAction) -> bool:
        if isinstance(action, FetchAnswer):
            return self._decide_acquisition(action)
        if isinstance(action, Acknowledgements):
            return self._decide_acknowledgement(action)
        if isinstance(action, LockEnd):
            share_partition.expire(self._windows, 0, action.first, action.last, action.due)
        elif isinstance(action, SessionEnd):
            share_partition.release(self._windows, 0, action.member)
        return True

    def _decide_acquisition(self, action: FetchAnswer) -> bool:
        """Acquire records. What the recording acquired could be read, and what was sent long before the fetch."""
        end = max(last for _, last, _ in action.acquired) + 1
        certain = self.log.find_end(action.earliest - MAX_APPEND_TIME)
        self._partition.log_end = max(end, certain, int(self._partition.end))
        self._lock(action, action.acquired)
        self._windows.rules.record_limit = action.record_limit
        recorded = _list_records(action.acquired)
        partition, slots = self._windows.partitions.copy(), self._windows.slots.copy()
        for most in action.limits:
            self._windows.partitions[:], self._windows.slots[:] = partition, slots
            share_partition.acquire(self._windows, 0, action.member, most, action.batch_size, action.latest)
            if recorded == _list_records(self._list_acquired()):
                return True
        return False

    def _list_acquired(self) -> list[AcquiredRange]:
        ranges = self._windows.ranges[: self._windows.rules[0].ranges]
        return [(int(one.first), int(one.last), int(one["count"])) for one in ranges]

    def _lock(self, action: BrokerAction, ranges: Sequence[tuple[int, int, int]]) -> None:
        """Let the locks of these ranges expire; the broker answers soon after it acquired records."""
        duration, since = self.settings.lock_duration, max(action.earliest, action.latest - MAX_ANSWER_TIME)
        for first, last, _ in ranges:
            times = since + duration - EARLY, action.latest + duration + LATE
            self._add(LockEnd(*times, action.member, first, last, action.latest + duration))

    def _decide_acknowledgement(self, action: Acknowledgements) -> bool:
        accepted = all(
            share_partition.can_acknowledge(self._windows, 0, action.member, first, last)
            for first, last, _ in action.ranges
        )
        if accepted and action.accepted:
            self._acknowledge(action)
        return accepted == action.accepted

    def _acknowledge(self, action: Acknowledgements) -> None:
        for first, last, types in action.ranges:
            each = types if len(types) > 1 else types * (last - first + 1)
            offset = first
            for kind, same in groupby(each):
                until = offset + len(list(same)) - 1
                share_partition.acknowledge(self._windows, 0, offset, until, kind, action.latest)
                if kind == Acknowledgement.RENEW:
                    self._lock(action, [(offset, until, 0)])
                offset = until + 1

    # differences

    def _adopt(self, action: BrokerAction) -> None:
        """Use the recorded decision, because the replay decided otherwise."""
        if not isinstance(action, FetchAnswer):
            return
        p, slots = self._partition, self._windows.slots
        for first, last, count in action.acquired:
            for offset in range(int(p.end), last + 1):
                slots.state[offset], slots.flight[offset], slots.flight_end[offset] = 0, offset, offset + 1
            p.end = max(int(p.end), last + 1)
            span = slice(first, last + 1)
            slots.state[span], slots["count"][span] = RecordState.ACQUIRED, count
            slots.member[span], slots.locked_until[span] = action.member, action.latest + self.settings.lock_duration
        p.available = int((slots.state[int(p.start) : int(p.end)] == RecordState.AVAILABLE).sum())
        p.lowest = p.start
        self._lock(action, action.acquired)

    def _count(self, action: BrokerAction, is_same: bool) -> None:
        """Count the decision about an action: as recorded, or else the one that was made last."""
        if isinstance(action, Acknowledgements):
            self.answers.update(("recorded", "replayed"))
            self.answers["both"] += is_same
        elif isinstance(action, FetchAnswer):
            recorded = _list_records(action.acquired)
            replayed = recorded if is_same else _list_records(self._list_acquired())
            self.acquired["recorded"] += len(recorded)
            self.acquired["replayed"] += len(replayed)
            self.acquired["both"] += len(recorded & replayed)


def _list_records(ranges: Sequence[AcquiredRange]) -> set[tuple[int, int]]:
    """Return the offsets of ranges with their delivery counts."""
    return {(offset, count) for first, last, count in ranges for offset in range(first, last + 1)}


def _list_orders(others: Sequence[BrokerAction]) -> Iterator[Sequence[BrokerAction]]:
    """Yield which other actions may have come first: one, all up to one, or two."""
    yield from ([one] for one in others)
    yield from (others[:count] for count in range(2, len(others) + 1))
    yield from permutations(others, 2)


def reenact_partition(
    log: SharedLog, settings: ShareSettings, actions: PartitionActions, start: int
) -> PartitionReenactment:
    """Re-enact a partition with that start offset to its end."""
    reenactment = PartitionReenactment(log, settings)
    reenactment.play(actions.actions, start)
    return reenactment
