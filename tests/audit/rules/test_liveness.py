"""A due message reaches a connected consumer that may take it: what is reported when it does not, and what is not.

One step of a story is 10 ms; the thresholds here are half a second. Messages are published before the first step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from subreplay.audit.codes import Code
from subreplay.audit.needs import Need
from subreplay.audit.rules.registry import find_rule_statuses
from subreplay.audit.terms import Terms
from subreplay.rows.model.rows import RuleStatus
from subreplay.semantics.policies import make_policy
from tests.support.daily_runs import audit_daily
from tests.support.history import History, auto_split, findings, findings_of, history, positions
from tests.support.pure import audit, audit_by, judge_of

HALF = 500_000_000
SOON = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF)
KEY_SHARED, OLDER = auto_split(), auto_split("pulsar-3.2")
SHARED, FAILOVER = make_policy("pulsar.shared", "pulsar-4.0"), make_policy("pulsar.failover", "pulsar-4.0")
EXCLUSIVE, RANGE = make_policy("pulsar.exclusive", "pulsar-4.0"), make_policy("kafka.range", "kafka-4.0")
EVERY = [KEY_SHARED, OLDER, SHARED, FAILOVER, EXCLUSIVE]
LIVENESS = {"STALLED", "STUCK", "STARVED", "LATE"}
AT_ONCE = make_policy("kafka.range", "kafka-4.0", initial_rebalance_delay_us=0)
ids = lambda policy: f"{policy.name} of {policy.profile}"  # noqa: E731


def waits(policy, log: str, story: str, terms: Terms = SOON) -> list[str]:
    """The findings about waiting."""
    return [found for found in findings(policy, log, story, terms) if found.split()[0].upper() in LIVENESS]


# what is reported


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_nothing_is_delivered_to_a_free_consumer_to_the_end(policy):
    assert waits(policy, "n1 n2", "+C1 n1>C1 n1! ~100 n1^") == ["STALLED n2"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_the_stall_counts_until_the_consumer_was_stopped(policy):
    assert waits(policy, "n1 n2", "+C1 n1>C1 n1! ~100 -C1 ~50 n1^") == ["STALLED n2"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_a_consumer_with_a_full_queue_blocks_what_waits_for_it(policy):
    assert waits(policy, "n1 n2 n3", "+C1:2 n1>C1 n2>C1 ~100 n1^") == ["STUCK n3"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_a_consumer_with_permits_left_blocks_nobody(policy):
    assert waits(policy, "n1 n2 n3", "+C1:20 n1>C1 ~100 n1^") == ["STALLED n2", "STALLED n3"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_a_message_that_a_free_consumer_received_long_after_it_was_due_is_late(policy):
    assert waits(policy, "n1 n2", "+C1 n1>C1 n1! ~100 n2>C1 n2!") == ["LATE n2"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_a_stall_that_a_restart_ended_made_its_messages_late(policy):
    assert waits(policy, "n1 n2 n3", "+C1 n1>C1 n1! ~100 -C1 +C2 n2>C2 n3>C2 n2! n3!") == ["LATE n2", "LATE n3"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_what_waited_behind_a_consumer_that_was_killed_is_stuck(policy):
    story = "+C1:2 n1>C1 n2>C1 ~100 -C1 +C2 n1>C2 n2>C2 n3>C2 n1! n2! n3!"
    assert waits(policy, "n1 n2 n3", story) == ["STUCK n3"]


RESTARTS = "".join(f"+C{n} n1>C{n} n2>C{n} ~20 -C{n} " for n in range(1, 8)) + "n1^ n2^"
"""Seven owners in turn, of which each receives the same two messages."""


@pytest.mark.parametrize("policy", [FAILOVER, EXCLUSIVE], ids=ids)
def test_what_waits_while_owners_come_and_go_without_getting_further_is_stuck(policy):
    assert waits(policy, "n1 n2 n3", RESTARTS) == ["STUCK n3"]
    tables = history("n1 n2 n3", RESTARTS)
    (row,) = [r for r in audit(policy, tables, terms=SOON).to_pylist() if not r["delivered"]]
    assert (row["holder_witness"]["entry"], row["holder_witness"]["held"]) == (1, -7)


def test_members_of_a_group_that_come_and_go_without_getting_further_block_what_waits():
    story = "".join(f"+C{n} =C{n} n1>C{n} n2>C{n} ~20 /C{n} -C{n} " for n in range(1, 8))
    assert waits(RANGE, "n1 n2 n3", story + "n1^ n2^") == ["STUCK n3"]


def test_a_partition_that_no_member_of_the_group_is_assigned_is_stalled():
    assert waits(RANGE, "n1 n2", "+C1 +C2 =C1 n1>C1 n1! /C1 -C1 ~100 n1^") == ["STALLED n2"]
    assert waits(RANGE, "n1 n2", "+C1 +C2 =C1 n1>C1 n1! /C1 -C1 ~20 =C2 ~20 n2>C2 n2!") == []  # not for long
    assert waits(RANGE, "n1 n2", "+C1 =C1 n1>C1 n1! /C1 -C1 ~100 n1^") == []  # nobody is a member


def test_a_partition_without_an_owner_since_a_leave_waits_for_no_consumer():
    # the coordinator lets the first members in at once
    story = "+C1 +C2 #C1:1 n1>C1 n1! -C1 ~100 n1^"
    waiting = [r for r in audit(AT_ONCE, history("n1 n2", story), terms=SOON).to_pylist() if not r["delivered"]]
    assert [(r["codes"] & Code.STALLED.bit != 0, r["consumer"]) for r in waiting] == [(True, None)]
    assert waits(AT_ONCE, "n1 n2", "+C1 +C2 #C1:1 n1>C1 n1! -C1 #C2:2 ~100 n1^") == ["STALLED n2"]  # it waits for C2
    assert waits(AT_ONCE, "n1 n2", "+C1 +C2 #C1:1 n1>C1 n1! -C1 ~20 #C2:2 ~20 n2>C2 n2!") == []
    assert waits(AT_ONCE, "n1 n2", "+C1 #C1:1 n1>C1 n1! -C1 ~100 n1^") == []


def test_what_waits_is_starved_in_a_group_whose_acknowledgements_are_not_recorded():
    lacking = frozenset({Need.ACKNOWLEDGEMENTS, Need.DISPATCH_TIMES})
    assert find_rule_statuses(RANGE, SOON, lacking)[Code.STARVED] is RuleStatus.PROMISED
    assert find_rule_statuses(KEY_SHARED, SOON, lacking)[Code.STARVED] is RuleStatus.NOT_APPLICABLE


@pytest.mark.parametrize(
    "story",
    [
        "".join(f"+C{n} n1>C{n} n2>C{n} ~20 -C{n} " for n in range(1, 4)) + "n1^ n2^",  # twice again: commits were lost
        "".join(f"+C{n} n1>C{n} n2>C{n} ~3 -C{n} " for n in range(1, 8)) + "n1^ n2^",  # not for long
        "".join(f"+C{n} n1>C{n} n2>C{n} ~20 -C{n} " for n in range(1, 8)) + "+C8 n3>C8 n3! n1! n2!",  # it came
        "".join(f"+C{n} n1>C{n} n2>C{n} ~1 -C{n} ~30 " for n in range(1, 8)) + "n1^ n2^",  # nobody is there
    ],
)
def test_owners_that_come_and_go_for_a_while_are_harmless(story):
    assert [found for found in waits(FAILOVER, "n1 n2 n3", story) if "n3" in found and "STUCK" in found] == []


def test_a_standby_waits_behind_an_active_consumer_that_hangs():
    assert waits(FAILOVER, "n1 n2", "+C1:1 +C2:1 n1>C1 ~100 n1^") == ["STUCK n2"]


def test_a_finding_names_the_holder_its_first_message_and_how_many_it_holds():
    tables = history("n1 n2 n3", "+C1:2 n1>C1 n2>C1 ~100 n1^")
    (row,) = [r for r in audit(KEY_SHARED, tables, terms=SOON).to_pylist() if not r["delivered"]]
    holder = row["holder_witness"]
    assert (holder["consumer"], holder["entry"], holder["held"], row["consumer"]) == ("C1", 0, 2, "C1")


def test_a_consumer_of_key_shared_that_hangs_blocks_the_others_through_the_look_ahead():
    blocked = waits(KEY_SHARED, "a1 n1 a2 n2", "+C1:1 +C2:1 a1>C2 n1>C1 n1! ~100 a1^")
    assert blocked == ["STUCK a2", "STUCK n2"]


def test_a_limit_of_the_subscription_blocks_all_consumers():
    story = "+C1:9 +C2:9 a1>C1 a2>C1 ~100 a1^"
    limited = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF, max_unacked_per_subscription=2)
    assert waits(SHARED, "a1 a2 a3", story, limited) == ["STUCK a3"]
    assert waits(SHARED, "a1 a2 a3", story) == ["STALLED a3"]


def test_a_consumer_at_its_limit_is_reported_although_the_others_go_on():
    story = "+C1:9 +C2:9 a1>C1 a2>C1 ~60 a3>C2 a3! ~60 a3^"
    limited = Terms(stalled_after=HALF, late_after=10 * HALF, stuck_after=HALF, max_unacked_per_consumer=2)
    assert waits(SHARED, "a1 a2 a3", story, limited) == ["STUCK a2"]


def test_a_message_that_was_passed_over_for_long_is_late_although_its_consumer_is_served():
    story = "+C1 ~10 " + " ".join(f"b{i}>C1 b{i}! ~20" for i in range(1, 6)) + " a1>C1 a1!"
    delays = " ".join(f"b{i}+{88 + 22 * i}" for i in range(1, 6))
    no_tick = Terms(tick=0, stalled_after=HALF, late_after=HALF, stuck_after=HALF)
    assert waits(SHARED, f"a1 {delays}", story, no_tick) == ["LATE a1"]


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_a_message_that_never_came_is_lost_although_others_are_served_to_the_end(policy):
    story = "+C1 " + " ".join(f"b{i}>C1 b{i}! ~20" for i in range(1, 6)) + " b6>C1 b6!"
    assert "LOST a1" in findings(policy, "b1 a1 b2 b3 b4 b5 b6", story, SOON)


@pytest.mark.parametrize("policy", [KEY_SHARED, OLDER, SHARED], ids=ids)
def test_a_message_that_was_overtaken_just_before_the_end_may_still_come(policy):
    assert "LOST a1" not in findings(policy, "b1 a1 b2 b3", "+C1 b1>C1 b1! ~60 b2>C1 b3>C1 b2! b3!", SOON)


@pytest.mark.parametrize(
    ("story", "found"),
    [
        ("+C1 =C1 a1>C1 a1! ~100 a1^", ["STALLED a2", "STALLED a3"]),
        ("+C1 =C1 a1>C1 ~100 a1^", ["STUCK a2", "STUCK a3"]),
        ("+C1 +C2 =C1 a1>C1 a1! ~100 /C1 -C1 =C2 a2>C2 a3>C2", ["LATE a2", "LATE a3"]),
        ("+C1 +C2 =C1 a1>C1 ~100 /C1 -C1 =C2 a2>C2 a3>C2", ["STUCK a2", "STUCK a3"]),
        ("+C1 +C2 =C1 a1>C1 a1! /C1 -C1 ~100 =C2 a2>C2 a3>C2", []),  # nobody had the partition
    ],
)
def test_a_kafka_consumer_that_fetches_nothing_keeps_its_partition_waiting(story, found):
    assert [f for f in findings(RANGE, "a1 a2 a3", story, SOON, 0) if f.split()[0].upper() in LIVENESS] == found


COMMITS = {
    "a member holds its records and commits nothing": ("a1>C1 a2>C1 ~100 a1^", ["STUCK a3", "STUCK a4"]),
    "a member commits one record and hangs": ("a1>C1 a2>C1 ~40 C1!1 ~100 a1^", ["STUCK a3", "STUCK a4"]),
    "a member commits the same offset again and again": (
        "a1>C1 a2>C1 C1!1 ~30 C1!1 ~30 C1!!1 ~30 C1!1 a1^", ["STUCK a3", "STUCK a4"],
    ),
    "a commit does not advance: what came after it waited": (
        "a1>C1 a2>C1 C1!1 ~40 C1!1 ~40 a3>C1 a4>C1 a1^", ["STUCK a3", "STUCK a4"],
    ),
    "a commit ends a silence that was long": ("a1>C1 a2>C1 ~100 C1!2 a3>C1 a4>C1 C1!4", ["STUCK a3", "STUCK a4"]),
    "a member commits all and receives nothing": ("a1>C1 a2>C1 C1!2 ~100 a1^", ["STALLED a3", "STALLED a4"]),
    "a member receives and hangs after it has committed all": (
        "a1>C1 a2>C1 C1!2 a3>C1 ~100 a1^", ["STUCK a4"],
    ),
    "commits of what another member owns": (
        "a1>C1 a2>C1 ~40 C2!1 ~40 C2!2 ~40 a1^", ["STUCK a3", "STUCK a4"],
    ),
    "a commit is refused": ("a1>C1 a2>C1 ~40 C1?1 ~40 C1?2 ~40 a1^", ["STUCK a3", "STUCK a4"]),
    "a member commits slowly, record by record": ("a1>C1 a2>C1 ~40 C1!1 ~40 C1!2 a3>C1 ~40 C1!3 a4>C1 ~40 C1!4", []),
    "a member commits slowly to the end": ("a1>C1 a2>C1 ~40 C1!1 ~40 C1!2 a3>C1 ~40 C1!3", []),
    "the client commits slowly by itself": ("a1>C1 a2>C1 ~40 C1!!1 ~40 C1!!2 a3>C1 a4>C1 ~40 C1!!4", []),
    "the partition moves after slow commits": ("a1>C1 a2>C1 ~40 C1!1 ~40 C1!2 /C1 =C2 a3>C2 a4>C2 C2!4", []),
    "the application seeks back and commits slowly": (
        "a1>C1 a2>C1 a3>C1 C1!3 a1>C1 C1!1 ~40 a2>C1 C1!2 ~40 a3>C1 C1!3 a4>C1 C1!4", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("batch_rows", [1, 1000])
@pytest.mark.parametrize(("story", "found"), COMMITS.values(), ids=COMMITS)
def test_a_commit_that_advances_the_offset_is_a_sign_of_life_of_its_member(story, found, batch_rows):
    tables = history("a1 a2 a3 a4", f"+C1 +C2 =C1 {story}", 0)
    names = {where: name for name, where in positions("a1 a2 a3 a4").items()}
    rows = audit_by(judge_of(RANGE, tables, SOON), tables, batch_rows).to_pylist()
    assert found_in(rows, names) == found


@pytest.mark.parametrize("commits", [True, False])
def test_commits_determine_the_outstanding_records_of_groups(commits):
    lacking = {Need.ACKNOWLEDGEMENTS} if commits else {Need.ACKNOWLEDGEMENTS, Need.COMMITS}
    tables = history("a1 a2 a3", "+C1 =C1 a1>C1 a2>C1 C1!1 ~100 C1!1", 0)
    judge = replace(judge_of(RANGE, tables, SOON), lacking=frozenset(lacking))
    rows = audit_by(judge, tables).to_pylist()
    assert found_in(rows, {(2, -1): "a3"}) == (["STUCK a3"] if commits else ["STALLED a3"])


@pytest.mark.parametrize(
    ("story", "found"),
    [
        ("a1>C1 a2>C1 ~40 C1!1 {} C1!2 a3>C1 ~40 C1!3 a4>C1 C1!4", []),
        ("a1>C1 a2>C1 C1!2 {} ~100 a1^", ["STALLED a3", "STALLED a4"]),
        ("a1>C1 a2>C1 C1!1 ~25 {} C1!1 ~25 C1!1 ~25 a1^", ["STUCK a3", "STUCK a4"]),
    ],
)
def test_the_next_daily_run_continues_with_the_commits_of_the_run_before(story, found):
    names = {where: name for name, where in positions("a1 a2 a3 a4").items()}
    reported, begin = "+C1 =C1 " + story.format("~35"), "+C1 =C1 " + story.split("{}")[0]
    ends = [last_of(history("a1 a2 a3 a4", day, 0)) + 10_000_000 for day in (begin, reported)]
    daily_runs = audit_daily(RANGE, history("a1 a2 a3 a4", reported, 0), ends, SOON)
    rows = [row for daily_run in daily_runs for row in daily_run.to_pylist()]
    assert found_in(rows, names) == found


def last_of(tables: History) -> int:
    """When the last delivery or commit was (ns)."""
    times = [tables["deliveries"][of].cast("int64").drop_null() for of in ("delivered_at", "received_at", "acked_at")]
    return 1000 * max(at for column in times for at in column.to_pylist())


def found_in(rows: list[dict[str, Any]], names: dict[tuple[int, int], str]) -> list[str]:
    """The findings about waiting in judged rows."""
    codes = [code for code in Code if code.name in LIVENESS]
    return sorted(f"{c.name} {names[r['entry'], -1]}" for r in rows for c in codes if r["codes"] & c.bit)


# what is not


HARMLESS = {
    "a consumer that is slow but steady": "+C1:1 n1>C1 ~40 n1! n2>C1 ~40 n2! n3>C1 n3!",
    "a queue that is worked off while nothing is delivered": "+C1:3 n1>C1 n2>C1 n3>C1 ~40 n1! ~40 n2! ~40 n3!",
    "nobody connected": "+C1 n1>C1 n1! -C1 ~100 +C2 n2>C2 n3>C2 n2! n3!",
    "nobody connected to the end": "+C1 n1>C1 n1! -C1 ~100 n1^",
    "a pause shorter than the threshold": "+C1 n1>C1 n1! ~40 n2>C1 n2! ~40 n3>C1 n3!",
    "everything delivered, and quiet since": "+C1 n1>C1 n2>C1 n3>C1 n1! n2! n3! ~200 n1^",
    "everything delivered, the last one never acknowledged": "+C1 n1>C1 n2>C1 n3>C1 n1! n2! ~200 n1^",
    "a restart without a stall": "+C1 n1>C1 n1! -C1 ~5 +C2 n2>C2 n3>C2 n2! n3!",
    "a consumer that joined a moment ago": "~100 +C1 ~10 n1>C1 n2>C1 n3>C1 n1! n2! n3!",
}


@pytest.mark.parametrize("policy", EVERY, ids=ids)
@pytest.mark.parametrize("story", HARMLESS.values(), ids=HARMLESS)
def test_what_is_harmless_is_not_reported(policy, story):
    assert waits(policy, "n1 n2 n3", story) == []


@pytest.mark.parametrize("policy", EVERY, ids=ids)
@pytest.mark.parametrize("story", ["+C1:0 n1>C1 n1! ~100 n1^", "+C1:0 n1>C1 n1! ~100 n2>C1 n3>C1 n2! n3!"])
def test_a_consumer_without_a_queue_is_served_only_while_it_asks(policy, story):
    assert waits(policy, "n1 n2 n3", story) == []


def test_a_delayed_message_is_not_due_before_its_time():
    assert waits(SHARED, "a1 a2+300", "+C1 a1>C1 a1! ~260 a2>C1 a2!") == []
    assert waits(SHARED, "a1 a2+900", "+C1 a1>C1 a1! ~300 a1^") == []


def test_a_hanging_consumer_of_shared_blocks_nobody_while_others_are_served():
    story = "+C1:1 +C2:1 a1>C1 a2>C2 a2! ~20 a3>C2 a3! ~20 a4>C2 a4! ~20 a5>C2 a5!"
    assert waits(SHARED, "a1 a2 a3 a4 a5", story) == []


def test_thresholds_that_are_not_set_turn_the_rules_off():
    off = Terms(stuck_after=None, starved_after=None)
    assert waits(SHARED, "a1 a2", "+C1 a1>C1 a1! ~1000 a1^", off) == []


@pytest.mark.parametrize("policy", EVERY, ids=ids)
def test_what_expired_before_a_consumer_joined_keeps_nobody_waiting(policy):
    terms = Terms(stalled_after=HALF, late_after=HALF, stuck_after=HALF, ttl=3 * HALF)
    assert waits(policy, "n1 n2", "+C1 n1>C1 n1! -C1 ~500 +C1 ~900 n1^", terms) == []
    assert waits(policy, "n1 n2", "+C1 n1>C1 n1! ~900 n1^", terms) == ["STALLED n2"]


def test_topics_that_store_nothing_keep_no_message_waiting():
    tables = history("n1 n2", "+C1 n1>C1 n1! ~100 n1^")
    for name, table in tables.items():
        index = table.schema.get_field_index("topic")
        topics = ["non-persistent://public/default/t"] * table.num_rows
        field = table.schema.field(index)
        tables[name] = table.set_column(index, field, [topics]) if table.num_rows else table
    assert not {code for code, _ in findings_of(SHARED, tables, SOON)} & LIVENESS
