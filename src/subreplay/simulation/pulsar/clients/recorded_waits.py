"""Record which consumer waits for which: hashes that drain from a previous consumer (4.x), and recent joins (3.x).

A wait is written when it ends; ``write_open_waits`` writes those that have not ended.
"""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge, acknowledge_some, reject
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.hash_tracker import find_hash
from subreplay.simulation.pulsar.broker.replay_set import find_log_index
from subreplay.simulation.pulsar.broker.slot_owners import find_owner
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients


@hot
def acknowledge_and_record(b: Broker, c: Clients, entry: int) -> None:
    """Acknowledge an entry, and record the wait of a hash that stops draining."""
    if b.state[0].drains == 0:
        acknowledge(b, entry)
    else:
        _change_and_record(b, c, entry, NONE, 0)


@inlined
def acknowledge_some_and_record(b: Broker, c: Clients, entry: int, messages: int) -> None:
    """Acknowledge some messages of an entry, and record the wait of a hash that stops draining."""
    if b.state[0].drains == 0:
        acknowledge_some(b, entry, messages)
    else:
        _change_and_record(b, c, entry, NONE, messages)


@inlined
def reject_and_record(b: Broker, c: Clients, consumer: int, entry: int) -> None:
    """Reject an entry, and record the wait of a hash that stops draining."""
    if b.state[0].drains == 0:
        reject(b, consumer, entry)
    else:
        _change_and_record(b, c, entry, consumer, 0)


@inlined
def _change_and_record(b: Broker, c: Clients, entry: int, rejecter: int, messages: int) -> None:
    hash_ = b.log[find_log_index(b, entry)].hash
    slot = b.log[find_log_index(b, entry)].slot
    at = find_hash(b, hash_)
    blocker, since, waiting = NOBODY, 0, 0
    if at >= 0 and b.tracker[at].drainer != NOBODY and b.tracker[at].blocked:
        blocker, since, waiting = b.tracker[at].drainer, b.tracker[at].blocked_at, b.tracker[at].waiting
    if rejecter != NONE:
        reject(b, rejecter, entry)
    elif messages > 0:
        acknowledge_some(b, entry, messages)
    else:
        acknowledge(b, entry)
    if blocker == NOBODY:
        return
    at = find_hash(b, hash_)
    if at < 0 or b.tracker[at].drainer == NOBODY:
        _write_wait(b, c, since, hash_, find_owner(b, slot, hash_), blocker, waiting)


@inlined
def _write_wait(b: Broker, c: Clients, start: int, hash_: int, consumer: int, blocker: int, entries: int) -> None:
    wait = c.waits[c.totals[0].waits]
    wait.start = start
    wait.end = b.state[0].now
    wait.hash = hash_
    wait.consumer = consumer
    wait.blocker = blocker
    wait.entries = entries
    c.totals[0].waits += 1


@inlined
def follow_joined(b: Broker, c: Clients) -> None:
    """Record the waits of recently joined consumers for the consumer of the first unacknowledged entry."""
    t, state = c.totals[0], b.state[0]
    for at in range(state.joined):
        client = c.clients[b.consumers[at].joined]
        client.waiting = max(client.waiting, b.consumers[b.consumers[at].joined].waiting)
    first = state.mark_delete + 1
    blocker = b.log[find_log_index(b, first)].holder if first < state.end else NOBODY
    changed = blocker != t.blocker
    if not changed and t.joined == state.joined:
        return
    for consumer in range(len(c.clients)):
        client = c.clients[consumer]
        waits = b.consumers[consumer].joined_at >= 0
        if client.waits_since != NONE and (changed or not waits):
            _write_wait(b, c, client.waits_since, NONE, consumer, t.blocker, client.waiting)
            client.waits_since = NONE
        if waits and client.waits_since == NONE:
            client.waits_since = state.now
            client.waiting = b.consumers[consumer].waiting
    t.blocker, t.joined = blocker, state.joined


@operation
def write_open_waits(b: Broker, c: Clients) -> None:
    """Write the waits that have not ended, as if they ended now."""
    for consumer in range(len(c.clients)):
        client = c.clients[consumer]
        if client.waits_since != NONE:
            _write_wait(b, c, client.waits_since, NONE, consumer, c.totals[0].blocker, client.waiting)
