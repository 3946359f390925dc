"""Deliveries and findings as compiled rules see them: a matrix with a row per column, in order of time.

One array is cheap to hand from function to function; a dozen are not.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import hot
from subreplay.kernels.lazy_kernel import pass_by_reference
from subreplay.rows.model.columns import Ints

Flags = NDArray[np.bool_]


class Ending(IntEnum):
    """How a delivery ended."""

    NONE = 0  # there was none before
    ACKED = 1
    NACKED = 2  # its redelivery was asked for
    CLOSED = 3  # its consumer left
    OPEN = 4  # it had not ended
    # of the members of a Kafka group, which had not committed it
    REVOKED = 5  # its partition was taken from its consumer
    LOST = 6  # ... which had left the group by max.poll.interval.ms, or was evicted, and did not know
    CRASHED = 7  # its consumer's process ended, or its session timed out
    SOUGHT = 8  # the application sought back to it, or before it


FAILED_COMMIT, AUTOMATIC_COMMITS = 16, 32
"""Bits beside the ending of what a member of a Kafka group had not committed, where it is known why: a commit of it had
failed; commits of its partition are automatic, and it came after the last one."""
WHY: Final = FAILED_COMMIT | AUTOMATIC_COMMITS


# The columns of a delivery: the first six make a witness. KEY is the identity within which order is promised (-1:
# none), NTH 0 for a first delivery, DUE when the message could be delivered at the earliest, RECEIVED when the
# application took it, CHANGING 1 while a membership change was under way.
LEDGER, ENTRY, BATCH_INDEX, SESSION, AT, UNTIL, KEY, SLOT, ORDINAL, NTH, DUE, RECEIVED, EPOCH, CHANGING = range(14)
DELIVERY: Final = 14
EVIDENCE_WIDTH: Final = 6
# Behind a witness: 1 if it is of the same key as the finding; how many messages its consumer held
BLOCKER_COUNT: Final = EVIDENCE_WIDTH + 1

# Which delivery proves a finding: the later one delivered before, the one at another consumer, the one that held others
# back
ORDER, OWNER, HOLDER = range(3)


@pass_by_reference
class Found(NamedTuple):
    """What the rules find: a bit per code and per excuse in each row, and the delivery that proves it.

    ``proof[kind, row]`` is a witness, with 1 behind it if it is of the same key, and ``BLOCKER_COUNT``, where
    ``proven[kind, row]``.
    """

    codes: Ints
    exemptions: Ints
    proof: Ints
    proven: Flags

    @classmethod
    def nothing(cls, codes: Ints, exemptions: Ints) -> Found:
        n = len(codes)
        return cls(codes, exemptions, np.zeros((3, n, BLOCKER_COUNT + 1), np.int64), np.zeros((3, n), np.bool_))

    def of(self, rows: Ints) -> Found:
        """What was found in some rows."""
        return Found(self.codes[rows], self.exemptions[rows], self.proof[:, rows], self.proven[:, rows])


@hot
def remember(rows: Ints, row: int, column: int, d: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Store delivery ``i`` as a witness."""
    for w in range(EVIDENCE_WIDTH):
        rows[row, column + w] = d[w, i]


@hot
def prove(
    proof: Ints, proven: Flags, kind: int, i: int, rows: Ints, row: int, column: int, same_key: bool
) -> None:  # pragma: no cover - compiled
    """Put a stored witness beside delivery ``i``."""
    for w in range(EVIDENCE_WIDTH):
        proof[kind, i, w] = rows[row, column + w]
    proof[kind, i, EVIDENCE_WIDTH] = same_key
    proven[kind, i] = True
