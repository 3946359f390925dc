"""Hashes that changed hands and wait until their former consumer acknowledged what it has (``DrainingHashesTracker``).

The 4.x rule of Key_Shared order (row P-KS-ORD-1, unit: the hash).
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import ask_unblocked_read
from subreplay.simulation.pulsar.broker.hash_tracker import claim, find, release


@inlined
def start_draining(b: Broker, consumer: int, hash_: int) -> None:
    """One more entry of ``consumer`` keeps ``hash_`` from its new owner."""
    tracked = b.tracker[claim(b, hash_)]
    if tracked.drainer == NOBODY:
        tracked.drainer = consumer
        tracked.draining = 0
        tracked.blocked = False
        b.state[0].drains += 1
    tracked.draining += 1


@inlined
def drained(b: Broker, consumer: int, hash_: int, closing: bool) -> None:
    """``consumer`` has one entry of ``hash_`` less; with the last one the hash is free, and what it kept is read."""
    at = _draining_at(b, hash_)
    if at < 0 or b.tracker[at].drainer != consumer:
        return
    b.tracker[at].draining -= 1
    if b.tracker[at].draining == 0:
        blocked = b.tracker[at].blocked
        _stop(b, at)
        if blocked and not closing:
            ask_unblocked_read(b)


@inlined
def blocks(b: Broker, consumer: int, hash_: int) -> bool:
    """Whether ``hash_`` must not go to ``consumer`` yet. If it came back to the consumer it drains from, it is free."""
    at = _draining_at(b, hash_)
    if at < 0:
        return False
    if b.tracker[at].drainer == consumer:
        _stop(b, at)
        return False
    if not b.tracker[at].blocked:
        b.tracker[at].blocked = True
        b.tracker[at].blocked_at = b.state[0].now
    return True


@inlined
def stop_all_draining(b: Broker) -> None:
    if b.state[0].drains > 0:
        b.tracker.drainer[:] = NOBODY
        b.tracker.hash[:] = NOBODY
    b.state[0].drains = 0


@inlined
def _draining_at(b: Broker, hash_: int) -> int:
    if b.state[0].drains == 0:
        return -1
    at = find(b, hash_)
    return at if at >= 0 and b.tracker[at].drainer != NOBODY else -1


@inlined
def _stop(b: Broker, at: int) -> None:
    b.tracker[at].drainer = NOBODY
    b.state[0].drains -= 1
    release(b, at)
