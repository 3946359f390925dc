"""The consumers in a prediction, as flat arrays that kernels change: clients, and the messages they have received.

A received message is a row of ``messages``. The messages of one delivered entry (or of one chunked message) are an
in-flight entry, linked by ``sibling``; their common state is in the first one, the head. Finished deliveries become
rows of ``rows``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, create_records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.clients.event_heap import EVENT
from subreplay.simulation.pulsar.consumer_model import CPP_NACKS, ClientLibrary, ConsumerModel, NackRule, Prediction
from subreplay.simulation.pulsar.service_model import SERVICE, write_service

NONE = -1
"""No message, no consumer, no time."""
ROWS = 16384
"""About how many rows are returned at once."""


class DeliveryOutcome(IntEnum):
    """How a delivery ended; in rows without a consumer, how a message ended."""

    PENDING = 0  # not acknowledged when the prediction ended
    ACKED = 1
    NACKED = 2
    TIMED_OUT = 3
    RETURNED = 4  # its consumer left, or it was redelivered together with another message
    DEAD_LETTERED = 5
    RETRIED = 6  # sent to the retry letter topic, which delivers it as another message
    EXPIRED = 7
    COVERED = 8  # acknowledged cumulatively by a later message
    DROPPED = 9
    DEDUPLICATED = 10
    SKIPPED = 11  # outside the reader's ranges


DELIVERED = np.dtype(
    [
        ("ordinal", "i8"),  # ordinal of the entry among all published ones
        ("delivered_at", "i8"),
        ("received_at", "i8"),  # the application took it
        ("acked_at", "i8"),
        ("nacked_at", "i8"),  # the application failed, or the acknowledgement timed out
        ("index", "i4"),  # of the message in its entry
        ("consumer", "i4"),  # ``Consumer.index``, or -1
        ("redeliveries", "i4"),
        ("retries", "i4"),  # how often it passed through the retry letter topic
        ("outcome", "i4"),
        ("settled", "?"),  # the message was finished with this delivery
    ],
    align=True,
)
"""A predicted delivery of one message.

Times are in ns, -1 for what did not happen.

