"""Find the pattern of an act (``audit.acts``) in deliveries: from a position on, everything acknowledged before it is
redelivered after it, in order. What matches no act stays a finding.

A member of a Kafka group can also seek back while it owns its partition, which only its deliveries show. From an offset
on, everything that it had received is redelivered to it, in order, before anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code
from subreplay.audit.deliveries import Ending
from subreplay.audit.rules.publication import ENTRY, LEDGER
from subreplay.audit.rules.redelivery import ACKED, AT, IGNORED, LEFT, OWNED, PREVIOUS, RESET, SESSION
from subreplay.audit.rules.redelivery import CODES as ATTEMPT_CODES
from subreplay.kernels.inlining import hot
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints

# What is known of an act while a log is read: of the messages that were redelivered after their acknowledgement, the
# ordinal of the first, how many there are, of how many entries, the last entry (two columns), and how many came before
# their predecessor at the same consumer. Behind the first one, how many had been acknowledged and were not redelivered
# although later ones were delivered, and how many since the last delivery.
_FIRST, _COUNT, _ENTRIES, _LAST, _FALLS, _MISSING, _PENDING = 0, 1, 2, 3, 5, 6, 7
_PATTERN: Final = 8
FEWEST: Final = 2
"""The smallest number of entries in a pattern. A single entry is not enough, because a batch is redelivered as a whole
without batch-index acknowledgements."""
_MOST_MISSING, _MOST_FALLS = 20, 10  # at most one in so many is missing, or out of order
_DUP = Code.DUP_DELIVERY.bit
_AGAIN = _DUP | Code.DUP_OUTSTANDING.bit
_SOUGHT = int(Ending.SOUGHT)

# A possible seek: the session that sought (-1: the row is free), ordinals of the first and last redelivered message,
# when they were redelivered, how many there are, and how many between them were not redelivered
_WHO, _FROM, _UP_TO, _BEGIN, _END, _REDELIVERED_COUNT, _ABSENT = range(7)
_SEEK: Final = 7
_AT_ONCE: Final = 32  # seeks that may be open at one position
MOST_SEEKS: Final = 1_000
"""The largest number of recognized seeks of one dispatcher."""


class Patterns:
    """The patterns of a dispatcher's acts in its log: ``rows`` by act, and when each session last received a message
    after it."""

    def __init__(self, acts: Sequence[Act], sessions: int) -> None:
        self.at = np.array([act.at for act in acts], np.int64)
        self.rows = np.zeros((len(acts), _PATTERN), np.int64)
        self.last_served = np.full((len(acts), sessions + 1), UNKNOWN)

    @property
    def found(self) -> Ints:
        """The instant of each act, and the ordinal from which on everything was redelivered (``NEVER``: the deliveries
        do not show the act)."""
        rows = self.rows
        shown = rows[:, _ENTRIES] >= FEWEST
        shown &= _MOST_MISSING * rows[:, _MISSING] <= rows[:, _COUNT]
        shown &= _MOST_FALLS * rows[:, _FALLS] <= rows[:, _COUNT]
        return np.column_stack([self.at, np.where(shown, rows[:, _FIRST], NEVER)])


@hot
def note_message(
    acts: Ints, rows: Ints, served: Ints, a: Ints, begin: int, end: int, m: Ints, head: int, ordinal: int
) -> None:  # pragma: no cover - compiled
    """Note what the deliveries of one message show of each act.

    If more messages are missing than were redelivered, these were something else: the pattern starts after them.
    """
    for k in range(len(acts)):
        crossing, expected, after = -1, False, False
        for j in range(begin, end):
            if a[AT, j] > acts[k]:
                after = True
                if crossing < 0 and a[RESET, j] == acts[k] and a[ATTEMPT_CODES, j] & _DUP:
                    crossing = j
            elif a[AT, j] != UNKNOWN and a[ACKED, j] != UNKNOWN and a[ACKED, j] <= acts[k] and not a[IGNORED, j]:
                expected = True
        if rows[k, _COUNT]:
            if after:
                rows[k, _MISSING] += rows[k, _PENDING]
                rows[k, _PENDING] = 0
            elif expected:
                rows[k, _PENDING] += 1
        if crossing < 0:
            continue
        if rows[k, _MISSING] > rows[k, _COUNT]:
            rows[k, :] = 0
            served[k, :] = UNKNOWN
        if not rows[k, _COUNT]:
            rows[k, _FIRST] = ordinal
        if not rows[k, _COUNT] or rows[k, _LAST] != m[LEDGER, head] or rows[k, _LAST + 1] != m[ENTRY, head]:
            rows[k, _ENTRIES] += 1
            rows[k, _LAST], rows[k, _LAST + 1] = m[LEDGER, head], m[ENTRY, head]
        rows[k, _COUNT] += 1
        session = a[SESSION, crossing]
        if a[AT, crossing] < served[k, session]:
            rows[k, _FALLS] += 1
        else:
            served[k, session] = a[AT, crossing]


class Seeks:
    """The seeks of the members of a Kafka group in its log: ``open`` ones, and ``number[0]`` ``complete`` ones."""

    def __init__(self) -> None:
        self.open = np.full((_AT_ONCE, _SEEK), -1, np.int64)
        self.complete = np.empty((MOST_SEEKS, _SEEK), np.int64)
        self.number = np.zeros(1, np.int64)

    @property
    def found(self) -> Ints:
        """Seeks in order of time: the time range (ns) and the ordinal range of their redeliveries, and the session."""
        last = self.open[(self.open[:, _WHO] >= 0) & (self.open[:, _REDELIVERED_COUNT] >= FEWEST)]
        last = last[_MOST_MISSING * last[:, _ABSENT] <= last[:, _REDELIVERED_COUNT]]
        rows = np.concatenate([self.complete[: self.number[0]], last])
        return rows[np.argsort(rows[:, _BEGIN], kind="stable")][:, [_BEGIN, _END, _FROM, _UP_TO, _WHO]]


@hot
def note_seeks(
    open_: Ints, complete: Ints, number: Ints, a: Ints, begin: int, end: int, ordinal: int
) -> None:  # pragma: no cover - compiled
    """Note what the deliveries of one message show of seeks: whether it was redelivered by one, or delivered after
    one."""
    first = begin
    while first < end and a[AT, first] == UNKNOWN:
        first += 1
    if first == end:
        return
    for k in range(len(open_)):
        if open_[k, _WHO] >= 0 and a[AT, first] > open_[k, _BEGIN]:  # everything delivered before was redelivered
            if (
                open_[k, _REDELIVERED_COUNT] >= FEWEST
                and _MOST_MISSING * open_[k, _ABSENT] <= open_[k, _REDELIVERED_COUNT]
                and number[0] < len(complete)
            ):
                for column in range(_SEEK):
                    complete[number[0], column] = open_[k, column]
                number[0] += 1
            open_[k, _WHO] = -1
    for j in range(first + 1, end):
        session, at = a[SESSION, j], a[AT, j]
        if not a[ATTEMPT_CODES, j] & _AGAIN or a[RESET, j] != UNKNOWN or a[PREVIOUS, j] == _SOUGHT:
            continue
        if session < 0 or not a[OWNED, j] or a[SESSION, j - 1] != session or a[LEFT, j - 1] <= at:
            continue
        mine, free = -1, -1
        for k in range(len(open_)):
            if open_[k, _WHO] < 0:
                free = k
                continue
            follows = open_[k, _WHO] == session and open_[k, _UP_TO] != ordinal and open_[k, _END] <= at
            if follows and (mine < 0 or open_[k, _END] > open_[mine, _END]):
                mine = k
        if mine < 0 <= free:
            mine = free
            open_[mine, _WHO], open_[mine, _FROM], open_[mine, _BEGIN] = session, ordinal, at
            open_[mine, _REDELIVERED_COUNT] = open_[mine, _ABSENT] = 0
        if mine >= 0:
            open_[mine, _UP_TO], open_[mine, _END] = ordinal, at
            open_[mine, _REDELIVERED_COUNT] += 1
    for k in range(len(open_)):
        if open_[k, _WHO] >= 0 and open_[k, _UP_TO] != ordinal:
            open_[k, _ABSENT] += 1
            if open_[k, _ABSENT] > open_[k, _REDELIVERED_COUNT]:
                open_[k, _WHO] = -1
