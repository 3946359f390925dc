"""The consumers' side of a prediction, as flat arrays that kernels change: clients, and the messages they hold.

A message that a client holds stands in ``messages``; those of one delivered entry (or of one chunked message) are an
in-flight entry, linked by ``sibling``, whose common state is in its first, the head. What is over becomes a row of
``rows``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records, empty_records
from subreplay.simulation.pulsar.clients.event_heap import EVENT
from subreplay.simulation.pulsar.consumer_model import ConsumerModel, NackRule, Prediction
from subreplay.simulation.pulsar.service_model import SERVICE, write_service

NONE = -1
"""No message, no consumer, no time."""
ROWS = 16384
"""About how many rows are handed out at once."""


class Outcome(IntEnum):
    """How a delivery ended; or, in rows without a consumer, how a message did."""

    PENDING = 0  # not acknowledged when the prediction ended
    ACKED = 1
    NACKED = 2
    TIMED_OUT = 3
    RETURNED = 4  # its consumer left, or it came again because another message did
    DEAD_LETTERED = 5
    RETRIED = 6  # sent to the retry letter topic, from where it comes as a message of its own
    EXPIRED = 7
    COVERED = 8  # by the cumulative acknowledgement of a later message
    DROPPED = 9
    DEDUPLICATED = 10
    SKIPPED = 11  # outside the reader's ranges


DELIVERED = np.dtype(
    [
        ("ordinal", "i8"),  # of the entry among all published ones
        ("delivered_at", "i8"),
        ("received_at", "i8"),  # the application took it
        ("acked_at", "i8"),
        ("nacked_at", "i8"),  # the application failed, or a timeout asked for it again
        ("index", "i4"),  # of the message in its entry
        ("consumer", "i4"),  # ``Consumer.index``, or -1
        ("redeliveries", "i4"),
        ("retries", "i4"),  # how often it went through the retry letter topic
        ("outcome", "i4"),
        ("settled", "?"),  # with this the message was done with
    ],
    align=True,
)
"""A predicted delivery of one message; times in ns, -1 for what did not happen.

At most one row of a message is ``settled``: that with which it left the subscription's backlog; each of its retry
letters (``retries`` > 0) is another message. A row without a consumer tells an end that came otherwise than by a
consumer.
"""

MESSAGE = np.dtype(
    [
        *((name, DELIVERED.fields[name][0]) for name in DELIVERED.names or () if DELIVERED.fields),
        ("entry", "i8"),  # ordinal in the dispatcher's log
        ("hash", "i4"),
        ("slot", "i4"),
        ("size", "i8"),  # bytes; of a chunked message in its head all of them
        ("attempt", "i8"),  # how often it was delivered, counting this time
        ("chunk_of", "i8"),  # number of the chunked message
        ("next", "i8"),  # behind it in a queue; or the next free row
        ("sibling", "i8"),
        ("head", "i8"),
        # of the in-flight entry:
        ("serial", "i8"),
        ("left", "i4"),  # messages not acknowledged
        ("overdue", "i4"),  # messages that expired, but which the broker counts as unacknowledged
        ("busy", "i4"),  # messages that the application has not finished
        ("open", "?"),  # neither acknowledged nor given back
        ("returning", "?"),  # a negative acknowledgement is under way
        ("watched", "?"),  # an acknowledgement timeout is under way
        ("chunked", "?"),  # its messages are chunks, taken as one
        ("used", "?"),
    ],
    align=True,
)
CLIENT = np.dtype(
    [
        # its model
        ("queue_size", "i8"),
        ("refill", "i8"),  # messages taken before it asks for more
        ("failure_rate", "f8"),
        ("on_failure", "i8"),
        ("nack_delay", "i8"),
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
        ("first", "i8"),  # of the messages in its receiver queue
        ("last", "i8"),
        ("current", "i8"),  # the message that the application works on
        ("hangs", "?"),  # it works on none, and takes none before ``hangs_until``
        ("taken", "i8"),  # messages since it last asked for more
        ("held_first", "i8"),  # of the messages that a stuck application holds
        ("held_last", "i8"),
        ("nacks", "i8"),  # under way
        ("nack_origin", "i8"),  # when the first of them began
        ("nack_look", "i8"),  # when the client looks next at what is due
        ("chunked_first", "i8"),  # of the incomplete chunked messages
        ("chunked_last", "i8"),
        ("chunked", "i8"),
        # what is counted
        ("busy", "i8"),  # ns
        ("exhausted", "i8"),  # ns without permits, or blocked by unacknowledged messages
        ("exhausted_since", "i8"),
        ("waits_since", "i8"),  # for its position to be acknowledged
        ("waiting", "i8"),  # most entries that waited since
    ],
    align=True,
)
ORIGIN = np.dtype(
    [
        ("ordinal", "i8"),
        ("published_at", "i8"),
        ("size", "i8"),
        ("first", "i8"),
        ("index", "i4"),  # of a retry letter: of its message in the entry it came in
        ("retries", "i4"),
        ("out", "i4"),
        ("attempts", "i8"),
    ],
    align=True,
)
"""Of an entry in the dispatcher's window: where it comes from, which marks are its, how many open in-flight entries of
it are out, and how many there were."""
WAIT = np.dtype(
    [("start", "i8"), ("end", "i8"), ("hash", "i8"), ("consumer", "i8"), ("blocker", "i8"), ("entries", "i8")]
)
"""Between two times (ns) ``entries`` of a hash waited for ``consumer`` because ``blocker`` had not acknowledged others;
hash -1: all that is the consumer's did, as it had joined recently; ``entries`` is the most that were kept back."""
COUNT = np.dtype([("interval", "i8"), ("settled", "i8"), ("letters", "i8")], align=True)
"""What happened in an interval (numbered from the Unix epoch): messages settled, retry letters sent."""
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
        ("received", "i8"),  # of the dispatched entries
        ("wanted", "i8"),  # rows for the next of them
        ("mark_end", "i8"),
        ("largest", "i8"),  # messages in an entry
        ("sweep_at", "i8"),
        ("swept", "i8"),  # expired up to here, exclusive
        ("sweeping", "?"),  # a look is under way
        ("interval_at", "i8"),  # the current one's index in ``counts``
        ("interval_end", "i8"),  # ns
        ("joined", "i8"),  # consumers that wait for their position
        ("blocker", "i8"),
        ("no_progress", "i8"),  # timers of the dispatcher in a row that changed nothing
        ("tried_position", "i8"),  # where it had read to with the last of them
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
        ("covers", "?"),  # somebody acknowledges cumulatively
    ],
    align=True,
)


