"""Deliveries: what was dispatched to whom, what ended it, and when the application took it."""

import pytest

from tests.adapters.pulsar_recording.recording import START, Recording, reasons, rows

ENDS = ("entry", "batch_index", "consumer", "outcome")


def two(kind: str = "Key_Shared") -> Recording:
    return Recording(kind=kind).join("c1").join("c2")  # times 1 to 4


def deliveries(tmp_path, recording: Recording, *columns: str) -> list:
    return rows(recording.read(tmp_path), "deliveries", *columns)


def test_an_acknowledged_delivery(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").ack(0, "c1")
    columns = ("subscription", "consumer", "delivered_at", "acked_at", "ack_type", "redelivery_count", "outcome")
    assert deliveries(tmp_path, recording, *columns) == [("sub", "c1", 6, 7, "Individual", 0, "acked")]
    assert deliveries(tmp_path, recording, "source") == ["observed"]


def test_a_delivery_that_nothing_ended_is_pending(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1")
    assert deliveries(tmp_path, recording, *ENDS, "acked_at", "nacked_at") == [(0, -1, "c1", "pending", None, None)]


def test_a_nack_ends_the_named_delivery_and_the_next_one_is_another(tmp_path):
    recording = two().publish(0, "a").publish(1, "a").dispatch(0, "c1").dispatch(1, "c1").nack("c1", 0)
    recording = recording.dispatch(0, "c1", 1).ack(0, "c1").ack(1, "c1")
    assert deliveries(tmp_path, recording, *ENDS, "delivered_at", "nacked_at", "acked_at", "redelivery_count") == [
        (0, -1, "c1", "redelivered", 7, 9, None, 0),
        (0, -1, "c1", "acked", 10, None, 11, 1),
        (1, -1, "c1", "acked", 8, None, 12, 0),
    ]


def test_a_redelivery_request_without_ids_is_for_everything_its_consumer_holds(tmp_path):
    recording = two().publish(0, "a").publish(1, "b").publish(2, "c")
    recording = recording.dispatch(0, "c1").dispatch(1, "c2").dispatch(2, "c1").ack(2, "c1").nack("c1")
    assert deliveries(tmp_path, recording, *ENDS) == [
        (0, -1, "c1", "redelivered"), (1, -1, "c2", "pending"), (2, -1, "c1", "acked"),
    ]  # fmt: skip


def test_a_late_acknowledgement_of_a_nacked_delivery_counts(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").nack("c1", 0).ack(0, "c1")
    assert deliveries(tmp_path, recording, "outcome", "nacked_at", "acked_at") == [("acked", 7, 8)]


@pytest.mark.parametrize("leave", [Recording.close, Recording.crash])
def test_outstanding_messages_of_a_consumer_that_left_end_as_closed_and_are_delivered_to_another(tmp_path, leave):
    recording = leave(two().publish(0, "a").publish(1, "b").dispatch(0, "c1").dispatch(1, "c1").ack(0, "c1"), "c1")
    recording = recording.dispatch(1, "c2").ack(1, "c2")
    assert deliveries(tmp_path, recording, *ENDS) == [
        (0, -1, "c1", "acked"), (1, -1, "c1", "closed"), (1, -1, "c2", "acked"),
    ]  # fmt: skip


# two consumers of one name


def twins() -> Recording:
    """Two consumers called c, at x and y, and messages 0 and 1."""
    recording = Recording()
    for address in ("/x", "/y"):
        recording = recording.subscribe("c", cnx=address).created("c", cnx=address)
    return recording.publish(0, "a").publish(1, "b")


def test_a_leave_closes_only_the_messages_of_that_consumer_and_not_of_its_namesake(tmp_path):
    recording = twins().dispatch(0, "c", cnx="/x").dispatch(1, "c", cnx="/y").crash("c", cnx="/x")
    assert deliveries(tmp_path, recording, "entry", "instance", "outcome") == [
        (0, "x#0", "closed"), (1, "y#0", "pending"),
    ]  # fmt: skip


def test_a_nack_without_ids_is_for_what_its_own_connection_holds(tmp_path):
    recording = twins().dispatch(0, "c", cnx="/x").dispatch(1, "c", cnx="/y")
    recording = recording.event("redeliver_unacked", consumer="c", consumer_id=0, cnx="/y", ids=[])
    assert deliveries(tmp_path, recording, "entry", "outcome") == [(0, "pending"), (1, "redelivered")]


def test_a_dispatch_that_does_not_name_its_connection_is_to_the_one_there_is(tmp_path):
    recording = twins().dispatch(0, "c", cnx=None).crash("c", cnx="/x").dispatch(1, "c", cnx=None)
    assert deliveries(tmp_path, recording, "entry", "instance", "outcome") == [
        (0, None, "pending"), (1, "y#0", "pending"),
    ]  # fmt: skip
    recording = recording.crash("c", cnx="/y")
    assert deliveries(tmp_path, recording, "entry", "outcome") == [(0, "closed"), (1, "closed")]


def test_receipts_are_of_the_consumer_that_the_recorder_calls_so(tmp_path):
    """c#2 took message 1 only when it came again; that of c#1 before was never taken."""
    recording = twins().dispatch(0, "c", cnx="/y").receive(0, "c", instance="c#2")
    recording = recording.dispatch(1, "c", cnx="/x").crash("c", cnx="/x").dispatch(1, "c", cnx="/y")
    recording = recording.receive(1, "c", instance="c#2")
    assert deliveries(tmp_path, recording, "entry", "instance", "received_at") == [
        (0, "y#0", 8), (1, "x#0", None), (1, "y#0", 12),
    ]  # fmt: skip


def test_the_recorder_s_list_of_joins_may_number_those_of_one_name(tmp_path):
    notes = [{"event": "join", "consumer": f"c#{number}", "t_ns": 1} for number in (1, 2)]
    recording = twins().dispatch(0, "c", cnx="/x")
    for note in notes:
        recording = recording.line("membership", note)
    assert recording.read(tmp_path).rejected == ()


def test_what_is_written_to_a_connection_that_has_just_been_closed_is_no_delivery(tmp_path):
    recording = twins().disconnect("x").dispatch(0, "c", cnx="/x").crash("c", cnx="/x").dispatch(0, "c", cnx="/y")
    assert deliveries(tmp_path, recording, "entry", "instance") == [(0, "y#0")]
    recording.tick += 10
    recording = recording.dispatch(1, "c", cnx="/x")  # ten milliseconds later nothing is under way any more
    assert deliveries(tmp_path, recording, "entry", "instance") == [(0, "y#0"), (1, "x#0")]


def test_an_acknowledgement_after_the_close_belongs_to_the_latest_delivery(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").close("c1").ack(0, "c1")
    assert deliveries(tmp_path, recording, "outcome", "acked_at") == [("acked", 9)]


def test_an_acknowledgement_ends_every_open_delivery_of_its_message(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").dispatch(0, "c2").ack(0, "c2")
    assert deliveries(tmp_path, recording, *ENDS, "acked_at") == [(0, -1, "c1", "acked", 8), (0, -1, "c2", "acked", 8)]


def test_a_message_delivered_again_after_its_acknowledgement_is_a_delivery_of_its_own(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").ack(0, "c1").dispatch(0, "c2", 1)
    assert deliveries(tmp_path, recording, *ENDS) == [(0, -1, "c1", "acked"), (0, -1, "c2", "pending")]


def test_a_second_acknowledgement_changes_nothing(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").ack(0, "c1").ack(0, "c1")
    assert deliveries(tmp_path, recording, "acked_at") == [7]


def test_an_acknowledgement_without_a_dispatch_is_a_row_without_a_delivery(tmp_path):
    recording = two().publish(0, "a").ack(0, "c1")
    columns = ("consumer", "delivered_at", "acked_at", "outcome")
    assert deliveries(tmp_path, recording, *columns) == [("c1", None, 6, "acked")]


def test_an_acknowledgement_before_the_dispatch_belongs_to_it(tmp_path):
    recording = two().publish(0, "a").ack(0, "c1").dispatch(0, "c1")
    assert deliveries(tmp_path, recording, "delivered_at", "acked_at", "outcome") == [(7, 6, "acked")]


def test_an_acknowledgement_without_ids_acknowledges_nothing(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").ack(0, "c1", ids=[]).ack(0, "c1", cumulative=True, ids=[])
    assert deliveries(tmp_path, recording, "outcome") == ["pending"]


def test_a_message_that_is_not_in_the_log_has_its_delivery_all_the_same(tmp_path):
    recording = two().publish(0, "a").dispatch(8, "c1").ack(8, "c1")
    assert deliveries(tmp_path, recording, *ENDS) == [(8, -1, "c1", "acked")]


# batches


def batch() -> Recording:
    return two().publish(0, "a", "b", "c").dispatch(0, "c1")


def test_a_dispatch_of_a_batch_delivers_each_of_its_messages(tmp_path):
    assert deliveries(tmp_path, batch(), *ENDS, "delivered_at") == [(0, i, "c1", "pending", 6) for i in range(3)]


def test_set_bits_of_an_acknowledgement_are_still_unacknowledged(tmp_path):
    assert deliveries(tmp_path, batch().ack(0, "c1", 1), "batch_index", "outcome") == [
        (0, "acked"), (1, "pending"), (2, "acked"),
    ]  # fmt: skip


def test_an_acknowledgement_without_bits_covers_the_whole_batch(tmp_path):
    assert deliveries(tmp_path, batch().ack(0, "c1"), "outcome") == ["acked"] * 3


def test_acknowledgement_bits_in_later_and_negative_words_are_read(tmp_path):
    recording = two().publish(0, *"a" * 130).dispatch(0, "c1").ack(0, "c1", ids=[[5, 0, [0, -(2**63), 1]]])
    pending = [i for i, outcome in deliveries(tmp_path, recording, "batch_index", "outcome") if outcome == "pending"]
    assert pending == [127, 128]


def test_a_batch_is_redelivered_with_its_unacknowledged_messages(tmp_path):
    recording = batch().ack(0, "c1", 1, 2).close("c1").dispatch(0, "c2")
    assert deliveries(tmp_path, recording, *ENDS) == [
        (0, 0, "c1", "acked"),
        (0, 1, "c1", "closed"), (0, 1, "c2", "pending"),
        (0, 2, "c1", "closed"), (0, 2, "c2", "pending"),
    ]  # fmt: skip


def test_a_redelivered_batch_whose_messages_were_all_acknowledged_is_a_second_delivery_of_each(tmp_path):
    recording = batch().ack(0, "c1", 1, 2).ack(0, "c1").dispatch(0, "c2", 1)
    assert deliveries(tmp_path, recording, *ENDS, "redelivery_count") == [
        (0, i, *ending) for i in range(3) for ending in (("c1", "acked", 0), ("c2", "pending", 1))
    ]


# cumulative acknowledgements


def four(kind: str = "Failover") -> Recording:
    recording = two(kind)
    for entry in range(4):
        recording.publish(entry, "a").dispatch(entry, "c1")
    return recording


def test_a_cumulative_acknowledgement_covers_everything_up_to_it(tmp_path):
    recording = four().ack(2, "c1", cumulative=True)
    assert deliveries(tmp_path, recording, "outcome", "ack_type") == [("acked", "Cumulative")] * 3 + [("pending", None)]


@pytest.mark.parametrize("kind", ["Shared", "Key_Shared"])
def test_where_many_consumers_share_it_covers_what_it_names_only(tmp_path, kind):
    recording = four(kind).ack(2, "c1", cumulative=True)
    ends = [("pending", None), ("pending", None), ("acked", "Cumulative"), ("pending", None)]
    assert deliveries(tmp_path, recording, "outcome", "ack_type") == ends


def test_a_refused_request_of_another_type_changes_nothing(tmp_path):
    recording = four().subscribe("c9", type="Shared").ack(1, "c1", cumulative=True)
    assert deliveries(tmp_path, recording, "outcome") == ["acked"] * 2 + ["pending"] * 2


def test_a_later_cumulative_acknowledgement_leaves_the_time_of_the_earlier_one(tmp_path):
    recording = four().ack(1, "c1", cumulative=True).ack(3, "c1", cumulative=True).ack(2, "c1", cumulative=True)
    assert deliveries(tmp_path, recording, "acked_at") == [13, 13, 14, 14]


def test_a_cumulative_acknowledgement_of_part_of_a_batch_covers_that_part(tmp_path):
    recording = two("Failover").publish(0, "a").publish(1, "a", "b", "c").publish(2, "a")
    recording = recording.dispatch(0, "c1").dispatch(1, "c1").dispatch(2, "c1").ack(1, "c1", 1, 2, cumulative=True)
    assert deliveries(tmp_path, recording, "entry", "batch_index", "outcome") == [
        (0, -1, "acked"), (1, 0, "acked"), (1, 1, "pending"), (1, 2, "pending"), (2, -1, "pending"),
    ]  # fmt: skip
    later = deliveries(tmp_path, recording.ack(2, "c1", cumulative=True), "acked_at")
    assert later == [11, 11, 12, 12, 12]


def test_a_cumulative_acknowledgement_of_something_never_delivered_is_a_fact(tmp_path):
    recording = two("Failover").publish(0, "a").publish(1, "a").dispatch(1, "c1").ack(1, "c1", cumulative=True)
    assert deliveries(tmp_path, recording, "entry", "delivered_at", "acked_at") == [(0, None, 8), (1, 7, 8)]


# what applications received


def test_a_receipt_gives_its_delivery_the_time(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").receive(0, "c1").ack(0, "c1")
    assert deliveries(tmp_path, recording, "delivered_at", "received_at", "acked_at") == [(6, 7, 8)]


def test_the_nth_receipt_is_the_nth_dispatch_to_that_consumer(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").dispatch(0, "c2").dispatch(0, "c1")
    recording = recording.receive(0, "c1").receive(0, "c1")
    assert deliveries(tmp_path, recording, "consumer", "delivered_at", "received_at") == [
        ("c1", 6, 9), ("c2", 7, None), ("c1", 8, 10),
    ]  # fmt: skip


def test_a_receipt_beyond_the_dispatches_is_a_delivery_known_from_the_client_alone(tmp_path):
    recording = two().publish(0, "a").dispatch(0, "c1").ack(0, "c1").receive(0, "c1")
    recording = recording.receive(0, "c1", redelivery_count=1, ack_ns=START + 10**9)
    made = recording.read(tmp_path)
    assert made.rejected == ()
    assert rows(made, "deliveries", "delivered_at", "received_at", "acked_at", "redelivery_count") == [
        (6, 8, 7, 0), (9, 9, 1000, 1),
    ]  # fmt: skip


def test_a_receipt_of_what_was_never_dispatched_goes_to_quarantine(tmp_path):
    made = two().publish(0, "a").publish(1, "b").dispatch(0, "c1").receive(1, "c1").read(tmp_path)
    assert reasons(made) == [
        "deliveries.jsonl.gz, row 1: ledger, entry = 5:1:-1: the broker must have dispatched the message "
        "(record broker events and deliveries of the same session)"
    ]


def test_a_receipt_names_one_message_of_its_batch(tmp_path):
    assert deliveries(tmp_path, batch().receive(0, "c1", 1), "received_at") == [None, 7, None]
