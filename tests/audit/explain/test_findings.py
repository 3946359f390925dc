"""Findings in words: the sentence, the witness and the cause, which names the event, the nack or the producer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit.codes import Code
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.rules.ranges import find_range_findings
from subreplay.audit.rules.registry import RULES
from subreplay.audit.terms import Terms
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.history import auto_split, history
from tests.support.joins import fold
from tests.support.pure import NOTHING_TOLD, audit_by, judge_of

KEY_SHARED, FAILOVER = auto_split(), make_policy("pulsar.failover", "documented")
OF_DISPATCHERS = {Code.KEY_TWO_PARTITIONS, Code.DLQ_ORDER, Code.DLQ_INCOMPLETE, Code.STICKY_GAP, Code.STICKY_OVERLAP}
OF_DISPATCHERS |= {Code.TWO_OWNERS, Code.TOLD_DIFFERS, Code.OWNER_DIFFERS}


def reported(policy: Policy, log: str, story: str, terms: Terms = NOTHING_TOLD) -> dict[str, dict[str, Any]]:
    """The rows of table ``violations``, by code."""
    return {row["code"]: row for row in rows_of(policy, history(log, story), terms)}


def rows_of(policy: Policy, tables: dict[str, pa.Table], terms: Terms = NOTHING_TOLD) -> list[dict[str, Any]]:
    """The rows of table ``violations``."""
    judge = judge_of(policy, tables, terms)
    rows = audit_by(judge, tables)
    return [row for batch in Explainer(judge, "sub").explain_violations(rows.to_batches()) for row in batch.to_pylist()]


def test_what_explains_that_a_message_waits_explains_that_it_was_not_delivered():
    soon = Terms(stalled_after=500_000_000, stuck_after=500_000_000)
    found = reported(FAILOVER, "n1 n2", "+C1:1 n1>C1 ~100 n1^", soon)
    assert found["UNSEEN"]["cause"] == found["STUCK"]["cause"] != "the data end"
    assert found["UNSEEN"]["attribution"] == found["STUCK"]["attribution"] == "consumer application"
    assert reported(FAILOVER, "n1 n2", "+C1 n1>C1 n1! n1^", soon)["UNSEEN"]["cause"] == "the data end"


def test_a_message_of_a_partition_that_no_member_owns_names_it_and_since_when():
    policy = make_policy("kafka.range", "kafka-4.0")
    found = reported(policy, "n1 n2", "+C1 +C2 =C1 n1>C1 n1! /C1 -C1 ~100 n1^", Terms(stalled_after=500_000_000))
    for code in ("STALLED", "UNSEEN"):
        assert found[code]["cause"].startswith("no member of the group owned partition 0 since 22:13:21")
        assert (found[code]["attribution"], found[code]["consumer"]) == ("coordinator", None)
    assert "none owned partition" in found["STALLED"]["explanation"]


def test_every_rule_about_deliveries_has_a_sentence_and_every_rule_a_source() -> None:
    assert {code for code, rule in RULES.items() if rule.sentence} == set(Code) - OF_DISPATCHERS
    assert set(RULES) == set(Code)
    assert all(rule.title and rule.meaning and rule.source for rule in RULES.values())


@pytest.mark.parametrize(
    ("policy", "log", "story", "code", "cause"),
    [
        (KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 a2>C2 a1! a2!", "BEFORE_PREDECESSOR_ACK", "epoch 2: C2 joined"),
        (KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 a2>C2 a1! a2!", "KEY_TWO_OWNERS", "epoch 2: C2 joined"),
        (KEY_SHARED, "a1 a2", "+C1 a2>C1 a1>C1 a1! a2!", "KEY_ORDER", "unexplained"),
        (KEY_SHARED, "a1 a2", "+C1 a1>C1 a1? a2>C1 a1>C1 a1! a2!", "REDELIVERY_ORDER", "its redelivery was requested"),
        (KEY_SHARED, "a1", "+C1 a1>C1 -C1 +C1 a1>C1 a1!", "REDELIVERED", "epoch 2: C1 left"),
        (KEY_SHARED, "a1", "+C1 a1>C1 a1!! -C1 +C1 a1>C1 a1!", "REDELIVERED", "epoch 2: C1 left"),  # ignored
        (KEY_SHARED, "a1", "+C1 +C2 a1>C1 a1!", "WRONG_OWNER", "epoch 2: C2 joined"),
        (KEY_SHARED, "a1", "+C1 +C2 a1>C2 (C2 a1>C1 -C2 a1!", "DUP_OUTSTANDING", "epoch 3: C2 was leaving since"),
        (KEY_SHARED, "a1#0 a2#5 a3#4", "+C1 a1>C1 a2>C1 a3>C1 a1! a2! a3!", "PRODUCER_ORDER", "its producer"),
        (KEY_SHARED, "a1", "+C1 a1>C1 a1!!", "CUM_ACK_MISUSE", "its application acknowledges cumulatively"),
        (FAILOVER, "a1 a2 a3", "+C1 +C2 a1>C1 a1! a2>C2 a3>C2 a2! a3!", "TWO_ACTIVE", "unexplained"),
    ],
)  # fmt: skip
def test_a_finding_names_what_explains_it(policy: Policy, log: str, story: str, code: str, cause: str) -> None:
    assert reported(policy, log, story)[code]["cause"].startswith(cause)


def test_a_duplicate_publication_names_the_first_one() -> None:
    row = reported(KEY_SHARED, "a1#0 a2#5 a3#5", "+C1 a1>C1 a2>C1 a3>C1 a1! a2! a3!")["DUP_PUBLISH"]
    assert row["explanation"] == "1:2 has the producer and the sequence id of 1:1"
    assert row["witness"][1] == "1:1"


def test_a_skip_names_the_message_that_was_left_out() -> None:
    row = reported(FAILOVER, "a1 n1 a2", "+C1 a1>C1 a2>C1 a1! a2!")["SKIP"]
    assert row["witness"][1] == "1:1"


def test_a_finding_names_the_blocked_and_the_blocking_consumer_and_the_duration() -> None:
    soon = Terms(stuck_after=500_000_000)
    row = reported(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2!", soon)["STUCK"]
    assert "waited 1.020 s for 1:0 at C1" in row["explanation"]
    assert row["cause"] == "C1 held an earlier message without acknowledging it"
    row = reported(auto_split("pulsar-3.2"), "n1 a2", "+C1 n1>C1 +C2 ~100 n1! a2>C2 a2!", soon)["STUCK"]
    assert row["explanation"].endswith("of another key that is blocked with it")


def test_each_dispatcher_has_its_own_events() -> None:
    stories = ("+C1 +C2 a1>C1 a1!", "+C1 ~5 -C1 +C2 +C3 a1>C2 a1!")
    tables = [history("a1", story, partition) for partition, story in enumerate(stories)]
    both = {name: pa.concat_tables([part[name] for part in tables]) for name in tables[0]}
    causes = {row["partition"]: row["cause"] for row in rows_of(KEY_SHARED, both) if row["code"] == "WRONG_OWNER"}
    assert {partition: cause[:18] for partition, cause in causes.items()} == {
        0: "epoch 2: C2 joined",
        1: "epoch 4: C3 joined",
    }


def test_a_finding_counts_when_it_was_delivered_or_else_published() -> None:
    found = rows_of(FAILOVER, history("a1 a2", "+C1 a1>C1 a2>C1 a2!"))
    found += rows_of(KEY_SHARED, history("a1 a2", "+C1 a2>C1 a2!"))
    assert {row["at"] is None for row in found} == {True, False}
    assert all(row["moment"] == row["at"] for row in found if row["at"])
    assert all(row["date"] == row["moment"].date() for row in found)


def test_findings_show_dates_if_the_run_spans_several_days() -> None:
    tables = history("a1 a2 a3", "+C1 a1>C1 +C2 a2>C2 ~700000 a1! a2! -C1 a3>C1 a3!")
    judge = judge_of(KEY_SHARED, tables)
    rows = audit_by(judge, tables)

    def reported_by(judge: Judge) -> dict[str, dict[str, Any]]:
        return {row["code"]: row for batch in Explainer(judge, "sub").explain_violations(rows.to_batches())
                for row in batch.to_pylist()}  # fmt: skip

    dated, timed = reported_by(replace(judge, dates=True)), reported_by(judge)
    went_on = dated["BEFORE_PREDECESSOR_ACK"]
    earlier = "1:0 at C1 (2023-11-14 22:13:21.010000, ended 2023-11-15 00:10:01.040000)"
    assert went_on["explanation"].endswith(
        f"moved to C2 with 1:1 at 2023-11-14 22:13:21.030000 while {earlier} was outstanding"
    )
    assert went_on["witness"][1] == earlier
    assert went_on["cause"] == "epoch 2: C2 joined at 2023-11-14 22:13:21.020000"
    assert dated["NOT_CONNECTED"]["cause"] == "epoch 3: C1 left at 2023-11-15 00:10:01.060000"
    assert timed.keys() == dated.keys()
    for code, row in timed.items():
        assert "2023-" not in f"{row['explanation']} {row['witness']} {row['cause']}", code


@pytest.mark.parametrize("dates", [False, True])
def test_findings_about_a_topic_partition_show_dates_alike(dates: bool) -> None:
    timeline = fold(make_policy("pulsar.key_shared.sticky", "pulsar-4.0"), "+C1[0-9] +C2[5-65535]")
    found = [*find_range_findings(timeline, dates)]
    assert {finding.code for finding in found} == {Code.STICKY_GAP, Code.STICKY_OVERLAP}
    for words in (text for finding in found for text in (finding.explanation, finding.cause)):
        assert ("1970-01-01 00:00:" in words) == dates
