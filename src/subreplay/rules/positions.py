"""One message at a time: what its deliveries say when they are read in order of time.

The compiled half of the rules that look at a single position of the log: redelivery, delivery after an
acknowledgement, delivery while outstanding, acknowledgement without delivery. Rows come sorted by position, and within
one position by time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.columns import NEVER, UNKNOWN, Ints
from subreplay.hashing.compiled import compiled
from subreplay.rules.registry import Code, Excuse

_DUP, _OUTSTANDING, _REDELIVERED = Code.DUP_DELIVERY.bit, Code.DUP_OUTSTANDING.bit, Code.REDELIVERED.bit
_EARLY, _UNACKED, _LOST = Code.ACK_EARLY.bit, Code.UNACKED.bit, Code.LOST.bit
_BATCH_AGAIN = int(Excuse.BATCH_AGAIN) << 4 * int(Code.DUP_DELIVERY)


def read_positions(
    group: Ints, at: Ints, acked: Ints, received: Ints, held_until: Ints, count: Ints, owned: NDArray[np.bool_],
    partly: NDArray[np.bool_], receipts: bool, codes: Ints, excuses: Ints,
) -> Ints:  # fmt: skip
    """Each delivery's ordinal among the deliveries of its message; findings are added to ``codes`` and ``excuses``.

    ``group`` numbers positions; ``at`` is the delivery's time (``UNKNOWN``: acknowledged without one); ``held_until``
    the end of its interval, cut to nothing for a delivery that came after its acknowledgement; ``owned`` is false for
    deliveries that an ownership rule found, which then explain what follows; ``partly`` is true while other messages
    of the same batch are not acknowledged; ``receipts`` says whether applications recorded what they took.
    """
    nth = np.zeros(len(group), np.int64)
    _read(group, at, acked, received, held_until, count, owned, partly, receipts, codes, excuses, nth)
    return nth


@compiled
def _read(
    group: Ints, at: Ints, acked: Ints, received: Ints, held_until: Ints, count: Ints, owned: NDArray[np.bool_],
    partly: NDArray[np.bool_], receipts: bool, codes: Ints, excuses: Ints, nth: Ints,
) -> Any:  # fmt: skip  # pragma: no cover - compiled
    n = len(group)
    i = 0
    while i < n:
        first_ack, open_until, highest, seen, taken = NEVER, UNKNOWN, UNKNOWN, 0, False
        j = i
        while j < n and group[j] == group[i]:
            if at[j] == UNKNOWN:
                first_ack = min(first_ack, acked[j])
                j += 1
                continue
            nth[j] = seen
            taken = taken or received[j] != UNKNOWN
            if seen > 0:
                codes[j] |= _REDELIVERED
            if seen > 0 and first_ack <= at[j]:
                codes[j] |= _DUP
                if partly[j]:
                    excuses[j] |= _BATCH_AGAIN
                held_until[j] = at[j]
            elif owned[j] and open_until > at[j] and count[j] <= highest:
                codes[j] |= _OUTSTANDING
            if acked[j] != UNKNOWN:
                if acked[j] < at[j]:
                    codes[j] |= _EARLY
                    held_until[j] = at[j]
                first_ack = min(first_ack, max(acked[j], at[j]))
            if owned[j]:
                open_until = max(open_until, held_until[j])
                highest = max(highest, count[j])
            seen += 1
            j += 1
        if seen > 0 and first_ack == NEVER:
            codes[j - 1] |= _UNACKED
        if receipts and seen > 0 and first_ack != NEVER and not taken:
            codes[j - 1] |= _LOST
        i = j
    return 0
