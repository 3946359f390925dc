"""Number positions: one integer for each, which increases with the log and stays the same in every daily run."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np

from subreplay.rows.model.columns import Ints

BATCH_BITS: Final = 20  # messages of one batch that are distinguished
ENTRY_BITS: Final = 22  # entries of a ledger that have room; one that is larger takes more
_SPAN: Final = 1 << (BATCH_BITS + ENTRY_BITS)
_MIDDLE: Final = 1 << 62


class Ordinals:
    """Ledgers in the order of their first use, each with the begin of its ordinals.

    A new ledger that is newer than all others begins after them. A new ledger that is older (a redelivery of a message
    published before the first run) begins before them. ``known``: rows of ledger, begin and end.
    """

    def __init__(self, known: Ints | None = None) -> None:
        self._ledgers = {} if known is None else {int(ledger): (int(begin), int(end)) for ledger, begin, end in known}
        self._newest = max(self._ledgers, default=-1)
        self._ends = {False: 0, True: _MIDDLE}  # of the older ledgers, of the others
        for begin, end in self._ledgers.values():
            self._ends[begin >= _MIDDLE] = max(self._ends[begin >= _MIDDLE], end)

    @property
    def known(self) -> Ints:
        """The ledgers for the next daily run."""
        return np.array([(ledger, *span) for ledger, span in self._ledgers.items()], np.int64).reshape(-1, 3)

    def number(self, ledger: Ints, entry: Ints, batch_index: Ints) -> Ints:
        """Return the ordinals of sorted positions."""
        within = (entry << BATCH_BITS) + np.minimum(batch_index + 1, (1 << BATCH_BITS) - 1)
        bounds = [*np.flatnonzero(np.diff(ledger, prepend=ledger[:1] - 1)).tolist(), len(ledger)]
        for start, end in itertools.pairwise(bounds):
            begin, end_so_far = self._find_begin(int(ledger[start]))
            within[start:end] += begin
            self._remember(int(ledger[start]), begin, max(end_so_far, int(within[end - 1]) + 1))
        return within

    def _find_begin(self, ledger: int) -> tuple[int, int]:
        if ledger not in self._ledgers:
            begin = self._ends[ledger > self._newest]
            self._remember(ledger, begin, begin + _SPAN)
            self._newest = max(self._newest, ledger)
        return self._ledgers[ledger]

    def _remember(self, ledger: int, begin: int, end: int) -> None:
        self._ledgers[ledger] = begin, end
        self._ends[begin >= _MIDDLE] = max(self._ends[begin >= _MIDDLE], end)
