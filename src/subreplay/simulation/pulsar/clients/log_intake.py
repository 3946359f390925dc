"""What is appended to the log: published entries without duplicates, and retry letters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import hot, inlined
from subreplay.simulation.pulsar.broker.broker_operations import count_free_window, notify_published, publish
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK, Records
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.clients.client_state import Clients, DeliveryOutcome
from subreplay.simulation.pulsar.clients.in_flight import count_settled, end_message
from subreplay.simulation.pulsar.reenact import ENTRIES

PUBLISHED = np.dtype(
    [
        *((name, ENTRIES.fields[name][0]) for name in ENTRIES.names or () if ENTRIES.fields),
        ("size", "i8"),  # bytes of all its messages
        ("producer", "i8"),  # its number, from 0; -1: the entry is never a duplicate
        ("sequence", "i8"),  # sequence id of its first message
        ("highest", "i8"),  # sequence id of its last message
    ],
    align=True,
)
"""``ENTRIES`` with the fields that a prediction needs in addition, in order of publication."""


@hot
def has_space_for_entry(b: Broker, c: Clients, messages: int) -> bool:
    """Return whether another entry of this number of messages can be published, with space for its rows."""
    t = c.totals[0]
    if t.rows + t.used + messages > len(c.rows) or count_free_window(b) < 2:
        return False
    if messages == 1 or not b.rule[0].batch_index_acks:
        return True
    return t.mark_end - find_first_mark(b, c) + messages <= len(c.marks)


@inlined
def find_first_mark(b: Broker, c: Clients) -> int:
    """Return the first mark that is needed."""
    state = b.state[0]
    return c.origins[state.start & (len(c.origins) - 1)].first if state.start < state.end else c.totals[0].mark_end


@hot
def publish_next(b: Broker, c: Clients, entries: Records, cursor: NDArray[np.int64]) -> None:
    """Publish the entry at ``cursor[0]`` of ``entries``, the ``cursor[1]``-th of all, unless it is a duplicate."""
    e, number = entries[cursor[0]], cursor[1]
    cursor[0] += 1
    cursor[1] += 1
    if is_duplicate(c, e):
        for index in range(e.messages):
            end_message(c, number, index, 0, DeliveryOutcome.DEDUPLICATED, True)
        count_settled(c, e.messages)
        return
    _store_origin(b, c, b.state[0].end, number, e.at, e.size, 0, 0, e.messages)
    publish(b, e.hash, e.slot, e.messages, e.deliver_at, e.chunked, e.chunk_id, e.chunks)


@inlined
def is_duplicate(c: Clients, e: Records) -> bool:
    """Return whether the entry is at or below the highest stored sequence id of its producer (row L-DEDUP-1).

    As in ``MessageDeduplication``, only the last one of several chunks is checked.
    """
    if not c.totals[0].deduplicates or e.producer < 0 or e.chunk_id < e.chunks - 1:
        return False
    if e.sequence <= c.producers[e.producer]:
        return True
    c.producers[e.producer] = max(e.highest, e.sequence)
    return False


@hot
def _store_origin(
    b: Broker, c: Clients, entry: int, number: int, at: int, size: int, index: int, retries: int, messages: int
) -> None:
    origin, t = c.origins[entry & (len(c.origins) - 1)], c.totals[0]
    origin.ordinal = number
    origin.published_at = at
    origin.size = size
    origin.index = index
    origin.retries = retries
    origin.out = origin.attempts = 0
    origin.first = t.mark_end
    t.largest = max(t.largest, messages)
    if messages > 1 and b.rule[0].batch_index_acks:
        for mark in range(t.mark_end, t.mark_end + messages):
            c.marks[mark & (len(c.marks) - 1)] = False
        t.mark_end += messages


@inlined
def send_retry_letter(b: Broker, c: Clients, at: int, deliver_at: int) -> None:
    """Publish a retry letter: the message is redelivered through the same subscription as a new, delayed one (row
    D-RETRY-1).

    The retry letter topic has no log of its own here. Its entries are in the log of the source, whose consumers they
    also keep busy.
    """
    m = c.messages[at]
    _store_origin(b, c, b.state[0].end, m.ordinal, b.state[0].now, m.size, m.index, m.retries + 1, 1)
    c.origins[b.state[0].end & (len(c.origins) - 1)].attempts = m.attempt
    publish(b, m.hash, m.slot, 1, deliver_at, NO_CHUNK, 0, 0)
    c.counts[c.totals[0].interval_at].letters += 1
    notify_published(b, b.state[0].more)
