"""Polled statistics of real brokers as membership, beside what the brokers did; and polls that do not fit."""

import gzip
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from subreplay.adapters.pulsar_stats.stats_adapter import read_stats
from subreplay.rows.model.range_table import RangeTable
from subreplay.rows.model.tables import MEMBERSHIP
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.membership import build_dispatcher_events
from subreplay.semantics.timelines.timeline import Timeline
from tests.adapters.topic_polls import AT, SECOND, consumer, make_reader, nanos, poll, rows, story

DATA = Path(__file__).parents[1] / "data"
POLLS = DATA / "topic_stats"
TRUTH = DATA / "recordings-with-logs"
NAMES = sorted(path.name.removesuffix(".jsonl.gz") for path in POLLS.glob("*.jsonl.gz"))
KNOWN = [name for name in NAMES if (TRUTH / name.replace("-", "/", 1) / "broker_events.jsonl.gz").exists()]
KEY_SHARED = [name for name in NAMES if "key_shared" in name]


@cache
def polled(name):
    return read_stats(POLLS / f"{name}.jsonl.gz", subscriptions=["billing"], by_address=True)


def json_lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def truth(name):
    """Sessions of the broker: consumer, address, joined, left (ns; None: it did not)."""
    found, live = [], {}
    for event in json_lines(TRUTH / name.replace("-", "/", 1) / "broker_events.jsonl.gz"):
        who = event.get("cnx"), event.get("topic"), event.get("consumer_id")
        if event["ev"] == "consumer_created":
            live[who] = [event["consumer"], event["cnx"].lstrip("/"), event["t_ns"], None]
            found.append(live[who])
        elif event["ev"] == "consumer_closed":
            live.pop(who)[3] = event["t_ns"]
    return found


# Real brokers


@pytest.mark.parametrize("name", KNOWN)
def test_every_session_is_found_with_its_join(name):
    sessions = {(row["consumer"], row["address"]): row for row in rows(polled(name), "sessions")}
    assert sessions.keys() == {(who, address) for who, address, *_ in truth(name)}
    for who, address, joined, _ in truth(name):
        assert abs(nanos(sessions[who, address], "connected_since") - joined) < 0.2 * SECOND


@pytest.mark.parametrize("name", KNOWN)
def test_every_leave_is_in_its_interval(name):
    sessions = {(row["consumer"], row["address"]): row for row in rows(polled(name), "sessions")}
    leaves = {row["seq"]: row for row in rows(polled(name)) if row["event"] == "leave"}
    for who, address, _, left in truth(name):
        seq = sessions[who, address]["leave_seq"]
        if seq is None:
            last = max(nanos(row, "at") for row in rows(polled(name), "polled"))
            assert left is None or left > last
        else:
            leave = leaves.pop(seq)
            assert leave["consumer"] == who
            assert nanos(leave, "since") <= left <= nanos(leave, "at")
            assert leave["reason"].startswith("inferred")
    assert not leaves


@pytest.mark.parametrize("name", KEY_SHARED)
def test_the_ranges_are_those_of_the_range_table(name):
    """Of polled membership alone. 3.2 leaves out the slots above the last point of its ring."""
    found = polled(name)
    policy = "sticky" if "sticky" in name else "consistent_hash"
    members = rows(found)
    ((scope, events),) = build_dispatcher_events(members, {(members[0]["topic"], members[0]["partition"])}).items()
    timeline = Timeline.fold(make_policy(f"pulsar.key_shared.{policy}", f"pulsar-{name[:3]}"), scope, events)
    compared = 0
    for row in rows(found, "ranges"):
        seen = [(each["start"], each["end"]) for each in row["ranges"]]
        for time in ("first_seen", "last_seen"):
            epoch = int(timeline.find_epochs(np.array([nanos(row, time) + 999]), np.array([2**62]))[0])
            last = max(each["end"] for other in rows(found, "ranges") for each in other["ranges"]
                       if other["first_seen"] <= row[time] <= other["last_seen"])  # fmt: skip
            who = {(each.name, each.instance): each.index for each in timeline.consumers}
            mine = timeline.table(epoch).by_owner()[who[row["consumer"], row["address"]]]
            expected = [(start, min(end, last)) for start, end in mine if start <= last]
            assert RangeTable.of({0: seen}).merged().by_owner()[0] == expected
            compared += 1
    assert compared >= 14


def test_sticky_ranges_are_those_that_the_consumers_requested():
    joins = [row for row in rows(polled("4.0.8-l03_key_shared_sticky")) if row["event"] == "join"]
    assert joins[0]["ranges"] == [{"start": 0, "end": 20_000}]
    assert {row["key_shared_mode"] for row in joins} == {"STICKY"}
    assert {row["ranges"] for row in rows(polled("4.0.8-l01_key_shared_autosplit")) if row["event"] == "join"} == {None}


def test_each_partition_has_its_members():
    found = polled("4.0.8-l06_failover_partitioned_priority")
    joins = [row for row in rows(found) if row["event"] == "join"]
    assert {row["partition"] for row in joins} == {0, 1, 2, 3}
    assert not any("-partition-" in row["topic"] for row in joins)
    active = {(row["at"], row["partition"]): row["consumer"] for row in rows(found, "polled") if row["active"]}
    assert set(active.values()) == {"a1", "b0", "c0"}


def test_the_tables_are_canonical():
    found = polled("4.0.8-l01_key_shared_autosplit")
    assert found.membership.schema == MEMBERSHIP
    assert [row["seq"] for row in rows(found)] == [*range(len(rows(found)))]
    assert 0.9 * SECOND < found.longest < 1.1 * SECOND