At most one row of a message is ``settled``: the one with which it left the subscription's backlog. Each of its retry
letters (``retries`` > 0) is another message. A row without a consumer reports a message that did not end at a consumer.
"""

MESSAGE = np.dtype(
    [
        *((name, DELIVERED.fields[name][0]) for name in DELIVERED.names or () if DELIVERED.fields),
        ("entry", "i8"),  # ordinal in the dispatcher's log
        ("hash", "i4"),
        ("slot", "i4"),
        ("size", "i8"),  # bytes; in the head of a chunked message the sum of all chunks
        ("attempt", "i8"),  # number of deliveries, including this one
        ("chunk_of", "i8"),  # number of the chunked message
        ("next", "i8"),  # the next one in a queue; or the next free row
        ("sibling", "i8"),
        ("head", "i8"),
        # of the in-flight entry:
        ("serial", "i8"),
        ("unacked_count", "i4"),  # messages not acknowledged
        ("overdue", "i4"),  # messages that expired, but which the broker counts as unacknowledged
        ("busy", "i4"),  # messages that the application has not finished
        ("open", "?"),  # neither acknowledged nor returned
        ("returning", "?"),  # a negative acknowledgement is under way
        ("watched", "?"),  # an acknowledgement timeout is under way
        ("chunked", "?"),  # its messages are chunks of one message
        ("used", "?"),
    ],
    align=True,
)
CLIENT = np.dtype(
    [
        # its model
        ("queue_size", "i8"),
        ("refill", "i8"),  # messages taken before it requests more
        ("failure_rate", "f8"),
        ("on_failure", "i8"),
        ("nack_delay", "i8"),
        ("nack_restarts", "i8"),  # ns between two checks, which each rejection starts anew; 0: see the rules in TOTALS
        ("multiplier", "f8"),
        ("longest", "i8"),
        ("ack_timeout", "i8"),
        ("ack_tick", "i8"),
        ("max_redeliver", "i8"),
        ("retry_delay", "i8"),
        ("cumulative", "?"),
        ("stuck_from", "i8"),
        ("stuck_until", "i8"),
        ("hangs_from", "i8"),
        ("hangs_until", "i8"),
        ("max_pending_chunked", "i8"),
        ("chunk_expiry", "i8"),
        ("acks_oldest_chunked", "?"),
        # its state
        ("joined_at", "i8"),
        ("first", "i8"),  # first message in its receiver queue
        ("last", "i8"),
        ("current", "i8"),  # the message that the application processes
        ("hangs", "?"),  # it processes none, and takes none before ``hangs_until``
        ("taken", "i8"),  # messages taken since its last request
        ("kept_first", "i8"),  # first message that a stuck application keeps
        ("kept_last", "i8"),
        ("nacks", "i8"),  # under way
        ("nack_origin", "i8"),  # when the first of them began, or the last one if each starts the checks anew
        ("nack_look", "i8"),  # when the client checks next what is due
        ("chunked_first", "i8"),  # first incomplete chunked message
        ("chunked_last", "i8"),
        ("chunked", "i8"),
        # what is counted
        ("busy", "i8"),  # ns
        ("exhausted", "i8"),  # ns without permits, or blocked by unacknowledged messages
        ("exhausted_since", "i8"),
        ("waits_since", "i8"),  # since when it waits for its position to be acknowledged
        ("waiting", "i8"),  # largest number of entries that waited since then
    ],
    align=True,
)
ORIGIN = np.dtype(
    [
        ("ordinal", "i8"),
        ("published_at", "i8"),
        ("size", "i8"),
        ("first", "i8"),
        ("index", "i4"),  # of a retry letter: index of its message in the original entry
        ("retries", "i4"),
        ("out", "i4"),
        ("attempts", "i8"),
    ],
    align=True,
)
"""The origin of an entry in the dispatcher's window: its marks, its open in-flight entries, and all attempts."""
WAIT = np.dtype(
    [("start", "i8"), ("end", "i8"), ("hash", "i8"), ("consumer", "i8"), ("blocker", "i8"), ("entries", "i8")]
)
"""A wait: between two times (ns) ``entries`` of a hash waited for ``consumer``.

``blocker`` had not acknowledged others. Hash -1: all entries of the consumer waited, because it had joined recently.
``entries`` is the largest number of blocked entries.
"""
COUNT = np.dtype([("interval", "i8"), ("settled", "i8"), ("letters", "i8")], align=True)
"""Counts of an interval (numbered from the Unix epoch): messages settled, retry letters sent."""
TOTALS = np.dtype(
    [
        ("number", "i8"),  # of events set
        ("serial", "i8"),
        ("works", "i8"),  # events in ``works``
        ("timers", "i8"),
        ("free", "i8"),
        ("used", "i8"),  # rows of ``messages``
        ("rows", "i8"),
        ("waits", "i8"),
        ("received", "i8"),  # dispatched entries that were received
        ("wanted", "i8"),  # rows that the next of them needs
        ("mark_end", "i8"),
        ("largest", "i8"),  # messages in an entry
        ("sweep_at", "i8"),
        ("swept", "i8"),  # expired up to here, exclusive
        ("sweeping", "?"),  # a check is running
        ("interval_at", "i8"),  # the current one's index in ``counts``
        ("interval_end", "i8"),  # ns
        ("joined", "i8"),  # consumers that wait for their position
        ("blocker", "i8"),
        ("no_progress", "i8"),  # consecutive timers of the dispatcher that changed nothing
        ("tried_position", "i8"),  # its read position at the last of them
        ("tried_waiting", "i8"),
        ("tried_more", "?"),
        ("idle", "i8"),  # deliveries since a message was settled, could have been, or was delivered for the first time
        # the rules
        ("ttl", "i8"),
        ("ttl_check", "i8"),
        ("interval", "i8"),
        ("seed", "i8"),
        ("nack_ticks", "i8"),
        ("nack_precision", "i8"),
        ("nack_least", "i8"),
        ("deduplicates", "?"),
        ("persistent", "?"),
        ("filters", "?"),
        ("covers", "?"),  # a consumer acknowledges cumulatively
    ],
    align=True,
)


@pass_by_reference
class Clients(NamedTuple):
    """All clients of one subscription. Copies of the tuple share the arrays."""

    totals: Records  # [0]
    clients: Records  # [Consumer.index]
    services: Records  # [Consumer.index]
    quantiles: NDArray[np.float64]
    messages: Records
    origins: Records  # [ordinal modulo length], as ``Broker.log``
    marks: NDArray[np.bool_]  # acknowledged messages of batches: a ring
    producers: NDArray[np.int64]  # highest sequence id that is stored
    works: Records  # heap: when each consumer finishes its work
    timers: Records  # heap: nacks, timeouts
    rows: Records
    waits: Records
    counts: Records  # by interval, without empty intervals


def create_clients(prediction: Prediction, nacks: NackRule, filters: bool, window: int) -> Clients:
    """Create the state without any client. ``window`` is that of the dispatcher."""
    totals = create_records(1, TOTALS)
    client = totals[0]
    client.free = NONE
    client.blocker = NONE
    client.sweep_at = NEVER
    client.ttl, client.ttl_check = prediction.ttl, prediction.ttl_check
    client.interval, client.interval_at, client.interval_end = prediction.interval, NONE, -NEVER
    client.seed = prediction.seed
    client.nack_ticks, client.nack_precision, client.nack_least = nacks.ticks, nacks.precision, nacks.least
    client.deduplicates, client.persistent, client.filters = prediction.deduplicates, prediction.persistent, filters
    clients = Clients(
        totals=totals,
        clients=create_records(0, CLIENT),
        services=create_records(0, SERVICE),
        quantiles=np.zeros(0, np.float64),
        messages=create_records(0, MESSAGE),
        origins=create_records(window, ORIGIN),
        marks=np.zeros(64, np.bool_),
        producers=np.zeros(0, np.int64),
        works=create_records(0, EVENT),
        timers=create_records(1024, EVENT),
        rows=create_records(0, DELIVERED),
        waits=create_records(0, WAIT),
        counts=create_records(64, COUNT),
    )
    return grow_messages(clients, 1024)


