"""Membership: joins, leaves, crashes and refusals, from the broker's own events."""

import pytest

from subreplay.semantics.timelines.membership import build_dispatcher_events
from tests.adapters.pulsar_recording.recording import Recording, rows

WHO = ("consumer", "event")


def test_a_join_runs_from_the_request_to_the_consumer_and_a_leave_from_close_to_closed(tmp_path):
    made = Recording().join("c1").close("c1").read(tmp_path)
    assert rows(made, "membership", *WHO, "since", "at", "since_seq", "seq") == [
        ("c1", "join", 1, 2, 1, 2),
        ("c1", "leave", 3, 4, 3, 4),
    ]


def test_a_consumer_that_goes_without_a_close_crashed(tmp_path):
    made = Recording().join("c1").join("c2").crash("c1").close("c2").read(tmp_path)
    assert rows(made, "membership", *WHO, "since", "at")[2:] == [("c1", "crash", 5, 5), ("c2", "leave", 6, 7)]


def test_a_crash_begins_when_the_connection_is_closed(tmp_path):
    recording = Recording().join("c1").disconnect("c1").crash("c1").join("c1").crash("c1")  # its address is used again
    assert rows(recording.read(tmp_path), "membership", *WHO, "since", "at") == [
        ("c1", "join", 1, 2), ("c1", "crash", 3, 4), ("c1", "join", 5, 6), ("c1", "crash", 7, 7),
    ]  # fmt: skip


def test_an_instance_is_a_connection_and_the_consumer_s_id_there(tmp_path):
    made = Recording().subscribe("c", cnx="/h:1").created("c", cnx="/h:1").crash("c", cnx="/h:1").read(tmp_path)
    assert rows(made, "membership", *WHO, "instance") == [("c", "join", "h:1#0"), ("c", "crash", "h:1#0")]


def test_a_request_without_a_consumer_was_rejected_for_the_broker_s_reason(tmp_path):
    made = Recording().join("c1").subscribe("c2").refuse("c2", "ConsumerBusy", "already connected").read(tmp_path)
    assert rows(made, "membership", *WHO, "reason") == [
        ("c1", "join", None),
        ("c2", "rejected", "ConsumerBusy: already connected"),
    ]


def test_a_request_that_nobody_answered_is_rejected_too(tmp_path):
    made = Recording().subscribe("c1").read(tmp_path)
    assert rows(made, "membership", *WHO, "reason") == [
        ("c1", "rejected", "the recording has no consumer_created event for this request")
    ]


def test_each_refusal_of_one_connection_keeps_its_own_reason(tmp_path):
    recording = Recording().subscribe("c1", consumer_id=1).subscribe("c1", consumer_id=2)
    made = recording.refuse("c1", "E", "first").refuse("c1", "E", "second").read(tmp_path)
    assert rows(made, "membership", "reason") == ["E: first", "E: second"]


def test_a_refused_consumer_may_try_again(tmp_path):
    made = Recording().subscribe("c1").refuse("c1", "ConsumerBusy", "no").join("c1").read(tmp_path)
    assert rows(made, "membership", *WHO, "at", "reason") == [
        ("c1", "rejected", 1, "ConsumerBusy: no"),
        ("c1", "join", 4, None),
    ]


def test_an_error_about_something_else_refuses_nobody(tmp_path):
    recording = Recording().subscribe("c1").refuse("c1", "ProducerBusy", "of a producer").created("c1")
    assert rows(recording.refuse("c9", "E", "m").read(tmp_path), "membership", *WHO, "since", "reason") == [
        ("c1", "join", 1, None)
    ]


def test_a_consumer_that_was_there_before_the_recording_has_no_request(tmp_path):
    assert rows(Recording().created("c1").read(tmp_path), "membership", *WHO, "since", "at") == [("c1", "join", 1, 1)]


def test_a_sticky_consumer_brings_its_ranges(tmp_path):
    recording = Recording().join("c1", key_shared_mode="STICKY", hash_ranges=[[0, 16383], [32768, 49151]]).join("c2")
    assert rows(recording.close("c1").read(tmp_path), "membership", "consumer", "key_shared_mode", "ranges") == [
        ("c1", "STICKY", [{"start": 0, "end": 16383}, {"start": 32768, "end": 49151}]),
        ("c2", "AUTO_SPLIT", None),
        ("c1", "STICKY", [{"start": 0, "end": 16383}, {"start": 32768, "end": 49151}]),
    ]


def test_priority_type_and_queue_size_are_kept(tmp_path):
    recording = Recording(kind="Failover", consumers=[{"name": "c1", "receiver_queue_size": 50}, {"name": "c2"}])
    made = recording.join("c1", priority=2).join("c2").read(tmp_path)
    columns = ("consumer", "type", "priority", "receiver_queue_size", "key_shared_mode", "allow_out_of_order")
    assert rows(made, "membership", *columns) == [
        ("c1", "Failover", 2, 50, None, None),
        ("c2", "Failover", 0, None, None, None),
    ]


@pytest.mark.parametrize("allowed", [True, False])
def test_out_of_order_delivery_is_kept(tmp_path, allowed):
    made = Recording().join("c1", allow_out_of_order=allowed).read(tmp_path)
    assert rows(made, "membership", "allow_out_of_order") == [allowed]


def test_policies_never_see_a_rejected_consumer(tmp_path):
    made = Recording().join("c1").subscribe("c2").refuse("c2", "E", "no").close("c1").read(tmp_path)
    (events,) = build_dispatcher_events(made.tables["membership"].to_pylist(), []).values()
    assert [(event.consumer, event.event) for event in events] == [("c1", "join"), ("c1", "leave")]


def test_a_consumer_that_is_created_again_on_its_connection_ends_its_earlier_life(tmp_path):
    made = Recording().join("c1").dispatch(0, "c1").join("c1").read(tmp_path)
    assert rows(made, "membership", *WHO, "since", "at") == [
        ("c1", "join", 1, 2),
        ("c1", "leave", 3, 4),
        ("c1", "join", 4, 5),
    ]


def test_consumers_that_subscribe_again_before_any_of_them_acts_left_together(tmp_path):
    story = Recording().join("c1").join("c2").dispatch(0, "c1").dispatch(1, "c2").join("c1").join("c2")
    leaves = [row for row in rows(story.read(tmp_path), "membership", *WHO, "since", "at") if row[1] == "leave"]
    assert leaves == [("c1", "leave", 5, 7), ("c2", "leave", 6, 7)]


def test_a_consumer_that_was_served_meanwhile_left_later_than_the_others(tmp_path):
    story = Recording().join("c1").join("c2").join("c1").dispatch(0, "c2", cnx=None).join("c2")
    leaves = [row for row in rows(story.read(tmp_path), "membership", *WHO, "since", "at") if row[1] == "leave"]
    assert leaves == [("c1", "leave", 2, 5), ("c2", "leave", 7, 8)]


def test_a_request_that_creates_no_consumer_ends_no_life(tmp_path):
    made = Recording().join("c1").subscribe("c1").read(tmp_path)
    assert rows(made, "membership", *WHO) == [("c1", "join"), ("c1", "rejected")]


def test_a_closed_connection_ends_the_lives_on_it_so_its_address_may_be_used_again(tmp_path):
    made = Recording().join("c1").crash("c1").disconnect("c1").join("c1").read(tmp_path)
    assert rows(made, "membership", *WHO) == [("c1", "join"), ("c1", "crash"), ("c1", "join")]
