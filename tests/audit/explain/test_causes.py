"""What explains each finding: the cases that break the rules, and what is named as their cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit.codes import Code
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.terms import Terms
from subreplay.hashing.murmur3 import murmur3_32_array
from tests.audit.rules.test_every_rule import CASES, HELD, KEY_SHARED, NACKED, SHARED, Story, Told
from tests.support.history import History, history, key_of
from tests.support.pure import audit_by, judge_of

CAUSES = {
    Code.WRONG_OWNER: "epoch 2: C2 joined",
    Code.NOT_CONNECTED: "no join of C9 is recorded",
    Code.DLQ_MISSED: "its redelivery count does not increase",
    Code.DLQ_ACKED: "its client still sends messages",
    Code.NEVER_JOINED: "the membership lacks the join",
    Code.KEY_ORDER: "unexplained",
    Code.PARTITION_ORDER: "unexplained",
    Code.KEY_TWO_OWNERS: "epoch 2: C2 joined",
    Code.DUP_DELIVERY: "unexplained",
    Code.DUP_OUTSTANDING: "unexplained",
    Code.LOST: "the broker lost it, or it was skipped",
    Code.MIXED_BATCH: "the producer batched by time and size",
    Code.UNROUTABLE: "the data end",
    Code.DIVERGENT_ID: "unexplained",
    Code.UNKNOWN_MESSAGE: "unexplained",
    Code.ACK_EARLY: "unexplained",
    Code.UNSEEN: "the data end",
    Code.UNACKED: "unexplained",
    Code.LATE_ACK: "its consumer took longer than group.share.record.lock.duration.ms",
    Code.ARCHIVED: "its consumers released it or did not acknowledge it in time",
    Code.REJECTED: "its application rejected it",
    Code.OVER_LIMIT: "its consumer released it",
    Code.REDELIVERED: "its redelivery was requested (nack or ack timeout)",
    Code.BEFORE_PREDECESSOR_ACK: "epoch 2: C2 joined",
    Code.REDELIVERY_ORDER: "its redelivery was requested (nack or ack timeout)",
    Code.SKIP: "unexplained",
    Code.PRODUCER_ORDER: "its producer sent it late",
    Code.DUP_PUBLISH: "its producer sent it twice",
    Code.TWO_ACTIVE: "unexplained",
    Code.CUM_ACK_MISUSE: "its application acknowledges cumulatively",
    Code.ROUTING_MISMATCH: "its producer does not choose partitions as declared",
    Code.KEY_TWO_PARTITIONS: "producer p changed its choice",
    Code.EARLY: "unexplained",
    Code.DROPPED: "no consumer had permits for it",
    Code.OVER_PERMITS: "unexplained",
    Code.STUCK: "C1 held ",
    Code.DLQ_ORDER: "each consumer sends its own dead letters",
    Code.DLQ_INCOMPLETE: "C1 negatively acknowledged it",
    Code.STICKY_GAP: "epoch 1: C1 joined",
    Code.STICKY_OVERLAP: "epoch 2: C2 joined and was rejected",
    Code.STARVED: "no recorded event blocks it",
    Code.STALLED: "no recorded event blocks it",
    Code.LATE: "no recorded event blocked it",
    Code.DROPPED: "no consumer had permits for it",
    Code.BEFORE_PUBLICATION: "the clocks of its producer and of the broker differ",
    Code.REDELIVERED_UNASKED: "no nack and no leave is recorded",
    Code.COMMIT_NOT_OWNER: "unexplained",
    Code.COMMIT_BACK: "unexplained",
    Code.COMMIT_AHEAD: "unexplained",
    Code.TWO_OWNERS: "unexplained",
    Code.TOLD_DIFFERS: "unexplained",
    Code.OWNER_DIFFERS: "unexplained",
}


def reported(case: Story, code: Code) -> list[dict[str, Any]]:
    """The rows of table ``violations`` of one code."""
    tables = case.change(history(case.log, case.story, case.partition))
    judge = judge_of(case.policy, tables, case.terms)
    rows = audit_by(judge, tables)
    found = [
        row for batch in Explainer(judge, "sub").explain_violations(rows.to_batches()) for row in batch.to_pylist()
    ]
    return [row for row in found if row["code"] == code.name]


@pytest.mark.parametrize("code", Code, ids=lambda code: code.name)
def test_every_finding_names_its_cause(code: Code) -> None:
    broken = CASES[code][0]
    if isinstance(broken, Told):
        cause = next(finding.cause for finding in broken.findings if finding.code is code)
    else:
        row = reported(broken, code)[0]
        cause = row["cause"]
        assert row["explanation"]
        assert row["witness"] or row["at"] is None
    assert cause.startswith(CAUSES[code])


@pytest.mark.parametrize(
    ("end", "cause"),
    [("a1?", "its redelivery was requested"), ("-C1 +C1", "epoch 2: C1 left"), ("!C1 +C1", "epoch 2: C1 disconnected")],
    ids=["nack or timeout", "leave", "disconnect"],
)
def test_what_made_a_message_come_again(end: str, cause: str) -> None:
    def crashed(tables: History) -> History:
        rows = [r | {"event": "crash"} if r["event"] == "leave" else r for r in tables["membership"].to_pylist()]
        return tables | {"membership": pa.Table.from_pylist(rows, tables["membership"].schema)}

    story = NACKED.replace("a1?", end.replace("!", "-"))
    case = Story("a1", story, change=crashed) if "!" in end else Story("a1", story)
    (row,) = reported(case, Code.REDELIVERED)
    assert row["cause"].startswith(cause)


def test_two_keys_of_one_slot_are_blocked_together_and_the_finding_says_so() -> None:
    keys = pa.array([f"k{i}".encode() for i in range(400_000)])
    slot = int(murmur3_32_array(pa.array([key_of("a")]))[0]) % 65_536
    same_slot = keys[int(np.flatnonzero(murmur3_32_array(keys) % 65_536 == slot)[0])].as_py()

    def other_key(tables: History) -> History:
        rows = tables["messages"].to_pylist()
        return tables | {
            "messages": pa.Table.from_pylist([rows[0], rows[1] | {"key": same_slot}], tables["messages"].schema)
        }

    case = Story("a1 a2", HELD.format(100), KEY_SHARED, Terms(stuck_after=500_000_000), change=other_key)
    (row,) = reported(case, Code.STUCK)
    assert "of another key" in row["explanation"]
    (alone,) = reported(case._replace(change=lambda tables: tables), Code.STUCK)
    assert "another key" not in alone["explanation"]


def test_an_order_that_nobody_promised_is_explained_by_the_policy() -> None:
    (row,) = reported(Story("a1 a2", "+C1 a2>C1 a1>C1 a1! a2!", SHARED), Code.KEY_ORDER)
    assert row["cause"] == "pulsar.shared as configured delivers a key to any consumer"
