"""The time at which a recorded broker read each entry of its log."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

READ_DELAY = 10 * MILLISECOND
"""How long a read that waits at the end of the log takes to look for new entries
(``managedLedgerNewEntriesCheckDelay``)."""
MAX_READ_DELAY = 2 * READ_DELAY
"""The largest delay of that look on a busy machine."""
MAX_GAP_WITHIN_READ = MILLISECOND
"""Entries of one read are written closer together than this, each to the one before."""

Ints: TypeAlias = NDArray[np.int64]


def find_latest_read_times(count: int, dispatched: Records) -> Ints:
    """Return the latest time (ns) at which each of ``count`` entries was read.

    Reads follow the log, so the dispatch of a later entry shows that an earlier one was read.
    """
    first = np.full(count, NEVER)
    np.minimum.at(first, dispatched.ordinal, dispatched.at)
    return np.minimum.accumulate(first[::-1])[::-1]


def find_first_consumers(count: int, dispatched: Records) -> Ints:
    """Return the first consumer of each of ``count`` entries, or ``NOBODY``."""
    first = np.full(count, NOBODY, np.int64)
    first[dispatched.ordinal[::-1]] = dispatched.consumer[::-1]
    return first


def find_read_times(produced: Ints, latest: Ints, delayed: NDArray[np.bool_], turns: Ints | None = None) -> Ints:
    """Return when each entry was available to the broker's reader (ns), in log order.

    That is the ``latest`` time of its read, but at most ``MAX_READ_DELAY`` after it was ``produced``. If it was not
    read by then, something else delayed it, which the re-enactment has to find out. For ``delayed`` entries no dispatch
    shows the read, so the reader is modelled. It continues at once after a read, or looks again ``READ_DELAY`` later,
    or is woken by a later entry. Entries that exist by then come with the same read.

    ``turns`` are the consumers of a Shared subscription's entries. A turn ends with its read, so entries written to one
    consumer without a pause belong to one read, which began when the last of them existed. The same holds for entries
    that followed slowly. The re-enactment decides whose turn is next.
    """
    produced = np.minimum(produced, latest)  # a busy broker may note late what it stored
    gaps = np.diff(latest, prepend=NEVER)
    is_same_consumer = np.ones(len(produced), np.bool_) if turns is None else np.diff(turns, prepend=NOBODY) == 0
    is_same_turn = (
        is_same_consumer & (gaps < MAX_GAP_WITHIN_READ) if turns is not None else np.zeros(len(produced), np.bool_)
    )
    is_same_read = is_same_consumer & (gaps < (MAX_GAP_WITHIN_READ if turns is None else MAX_READ_DELAY))
    read_times = np.empty_like(produced)
    start, reader_free_at = 0, 0
    while start < len(produced):
        end = start + 1
        while end < len(produced) and is_same_turn[end]:
            end += 1
        produced_at, last = int(produced[start]), int(latest[start])
        checked_at = (
            (reader_free_at if produced_at <= reader_free_at else reader_free_at + READ_DELAY)
            if delayed[start]
            else produced_at + MAX_READ_DELAY
        )
        at = max(reader_free_at, produced_at, min(max(checked_at, int(produced[end - 1])), last))
        while end < len(produced) and produced[end] <= at and is_same_read[end]:
            end += 1
        read_times[start:end] = at
        start, reader_free_at = end, at
    return read_times
