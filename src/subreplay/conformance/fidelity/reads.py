"""When a recorded broker read each entry of its log."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.range_table import NOBODY
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND

READ_LAG = 10 * MILLISECOND
"""A read that waits at the end of the log looks for new entries after this (``managedLedgerNewEntriesCheckDelay``)."""
LONGEST_LAG = 2 * READ_LAG
"""A busy machine lets it look that late."""
OF_ONE_READ = MILLISECOND
"""Entries of one read are written closer together than this, each to the one before."""

Ints: TypeAlias = NDArray[np.int64]


def read_by(count: int, dispatched: Records) -> Ints:
    """When each of ``count`` entries was read at the latest (ns): reads follow the log, so a later one that was
    dispatched shows that it was."""
    first = np.full(count, NEVER)
    np.minimum.at(first, dispatched.ordinal, dispatched.at)
    return np.minimum.accumulate(first[::-1])[::-1]


def served_first(count: int, dispatched: Records) -> Ints:
    """The consumer that got each of ``count`` entries first; ``NOBODY``: nobody did."""
    first = np.full(count, NOBODY, np.int64)
    first[dispatched.ordinal[::-1]] = dispatched.consumer[::-1]
    return first


def read_at(produced: Ints, latest: Ints, delayed: NDArray[np.bool_], turns: Ints | None = None) -> Ints:
    """When each entry was there for the broker's reader (ns), in the order of the log.

    It is when the entry was read at the ``latest``, but no more than ``LONGEST_LAG`` after it was ``produced``: what
    was not read by then was kept from the reader by something else, which the re-enactment has to find out. No dispatch
    tells it of ``delayed`` entries, and the reader is modelled: it reads on at once where a read ended, or looks again
    ``READ_LAG`` later, or is woken by a new entry after that. What is produced by then comes with the same read.

    ``turns`` are the consumers that got the entries of a Shared subscription. A turn ends with its read, so what was
    written to one consumer without a pause is of one read, which began when the last of it was there; so is what
    followed it slowly. Whose turn comes next is left to the re-enactment.
    """
    produced = np.minimum(produced, latest)  # a busy broker may note late what it stored
    gaps = np.diff(latest, prepend=NEVER)
    same = np.ones(len(produced), np.bool_) if turns is None else np.diff(turns, prepend=NOBODY) == 0
    turn = same & (gaps < OF_ONE_READ) if turns is not None else np.zeros(len(produced), np.bool_)
    together = same & (gaps < (OF_ONE_READ if turns is None else LONGEST_LAG))
    there = np.empty_like(produced)
    start, free = 0, 0
    while start < len(produced):
        end = start + 1
        while end < len(produced) and turn[end]:
            end += 1
        known, last = int(produced[start]), int(latest[start])
        looks = (free if known <= free else free + READ_LAG) if delayed[start] else known + LONGEST_LAG
        at = max(free, known, min(max(looks, int(produced[end - 1])), last))
        while end < len(produced) and produced[end] <= at and together[end]:
            end += 1
        there[start:end] = at
        start, free = end, at
    return there
