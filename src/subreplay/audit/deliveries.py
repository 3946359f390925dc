"""Deliveries and findings for compiled rules: a matrix with a row for each column, in order of time.

A single array is cheap to pass between functions; a dozen arrays are not.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    # of the members of a share group
    EXPIRED = 9  # its acquisition lock timed out
    RENEWED = 10  # its consumer renewed the lock, and goes on with the record
    RELEASED = 11  # its consumer gave it back


FAILED_COMMIT, AUTOMATIC_COMMITS = 16, 32
"""Bits beside the ending of a record that a member of a Kafka group had not committed, if the reason is known: a commit
of it had failed; or commits of its partition are automatic, and it was delivered after the last one."""
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
    """The results of the rules: a bit for each code and each exemption of a row, and the delivery that proves it.

    ``proof[kind, row]`` is the evidence, followed by 1 if it is of the same key, and by ``BLOCKER_COUNT``, if
    ``proven[kind, row]``.
    """

    codes: Ints
    exemptions: Ints
    proof: Ints
    proven: Flags

    @classmethod
    def make_empty(cls, codes: Ints, exemptions: Ints) -> Found:
        n = len(codes)
        return cls(codes, exemptions, np.zeros((3, n, BLOCKER_COUNT + 1), np.int64), np.zeros((3, n), np.bool_))

    @classmethod
    def concatenate(cls, parts: Sequence[Found]) -> Found:
        """Concatenate what was found in consecutive parts of the rows."""
        codes, exemptions, proof, proven = zip(*parts, strict=True)
        return cls(np.concatenate(codes), np.concatenate(exemptions), np.hstack(proof), np.hstack(proven))

    def of(self, rows: Ints) -> Found:
        """Return the results of some rows."""
        return Found(self.codes[rows], self.exemptions[rows], self.proof[:, rows], self.proven[:, rows])


@hot
def remember(rows: Ints, row: int, column: int, d: Ints, i: int) -> None:  # pragma: no cover - compiled
    """Store delivery ``i`` as evidence."""
    for w in range(EVIDENCE_WIDTH):
        rows[row, column + w] = d[w, i]


@hot
def prove(
    proof: Ints, proven: Flags, kind: int, i: int, rows: Ints, row: int, column: int, same_key: bool
) -> None:  # pragma: no cover - compiled
    """Attach stored evidence to delivery ``i``."""
    for w in range(EVIDENCE_WIDTH):
        proof[kind, i, w] = rows[row, column + w]
    proof[kind, i, EVIDENCE_WIDTH] = same_key
    proven[kind, i] = True
