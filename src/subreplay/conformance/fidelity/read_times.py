"""When a recorded broker read each entry of its log."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

READ_DELAY = 10 * MILLISECOND
"""A read that waits at the end of the log looks for new entries after this (``managedLedgerNewEntriesCheckDelay``)."""
MAX_READ_DELAY = 2 * READ_DELAY
"""A busy machine lets it look that late."""
MAX_GAP_WITHIN_READ = MILLISECOND
"""Entries of one read are written closer together than this, each to the one before."""

Ints: TypeAlias = NDArray[np.int64]


def find_latest_read_times(count: int, dispatched: Records) -> Ints:
    """When each of ``count`` entries was read at the latest (ns): reads follow the log, so a later one that was
    dispatched shows that it was."""
    first = np.full(count, NEVER)
    np.minimum.at(first, dispatched.ordinal, dispatched.at)
    return np.minimum.accumulate(first[::-1])[::-1]


def find_first_consumers(count: int, dispatched: Records) -> Ints:
    """The consumer that got each of ``count`` entries first; ``NOBODY``: nobody did."""
    first = np.full(count, NOBODY, np.int64)
    first[dispatched.ordinal[::-1]] = dispatched.consumer[::-1]
    return first


def find_read_times(produced: Ints, latest: Ints, delayed: NDArray[np.bool_], turns: Ints | None = None) -> Ints:
    """When each entry was there for the broker's reader (ns), in the order of the log.

    It is when the entry was read at the ``latest``, but no more than ``MAX_READ_DELAY`` after it was ``produced``: what
    was not read by then was kept from the reader by something else, which the re-enactment has to find out. No dispatch
    tells it of ``delayed`` entries, and the reader is modelled: it reads on at once where a read ended, or looks again
    ``READ_DELAY`` later, or is woken by a new entry after that. What is produced by then comes with the same read.

    ``turns`` are the consumers that got the entries of a Shared subscription. A turn ends with its read, so what was
    written to one consumer without a pause is of one read, which began when the last of it was there; so is what
    followed it slowly. Whose turn comes next is left to the re-enactment.
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
