"""Hashes with a new owner that wait until their previous consumer has acknowledged its messages.

This is ``DrainingHashesTracker``, the 4.x rule of Key_Shared order (row P-KS-ORD-1, unit: the hash).
"""

from __future__ import annotations

from subreplay.kernels.inlining import inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker
from subreplay.simulation.pulsar.broker.broker_tasks import request_unblocked_read
from subreplay.simulation.pulsar.broker.hash_tracker import claim_hash, find_hash, release_hash


@inlined
def start_draining(b: Broker, consumer: int, hash_: int) -> None:
    """Count one more entry of ``consumer`` that keeps ``hash_`` from its new owner."""
    tracked = b.tracker[claim_hash(b, hash_)]
    if tracked.drainer == NOBODY:
        tracked.drainer = consumer
        tracked.draining = 0
        tracked.blocked = False
        b.state[0].drains += 1
    tracked.draining += 1


@inlined
def count_drained(b: Broker, consumer: int, hash_: int, closing: bool) -> None:
    """Count one entry of ``hash_`` less at ``consumer``.

    With the last one the hash is free, and blocked entries are read.
    """
    at = _find_draining(b, hash_)
    if at < 0 or b.tracker[at].drainer != consumer:
        return
    b.tracker[at].draining -= 1
    if b.tracker[at].draining == 0:
        blocked = b.tracker[at].blocked
        _stop_draining(b, at)
        if blocked and not closing:
            request_unblocked_read(b)


@inlined
def is_blocked_by_draining(b: Broker, consumer: int, hash_: int) -> bool:
    """Return whether ``hash_`` must not go to ``consumer`` yet.

    A hash that came back to its draining consumer is free.
    """
    at = _find_draining(b, hash_)
    if at < 0:
        return False
    if b.tracker[at].drainer == consumer:
        _stop_draining(b, at)
        return False
    if not b.tracker[at].blocked:
        b.tracker[at].blocked = True
        b.tracker[at].blocked_at = b.state[0].now
    return True


@inlined
def stop_all_draining(b: Broker) -> None:
    """Free all draining hashes."""
    if b.state[0].drains > 0:
        b.tracker.drainer[:] = NOBODY
        b.tracker.hash[:] = NOBODY
    b.state[0].drains = 0


@inlined
def _find_draining(b: Broker, hash_: int) -> int:
    if b.state[0].drains == 0:
        return -1
    at = find_hash(b, hash_)
    return at if at >= 0 and b.tracker[at].drainer != NOBODY else -1


@inlined
def _stop_draining(b: Broker, at: int) -> None:
    b.tracker[at].drainer = NOBODY
    b.state[0].drains -= 1
    release_hash(b, at)
