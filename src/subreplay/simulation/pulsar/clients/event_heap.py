"""A binary heap of events: by time, then rank, then the order in which they were set, so that no two are equal."""

from __future__ import annotations

import numpy as np

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import Records

EVENT = np.dtype(
    [
        ("at", "i8"),
        ("rank", "i8"),  # its kind, then its consumer: see ``ranked``
        ("number", "i8"),  # events are numbered as they are set
        ("message", "i8"),
        ("serial", "i8"),  # of the in-flight entry; another one there means that the event is void
    ],
    align=True,
)


@inlined
def ranked(kind: int, consumer: int) -> int:
    return kind << 32 | np.int64(consumer)  # type: ignore[return-value]


@inlined
def kind_of(rank: int) -> int:
    return rank >> 32


@inlined
def consumer_of(rank: int) -> int:
    return rank & 0xFFFFFFFF


@inlined
def push(heap: Records, count: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    """Add an event to the ``count`` that are there."""
    hole = count
    while hole > 0:
        parent = (hole - 1) >> 1
        if not _earlier(at, rank, number, heap, parent):
            break
        _copy(heap, parent, hole)
        hole = parent
    _put(heap, hole, at, rank, number, message, serial)


@inlined
def pop(heap: Records, count: int) -> None:
    """Remove the first of ``count`` events."""
    last = heap[count - 1]
    replace_first(heap, count - 1, last.at, last.rank, last.number, last.message, last.serial)


@inlined
def replace_first(heap: Records, count: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    """Put another event instead of the first of ``count``."""
    hole, child = 0, 1
    while child < count:
        right = child + 1
        if right < count and _earlier(heap[right].at, heap[right].rank, heap[right].number, heap, child):
            child = right
        if _earlier(at, rank, number, heap, child):
            break
        _copy(heap, child, hole)
        hole, child = child, 2 * child + 1
    _put(heap, hole, at, rank, number, message, serial)


@inlined
def _earlier(at: int, rank: int, number: int, heap: Records, other: int) -> bool:
    it = heap[other]
    if at != it.at:
        return at < it.at
    return rank < it.rank or (rank == it.rank and number < it.number)


@inlined
def _copy(heap: Records, source: int, target: int) -> None:
    it = heap[source]
    _put(heap, target, it.at, it.rank, it.number, it.message, it.serial)


@inlined
def _put(heap: Records, index: int, at: int, rank: int, number: int, message: int, serial: int) -> None:
    it = heap[index]
    it.at = at
    it.rank = rank
    it.number = number
    it.message = message
    it.serial = serial
