"""A binary heap of events by time, then rank, then the order in which they were set, so that no two are equal."""

from __future__ import annotations

import numpy as np

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import Records

EVENT = np.dtype(
    [
        ("at", "i8"),
        ("rank", "i8"),  # its kind, then its consumer: see ``encode_rank``
        ("number", "i8"),  # events are numbered as they are set
        ("message", "i8"),
        ("serial", "i8"),  # serial of the in-flight entry; if it has changed, the event is void
    ],
    align=True,
)


@inlined
def encode_rank(kind: int, consumer: int) -> int:
    """Encode an event's kind and consumer as its rank."""
    return kind << 32 | np.int64(consumer)  # type: ignore[return-value]


@inlined
def decode_kind(rank: int) -> int:
    """Return the kind of a rank."""
    return rank >> 32


@inlined
def decode_consumer(rank: int) -> int:
    """Return the consumer of a rank."""
    return rank & 0xFFFFFFFF


@inlined
def push_event(heap: Records, count: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    """Add an event to the ``count`` existing ones."""
    hole = count
    while hole > 0:
        parent = (hole - 1) >> 1
        if not _is_earlier(at, rank, number, heap, parent):
            break
        _copy(heap, parent, hole)
        hole = parent
    _put(heap, hole, at, rank, number, message, serial)


@inlined
def pop_event(heap: Records, count: int) -> None:
    """Remove the first of ``count`` events."""
    last = heap[count - 1]
    replace_first(heap, count - 1, last.at, last.rank, last.number, last.message, last.serial)


@inlined
def replace_first(heap: Records, count: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    """Replace the first of ``count`` events by another one."""
    hole, child = 0, 1
    while child < count:
        right = child + 1
        if right < count and _is_earlier(heap[right].at, heap[right].rank, heap[right].number, heap, child):
            child = right
        if _is_earlier(at, rank, number, heap, child):
            break
        _copy(heap, child, hole)
        hole, child = child, 2 * child + 1
    _put(heap, hole, at, rank, number, message, serial)


@inlined
def _is_earlier(at: int, rank: int, number: int, heap: Records, other: int) -> bool:
    client = heap[other]
    if at != client.at:
        return at < client.at
    return rank < client.rank or (rank == client.rank and number < client.number)


@inlined
def _copy(heap: Records, source: int, target: int) -> None:
    client = heap[source]
    _put(heap, target, client.at, client.rank, client.number, client.message, client.serial)


@inlined
def _put(heap: Records, index: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    client = heap[index]
    client.at = at
    client.rank = rank
    client.number = number
    client.message = message
    client.serial = serial
