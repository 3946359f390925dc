"""Brokers' own logs beside what an interceptor in the same broker saw: the log gives the same rows.

An excerpt is the log of some seconds, mostly of the lines that are read; its truth has one row an event: dispatches
(µs, partition, ledger, entry, consumer, redelivery count), acknowledged ids, joins and leaves.
"""

import gzip
import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters.broker_log.line_events import parse_events
from subreplay.adapters.input_files import read_line_batches
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP
from tests.support.broker_log_rows import in_order, of_topic, rows, topics

ROOT = Path(__file__).parents[2] / "data" / "broker_log"
NAMES = sorted(path.name.removesuffix(".log.gz") for path in ROOT.glob("*.log.gz"))
SHARED = "3.2.3-l08_shared_nack_close_dlq"
BATCHES = "4.0.8-l04k_key_shared_key_based_batching"
TWINS = "4.0.8-l11_key_shared_same_name"
MIDLIFE = "4.0.8-l12_midlife_key_shared"
FAILOVER = "4.2.4-l07_failover_nonpartitioned"
PARTITIONS = "3.2.3-l06_failover_partitioned_priority"
CUMULATIVE = "4.2.4-l09_exclusive_cumulative"
each = pytest.mark.parametrize("name", NAMES)
LATE = 60_000
"""Between an event and its line (µs), at most, on a busy machine."""


@cache
def parsed(name):
    return parse_events(pa.Table.from_batches(read_line_batches(ROOT / f"{name}.log.gz")))


@cache
def folded(name):
    """The rows of the topic that the excerpt is about, by partition; its subscription is ``billing``."""
    about = name.split("-", 1)[1]
    found = parsed(name).events
    return {
        partition: rows(of_topic(found, topic, partition))
        for topic, partition in topics(found)
        if topic.rpartition("-")[0].endswith(about)
    }


@cache
def truth(name):
    reported = defaultdict(list)
    with gzip.open(ROOT / f"{name}.truth.jsonl.gz", "rt", encoding="utf-8") as file:
        for kind, *row in map(json.loads, file):
            reported[kind].append(row)
    return reported


def of_billing(name, table):
    found = [row for of in folded(name).values() for row in getattr(of, table).to_pylist()]
    return [row for row in found if row["subscription"] == "billing"]


def dispatches(name):
    found = [row for table in ("deliveries", "unnamed_deliveries") for row in of_billing(name, table)]
    return sorted((row for row in found if row["batch_index"] <= 0), key=lambda row: row["seq"])


def micros(time):
    return round(time.timestamp() * 1_000_000)


def pairs(name):
    """Each dispatch of the truth with the log's; the n-th of an entry with the n-th."""
    logged = defaultdict(list)
    for row in dispatches(name):
        logged[row["partition"], row["ledger"], row["entry"]].append(row)
    return [(reported, logged[tuple(reported[1:4])].pop(0)) for reported in truth(name)["dispatch"]]


@each
def test_every_line_is_known_or_passed_over(name):
    (file,) = parsed(name).files.to_pylist()
    assert not parsed(name).rejected
    assert 0 < file["known"] < file["lines"]


@each
def test_the_same_entries_were_dispatched(name):
    reported = Counter(tuple(row[1:4]) for row in truth(name)["dispatch"])
    assert Counter((row["partition"], row["ledger"], row["entry"]) for row in dispatches(name)) == reported


@each
def test_to_the_same_consumer_wherever_the_log_names_one(name):
    assert [row for reported, row in pairs(name) if row["consumer"] not in (reported[4], None)] == []


@pytest.mark.parametrize("name", sorted({*NAMES} - {SHARED}))
def test_only_shared_dispatches_may_have_no_name(name):
    assert all(row["consumer"] for row in dispatches(name))


def test_shared_dispatches_have_a_name_where_one_member_only_is_on_the_thread_or_one_gave_it_back():
    named = [row["consumer"] for row in dispatches(SHARED)]
    assert 0.2 < sum(name is not None for name in named) / len(named) < 1


