"""Dead letters beside the deliveries of their messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.dead_letters import DeadLetters
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from tests.audit.rules.test_every_rule import on_dead_letter_topic
from tests.support.history import findings_of, history
from tests.support.pure import audit_by, judge_of

SHARED, TWICE = make_policy("pulsar.shared", "pulsar-4.0"), Terms(max_redeliveries=2)
RESTARTS = "+C1 a1>C1 a1? a1>C1*1 a1? -C1 +C1 a1>C1 a1? a1>C1*1 a1?"


def test_a_count_that_starts_anew_is_named_and_the_message_is_found_once():
    tables = history("a1 a2", RESTARTS + " a2>C1 a2!")
    judge = judge_of(SHARED, tables, TWICE)
    rows = [
        r for b in Explainer(judge, "s").explain_violations(audit_by(judge, tables).to_batches()) for r in b.to_pylist()
    ]
    (row,) = (row for row in rows if row["code"] == "DLQ_MISSED")
    assert "was delivered 4 times, last to C1" in row["explanation"]
    assert "the dead letter policy allows 2 redeliveries" in row["explanation"]
    assert "its redelivery count restarted once, and was last 1" in row["explanation"]
    assert row["cause"] == Exemption.COUNT_RESTARTED.sentence


@pytest.mark.parametrize(
    ("story", "count"),
    [
        ("+C1 a1>C1 a1? a1>C1 a1? a1>C1 a1? a1>C1 a1?", "never rose above 0"),
        ("+C1 a1>C1 a1? a1>C1*1 a1? a1>C1*1 a1? a1>C1*1 a1?", "rose to 1 only"),
        (RESTARTS + " -C1 +C1 a1>C1 a1?", "restarted 2 times, and was last 0"),
    ],
)
def test_the_sentence_says_what_became_of_the_count(story, count):
    tables = history("a1", story)
    judge = judge_of(SHARED, tables, TWICE)
    rows = [
        r for b in Explainer(judge, "s").explain_violations(audit_by(judge, tables).to_batches()) for r in b.to_pylist()
    ]
    assert [r["explanation"].rpartition("its redelivery count ")[2].split(";")[0] for r in rows
            if r["code"] == "DLQ_MISSED"] == [count]  # fmt: skip


@pytest.mark.parametrize(
    "story",
    ["+C1 a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1!", "+C1 a1>C1 a1? a1>C1*1 a1? a1>C1*2 a1?"],
    ids=["not too often", "for DLQ_INCOMPLETE"],
)
def test_what_the_policy_allows_is_not_too_often(story):
    assert "DLQ_MISSED" not in {code.upper() for code, _ in findings_of(SHARED, history("a1", story), TWICE)}


def test_a_message_that_was_acknowledged_in_the_end_is_counted_and_does_not_fail():
    tables = history("a1", RESTARTS + " a1>C1 a1!")
    rows = audit_by(judge_of(SHARED, tables, TWICE), tables).to_pylist()
    (row,) = (row for row in rows if row["codes"] & Code.DLQ_MISSED.bit)
    assert find_exemption(Code.DLQ_MISSED, row["excuses"]) is Exemption.LAST_ATTEMPT


def test_a_dead_letter_is_not_unacked():
    tables = history("a1 a2", "+C1 a1>C1 a2>C1")
    assert [where for code, where in findings_of(SHARED, tables, TWICE) if code == "unacked"] == [(0, -1), (1, -1)]
    tables = on_dead_letter_topic(200)(tables)
    assert [where for code, where in findings_of(SHARED, tables, TWICE) if code == "unacked"] == [(1, -1)]


def test_letters_are_found_by_position():
    rows = [(1, 5, -1, 30), (1, 5, -1, 20), (0, 9, 2, 10)]
    names = ("ledger", "entry", "batch_index", "at")
    found = [{"topic": "t", "partition": 0} | dict(zip(names, r, strict=True)) for r in rows]
    letters = DeadLetters.of(pa.Table.from_pylist(found))
    requested = np.array([(0, 9, 2), (1, 5, -1), (1, 5, 0), (2, 0, -1)]).T
    assert letters.find_published(Scope("t", 0), requested).tolist() == [10, 20, NEVER, NEVER]
    assert letters.find_published(Scope("t", 1), requested).tolist() == [NEVER] * 4