@pass_by_reference
class Clients(NamedTuple):
    """All clients of one subscription. Arrays are shared with whoever holds another tuple of the same state."""

    totals: Records  # [0]
    clients: Records  # [Consumer.index]
    services: Records  # [Consumer.index]
    quantiles: NDArray[np.float64]
    messages: Records
    origins: Records  # [ordinal modulo length], as ``Broker.log``
    marks: NDArray[np.bool_]  # acknowledged messages of batches: a ring
    producers: NDArray[np.int64]  # highest sequence id that is stored
    works: Records  # heap: when who ends its work
    timers: Records  # heap: nacks, timeouts
    rows: Records
    waits: Records
    counts: Records  # by interval, of those in which anything happened


def new_clients(prediction: Prediction, nacks: NackRule, filters: bool, window: int) -> Clients:
    """Clients of which none has joined; ``window`` is that of the dispatcher."""
    totals = empty_records(1, TOTALS)
    it = totals[0]
    it.free = NONE
    it.blocker = NONE
    it.sweep_at = NEVER
    it.ttl, it.ttl_check = prediction.ttl, prediction.ttl_check
    it.interval, it.interval_at, it.interval_end = prediction.interval, NONE, -NEVER
    it.seed = prediction.seed
    it.nack_ticks, it.nack_precision, it.nack_least = nacks.ticks, nacks.precision, nacks.least
    it.deduplicates, it.persistent, it.filters = prediction.deduplicates, prediction.persistent, filters
    clients = Clients(
        totals=totals,
        clients=empty_records(0, CLIENT),
        services=empty_records(0, SERVICE),
        quantiles=np.zeros(0, np.float64),
        messages=empty_records(0, MESSAGE),
        origins=empty_records(window, ORIGIN),
        marks=np.zeros(64, np.bool_),
        producers=np.zeros(0, np.int64),
        works=empty_records(0, EVENT),
        timers=empty_records(1024, EVENT),
        rows=empty_records(0, DELIVERED),
        waits=empty_records(0, WAIT),
        counts=empty_records(64, COUNT),
    )
    return with_messages(clients, 1024)


