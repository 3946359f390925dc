"""What real Kafka groups did: found right, but for what was really done wrong, and explained."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters import Options
from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_tables
from subreplay.audit.codes import Code, Exemption, find_exemption
from subreplay.audit.deliveries import AUTOMATIC_COMMITS, FAILED_COMMIT, Ending
from subreplay.audit.explain.causes import GROUP_ENDING_CAUSES, NOT_COMMITTED_CAUSES, Causes
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.needs import Need
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.group_timeline import REBALANCE_TIMEOUT_NS
from tests.support.daily_runs import audit_daily
from tests.support.groups import RECORDED, Audited, audit_ingested, audited
from tests.support.history import START, STEP, findings, history
from tests.support.pure import audit_by, judge_of
from tests.support.source_reading import read_at_once

BY_NAME = {folder.name: folder for folder in RECORDED}
RANGE = make_policy("kafka.range", "kafka-4.0")


@cache
def audit_of(name: str) -> Audited:
    return audited(BY_NAME[name])


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "k44_grow_latest"])
def test_recordings_are_valid_and_nothing_is_rejected(name):
    found = audit_of(name)
    assert (found.rejected, found.failing) == (0, {})


@pytest.mark.row("K-AGAIN-1")
@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("k16_slow", {Ending.LOST: 50}),
        ("k22_modern_crash_slow", {Ending.CRASHED: 29, Ending.LOST: 50}),
        ("k26_close_no_commit", {Ending.REVOKED: 282, Ending.CLOSED: 117}),
        ("k28_rewind", {Ending.SOUGHT: 151}),
    ],
)
def test_k_again_1_every_redelivered_record_has_its_recorded_cause(name, again):
    assert audit_of(name).causes == {GROUP_ENDING_CAUSES[ending]: count for ending, count in again.items()}


@pytest.mark.row("K-AGAIN-1")
@pytest.mark.parametrize(
    ("story", "ending", "why"),
    [
        ("C1?2 /C1 =C2 {}", Ending.REVOKED, FAILED_COMMIT),
        ("C1!2 /C1 =C2 {}", Ending.REVOKED, 0),  # of what the commit lacks
        ("C1?2 C1!2 /C1 =C2 {}", Ending.REVOKED, 0),
        ("C1?2 C1!1 /C1 =C2 C2!1 {}", Ending.REVOKED, FAILED_COMMIT),
        ("xC1 =C2 {}", Ending.CRASHED, 0),
        ("C1!!1 xC1 =C2 {}", Ending.CRASHED, AUTOMATIC_COMMITS),
        ("C1!!1 C1!1 xC1 =C2 {}", Ending.CRASHED, 0),
        ("C1!!1 C1?2 xC1 =C2 {}", Ending.CRASHED, FAILED_COMMIT),
        ("C1!!1 /C1 =C2 {}", Ending.REVOKED, 0),
    ],
)
def test_k_again_1_the_reason_for_a_missing_commit_is_shown_if_commits_contain_it(story, ending, why):
    last = "a3>C2" if story.startswith("C1!2") else "a2>C2"
    tables = history("a1 a2 a3", "+C1 +C2 =C1 a1>C1 a2>C1 a3>C1 " + story.format(last))
    judge = judge_of(RANGE, tables)
    rows = audit_by(judge, tables)
    again = rows.filter(pa.array(rows["codes"].to_numpy() & Code.REDELIVERED.bit != 0))
    causes = Causes(judge)
    assert causes.find_causes(again, Code.REDELIVERED, causes.number_epochs(again)).to_pylist() == [
        GROUP_ENDING_CAUSES[ending] + NOT_COMMITTED_CAUSES[why]
    ]


@pytest.mark.row("K-AGAIN-1")
def test_k_again_1_where_no_callbacks_are_recorded_nobody_knows_whether_the_application_sought_back():
    tables = history("a1 a2", "+C1 =C1 a1>C1 a1! C1!1 a1>C1")
    reported, untold = judge_of(RANGE, tables), replace(judge_of(RANGE, tables), lacking=frozenset({Need.CALLBACKS}))
    for judge, exemption in ((reported, Exemption.NONE), (untold, Exemption.SEEKS_NOT_RECORDED)):
        rows = audit_by(judge, tables).to_pylist()
        found = [row for row in rows if row["codes"] & Code.DUP_DELIVERY.bit]
        assert [find_exemption(Code.DUP_DELIVERY, row["excuses"]) for row in found] == [exemption]


@pytest.mark.row("K-OWNER-1")
def test_k_owner_1_a_consumer_that_was_too_slow_owns_its_partitions_beside_their_next_owner():
    assert audit_of("k16_slow").exempt["TWO_OWNERS LEFT_UNAWARE"] == 2
    assert audit_of("k22_modern_crash_slow").exempt["TWO_OWNERS LEFT_UNAWARE"] == 3


@pytest.mark.row("K-COMMIT-1")
def test_k_commit_1_the_commit_of_a_consumer_that_was_too_slow_is_refused():
    assert audit_of("k16_slow").exempt["COMMIT_NOT_OWNER REFUSED"] == 2


@pytest.mark.long
@pytest.mark.row("K-COMMIT-1")
def test_k_commit_1_reading_one_log_from_its_end_does_not_exempt_a_commit_of_another():
    it = read_tables(BY_NAME["k44_grow_latest"])
    rows = it.tables["deliveries"].to_pylist()
    members = sorted({row["consumer"] for row in rows})
    commit = next(row for row in rows if row["ack_type"] == "Commit" and row["partition"] == 3)
    commit["consumer"] = next(one for one in members if one != commit["consumer"])
    changed = it.tables["deliveries"].from_pylist(rows, it.tables["deliveries"].schema)
    found = audit_ingested(_with(it, it.tables["membership"], {"deliveries": changed}))
    assert found.failing["COMMIT_NOT_OWNER"] == 1


@pytest.mark.row("K-COMMIT-2")
def test_k_commit_2_commits_go_back_where_the_application_sought_back():
    found = audit_of("k28_rewind")
    assert found.exempt == {"COMMIT_BACK SOUGHT_BACK": 2, "DUP_DELIVERY SOUGHT_BACK": 151}


@pytest.mark.row("K-COMMIT-2")
def test_k_commit_2_commits_alone_do_not_show_whether_the_application_sought_back():
    folder = BY_NAME["k28_rewind"]
    options = Options(coordinator_log=folder / "coordinator_log.jsonl.gz")
    it = read_at_once("kafka-group", folder / "consumer_offsets.jsonl.gz", options)
    messages = {"messages": read_tables(folder).tables["messages"]}
    found = audit_ingested(_with(it, it.tables["membership"], messages), frozenset({Need.DELIVERIES, Need.CALLBACKS}))
    assert (found.failing, found.exempt) == ({}, {"COMMIT_BACK SEEKS_NOT_RECORDED": 2})


@pytest.mark.row("K-COMMIT-3")
def test_k_commit_3_what_a_commit_passes_is_lost():
    log, story = "a1 a2 a3", "+C1 =C1 a1>C1 a1! {} a3>C1 a3!"
    assert findings(RANGE, log, "+C1 =C1 a1>C1 a1! C1!2") == ["LOST a2", "unseen a3"]
    assert "COMMIT_AHEAD a2" in findings(RANGE, log, story.format("C1!2 a2>C1 a2!"))
    assert findings(RANGE, log, story.format("a2>C1 a2! C1!2")) == []


@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_a_part_of_the_log_may_hold_only_commits(batch_rows):
    tables = history("a1 a2 a3", "+C1 =C1 C1!2 C1!1")
    messages = tables["messages"].slice(0, 0) if batch_rows > 1 else tables["messages"]
    judge = judge_of(RANGE, tables)
    rows = audit_by(judge, tables | {"messages": messages}, batch_rows)
    assert [row["entry"] for row in rows.to_pylist() if row["codes"] & Code.COMMIT_BACK.bit] == [1]


@pytest.mark.row("K-LATEST-1")
def test_k_latest_1_what_was_written_before_a_new_partition_was_read_is_lost():
    found = audit_of("k44_grow_latest")
    assert (found.failing, found.lost) == ({"LOST": 62}, {Exemption.NOT_READ_YET.sentence: 62})


@pytest.mark.row("K-LATEST-1")
def test_k_latest_1_a_group_that_begins_at_the_earliest_record_reads_the_first_one_too():
    it = read_tables(BY_NAME["k28_rewind"])
    first = pc.equal(it.tables["deliveries"]["entry"], 0)
    unread = it.tables | {"deliveries": it.tables["deliveries"].filter(pc.invert(first))}
    assert it.run["topic"] == {"initial_position": "earliest"}
    partitions = len(set(it.tables["messages"]["partition"].to_pylist()))
    assert audit_ingested(replace(it, tables=unread)).failing == {"LOST": partitions}
    assert (
        "LOST" not in audit_ingested(replace(it, tables=unread, run={"subscription": it.run["subscription"]})).failing
    )


@pytest.mark.row("K-OWNER-2")
def test_k_owner_2_consumers_receive_the_decided_assignment():
    it = read_tables(BY_NAME["k28_rewind"])
    rows = it.tables["membership"].to_pylist()
    one = next(row for row in rows if row["event"] == "assigned")
    one["consumer"] = next(r["consumer"] for r in rows if r["event"] == "join" and r["consumer"] != one["consumer"])
    changed = it.tables["membership"].from_pylist(rows, it.tables["membership"].schema)
    found = audit_ingested(_with(it, changed))
    assert found.failing["TOLD_DIFFERS"] == 1


@pytest.mark.row("K-OWNER-3")
def test_k_owner_3_the_fold_decides_as_the_coordinator_did():
    it = read_tables(BY_NAME["k26_close_no_commit"])
    rows = it.tables["membership"].to_pylist()
    mine = [row for row in rows if row["event"] == "owner"][:2]
    mine[0]["consumer"], mine[1]["consumer"] = mine[1]["consumer"], mine[0]["consumer"]
    changed = it.tables["membership"].from_pylist(rows, it.tables["membership"].schema)
    assert audit_ingested(_with(it, changed)).failing.get("OWNER_DIFFERS", 0) >= 2


def _with(it, membership, others=MappingProxyType({})):
    return type(it)(it.tables | {"membership": membership} | dict(others), it.rejected, it.counts, it.run)


def test_the_next_daily_run_continues_with_earlier_commits():
    tables = history("a1 a2", "+C1 =C1 a1>C1 a2>C1 C1!2 ~3 C1!1")
    first, second = audit_daily(RANGE, tables, [(START + 106 * STEP) * 1_000, (START + 200 * STEP) * 1_000])
    assert not any(code & Code.COMMIT_BACK.bit for code in first["codes"].to_pylist())
    assert [code & Code.COMMIT_BACK.bit for code in second["codes"].to_pylist()] == [Code.COMMIT_BACK.bit]
    (earlier,) = second["order_witness"].to_pylist()
    assert (earlier["entry"], earlier["consumer"]) == (2, "C1")


@pytest.mark.row("K-COMMIT-1")
@pytest.mark.parametrize(
    ("story", "failing"),
    [("/C1 C1!!1", 0), ("/C1 C1!1", 1), ("/C1 =C2 C1!!1", 1), ("-C1 C1!!1", 1)],
)
def test_k_commit_1_an_automatic_commit_may_be_answered_when_its_partition_has_no_owner(story, failing):
    tables = history("a1", f"+C1 +C2 =C1 a1>C1 {story}")
    codes = audit_by(judge_of(RANGE, tables), tables)["codes"].to_pylist()

    assert sum(code & Code.COMMIT_NOT_OWNER.bit != 0 for code in codes) == failing


@pytest.mark.row("K-COMMIT-2")
@pytest.mark.parametrize("batch_rows", [1, 1000])
def test_k_commit_2_a_commit_that_goes_back_names_the_earlier_commit_and_its_member(batch_rows):
    tables = history("a1 a2 a3 a4", "+C1 =C1 C1!2 C1!3 -C1 +C2 =C2 C2!1 C2!2 C2!1")
    judge = judge_of(RANGE, tables)
    rows = Explainer(judge, "s").explain_violations(audit_by(judge, tables, batch_rows).to_batches())
    found = [r["explanation"] for b in rows for r in b.to_pylist() if r["code"] == "COMMIT_BACK"]
    assert [re.sub(r" at [\d:.]+", "", words) for words in found] == [
        "C2 committed offset 1, after C1's 3",
        "C2 committed offset 1, after 2",
    ]


@pytest.mark.row("K-OWNER-3")
def test_k_owner_3_without_callbacks_a_member_may_go_on_with_what_was_decided_to_be_anothers():
    story = "+C2 a1>C2 +C1 a2>C2"  # ranges go by name: the partition is now C1's
    eager = make_policy("kafka.range", "kafka-4.0", session_timeout_us=0, initial_rebalance_delay_us=0)
    by_the_server = make_policy("kafka.server_range", "kafka-4.0", session_timeout_us=0)
    assert "WRONG_OWNER a2" in findings(eager, "a1 a2", story)
    assert "WRONG_OWNER a2" not in findings(by_the_server, "a1 a2", story)
    late = story.replace("a2>", f"~{REBALANCE_TIMEOUT_NS // 1_000 // STEP} a2>")  # it must have given it up by then
    assert "WRONG_OWNER a2" in findings(by_the_server, "a1 a2", late)
    assert "WRONG_OWNER a2" in findings(by_the_server, "a1 a2", story.replace("+C1", "=C2 +C1 /C2 =C1"))
