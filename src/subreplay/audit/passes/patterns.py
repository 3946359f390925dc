"""What deliveries show of an act (``audit.acts``): from a position on, everything that had been acknowledged before it
is redelivered after it, in order. What fits no act stays a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code
from subreplay.audit.rules.publication import ENTRY, LEDGER
from subreplay.audit.rules.redelivery import ACKED, AT, IGNORED, RESET, SESSION
from subreplay.audit.rules.redelivery import CODES as ATTEMPT_CODES
from subreplay.kernels.inlining import hot
from subreplay.model.columns import NEVER, UNKNOWN, Ints

# What is known of an act while a log is read: of the messages that were redelivered after their acknowledgement, the
# ordinal of the first, how many there are, of how many entries, the last entry (two columns), and how many came before
# their predecessor at the same consumer. Behind the first one, how many had been acknowledged and were not redelivered
# although later ones were delivered, and how many since the last delivery.
_FIRST, _COUNT, _ENTRIES, _LAST, _FALLS, _MISSING, _PENDING = 0, 1, 2, 3, 5, 6, 7
_PATTERN: Final = 8
FEWEST: Final = 2
"""Entries that make a pattern. Of one entry it is none: without batch-index acknowledgements a batch is redelivered
whole."""
_MOST_MISSING, _MOST_FALLS = 20, 10  # at most one in so many is missing, or out of order
_DUP = Code.DUP_DELIVERY.bit


class Patterns:
    """What a log shows of a dispatcher's acts: ``rows`` by act, and when each session was ``served`` last after it."""

    def __init__(self, acts: Sequence[Act], sessions: int) -> None:
        self.at = np.array([act.at for act in acts], np.int64)
        self.rows = np.zeros((len(acts), _PATTERN), np.int64)
        self.served = np.full((len(acts), sessions + 1), UNKNOWN)

    @property
    def found(self) -> Ints:
        """By act, its instant, and the ordinal from which on everything was redelivered (``NEVER``: the deliveries do
        not show the act)."""
        rows = self.rows
        shown = rows[:, _ENTRIES] >= FEWEST
        shown &= _MOST_MISSING * rows[:, _MISSING] <= rows[:, _COUNT]
        shown &= _MOST_FALLS * rows[:, _FALLS] <= rows[:, _COUNT]
        return np.column_stack([self.at, np.where(shown, rows[:, _FIRST], NEVER)])


@hot
def see_message(
    acts: Ints, rows: Ints, served: Ints, a: Ints, begin: int, end: int, m: Ints, head: int, ordinal: int
) -> None:  # pragma: no cover - compiled
    """Note what the deliveries of one message say of each act.

    Where more are missing than were redelivered, these were something else: the pattern begins behind them."""
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
