"""The permits that recorded consumers requested, from the broker's log or from a model of the client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from subreplay.conformance.fidelity.consumer_sessions import ConsumerSession, ConsumerSessions
from subreplay.conformance.fidelity.recorded_dispatchers import DEFAULT_QUEUE_SIZE, RecordedDispatcher
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

Ordinals: TypeAlias = Mapping[tuple[int, int], int]


class PermitRequest(NamedTuple):
    """A request of a consumer for more messages, at a time (ns)."""

    at: int
    consumer: int
    permits: int


def list_permit_requests(
    recorded: RecordedDispatcher, joined: Mapping[int, int], dispatched: Records, ordinals: Ordinals, messages: Records
) -> Iterator[PermitRequest]:
    """Yield the requests of every consumer after it had ``joined`` (ns, by its index).

    ``ordinals`` are those of entries by (ledger, entry), ``messages`` are their sizes. A client requests a queue full
    of messages when its consumer is created, and half of the queue whenever the application took as many (row
    D-FLOW-1). If the broker's log has a consumer's first request, all its requests have the times of the log, to the
    millisecond. In both cases a request arrives before the broker uses it.
    """
    sessions = ConsumerSessions(recorded.timeline)
    taken = _find_taken_times(recorded, sessions, dispatched, ordinals, messages)
    logged: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in recorded.flows:
        logged[line.instance].append((line.at, line.permits))
    for name, known in sessions.by_name.items():
        queue = max(recorded.queue_sizes.get(name, DEFAULT_QUEUE_SIZE), 1)
        for session in known:
            requests = _model_requests(session, queue, taken[session.consumer])
            logged_requests = logged.get(session.instance or "", [])
            if (
                logged_requests
                and logged_requests[0][0] <= session.joined + _MAX_FIRST_REQUEST_DELAY
                and logged_requests[0][1] == queue
            ):
                requests = _use_logged_times(logged_requests, requests)
            own = dispatched[dispatched.consumer == session.consumer]
            for at, permits in _move_before_use(requests, own.at, messages[own.ordinal]):
                at = max(at, joined[session.consumer])
                if at < sessions.left.get(session.consumer, NEVER):
                    yield PermitRequest(at, session.consumer, permits)


_MAX_FIRST_REQUEST_DELAY = 1_000 * MILLISECOND
"""The largest delay from the creation of a consumer to its first request."""


def _model_requests(session: ConsumerSession, queue: int, taken: list[int]) -> list[tuple[int, int]]:
    half = max(queue // 2, 1)
    return [(session.joined, queue), *((at, half) for at in taken[half - 1 :: half])]


def _use_logged_times(logged_requests: list[tuple[int, int]], modelled: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the logged requests; within the millisecond of each, at the modelled time if it is known."""
    at = [time for time, _ in modelled[: len(logged_requests)]] + [time for time, _ in logged_requests[len(modelled) :]]
    return [
        (min(max(time, logged), logged + MILLISECOND - 1), permits)
        for time, (logged, permits) in zip(at, logged_requests, strict=True)
    ]


def _move_before_use(requests: list[tuple[int, int]], times: Records, messages: Records) -> Iterator[tuple[int, int]]:
    """Move requests forward: a broker sends nothing without a permit, so a needed request arrived before that
    dispatch."""
    used = np.cumsum(messages) - messages  # before each entry that went out
    total = 0
    for at, permits in requests:
        first = int(np.searchsorted(used, total))  # the first that needs this request, if it is not the last message
        yield (min(at, int(times[first]) - 1) if first < len(times) else at), permits
        total += permits


def _find_taken_times(
    recorded: RecordedDispatcher, sessions: ConsumerSessions, dispatched: Records, ordinals: Ordinals, messages: Records
) -> dict[int, list[int]]:
    """Return when each consumer's application took messages, in order; at once if the recording has no receipts."""
    taken: dict[int, list[int]] = defaultdict(list)
    rows = list(zip(dispatched.ordinal.tolist(), dispatched.at.tolist(), dispatched.consumer.tolist(), strict=True))
    if not recorded.receipts:
        for ordinal, at, consumer in rows:
            taken[consumer] += [at] * int(messages[ordinal])
        return taken
    dispatched_to: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for ordinal, at, consumer in rows:
        dispatched_to[ordinal, recorded.timeline.consumers[consumer].name].append((at, consumer))
    for receipt in sorted(recorded.receipts, key=lambda r: r.recv_ns):
        at = receipt.recv_ns
        own = dispatched_to.get((ordinals.get((receipt.ledger, receipt.entry), NOBODY), receipt.consumer), [])
        latest = next((consumer for sent, consumer in reversed(own) if sent <= at), None)
        taken[sessions.find_consumer(receipt.consumer, at) if latest is None else latest].append(at)
    return taken
