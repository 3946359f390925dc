"""Checks across rows (copies, clocks, files that disagree), and the run that a recording suggests."""

import pytest

from subreplay.config import run as config
from tests.adapters.pulsar_recording.recording import MS, START, Recording, counts, reasons, rows


def test_one_position_with_two_contents_rejects_both_and_names_the_rows(tmp_path):
    made = Recording().publish(0, "a").publish(1, "b").publish(1, "other").read(tmp_path)
    assert rows(made, "messages", "entry") == [0]
    assert counts(made)["messages"] == (3, 1, 2)
    assert [rejected.row for rejected in made.rejected] == [2, 3]
    assert all("5:1:-1: the messages at one position must be equal (rows 2, 3)" in reason for reason in reasons(made))


def test_of_an_equal_copy_only_the_copy_is_rejected(tmp_path):
    recording = Recording().publish(0, "a")
    recording.files["messages"] *= 2
    made = recording.read(tmp_path)
    assert rows(made, "messages", "entry", "key") == [(0, b"a")]
    assert reasons(made) == [
        "messages.jsonl.gz, row 2: ledger, entry, batch_index = 5:0:-1: a position must occur once (see row 1) "
        "(keep the row that equals the topic's message)"
    ]


def test_messages_of_one_batch_are_no_copies(tmp_path):
    assert Recording().publish(0, "a", "a").read(tmp_path).rejected == ()


def clocked(*ms: int) -> Recording:
    """One ``produced`` event for each time, in this order at the broker."""
    recording = Recording()
    for at in ms:
        recording.event("produced", ledger=5, entry=0, t_ns=START + at * MS)
    return recording


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        ([1, 2, 3], []),
        ([1, 1, 2], []),
        ([1, 2, 9, 3, 4], [3]),  # one clock far ahead: not all that follow
        ([5, 6, 1, 7], [3]),  # one clock behind
        ([1, 9, 8, 7, 2, 3, 4], [2, 3, 4]),
        ([3, 2, 1], [1, 2]),  # the longest run is one row: the last one
    ],
)
def test_where_time_runs_backwards_the_fewest_rows_are_rejected(tmp_path, times, wrong):
    made = clocked(*times).read(tmp_path)
    assert [rejected.row for rejected in made.rejected] == wrong
    assert all("times must not decrease in the broker's order (seq" in reason for reason in reasons(made))


def test_broker_order_and_not_file_order_counts(tmp_path):
    recording = clocked(1, 2, 3)
    recording.files["broker_events"].reverse()
    assert recording.read(tmp_path).rejected == ()


@pytest.mark.parametrize("column", ["ack_ns", "nack_ns"])
def test_a_client_that_ends_a_message_before_it_has_it_is_rejected(tmp_path, column):
    recording = Recording().join("c1").publish(0, "a").dispatch(0, "c1")
    made = recording.receive(0, "c1", recv_ns=START + 20 * MS, **{column: START + 19 * MS}).read(tmp_path)
    assert counts(made)["deliveries"] == (1, 0, 1)
    assert f"{column} = {START + 19 * MS}: {column} must not be before recv_ns" in reasons(made)[0]
    assert rows(made, "deliveries", "delivered_at", "received_at") == [(4, None)]


def test_a_client_may_end_a_message_at_once(tmp_path):
    recording = Recording().join("c1").publish(0, "a").dispatch(0, "c1")
    assert recording.receive(0, "c1", recv_ns=START, ack_ns=START).read(tmp_path).rejected == ()


def test_a_consumer_that_the_recorder_never_joined_is_rejected(tmp_path):
    recording = Recording().join("c1").join("ghost").line("membership", {"event": "join", "consumer": "c1", "t_ns": 1})
    made = recording.read(tmp_path)
    assert len(made.rejected) == 1
    assert "consumer = ghost: the recorder's membership file must have a join of the consumer" in reasons(made)[0]
    assert rows(made, "membership", "consumer", "event") == [("c1", "join"), ("ghost", "rejected")]


def test_rows_in_are_valid_and_quarantined_for_every_file(tmp_path):
    recording = Recording().join("c1").publish(0, "a").publish(1, "b").publish(1, "c").dispatch(0, "c1")
    recording.event("produced", t_ns=1).receive(0, "c1").receive(7, "c1").line("messages", "{}")
    recording.line("membership", {"event": "join", "consumer": "c1", "t_ns": 1}).line("membership", {"event": "poll"})
    made = recording.read(tmp_path)
    assert counts(made) == {
        "messages": (4, 1, 3),
        "broker_events": (4, 3, 1),
        "deliveries": (2, 1, 1),
        "membership": (2, 1, 1),
    }
    assert len(made.rejected) == sum(count.quarantined for count in made.counts)


def run_of(tmp_path, kind: str = "Key_Shared", scenario: dict | None = None, **fields) -> dict:
    return Recording(kind=kind, **scenario or {}).join("c1", **fields).read(tmp_path).run["subscription"]


@pytest.mark.parametrize(
    ("kind", "policy"),
    [("Exclusive", "pulsar.exclusive"), ("Failover", "pulsar.failover"), ("Shared", "pulsar.shared")],
)
def test_the_suggested_policy_is_the_subscription_type(tmp_path, kind, policy):
    assert run_of(tmp_path, kind)["policy"] == policy


@pytest.mark.parametrize(
    ("scenario", "mode", "policy"),
    [
        ({}, "AUTO_SPLIT", "pulsar.key_shared.consistent_hash"),  # the brokers' default
        ({"selector": "consistent_hashing"}, "AUTO_SPLIT", "pulsar.key_shared.consistent_hash"),
        ({"selector": "hash_range_auto_split"}, "AUTO_SPLIT", "pulsar.key_shared.auto_split"),
        ({"selector": "consistent_hashing"}, "STICKY", "pulsar.key_shared.sticky"),  # a client's choice
    ],
)
def test_the_suggested_selector_is_the_one_of_broker_and_clients(tmp_path, scenario, mode, policy):
    assert run_of(tmp_path, scenario=scenario, key_shared_mode=mode)["policy"] == policy


@pytest.mark.parametrize("version", ["4.0.8", "3.2.3", "4.2.4"])
def test_the_suggested_profile_is_the_broker_s_release(tmp_path, version):
    assert run_of(tmp_path, scenario={"version": version})["profile"] == f"pulsar-{version[:3]}"


def test_an_unknown_version_suggests_no_profile(tmp_path):
    assert "profile" not in run_of(tmp_path)


def test_out_of_order_delivery_is_suggested_as_an_option(tmp_path):
    assert run_of(tmp_path, allow_out_of_order=True)["options"] == {"allow_out_of_order": True}
    assert "options" not in run_of(tmp_path)


def test_the_suggested_run_is_a_legal_one(tmp_path):
    made = Recording(topic="persistent://public/default/orders-partition-3", version="4.0.8").join("c1").read(tmp_path)
    run = config.parse(made.run, "suggested")
    assert (run.subscription.name, run.subscription.topic) == ("sub", "persistent://public/default/orders")
    assert run.subscription.make_policy().profile == "pulsar-4.0"


def test_a_recording_without_consumers_suggests_nothing(tmp_path):
    assert Recording().publish(0, "a").read(tmp_path).run == {}