def add_client(clients: Clients, consumer: int, model: ConsumerModel, now: int) -> Clients:
    """Return ``clients`` with one more client, which joins ``now``."""
    count = max(consumer + 1, len(clients.clients))
    quantiles = write_service(
        (services := _extend(clients.services, count))[consumer], model.service, model.factor, len(clients.quantiles)
    )
    client = (rows := _extend(clients.clients, count))[consumer]
    client.queue_size = model.receiver_queue_size
    client.refill = max(model.receiver_queue_size // 2, 1)
    client.failure_rate, client.on_failure = model.failure_rate, model.on_failure
    client.nack_delay = max(model.nack_delay, int(clients.totals[0].nack_least))
    if model.client == ClientLibrary.CPP:
        client.nack_delay = max(model.nack_delay, CPP_NACKS.least)
        client.nack_restarts = client.nack_delay // CPP_NACKS.ticks // MILLISECOND * MILLISECOND
    client.ack_tick = model.ack_timeout_tick
    client.ack_timeout = -(-model.ack_timeout // model.ack_timeout_tick) * model.ack_timeout_tick
    client.multiplier, client.longest = model.redelivery_multiplier, model.longest_redelivery
    client.max_redeliver = NEVER if model.redelivery_limit is None else model.redelivery_limit
    client.retry_delay = model.retry_delay
    client.cumulative = model.cumulative
    client.stuck_from = NEVER if model.stuck_from is None else model.stuck_from
    client.stuck_until = NEVER if model.stuck_until is None else model.stuck_until
    client.hangs_from = NEVER if model.hangs_from is None else model.hangs_from
    client.hangs_until = NEVER if model.hangs_until is None else model.hangs_until
    client.max_pending_chunked, client.chunk_expiry = model.max_pending_chunked, model.chunk_expiry
    client.acks_oldest_chunked = model.acks_oldest_chunked
    client.joined_at = now
    client.first = client.last = client.current = client.kept_first = client.kept_last = client.chunked_first = (
        client.chunked_last
    ) = NONE
    client.exhausted_since = client.waits_since = NONE
    clients.totals[0].covers |= model.cumulative
    return clients._replace(
        clients=rows,
        services=services,
        quantiles=np.concatenate([clients.quantiles, quantiles]),
        works=_extend(clients.works, count),
    )


def grow_messages(clients: Clients, more: int) -> Clients:
    """Return ``clients`` with space for at least ``more`` more messages, and rows for all of them."""
    known_count = len(clients.messages)
    messages = _extend(clients.messages, max(2 * known_count, known_count + more))
    messages[known_count:].next = np.arange(known_count + 1, len(messages) + 1)
    messages[-1].next = clients.totals[0].free
    clients.totals[0].free = known_count
    return grow_rows(clients._replace(messages=messages), 0)


def grow_rows(clients: Clients, more: int) -> Clients:
    """Return ``clients`` with space for the rows and waits of all messages, and ``more``."""
    count = max(ROWS + len(clients.messages) + len(clients.clients) + more, len(clients.rows))
    return clients._replace(rows=_extend(clients.rows, count), waits=_extend(clients.waits, count))


def grow_timers(clients: Clients) -> Clients:
    """Return ``clients`` with space for twice the timers."""
    return clients._replace(timers=_extend(clients.timers, 2 * len(clients.timers)))


def grow_origins(clients: Clients, window: int, first: int, end: int) -> Clients:
    """Return ``clients`` for a dispatcher whose window of ``first`` to ``end`` has grown to size ``window``."""
    ordinals = np.arange(first, end)
    origins = create_records(window, ORIGIN)
    origins[ordinals & (window - 1)] = clients.origins[ordinals & (len(clients.origins) - 1)]
    return clients._replace(origins=origins)


def grow_marks(clients: Clients, first: int) -> Clients:
    """Return ``clients`` with space for twice the marks. Marks before ``first`` are not needed any more."""
    size = 2 * len(clients.marks)
    ordinals = np.arange(first, int(clients.totals[0].mark_end))
    marks = np.zeros(size, np.bool_)
    marks[ordinals & (size - 1)] = clients.marks[ordinals & (len(clients.marks) - 1)]
    return clients._replace(marks=marks)


def grow_producers(clients: Clients, count: int) -> Clients:
    """Return ``clients`` with space for producers below ``count``."""
    new = np.full(max(count - len(clients.producers), 0), np.iinfo(np.int64).min)
    return clients._replace(producers=np.concatenate([clients.producers, new]))


def grow_intervals(clients: Clients) -> Clients:
    """Return ``clients`` with space for twice the intervals."""
    return clients._replace(counts=_extend(clients.counts, 2 * len(clients.counts)))


def _extend(rows: Records, count: int) -> Records:
    if len(rows) >= count:
        return rows
    longer = create_records(count, rows.dtype)
    longer[: len(rows)] = rows
    return longer