@pytest.mark.parametrize("name", NAMES)
def test_a_second_subscription_is_another(name):
    every = read_stats(POLLS / f"{name}.jsonl.gz")
    others = {row["subscription"] for row in rows(every)} - {"billing"}
    assert others == ({"other"} if "l08" in name else set())
    assert {row["subscription"] for row in rows(polled(name))} == {"billing"}


# Polls made for a test


@pytest.fixture
def read_polls(tmp_path):
    """What polls tell, as one file."""
    return make_reader(tmp_path)


@pytest.mark.parametrize(
    "since",
    [
        AT - SECOND, (AT - SECOND) // 10**6, "2026-11-22T01:24:59Z", "2026-11-22T02:24:59.000000000+01:00",
        "2026-11-22 01:24:59.0-0000", str((AT - SECOND) // 10**9),
    ],
)  # fmt: skip
def test_a_join_is_when_it_connected(read_polls, since):
    assert story(read_polls(poll(AT, consumer(since=since)))) == [("join", "c1", -1)]


def test_a_join_keeps_its_nanoseconds(read_polls):
    (row,) = rows(read_polls(poll(AT, consumer(since="2026-11-22T01:24:59.123456789Z"))))
    assert nanos(row, "at") == AT - SECOND + 123_456_789


def test_a_leave_is_between_two_polls(read_polls):
    found = read_polls(
        poll(AT, consumer()), poll(AT + SECOND, consumer()), poll(AT + 3 * SECOND), poll(AT + 4 * SECOND)
    )
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 3)]
    assert nanos(rows(found)[1], "since") == AT + SECOND
    (session,) = rows(found, "sessions")
    assert [nanos(session, name) for name in ("last_seen", "gone_by")] == [AT + SECOND, AT + 3 * SECOND]
    assert found.longest == 2 * SECOND


def test_a_consumer_in_the_last_poll_has_not_left(read_polls):
    found = read_polls(poll(AT, consumer()))
    assert story(found) == [("join", "c1", -1)]
    assert rows(found, "sessions")[0]["gone_by"] is None


def test_a_subscription_that_is_gone_has_no_members(read_polls):
    gone = poll(AT + SECOND)
    gone["stats"]["subscriptions"] = {}
    assert story(read_polls(poll(AT, consumer()), gone)) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_a_reconnection_ends_the_session_before(read_polls):
    again = consumer(since=AT + SECOND // 2, address="/10.0.0.1:6000")
    found = read_polls(poll(AT, consumer()), poll(AT + SECOND, again))
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 0.5), ("join", "c1", 0.5)]


def test_two_consumers_with_equal_names_in_one_poll_are_two_members(read_polls):
    twin = consumer(since=AT - SECOND // 2, address="/10.0.0.2:6000")
    found = read_polls(poll(AT, consumer(), twin), poll(AT + SECOND, twin), by_address=True)
    assert story(found) == [("join", "c1", -1), ("join", "c1", -0.5), ("leave", "c1", 1)]
    assert rows(found)[-1]["instance"] == "10.0.0.1:5000"


def test_an_instance_is_recorded_only_if_deliveries_contain_it(read_polls):
    assert rows(read_polls(poll(AT, consumer())))[0]["instance"] is None


@pytest.mark.parametrize(("kind", "left"), [("Exclusive", 0.5), ("Failover", 1)])
def test_an_exclusive_consumer_left_before_another_came(read_polls, kind, left):
    found = read_polls(poll(AT, consumer(), kind=kind), poll(AT + SECOND, consumer("c2", AT + SECOND // 2), kind=kind))
    assert ("leave", "c1", left) in story(found)


def test_a_poller_whose_clock_is_behind_makes_no_leave_before_its_join(read_polls):
    found = read_polls(poll(AT - 9 * SECOND, consumer()), poll(AT - 8 * SECOND))
    assert story(found) == [("join", "c1", -1), ("leave", "c1", -1)]
    assert found.ahead == 8 * SECOND


def test_polls_are_in_the_order_of_their_times(read_polls):
    polls = poll(AT + SECOND), poll(AT, consumer())
    assert story(read_polls(*polls)) == story(read_polls(*reversed(polls))) == [("join", "c1", -1), ("leave", "c1", 1)]


@pytest.mark.parametrize(
    "given",
    [
        {"keyHashRangeArrays": [[1, 99], [200, 65535]]},
        {"keyHashRanges": ["[1, 99]", "[200, 65535]"]},
        {"keyHashRanges": ["[1,99]", "[200, 65535]"], "keyHashRangeArrays": None},
    ],
)
def test_ranges_of_every_version_are_read(read_polls, given):
    found = read_polls(poll(AT, consumer(**given), kind="Key_Shared", keySharedMode="AUTO_SPLIT"))
    (row,) = rows(found, "ranges")
    assert row["ranges"] == [{"start": 1, "end": 99}, {"start": 200, "end": 65535}]


def test_unchanged_ranges_are_recorded_once(read_polls):
    ranges = [[1, 9]], [[1, 9]], [[1, 5]], [[1, 9]]
    polls = [poll(AT + i * SECOND, consumer(keyHashRangeArrays=each)) for i, each in enumerate(ranges)]
    found = [[(nanos(row, name) - AT) // SECOND for name in ("first_seen", "last_seen")]
             for row in rows(read_polls(*polls), "ranges")]  # fmt: skip
    assert found == [[0, 1], [2, 2], [3, 3]]


def test_numbers_of_each_poll_are_kept(read_polls):
    (row,) = rows(read_polls(poll(AT, consumer(blockedConsumerOnUnackedMsgs=True))), "polled")
    assert (row["unacked"], row["permits"], row["blocked"], row["draining_hashes"]) == (3, 900, True, 0)
    assert row["active"] is None
