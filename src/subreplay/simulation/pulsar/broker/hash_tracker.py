"""What is known about a sticky hash while it matters: its waiting entries, and the consumer that it drains from.

It is an open hash table with linear probing. A hash is removed when nothing is known about it any more.
"""

from __future__ import annotations

from subreplay.kernels.inlining import hot, inlined
from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_state import Broker


@inlined
def find_hash(b: Broker, hash_: int) -> int:
    """Return the position of ``hash_`` in ``b.tracker``, or -1."""
    mask = len(b.tracker) - 1
    at = hash_ & mask
    while b.tracker[at].hash != hash_:
        if b.tracker[at].hash == NOBODY:
            return -1
        at = (at + 1) & mask
    return at


@hot
def claim_hash(b: Broker, hash_: int) -> int:
    """Return the position of ``hash_`` in ``b.tracker``; add it if it is not there."""
    mask = len(b.tracker) - 1
    at = hash_ & mask
    while b.tracker[at].hash != hash_:
        if b.tracker[at].hash == NOBODY:
            b.tracker[at].hash = hash_
            break
        at = (at + 1) & mask
    return at


@inlined
def release_hash(b: Broker, at: int) -> None:
    """Remove the hash at ``at`` if nothing is known about it; displaced hashes move up."""
    if b.tracker[at].waiting > 0 or b.tracker[at].drainer != NOBODY:
        return
    mask = len(b.tracker) - 1
    hole, probe = at, (at + 1) & mask
    while b.tracker[probe].hash != NOBODY:
        home = b.tracker[probe].hash & mask
        if ((probe - home) & mask) >= ((probe - hole) & mask):
            _move(b, probe, hole)
            hole = probe
        probe = (probe + 1) & mask
    b.tracker[hole].hash = NOBODY
    b.tracker[hole].waiting = 0
    b.tracker[hole].drainer = NOBODY


@inlined
def _move(b: Broker, source: int, target: int) -> None:
    old, new = b.tracker[source], b.tracker[target]
    new.hash = old.hash
    new.waiting = old.waiting
    new.drainer = old.drainer
    new.draining = old.draining
    new.blocked = old.blocked
    new.blocked_at = old.blocked_at
