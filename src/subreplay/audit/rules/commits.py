"""Check the commits of a Kafka group: only the owner of a partition commits, offsets increase, and only received
records are committed.

A commit is a row of its own in ``deliveries`` (``ack_type`` Commit). Its position is the committed offset: the next
record to read.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import GROUP, SHARE_GROUP, Code, Exemption, Rule
from subreplay.audit.deliveries import (
    AT,
    AUTOMATIC_COMMITS,
    BATCH_INDEX,
    ENTRY,
    EVIDENCE_WIDTH,
    FAILED_COMMIT,
    LEDGER,
    ORDER,
    SESSION,
    UNTIL,
    Ending,
    Found,
    prove,
    remember,
)
from subreplay.audit.needs import Need
from subreplay.kernels.inlining import operation
from subreplay.rows.model.columns import UNKNOWN, Ints, flags, ints

RULES = (
    Rule(
        Code.COMMIT_NOT_OWNER,
        "Committed by a consumer that does not own the partition",
        "A consumer commits offsets only of partitions that it owns, also while they are being revoked. An automatic "
        "commit that was sent then may be answered when the partition has no owner. The coordinator rejects commits of "
        "former members and of earlier generations.",
        "GroupMetadataManager.validateOffsetCommit, ConsumerGroup.validateOffsetCommit (4.0.2, 4.4.0); row K-COMMIT-1",
        sentence="{consumer} committed offset {offset} at {at}; the partition's owner was {expected}",
        promised=GROUP,
        needs=frozenset({Need.COMMITS, Need.MEMBERSHIP, Need.CALLBACKS}),
    ),
    Rule(
        Code.COMMIT_BACK,
        "A committed offset decreases",
        "The committed offset of a partition increases unless the application sought back. Otherwise, the next "
        "owner receives records again. The start offset of a share partition never decreases.",
        "OffsetMetadataManager.commitOffset (4.0.2): the coordinator takes any offset; row K-COMMIT-2",
        sentence="{consumer} committed offset {offset} at {at}, after {earlier_commit}",
        evidence="order_witness",
        promised=GROUP | SHARE_GROUP,
        needs=frozenset({Need.COMMITS}),
    ),
    Rule(
        Code.COMMIT_AHEAD,
        "Committed before it was delivered",
        "A consumer commits only records that it has received. A record that is committed earlier is skipped if its "
        "partition moves to another consumer.",
        "SubscriptionState.allConsumed (4.0.2): a position is behind what poll() returned; row K-COMMIT-3",
        sentence="{message} of key {key} was delivered to {consumer} at {at}, after a commit beyond it",
        promised=GROUP,
        needs=frozenset({Need.COMMITS, Need.DELIVERIES, Need.EVERY_DELIVERY, Need.DISPATCH_TIMES}),
    ),
)

NONE, COMMITTED, REFUSED, AUTOMATIC = range(4)
"""The kinds of a ``FACTS`` row: no commit, an accepted commit, a rejected commit, and an accepted automatic commit,
which the client makes at intervals."""
KINDS: Final = np.array([NONE, NONE, COMMITTED, REFUSED, AUTOMATIC])
"""The same by the ``kind`` of ``LOG`` rows."""

# What is carried of a partition's commits: the ordinal committed last, the highest one, what explains that a record
# below the former was delivered since (bits of excuses), the highest one of which a commit was refused since, whether
# the last one was automatic, and the last one as a witness
_LATEST, _HIGHEST, _WHY, _FAILED, _AUTOMATIC, _COMMIT = range(6)
_COLUMNS: Final = {
    LEDGER: "ledger", ENTRY: "entry", BATCH_INDEX: "batch_index", SESSION: "session", AT: "at", UNTIL: "held_until",
}  # fmt: skip
_REVOKED, _CRASHED, _CLOSED = int(Ending.REVOKED), int(Ending.CRASHED), int(Ending.CLOSED)
_BACK, _AHEAD, _SOUGHT_BACK = Code.COMMIT_BACK.bit, Code.COMMIT_AHEAD.bit, Exemption.SOUGHT_BACK.bit
_NOT_OWNER = Code.COMMIT_NOT_OWNER.bit
_GOES_BACK = _SOUGHT_BACK | Exemption.RESET.bit | Exemption.SEEKS_NOT_RECORDED.bit


def make_commit_state() -> Ints:
    """Return the state of a partition without commits."""
    return np.array([[UNKNOWN, UNKNOWN, 0, UNKNOWN, 0, *[UNKNOWN] * EVIDENCE_WIDTH]], np.int64)


def find_highest_commit(offsets: Ints) -> int:
    """Return the highest committed ordinal. Everything below it was passed."""
    return int(offsets[0, _HIGHEST])


def judge_commits(offsets: Ints, rows: pa.Table) -> tuple[pa.Table, Found, Ints]:
    """Judge the ``FACTS`` of one topic partition in order of time.

    Returns the rows with COMMIT_BACK, COMMIT_AHEAD and the reason why redelivered records had not been committed
    (``WHY``); the same findings with the commits that prove them; and the columns of the commits by which an owner
    advanced the offset. ``offsets`` is the carried state.
    """
    found = Found.make_empty(ints(rows, "codes").copy(), ints(rows, "excuses").copy())
    previous, again = ints(rows, "previous").copy(), (ints(rows, "nth") > 0) | flags(rows, "before")
    d = np.stack([ints(rows, _COLUMNS[row]) for row in range(EVIDENCE_WIDTH)])
    advances = np.zeros(rows.num_rows, np.bool_)
    _judge_commits(offsets, ints(rows, "commit"), ints(rows, "ordinal"), d, again, previous, advances, found)
    for name, values in (("codes", found.codes), ("excuses", found.exemptions), ("previous", previous)):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(index, rows.schema.field(name), pa.array(values))
    return rows, found, d[:, advances]


@operation
def _judge_commits(
    offsets: Ints, commit: Ints, ordinal: Ints, d: Ints, again: Any, previous: Ints, advances: Any, found: Found
) -> Any:  # pragma: no cover - compiled
    """Judge the rows one by one."""
    codes, exemptions = found.codes, found.exemptions
    for i in range(len(commit)):
        if commit[i] == NONE:
            if _REVOKED <= previous[i] <= _CRASHED or previous[i] == _CLOSED:
                if ordinal[i] < offsets[0, _FAILED]:
                    previous[i] |= FAILED_COMMIT
                elif previous[i] != _REVOKED and offsets[0, _AUTOMATIC]:
                    previous[i] |= AUTOMATIC_COMMITS
            if not again[i] and d[SESSION, i] >= 0 and ordinal[i] < offsets[0, _HIGHEST]:
                codes[i] |= _AHEAD
            if ordinal[i] < offsets[0, _LATEST]:  # what was never delivered before was sought
                offsets[0, _WHY] |= exemptions[i] & _GOES_BACK if again[i] else _SOUGHT_BACK
        elif commit[i] == REFUSED:
            offsets[0, _FAILED] = max(offsets[0, _FAILED], ordinal[i])
        else:
            if ordinal[i] < offsets[0, _LATEST]:
                codes[i] |= _BACK
                exemptions[i] |= offsets[0, _WHY]
                prove(found.proof, found.proven, ORDER, i, offsets, 0, _COMMIT, False)
            advances[i] = ordinal[i] > offsets[0, _LATEST] and d[SESSION, i] >= 0 and codes[i] & _NOT_OWNER == 0
            remember(offsets, 0, _COMMIT, d, i)
            offsets[0, _LATEST], offsets[0, _WHY] = ordinal[i], 0
            offsets[0, _HIGHEST] = max(offsets[0, _HIGHEST], ordinal[i])
            offsets[0, _AUTOMATIC] = commit[i] == AUTOMATIC
            if ordinal[i] >= offsets[0, _FAILED]:
                offsets[0, _FAILED] = UNKNOWN
    return 0