def with_client(clients: Clients, consumer: int, model: ConsumerModel, now: int) -> Clients:
    """``clients`` with one more, who joins ``now``."""
    count = max(consumer + 1, len(clients.clients))
    quantiles = write_service(
        (services := _longer(clients.services, count))[consumer], model.service, model.factor, len(clients.quantiles)
    )
    it = (rows := _longer(clients.clients, count))[consumer]
    it.queue_size = model.receiver_queue_size
    it.refill = max(model.receiver_queue_size // 2, 1)
    it.failure_rate, it.on_failure = model.failure_rate, model.on_failure
    it.nack_delay = max(model.nack_delay, int(clients.totals[0].nack_least))
    it.ack_tick = model.ack_timeout_tick
    it.ack_timeout = -(-model.ack_timeout // model.ack_timeout_tick) * model.ack_timeout_tick
    it.multiplier, it.longest = model.redelivery_multiplier, model.longest_redelivery
    it.max_redeliver = NEVER if model.most_redeliveries is None else model.most_redeliveries
    it.retry_delay = model.retry_delay
    it.cumulative = model.cumulative
    it.stuck_from = NEVER if model.stuck_from is None else model.stuck_from
    it.stuck_until = NEVER if model.stuck_until is None else model.stuck_until
    it.hangs_from = NEVER if model.hangs_from is None else model.hangs_from
    it.hangs_until = NEVER if model.hangs_until is None else model.hangs_until
    it.max_pending_chunked, it.chunk_expiry = model.max_pending_chunked, model.chunk_expiry
    it.acks_oldest_chunked = model.acks_oldest_chunked
    it.joined_at = now
    it.first = it.last = it.current = it.held_first = it.held_last = it.chunked_first = it.chunked_last = NONE
    it.exhausted_since = it.waits_since = NONE
    clients.totals[0].covers |= model.cumulative
    return clients._replace(
        clients=rows,
        services=services,
        quantiles=np.concatenate([clients.quantiles, quantiles]),
        works=_longer(clients.works, count),
    )


def with_messages(clients: Clients, more: int) -> Clients:
    """``clients`` that can hold at least ``more`` messages more, and rows for all of them."""
    known = len(clients.messages)
    messages = _longer(clients.messages, max(2 * known, known + more))
    messages[known:].next = np.arange(known + 1, len(messages) + 1)
    messages[-1].next = clients.totals[0].free
    clients.totals[0].free = known
    return with_rows(clients._replace(messages=messages), 0)


def with_rows(clients: Clients, more: int) -> Clients:
    """``clients`` with room for the rows and the waits of everything that is held, and ``more``."""
    count = max(ROWS + len(clients.messages) + len(clients.clients) + more, len(clients.rows))
    return clients._replace(rows=_longer(clients.rows, count), waits=_longer(clients.waits, count))


def with_timers(clients: Clients) -> Clients:
    """``clients`` with room for twice the timers."""
    return clients._replace(timers=_longer(clients.timers, 2 * len(clients.timers)))


def with_origins(clients: Clients, window: int, first: int, end: int) -> Clients:
    """``clients`` for a dispatcher whose window of ``first`` to ``end`` has grown to the size ``window``."""
    held = np.arange(first, end)
    origins = empty_records(window, ORIGIN)
    origins[held & (window - 1)] = clients.origins[held & (len(clients.origins) - 1)]
    return clients._replace(origins=origins)


def with_marks(clients: Clients, first: int) -> Clients:
    """``clients`` with room for twice the marks, of which those before ``first`` are not needed any more."""
    size = 2 * len(clients.marks)
    held = np.arange(first, int(clients.totals[0].mark_end))
    marks = np.zeros(size, np.bool_)
    marks[held & (size - 1)] = clients.marks[held & (len(clients.marks) - 1)]
    return clients._replace(marks=marks)


def with_producers(clients: Clients, count: int) -> Clients:
    """``clients`` that know producers below ``count``."""
    new = np.full(max(count - len(clients.producers), 0), np.iinfo(np.int64).min)
    return clients._replace(producers=np.concatenate([clients.producers, new]))


def with_intervals(clients: Clients) -> Clients:
    """``clients`` that count what happens in twice as many intervals."""
    return clients._replace(counts=_longer(clients.counts, 2 * len(clients.counts)))


def _longer(rows: Records, count: int) -> Records:
    if len(rows) >= count:
        return rows
    longer = empty_records(count, rows.dtype)
    longer[: len(rows)] = rows
    return longer
