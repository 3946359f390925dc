"""Priority levels decide who is active; a source that does not tell them cannot prove a wrong owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from subreplay.adapters.pulsar_policies import note_missing_priorities
from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.needs import Need
from subreplay.semantics.policies import make_policy
from tests.support.audits import changed
from tests.support.history import history
from tests.support.pure import audit_by, judge_of

TO_THE_SECOND = history("a1 a2", "+C1 +C2 a1>C2 a1! a2>C2 a2!")


@pytest.mark.parametrize(
    ("lacking", "exemption"), [(set(), Exemption.NONE), ({Need.PRIORITIES}, Exemption.PRIORITIES_NOT_RECORDED)]
)
def test_the_active_consumer_is_unknown_without_priority_levels(lacking: set[Need], exemption: Exemption) -> None:
    judge = replace(judge_of(make_policy("pulsar.failover", "pulsar-4.0"), TO_THE_SECOND), lacking=frozenset(lacking))
    rows = audit_by(judge, TO_THE_SECOND)
    wrong = [row for row in rows.to_pylist() if row["codes"] & Code.WRONG_OWNER.bit]
    assert wrong
    assert {find_exemption(Code.WRONG_OWNER, row["excuses"]) for row in wrong} == {exemption}


@pytest.mark.parametrize(
    ("reported", "ranked"), [({"type": "Failover"}, False), ({"type": "Failover", "priority": 0}, True), ({}, True)]
)
def test_an_audit_of_failover_reports_missing_priority_levels(reported: dict[str, object], ranked: bool) -> None:
    traffic, notes = note_missing_priorities(
        changed(TO_THE_SECOND, "membership", **{"priority": None} | reported)["membership"]
    )
    assert traffic == ({} if ranked else {"traffic": {"membership": {"ranked": False}}})
    assert bool(notes) is not ranked


def test_nothing_is_legal_for_it() -> None:
    assert Exemption.PRIORITIES_NOT_RECORDED.inconclusive
