"""Check the flow: no message before its due time, and no more messages than a consumer's receiver queue holds."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import EVERY, MANY, Code, Exemption, Rule
from subreplay.audit.context import UNKNOWN_SIZE
from subreplay.audit.deliveries import AT, BATCH_INDEX, ORDINAL, RECEIVED, SESSION, UNTIL, Flags
from subreplay.audit.needs import Need
from subreplay.audit.terms import Terms
from subreplay.hashing.profiles import PULSAR_4_2, ProfileTable
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import UNKNOWN, Ints, ints


def find_before_publication(rows: pa.Table, terms: Terms) -> Flags:
    """Return the deliveries before their publication. An unknown message has the publication time ``UNKNOWN``, before
    all others."""
    found: Flags = ints(rows, "at") + terms.clock_skew < ints(rows, "published")
    return found


RULES = (
    Rule(
        Code.EARLY,
        "Delivered before its time",
        "A delayed message is not delivered more than one tick before its deliver-at time. A single active consumer "
        "ignores delays.",
        "InMemoryDelayedDeliveryTracker.getCutoffTime (3.2.3, 4.0.8, 4.2.4); row L-DELAY-1",
        sentence="{message} of key {key} reached {consumer} at {at}, {early} s before its time {due}",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES}),
    ),
    Rule(
        Code.BEFORE_PUBLICATION,
        "Delivered before its publication",
        "No message is delivered before its producer published it, within the allowed clock skew. Otherwise, a "
        "clock is wrong or a row belongs to another message.",
        "row L-SUB-1",
        sentence="{message} of key {key} reached {consumer} at {at}, before its publication at {published}",
        cause="the clocks of its producer and of the broker differ, or the row belongs to another message",
        by_row=find_before_publication,
        promised=EVERY,
        uncertain=True,
        needs=frozenset({Need.DELIVERIES}),
    ),
    Rule(
        Code.OVER_PERMITS,
        "More messages than the consumer's queue holds",
        "A broker sends a consumer at most as many messages as its receiver queue holds, plus one that the application "
        "processes. Each further delivery needs an earlier message that was received by the application, acknowledged "
        "or negatively acknowledged. (A partition of a topic has a second queue of that size. Of a chunked message "
        "only the last chunk counts.)",
        "Consumer.MESSAGE_PERMITS_UPDATER, ConsumerImpl.processMessageChunk, "
        "MultiTopicsConsumerImpl.messageReceived (3.2.3, 4.0.8); row D-FLOW-1",
        sentence="{message} reached {consumer} at {at}, although its receiver queue was full",
        promised=EVERY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.MEMBERSHIP, Need.RECEIPTS, Need.DISPATCH_TIMES}),
    ),
)

# How much earlier than a tick a profile may be, ns: 4.2.4 cuts deliver-at to 512 ms (for a tick of 1000 ms)
_CUT: Final = ProfileTable({PULSAR_4_2: 512_000_000})

_OVER, _WHOLE_BATCH = Code.OVER_PERMITS.bit, Exemption.WHOLE_BATCH.bit
_PART = Exemption.PART_OF_CHUNKS.bit


def compute_earliest_time(published: Ints, due: Ints, tick: int, profile: str) -> Ints:
    """Return the earliest delivery time of messages. ``due`` is ``published``, or the later time of a delay."""
    return np.where(due > published, np.maximum(published, due - tick - _CUT.get(profile, 0)), published)


def find_early(at: Ints, published: Ints, due: Ints, tick: int, profile: str) -> Ints:
    """Return the bit EARLY where a delayed message is delivered too early."""
    return np.where((due > published) & (at < due - tick - _CUT.get(profile, 0)), Code.EARLY.bit, 0)


# The queue of a session, a ring: its first index, how many it has (0: its size is not known), its front, how many
# deliveries it holds, how many there were
_START, _CAPACITY, _FRONT, _LENGTH, _SERVED = range(5)
_ENDS, _NUMBERS, _ORDINALS, _TIMES = range(4)


class ReceiverQueues(NamedTuple):
    """The latest deliveries of each session that may still be in its receiver queue.

    ``untaken`` has their ends, numbers, ordinals and times; the one that ends first is in front. Deliveries that end
    after the horizon (the end of the day) stay in order of arrival, because the next daily run may know their ends
    better.
    """

    rings: Ints
    untaken: Ints

    @classmethod
    def from_sizes(cls, sizes: Ints) -> ReceiverQueues:
        """Return empty queues of consumers with capacities ``sizes``, or ``UNKNOWN_SIZE``."""
        capacity = np.where(sizes == UNKNOWN_SIZE, 0, np.maximum(sizes, 1) + 2)
        rings = np.zeros((len(sizes), 5), np.int64)
        rings[:, _START], rings[:, _CAPACITY] = np.cumsum(capacity) - capacity, capacity
        return cls(rings, np.zeros((4, int(capacity.sum())), np.int64))

    def checkpoint(self, sessions: Ints, horizon: int) -> tuple[Ints, Ints]:
        """Return the queues of some sessions (rows of session, length and deliveries so far), and their contents in
        rows.

        Of the deliveries that were taken by the horizon, which are in front, only the last one is kept.
        """
        rings = self.rings[sessions]
        queue = np.repeat(np.arange(len(rings)), rings[:, _LENGTH])
        nth = np.arange(len(queue)) - np.repeat(np.cumsum(rings[:, _LENGTH]) - rings[:, _LENGTH], rings[:, _LENGTH])
        start, capacity, front = (rings[queue, column] for column in (_START, _CAPACITY, _FRONT))
        entries = self.untaken[:, start + (front + nth) % np.maximum(capacity, 1)].T
        taken = entries[:, _ENDS] <= horizon
        kept = ~(taken & np.append(taken[1:] & (queue[1:] == queue[:-1]), False))
        lengths = np.bincount(queue[kept], minlength=len(rings))
        return np.column_stack([sessions, lengths, rings[:, _SERVED]]), entries[kept]

    def restore(self, queues: Ints, entries: Ints) -> None:
        """Restore the queues of the previous day's ``checkpoint``."""
        sessions, lengths, served = queues.T
        self.rings[sessions, _LENGTH], self.rings[sessions, _SERVED] = lengths, served
        nth = np.arange(len(entries)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        self.untaken[:, np.repeat(self.rings[sessions, _START], lengths) + nth] = entries.T


@hot
def judge_permits(
    rings: Ints, untaken: Ints, d: Ints, i: int, horizon: int, codes: Ints, exemptions: Ints
) -> None:  # pragma: no cover - compiled
    """Judge OVER_PERMITS. After a chunk that is not the last, the client requests another message at once."""
    s = d[SESSION, i]
    if rings[s, _CAPACITY] == 0 or exemptions[i] & _PART:
        return
    start, capacity, number = rings[s, _START], rings[s, _CAPACITY], rings[s, _SERVED]
    window = capacity - 1
    if rings[s, _LENGTH] and untaken[_NUMBERS, start + rings[s, _FRONT]] < number - window:
        rings[s, _FRONT] = _wrap_index(rings[s, _FRONT] + 1, capacity)
        rings[s, _LENGTH] -= 1
    if number >= window and untaken[_ENDS, start + rings[s, _FRONT]] > d[AT, i]:
        codes[i] |= _OVER
        if d[BATCH_INDEX, i] >= 0:
            exemptions[i] |= _WHOLE_BATCH
    index = _push(rings, untaken, s, _find_taken_time(d, i), horizon)
    untaken[_NUMBERS, index], untaken[_ORDINALS, index], untaken[_TIMES, index] = number, d[ORDINAL, i], d[AT, i]
    rings[s, _SERVED] = number + 1


@hot
def _find_taken_time(d: Ints, i: int) -> Any:  # pragma: no cover - compiled
    """Return the latest instant at which a delivery left the queue."""
    return d[UNTIL, i] if d[RECEIVED, i] == UNKNOWN else min(d[UNTIL, i], d[RECEIVED, i])


@hot
def _wrap_index(index: int, capacity: int) -> int:  # pragma: no cover - compiled
    """Wrap a ring index that is at most one round beyond the end."""
    return index - capacity if index >= capacity else index


@hot
def _push(rings: Ints, untaken: Ints, s: int, end: int, horizon: int) -> Any:  # pragma: no cover - compiled
    """Return the index at the back of a queue for a delivery with this end, so that no later end precedes it."""
    start, capacity, front, length = rings[s, _START], rings[s, _CAPACITY], rings[s, _FRONT], rings[s, _LENGTH]
    while end <= horizon and length and untaken[_ENDS, start + _wrap_index(front + length - 1, capacity)] >= end:
        length -= 1
    index = start + _wrap_index(front + length, capacity)
    untaken[_ENDS, index] = end
    rings[s, _LENGTH] = length + 1
    return index


@hot
def update_untaken(rings: Ints, untaken: Ints, d: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Update the end of a delivery that the previous day left in a queue."""
    s = d[SESSION, i]
    start, capacity, front = rings[s, _START], rings[s, _CAPACITY], rings[s, _FRONT]
    for k in range(rings[s, _LENGTH]):
        index = start + _wrap_index(front + k, capacity)
        if untaken[_ORDINALS, index] == d[ORDINAL, i] and untaken[_TIMES, index] == d[AT, i]:
            untaken[_ENDS, index] = _find_taken_time(d, i)
            return


@hot
def sort_untaken(rings: Ints, untaken: Ints, horizon: int) -> None:  # pragma: no cover - compiled
    """Sort the queues whose ends were updated."""
    for s in range(len(rings)):
        start, capacity, front, length = rings[s, _START], rings[s, _CAPACITY], rings[s, _FRONT], rings[s, _LENGTH]
        rings[s, _LENGTH] = 0
        for k in range(length):
            old = start + _wrap_index(front + k, capacity)
            number, ordinal, at = untaken[_NUMBERS, old], untaken[_ORDINALS, old], untaken[_TIMES, old]
            index = _push(rings, untaken, s, untaken[_ENDS, old], horizon)
            untaken[_NUMBERS, index], untaken[_ORDINALS, index], untaken[_TIMES, index] = number, ordinal, at
