"""Acts of operators and clients (resets, seeks, unloads, expired offsets) are recognised, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters import ADAPTERS
from subreplay.audit.acts import Reset, find_acts, list_seen_acts
from subreplay.audit.codes import Code, Exemption, drop_exempt, find_exemption
from subreplay.audit.explain.causes import Causes
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.sums import sum_acts as counts_of_acts
from subreplay.audit.terms import Terms
from subreplay.rows.model.columns import NEVER
from subreplay.semantics.policies import make_policy
from tests.support.history import START, STEP, auto_split, findings_of, history
from tests.support.joins import fold
from tests.support.pure import NOTHING_TOLD, audit_by, judge_of, sums_by

EXCLUSIVE, FAILOVER = make_policy("pulsar.exclusive", "pulsar-4.0"), make_policy("pulsar.failover", "pulsar-4.0")
SHARED, KEY_SHARED = make_policy("pulsar.shared", "pulsar-4.0"), auto_split()
RANGE = make_policy("kafka.range", "kafka-4.0")
LOG = "a1 a2 a3 a4 a5"
READ = "a1>C1 a1! a2>C1 a2! a3>C1 a3! a4>C1 a4! a5>C1 a5!"
AGAIN = "a2>C1 a2! a3>C1 a3! a4>C1 a4! a5>C1 a5!"
BACK = f"+C1 {READ} -C1 ~20 +C1 "


def duplicates(policy, story, terms=NOTHING_TOLD, log=LOG):
    """How often DUP_DELIVERY fails, and how often it does not."""
    found = [code for code, _ in findings_of(policy, history(log, story), terms)]
    return found.count("DUP_DELIVERY"), found.count("dup_delivery")


@pytest.mark.parametrize("policy", [EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED], ids=lambda policy: policy.name)
def test_everything_from_a_position_on_after_all_left_is_a_reset(policy):
    assert duplicates(policy, BACK + AGAIN) == (0, 4)


def test_outstanding_messages_are_redelivered_with_an_act():
    story = "+C1 a1>C1 a1! a2>C1 a2! a3>C1 a4>C1 a4! a5>C1 a5! -C1 +C1 a2>C1 a2! a3>C1 a3! a4>C1 a4! a5>C1 a5!"
    assert duplicates(SHARED, story) == (0, 3)


def test_a_seek_of_the_active_consumer_is_one_although_another_stays():
    story = f"+C1@x +C2 {READ.replace('C1', 'C1@x')} -C1@x +C1@x {AGAIN.replace('C1', 'C1@x')}"
    assert duplicates(FAILOVER, story) == (0, 4)


@pytest.mark.parametrize(
    "story",
    [
        BACK + "a3>C1",  # one message
        BACK + "a4>C1 a3>C1 a2>C1 a1>C1",  # out of order
        BACK + "a2>C1*1 a3>C1*1 a4>C1*1 a5>C1*1",  # counted as redeliveries
        BACK + "a1>C1 a5>C1",  # others between them are missing
        f"+C1 {READ} {AGAIN}",  # nobody left
        f"+C1 +C2 {READ} -C1 +C1 {AGAIN}",  # another one stayed
    ],
)
def test_what_does_not_have_the_pattern_stays_a_violation(story):
    fails, exempt = duplicates(SHARED, story)
    assert fails > 0 == exempt


def test_some_messages_of_one_batch_are_no_pattern():
    fails, _ = duplicates(SHARED, "+C1 a1>C1 a1! a2>C1 a2! -C1 +C1 a1>C1 a2>C1", log="a1,a2")
    assert fails == 2


def test_only_the_keys_of_one_slot_are_no_pattern():
    story = "+C1 a1>C1 a1! n1>C1 n1! a2>C1 a2! n2>C1 n2! a3>C1 a3! n3>C1 n3! -C1 +C1 a1>C1 a2>C1 a3>C1"
    assert duplicates(KEY_SHARED, story, log="a1 n1 a2 n2 a3 n3") == (3, 0)


def test_a_message_that_is_redelivered_once_more_after_its_acknowledgement_is_a_violation_beside_a_reset():
    assert duplicates(SHARED, BACK + AGAIN + " a4>C1") == (1, 4)


def test_a_message_before_the_position_is_a_violation_beside_a_reset():
    log, read = "a1 a2 a3 a4 a5 a6 a7", READ + " a6>C1 a6! a7>C1 a7!"
    story = f"+C1 {read} -C1 +C1 a5>C1 a5! a6>C1 a6! a7>C1 a7! a1>C1"
    assert duplicates(SHARED, story, log=log) == (1, 3)


def test_a_nack_after_a_reset_is_no_violation():
    assert duplicates(SHARED, BACK + "a2>C1 a2? a2>C1*1 a2! a3>C1 a3! a4>C1 a4! a5>C1 a5!") == (0, 5)


def explained(judge, tables):
    rows = audit_by(judge, tables).to_batches()
    return [row for batch in Explainer(judge, "sub").explain_violations(rows) for row in batch.to_pylist()]


AT = (START + 112 * STEP) * 1_000  # between the last acknowledgement and the leave


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (Reset(AT), (0, 1)),
        (Reset(AT, to=(1, 2, -1)), (0, 1)),
        (Reset(AT, to=(1, 4, -1)), (1, 0)),
        (Reset(AT, partition=3), (1, 0)),
        (Reset(AT - 200_000_000_000), (1, 0)),
    ],
)
def test_a_declared_reset_needs_no_pattern_but_reaches_only_as_far_as_it_says(reset, expected):
    assert duplicates(SHARED, f"+C1 {READ} ~9 a4>C1", Terms(resets=(reset,)), "a1 a2 a3 a4 a5") == expected


GROUP = f"+C1 =C1 {READ} C1!5 /C1 -C1 "


def test_a_group_that_was_empty_and_begins_below_its_commit_had_its_offsets_reset():
    assert duplicates(RANGE, GROUP + f"~50 +C2 =C2 {AGAIN.replace('C1', 'C2')} C2!5") == (0, 4)


def test_a_member_that_joined_before_the_last_one_left_finds_the_commits():
    story = f"+C1 =C1 {READ} C1!5 +C2 /C1 -C1 =C2 {AGAIN.replace('C1', 'C2')}"
    assert duplicates(RANGE, story) == (4, 0)


OWNS = f"+C1 =C1 {READ} "


@pytest.mark.parametrize(
    ("story", "sought"),
    [
        (OWNS + AGAIN, 4),  # to an offset, and everything from there on
        (OWNS + AGAIN + " " + AGAIN, 8),  # twice
        (OWNS + "a4>C1 a4! a5>C1 a5! a4>C1 a4! a5>C1 a5! a3>C1 a3! a4>C1 a4! a5>C1 a5!", 7),
        (OWNS.replace("a5>C1 a5!", "") + "a3>C1 a3! a4>C1 a4! a5>C1 a5!", 2),  # and on to what follows
    ],
)
def test_a_member_of_a_group_that_seeks_back_while_connected_gets_everything_again_in_order(story, sought):
    assert duplicates(RANGE, story) == (0, sought)


@pytest.mark.parametrize(
    "story",
    [
        OWNS + "a3>C1",  # one message
        OWNS + "a2>C1 a4>C1",  # scattered
        OWNS + "a2>C1 a3>C1",  # it does not go on from there
        OWNS + "a5>C1 a4>C1 a3>C1",  # out of order
        OWNS + "+C2 /C1 =C2 a2>C2 a3>C2 a4>C2 a5>C2",  # after a rebalance
    ],
)
def test_what_a_seek_of_a_member_does_not_leave_behind_stays_a_violation(story):
    fails, exempt = duplicates(RANGE, story)
    assert fails > 0 == exempt


def test_a_broker_that_pushes_has_no_seek_without_a_disconnect():
    assert duplicates(EXCLUSIVE, f"+C1 {READ} {AGAIN}") == (4, 0)


def test_a_seek_is_named_with_its_consumer_instant_and_position():
    tables = history(LOG, OWNS + AGAIN)
    judge = replace(judge_of(RANGE, tables, NOTHING_TOLD), spans=())
    sums = sums_by(judge, tables)
    (seen,) = list_seen_acts({-1: ()}, counts_of_acts(sums))
    assert (seen.title, seen.acknowledged, seen.redelivered, seen.first) == ("Seek", 4, 4, ("1:1",))
    assert seen.sentence.startswith("consumer C1 sought back (in its own code) before ")


def failing(policy, log, story, terms=NOTHING_TOLD, change=lambda tables: tables):
    """The rules of which a finding fails, or leaves the verdict unknown."""
    return {code for code, _ in findings_of(policy, change(history(log, story)), terms) if code.isupper()}


def test_what_a_declared_reset_skipped_is_not_lost():
    story, at = "+C1 a1>C1 a1! ~9 a4>C1 a4!", (START + 103 * STEP) * 1_000
    assert failing(EXCLUSIVE, "a1 a2 a3 a4", story) == {"LOST", "SKIP"}
    assert not failing(EXCLUSIVE, "a1 a2 a3 a4", story, Terms(resets=(Reset(at, to=(1, 3, -1)),)))
    assert failing(EXCLUSIVE, "a1 a2 a3 a4", story, Terms(resets=(Reset(at, to=(1, 2, -1)),))) == {"LOST", "SKIP"}


@pytest.mark.parametrize(("known", "fails"), [(True, True), (False, False)])
def test_whether_a_batch_may_be_redelivered_whole_depends_on_batch_index_acknowledgements(known, fails):
    story = "+C1 a1>C1 a2>C1 a1! -C1 +C1 a1>C1*1 a2>C1*1 a2!"
    assert ("DUP_DELIVERY" in failing(SHARED, "a1,a2", story, Terms(batch_index_acks=known))) == fails


def with_offsets(entries, aborted=()):
    """Messages and deliveries at other offsets: markers lie between them."""

    def change(tables):
        for name, table in tables.items():
            if "entry" in table.column_names:
                moved = pa.array([entries[entry] for entry in table["entry"].to_pylist()], pa.int64())
                table = table.set_column(table.schema.get_field_index("entry"), table.schema.field("entry"), moved)
            tables[name] = table
        flags = pa.array([entry in aborted for entry in tables["messages"]["entry"].to_pylist()])
        index = tables["messages"].schema.get_field_index("aborted")
        field = tables["messages"].schema.field("aborted")
        return tables | {"messages": tables["messages"].set_column(index, field, flags)}

    return change


SKIPPED = "+C1 =C1 a1>C1 a1! a3>C1 a3!"


@pytest.mark.parametrize(
    ("entries", "aborted", "terms", "exemption"),
    [
        ([0, 2, 4], (), NOTHING_TOLD, Exemption.MAY_BE_ABORTED),
        ([0, 2, 4], (2,), NOTHING_TOLD, Exemption.ABORTED),
        ([0, 2, 4], (), Terms(isolation="read_uncommitted"), Exemption.NONE),
        ([0, 2, 4], (2,), Terms(isolation="read_uncommitted"), Exemption.NONE),
        ([0, 1, 2], (), NOTHING_TOLD, Exemption.NONE),  # no marker follows
    ],
)
def test_a_skipped_record_before_a_marker_may_be_of_an_aborted_transaction(entries, aborted, terms, exemption):
    tables = with_offsets(entries, aborted)(history("a1 a2 a3", SKIPPED))
    rows = audit_by(judge_of(RANGE, tables, terms), tables)
    lost = rows.filter(pa.array(rows["codes"].to_numpy() & Code.LOST.bit != 0))
    assert [find_exemption(Code.LOST, row["excuses"]) for row in lost.to_pylist()] == [exemption]


INTERLEAVED = "+C1 =C1 b1>C1 b1! ~{} a2>C1 a2! a4>C1 a4! a5>C1 a5!"


@pytest.mark.parametrize(
    ("entries", "late", "lost"),
    [
        ([0, 1, 2, 3, 4, 7], {}, [Exemption.MAY_BE_ABORTED] * 2),  # two markers end both transactions
        ([0, 1, 2, 3, 5, 7], {}, [Exemption.MAY_BE_ABORTED] * 2),
        ([0, 1, 2, 3, 4, 6], {5: 3}, [Exemption.NONE] * 2),  # the one marker is that of what was delivered
        ([0, 3, 4, 5, 6, 7], {}, [Exemption.NONE] * 2),  # the markers are of transactions before
        # markers that were written after a later record was delivered, or after every timeout
        ([0, 1, 2, 3, 5, 7], {4: 3, 5: 3}, [Exemption.NONE, Exemption.MAY_BE_ABORTED]),
        ([0, 1, 2, 3, 4, 7], {4: 901, 5: 901}, [Exemption.NONE] * 2),
        ([0, 1, 2, 3, 4, 7], {4: 899, 5: 899}, [Exemption.MAY_BE_ABORTED] * 2),
    ],
)
def test_skipped_records_of_interleaved_transactions_may_be_aborted(entries, late, lost):
    waits = 1_000_000_000 // STEP if max(late.values(), default=0) > 3 else 1
    tables = history("b1 a1 a2 a3 a4 a5", INTERLEAVED.format(waits))
    times = tables["messages"]["publish_time"].to_pylist()
    times = [time + timedelta(seconds=late.get(i, 0)) for i, time in enumerate(times)]
    index = tables["messages"].schema.get_field_index("publish_time")
    field = tables["messages"].schema.field(index)
    tables["messages"] = tables["messages"].set_column(index, field, pa.array(times, field.type))
    tables = with_offsets(entries)(tables)
    rows = audit_by(judge_of(RANGE, tables), tables)
    found = rows.filter(pa.array(rows["codes"].to_numpy() & Code.LOST.bit != 0)).sort_by("entry").to_pylist()
    assert [find_exemption(Code.LOST, row["excuses"]) for row in found] == lost


def replicated(clusters):
    """Messages of clusters that they were replicated from."""

    def change(tables):
        index = tables["messages"].schema.get_field_index("replicated_from")
        field = tables["messages"].schema.field("replicated_from")
        return tables | {"messages": tables["messages"].set_column(index, field, pa.array(clusters, pa.string()))}

    return change


def test_producers_of_one_name_in_two_clusters_are_two():
    log, story = "a1#0 a2#1 a3#2 a4#1 a5#3", "+C1 a1>C1 a2>C1 a3>C1 a4>C1 a5>C1"
    assert failing(SHARED, log, story) == {"DUP_PUBLISH"}
    assert not failing(SHARED, log, story, change=replicated([None, None, None, "eu", None]))


def test_an_id_with_another_key_is_of_another_producer_of_that_name():
    story = "+C1 a1>C1 b1>C1 a2>C1 b2>C1 a3>C1 b3>C1"
    assert not failing(SHARED, "a1#0 b1#0 a2#1 b2#1 a3#2 b3#2", story)
    assert failing(SHARED, "a1#0 a2#1 b1#2 a3#1", "+C1 a1>C1 a2>C1 b1>C1 a3>C1") == {"DUP_PUBLISH"}


def test_what_a_producer_sent_again_after_an_unload_has_that_cause():
    again = "+C1@x a1>C1@x a2>C1@x -C1@x +C1@x a3>C1@x a4>C1@x"
    assert not failing(SHARED, "a1#0 a2#1 a3#1 a4#2", again)
    assert failing(SHARED, "a1#0 a2#1 a3#1 a4#2", "+C1@x a1>C1@x a2>C1@x a3>C1@x a4>C1@x") == {"DUP_PUBLISH"}
    assert failing(SHARED, "a1#0 a2#1 a3#1 a4#2", again, Terms(deduplication=True)) == {"DUP_PUBLISH"}


def test_causes_name_the_act_and_sums_count_it():
    tables = history(LOG, BACK + AGAIN)
    judge = judge_of(SHARED, tables)
    rows = audit_by(judge, tables)
    again = rows.filter(pa.array(rows["codes"].to_numpy() & Code.DUP_DELIVERY.bit != 0))
    causes = Causes(judge)
    cause = set(causes.find_causes(again, Code.DUP_DELIVERY, causes.number_epochs(again)).to_pylist())
    assert len(cause) == 1
    assert "consumer C1 left at 2023-11-14T22:13:21" in cause.pop()
    assert {find_exemption(Code.DUP_DELIVERY, exemptions) for exemptions in again["excuses"].to_pylist()} == {
        Exemption.RESET
    }


@pytest.mark.parametrize(
    ("kind", "party", "words"),
    [
        ("reset", "operator", "alice reset the cursor at "),
        ("unload", "operator", "alice unloaded the topic at "),
        ("seek", "consumer application", "alice sought at "),
    ],
)
def test_a_finding_is_attributed_to_whose_act_it_was(kind, party, words):
    tables = history("a1 a2 a3 a4 a5", f"+C1 {READ} ~9 a4>C1")
    judge = judge_of(SHARED, tables, Terms(resets=(Reset(AT, kind, to=(1, 0, -1), by="alice"),)))
    found = [row for row in explained(judge, tables) if row["code"] == "DUP_DELIVERY"]
    assert [(row["verdict"], row["attribution"]) for row in found] == [("valid", party)]
    assert found[0]["cause"].startswith(words)


def test_what_a_reset_skipped_names_it_as_its_cause():
    tables = history("a1 a2 a3 a4", "+C1 a1>C1 a1! ~9 a4>C1 a4!")
    reset = Reset((START + 103 * STEP) * 1_000, to=(1, 3, -1), by="operator")
    found = explained(judge_of(EXCLUSIVE, tables, Terms(resets=(reset,))), tables)
    causes = {row["cause"][:26] for row in found if row["code"] == "LOST"}
    assert causes == {"operator reset the cursor "}


def test_a_skipped_backlog_keeps_nobody_waiting_and_names_its_cause():
    tables = history("a1 a2 a3 a4", "+C1 a1>C1 a1! ~900 a1^")
    terms = Terms(stalled_after=STEP * 1_000, resets=(Reset((START + 103 * STEP) * 1_000, "skip", None, NEVER, None),))
    found = explained(judge_of(EXCLUSIVE, tables, terms), tables)
    assert {(row["code"], row["verdict"]) for row in found} == {("UNSEEN", "valid")}
    assert {row["cause"] for row in found} == {"the backlog was skipped at 2023-11-14T22:13:21.030000Z"}
    found = explained(judge_of(EXCLUSIVE, tables, replace(terms, resets=())), tables)
    assert ("STALLED", "invalid") in {(row["code"], row["verdict"]) for row in found}


def test_acts_of_several_partitions_at_one_time_are_one_act():
    reset = Reset(AT, "reset", by="operator")
    timeline = fold(SHARED, "+C1")
    acts = {partition: find_acts(timeline, (reset,)) for partition in (0, 1)}
    rows = [
        {"pane": AT, "consumer": f"{partition} 5:{partition}", "messages": 2, "redelivered": 3} for partition in (0, 1)
    ]
    (seen,) = list_seen_acts(acts, rows)
    assert (seen.title, seen.acknowledged, seen.redelivered) == ("Cursor reset", 4, 6)
    assert seen.sentence.endswith("; 6 redelivered from 0/5:0, 1/5:1 on, 4 of them acknowledged before")
    assert seen.sentence.startswith("operator reset the cursor at ")


INCIDENTS = Path(__file__).parents[1] / "data" / "recordings-incidents" / "4.2.4"
RING = "pulsar.key_shared.consistent_hash"


def seen_in(policy, tables):
    """The title and the counts of each act in an audit, and its violations."""
    judge = replace(judge_of(make_policy(policy, "pulsar-4.2"), tables), spans=())
    rows = audit_by(judge, tables)
    sums = sums_by(judge, tables)
    acts = {scope.partition: judge.list_acts(one.timeline) for scope, one in judge.dispatchers.items()}
    seen = [(one.title, one.acknowledged, one.redelivered) for one in list_seen_acts(acts, counts_of_acts(sums))]
    fails = drop_exempt(rows["codes"].to_numpy(), rows["excuses"].to_numpy()) & judge.promised
    return seen, {code.name for code in Code if (fails & code.bit).any()}


@pytest.mark.parametrize(
    ("name", "policy", "act"),
    [
        ("i7_reset_cursor_admin", RING, ("Cursor reset or seek", 361, 368)),
        ("i8_seek_by_consumer", "pulsar.failover", ("Cursor reset or seek", 286, 288)),
        ("i9_unload_with_unacked", RING, ("Topic unload", 0, 92)),
    ],
)
def test_what_an_operator_or_a_client_did_at_a_real_broker_is_no_violation(name, policy, act):
    tables = ADAPTERS["pulsar-recording"](INCIDENTS / name).tables
    assert seen_in(policy, tables) == ([act], set())