@each
def test_at_the_same_time(name):
    late = sorted(abs(micros(row["delivered_at"]) - reported[0]) for reported, row in pairs(name))
    assert late[len(late) // 2] <= 2_000
    assert late[-1] <= LATE


@each
def test_with_the_same_redelivery_count(name):
    assert [(reported, row) for reported, row in pairs(name) if row["redelivery_count"] != reported[5]] == []


def test_redelivery_counts_rise_in_the_shared_excerpt():
    assert max(row["redelivery_count"] for row in dispatches(SHARED)) > 1


@each
def test_the_same_acknowledgements(name):
    acked = [row for row in parsed(name).events.to_pylist() if row["kind"] in ("acked", "acked_up_to")]
    logged = Counter(
        (row["partition"], row["ledger"], row["entry"]) for row in acked if row["subscription"] == "billing"
    )
    assert logged == Counter(tuple(row[1:4]) for row in truth(name)["ack"])


@each
def test_an_acknowledged_entry_has_the_time_of_an_acknowledgement_of_it_or_of_a_later_one(name):
    reported = defaultdict(list)
    for at, partition, ledger, entry in truth(name)["ack"]:
        reported[partition, ledger].append((entry, at))
    acked = [row for row in dispatches(name) if row["acked_at"]]
    assert acked
    for row in acked:
        at, key = micros(row["acked_at"]), (row["partition"], row["ledger"])
        exact = row["ack_type"] == "Individual"
        covering = [t for entry, t in reported[key] if entry == row["entry"] or (entry > row["entry"] and not exact)]
        assert min(abs(at - t) for t in covering) <= LATE


@each
def test_the_same_joins_and_leaves(name):
    found = of_billing(name, "membership") + of_billing(name, "unnamed_membership")
    logged = {
        ("join" if row["event"] == "join" else "left", row["partition"], row["instance"]): (
            row["consumer"],
            micros(row["at"]),
        )
        for row in found
        if row["event"] != "rejected"
    }
    reported = {
        (kind, partition, instance): (consumer, at)
        for kind in ("join", "left")
        for at, partition, consumer, instance in truth(name)[kind]
    }
    assert logged.keys() == reported.keys()
    for key, (consumer, at) in logged.items():
        assert consumer in (reported[key][0], None)
        assert abs(at - reported[key][1]) <= LATE


@each
def test_tables_are_canonical(name):
    for of in folded(name).values():
        assert of.membership.schema == MEMBERSHIP
        assert of.deliveries.schema == DELIVERIES


@each
def test_the_size_and_the_logged_hash_of_an_entry_are_read(name):
    (of, *_) = folded(name).values()
    entries = of.entries.to_pylist()
    hashed = any(row["sticky_hash"] is not None for row in entries)
    assert hashed == (name in (BATCHES, TWINS, MIDLIFE))  # Key_Shared auto-split of 4.x
    assert all(row["messages"] >= 1 for row in entries)


def test_a_lost_connection_is_a_crash_and_a_close_a_leave():
    assert Counter(row["event"] for row in of_billing(FAILOVER, "membership")) == {"join": 6, "leave": 4, "crash": 2}


def test_what_was_sent_to_a_closed_connection_is_no_delivery():
    (of,) = folded(FAILOVER).values()
    assert of.counts["billing"].unsent == 1


def test_messages_of_a_batch_have_an_index_each_and_end_together():
    by_entry = defaultdict(list)
    for row in of_billing(BATCHES, "deliveries"):
        by_entry[row["ledger"], row["entry"], row["seq"]].append(row)
    assert max(map(len, by_entry.values())) > 5
    for messages in by_entry.values():
        indexes = sorted(row["batch_index"] for row in messages)
        assert indexes in ([-1], list(range(len(messages))))
        assert len({row["acked_at"] for row in messages}) == 1


def test_an_entry_is_not_done_while_some_of_its_messages_only_are_acknowledged():
    partly = [row for row in parsed(BATCHES).events.to_pylist() if row["partial"]]
    done = {(row["ledger"], row["entry"]): row["acked_at"] for row in dispatches(BATCHES)}
    assert partly
    assert all(done[row["ledger"], row["entry"]] > row["at"] for row in partly)


def test_two_consumers_with_equal_names_are_distinguished():
    assert len({row["instance"] for row in dispatches(TWINS) if row["consumer"] == "twin"}) > 1


def test_a_refused_consumer_is_named_where_a_line_names_it():
    named = [row for row in of_billing(CUMULATIVE, "membership") if row["event"] == "rejected"]
    unnamed = [row for row in of_billing(CUMULATIVE, "unnamed_membership") if row["event"] == "rejected"]
    assert [(row["consumer"], row["reason"]) for row in named] == [("e2", "Exclusive consumer is already connected")]
    assert [row["reason"].split(".")[0] for row in unnamed] == ["Subscription is of different type"]


def test_names_may_come_from_elsewhere():
    ((topic, partition),) = [pair for pair in topics(parsed(CUMULATIVE).events) if "l09" in pair[0]]
    found = of_topic(parsed(CUMULATIVE).events, topic, partition)
    (refused,) = rows(found).unnamed_membership.to_pylist()
    reported = rows(found, names={refused["instance"]: "e9"})
    assert "e9" in reported.membership["consumer"].to_pylist()


@pytest.mark.long
def test_batches_of_events_give_the_rows_of_all_at_once(monkeypatch):
    monkeypatch.setattr("subreplay.adapters.broker_log.located_rows.BATCH_EVENTS", 97)
    for name in NAMES:
        whole = folded(name)
        for (topic, partition), of in zip(topics_of(name), whole.values(), strict=True):
            found = rows(of_topic(parsed(name).events, topic, partition))
            key = [(column, "ascending") for column in ("subscription", "seq", "batch_index")]
            assert found.deliveries.sort_by(key).equals(of.deliveries.sort_by(key))
            assert found.unnamed_deliveries.sort_by(key).equals(of.unnamed_deliveries.sort_by(key))


def topics_of(name):
    about = name.split("-", 1)[1]
    return [pair for pair in topics(parsed(name).events) if pair[0].rpartition("-")[0].endswith(about)]


def test_events_of_two_topics_are_not_folded_together():
    with pytest.raises(ValueError, match="topic partitions"):
        rows(parsed(PARTITIONS).events)


def test_nothing_gives_nothing():
    empty = parsed(SHARED).events.slice(0, 0)
    assert len(rows(empty).deliveries) == len(in_order(empty)[0]) == 0
