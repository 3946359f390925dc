"""Who waits for whom: hashes that drain from a former consumer (4.x), consumers that joined recently (3.x).

A wait is told when it is over; ``open_waits`` tells those that are not.
"""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined, operation
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_operations import acknowledge, acknowledge_some, reject
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.hash_tracker import find
from subreplay.simulation.pulsar.broker.replay_set import log_index
from subreplay.simulation.pulsar.broker.slot_owners import owner_of
from subreplay.simulation.pulsar.clients.client_state import NONE, Clients


@hot
def acknowledge_and_note(b: Broker, c: Clients, entry: int) -> None:
    """``acknowledge``, after which a hash may have stopped draining."""
    if b.state[0].drains == 0:
        acknowledge(b, entry)
    else:
        _change_and_note(b, c, entry, NONE, 0)


@inlined
def acknowledge_some_and_note(b: Broker, c: Clients, entry: int, messages: int) -> None:
    if b.state[0].drains == 0:
        acknowledge_some(b, entry, messages)
    else:
        _change_and_note(b, c, entry, NONE, messages)


@inlined
def reject_and_note(b: Broker, c: Clients, consumer: int, entry: int) -> None:
    if b.state[0].drains == 0:
        reject(b, consumer, entry)
    else:
        _change_and_note(b, c, entry, consumer, 0)


@inlined
def _change_and_note(b: Broker, c: Clients, entry: int, rejecter: int, messages: int) -> None:
    hash_ = b.log[log_index(b, entry)].hash
    slot = b.log[log_index(b, entry)].slot
    at = find(b, hash_)
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
    at = find(b, hash_)
    if at < 0 or b.tracker[at].drainer == NOBODY:
        _tell(b, c, since, hash_, owner_of(b, slot, hash_), blocker, waiting)


@inlined
def _tell(b: Broker, c: Clients, start: int, hash_: int, consumer: int, blocker: int, entries: int) -> None:
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
    """Consumers that joined recently wait for whoever holds the first entry that is not acknowledged."""
    t, state = c.totals[0], b.state[0]
    for at in range(state.joined):
        it = c.clients[b.consumers[at].joined]
        it.waiting = max(it.waiting, b.consumers[b.consumers[at].joined].waiting)
    first = state.mark_delete + 1
    blocker = b.log[log_index(b, first)].holder if first < state.end else NOBODY
    changed = blocker != t.blocker
    if not changed and t.joined == state.joined:
        return
    for consumer in range(len(c.clients)):
        it = c.clients[consumer]
        waits = b.consumers[consumer].joined_at >= 0
        if it.waits_since != NONE and (changed or not waits):
            _tell(b, c, it.waits_since, NONE, consumer, t.blocker, it.waiting)
            it.waits_since = NONE
        if waits and it.waits_since == NONE:
            it.waits_since = state.now
            it.waiting = b.consumers[consumer].waiting
    t.blocker, t.joined = blocker, state.joined


@operation
def open_waits(b: Broker, c: Clients) -> None:
    """Tell the waits that are under way, as if they ended now."""
    for consumer in range(len(c.clients)):
        it = c.clients[consumer]
        if it.waits_since != NONE:
            _tell(b, c, it.waits_since, NONE, consumer, c.totals[0].blocker, it.waiting)
