"""A finding that a row in quarantine could explain is doubtful; one that it could not is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from subreplay.audit.codes import Code, Exemption, drop_left_truncated, find_exemption
from subreplay.audit.rejects import RejectedRow, RejectedRows
from subreplay.rows.model.rows import Scope
from tests.support.history import START, STEP, TOPIC, History, auto_split, history
from tests.support.pure import audit_by, judge_of

POLICY = auto_split()


def doubts(code: Code, tables: History, *rejected: RejectedRow, uncovered: bool = False) -> set[Exemption]:
    """The excuses of all findings of a rule."""
    judge = replace(judge_of(POLICY, tables), rejects=RejectedRows(rejected))
    judge = replace(judge, uncovered=frozenset({Scope(TOPIC)})) if uncovered else judge
    rows = [row for row in audit_by(judge, tables).to_pylist() if row["codes"] & code.bit]
    assert rows
    return {find_exemption(code, row["excuses"]) for row in rows}


LOST = history("a1 a2 a3", "+C1 a1>C1 a1! a3>C1 a3!")
STRAY = history("a1 a2", "+C1 a1>C9 a1! a2>C1 a2!")
DISORDER = history("a1 a2", "+C1 a2>C1 a1>C1 a1! a2!")
AGAIN = history("a1", "+C1 a1>C1 a1>C1 a1!")
WAITS = history("a1 a2", "+C1 a1>C1 a1!")
NOT_STORED = LOST | {"messages": LOST["messages"].slice(1)}
SERVED = {"C1": 100, "C2": 200}


@pytest.mark.parametrize(
    ("rejected", "hides"),
    [
        (RejectedRow("membership", consumer="C1", at=50, event="join"), False),
        (RejectedRow("membership", event="join"), False),
        (RejectedRow("deliveries"), False),
        (RejectedRow("membership", consumer="C1", at=50, event="leave"), True),
        (RejectedRow("membership", consumer="C1", at=150, event="leave"), False),
        (RejectedRow("membership", consumer="C9", at=50, event="crash"), False),
        (RejectedRow("membership", at=150, event="leave"), True),
        (RejectedRow("membership", at=201), False),
        (RejectedRow("membership", consumer="C1"), True),
    ],
)
def test_a_rejected_member_matters_where_somebody_may_have_left_by_it_and_was_served_since(rejected, hides):
    assert RejectedRows((rejected,)).may_hide_a_leave(SERVED) is hides


LONG_AGO, LATER = START * 1_000, (START + 10_000 * STEP) * 1_000


@pytest.mark.parametrize(
    ("code", "tables", "rejected", "exemption"),
    [
        (Code.LOST, LOST, RejectedRow("deliveries", -1, 5, 1), Exemption.DELIVERY_REJECTED),
        (Code.LOST, LOST, RejectedRow("deliveries"), Exemption.DELIVERY_REJECTED),
        (Code.LOST, LOST, RejectedRow("deliveries", -1, 5, 2), Exemption.NONE),
        (Code.LOST, LOST, RejectedRow("deliveries", 3), Exemption.NONE),
        (Code.LOST, LOST, RejectedRow("messages"), Exemption.NONE),
        (Code.NOT_CONNECTED, STRAY, RejectedRow("membership", consumer="C9", at=LONG_AGO), Exemption.MEMBER_REJECTED),
        (Code.NOT_CONNECTED, STRAY, RejectedRow("membership"), Exemption.MEMBER_REJECTED),
        (Code.NOT_CONNECTED, STRAY, RejectedRow("membership", consumer="C3", at=LONG_AGO), Exemption.NONE),
        (Code.NOT_CONNECTED, STRAY, RejectedRow("membership", consumer="C9", at=LATER), Exemption.NONE),
        (Code.NOT_CONNECTED, STRAY, RejectedRow("deliveries"), Exemption.NONE),
        (Code.KEY_ORDER, DISORDER, RejectedRow("deliveries", -1, 5, 0), Exemption.DELIVERY_REJECTED),
        (Code.KEY_ORDER, DISORDER, RejectedRow("deliveries", -1, 5, 7), Exemption.NONE),
        (Code.KEY_ORDER, DISORDER, RejectedRow("membership"), Exemption.NONE),
        (Code.UNSEEN, WAITS, RejectedRow("deliveries", -1, 5, 1), Exemption.DELIVERY_REJECTED),
        (Code.UNSEEN, WAITS, RejectedRow("deliveries", -1, 5, 0), Exemption.NONE),
        (Code.UNKNOWN_MESSAGE, NOT_STORED, RejectedRow("messages"), Exemption.MESSAGES_REJECTED),
        (Code.UNKNOWN_MESSAGE, NOT_STORED, RejectedRow("deliveries"), Exemption.NONE),
        (Code.DUP_OUTSTANDING, AGAIN, RejectedRow("membership", consumer="C1"), Exemption.MEMBERSHIP_REJECTED),
    ],
)
def test_what_a_rejected_row_could_explain(
    code: Code, tables: History, rejected: RejectedRow, exemption: Exemption
) -> None:
    ledger = tables["messages"]["ledger"][0].as_py()
    mine = rejected._replace(ledger=ledger) if rejected.ledger is not None else rejected
    assert doubts(code, tables, mine) == {exemption}


def test_what_a_rejected_row_could_be_did_not_surely_happen_before_the_data_begin() -> None:
    """A null in the first rows of a table is no log that begins in mid-life."""
    pairs = {
        Exemption.DELIVERY_REJECTED: Exemption.DELIVERED_EARLIER,
        Exemption.MESSAGES_REJECTED: Exemption.STORED_EARLIER,
        Exemption.MEMBER_REJECTED: Exemption.JOINED_EARLIER,
    }
    every = sum(earlier.bit for earlier in pairs.values())
    found = drop_left_truncated(np.array([rejected.bit | every for rejected in pairs] + [every], np.int64))
    assert found.tolist() == [r.bit | (every & ~earlier.bit) for r, earlier in pairs.items()] + [every]


def test_without_joins_before_the_deliveries_no_consumer_is_unknown() -> None:
    assert doubts(Code.NOT_CONNECTED, history("a1", "a1>C1 a1! +C1"), uncovered=True) == {Exemption.NOBODY_JOINED}
