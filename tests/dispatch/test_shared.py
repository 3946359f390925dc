"""Shared: turns, permits, limits, redelivery, delays, chunks."""

import pytest

from tests.dispatch.stage import SHARED, Stage

PROFILES = ("pulsar-3.2", "pulsar-4.0", "pulsar-4.2")


@pytest.mark.row("P-SH-1")
def test_p_sh_1_consumers_take_turns_and_receive_the_messages_of_a_leaving_one():
    stage = Stage(SHARED, "documented", max_turn=1)
    stage.join("a"), stage.join("b")
    assert stage.publish("k k k k") == "a:0,2 b:1,3"
    assert stage.leave("a") == "b:0,2"
    assert stage.redeliveries == {0: 0, 2: 0}


@pytest.mark.row("P-SH-1")
def test_p_sh_1_the_lower_level_is_served_when_the_higher_has_no_permits():
    stage = Stage(SHARED, "documented", max_turn=1)
    stage.join("low", priority=1), stage.join("high", permits=2)
    assert stage.publish("k k k") == "low:2 high:0,1"


@pytest.mark.row("P-SH-1")
def test_p_sh_1_there_is_no_cumulative_acknowledgement():
    stage = Stage(SHARED, "documented")
    stage.join("a"), stage.publish("k k")
    stage.ack_up_to(1)
    assert stage.mark_delete == -1


@pytest.mark.row("D-FLOW-1")
def test_d_flow_1_without_a_permit_the_message_waits():
    stage = Stage(SHARED, "documented")
    stage.join("a", permits=2)
    assert stage.publish("k k k") == "a:0,1"
    assert stage.flow("a", 1) == "a:2"


@pytest.mark.row("D-ACK-1")
def test_d_ack_1_mark_delete_follows_acknowledgements_without_a_gap():
    stage = Stage(SHARED, "documented")
    stage.join("a"), stage.publish("k k k k")
    assert [(stage.ack(o), stage.mark_delete)[1] for o in (1, 0, 3, 2)] == [-1, 1, 1, 3]


@pytest.mark.row("D-NACK-1")
def test_d_nack_1_one_message_is_redelivered_with_its_count():
    stage = Stage(SHARED, "documented")
    stage.join("a"), stage.publish("k k k")
    assert stage.nack("a", 1) == "a:1"
    assert stage.redeliveries == {1: 1}
    assert stage.redeliver_all("a") == "a:0,1,2"
    assert stage.redeliveries == {0: 1, 1: 2, 2: 1}


@pytest.mark.row("D-DISC-1")
def test_d_disc_1_redelivery_counts_restart_after_the_last_consumer_left():
    stage = Stage(SHARED, "documented")
    stage.join("a"), stage.publish("k k"), stage.nack("a", 0), stage.ack(1), stage.leave("a")
    assert stage.join("b") == "b:0"
    assert stage.redeliveries == {0: 0}


@pytest.mark.parametrize(("profile", "served"), [("pulsar-3.2", "a:0,1 b:2,3"), ("pulsar-4.0", "a:0,1,2,3")])
def test_a_turn_counts_messages_in_3_x_and_entries_in_4_x(profile, served):
    stage = Stage(SHARED, profile, max_turn=4)
    stage.join("a"), stage.join("b")
    assert stage.publish("k k k k", messages=2) == served


@pytest.mark.parametrize("profile", PROFILES)
def test_batches_are_sent_whole_so_that_permits_fall_below_zero(profile):
    stage = Stage(SHARED, profile)
    stage.join("a", permits=1)
    assert stage.publish("k", messages=3) == "a:0"
    assert stage.consumer("a").permits == -2


@pytest.mark.parametrize(("profile", "acks"), [("pulsar-3.2", 3), ("pulsar-4.0", 2), ("pulsar-4.2", 2)])
def test_a_consumer_with_too_much_unacknowledged_waits_for_half_of_its_limit(profile, acks):
    stage = Stage(SHARED, profile, max_unacked_per_consumer=4)
    stage.join("a")
    assert stage.publish("k k k k k") == "a:0,1,2,3"
    answers = [stage.ack(o) for o in range(acks)]
    assert answers == [""] * (acks - 1) + ["a:4"]


def test_the_subscription_limit_stops_new_entries_but_not_waiting_ones():
    stage = Stage(SHARED, "pulsar-4.0", max_unacked_per_subscription=4)
    stage.join("a", permits=4), stage.join("b")
    assert stage.publish("k k k k k") == "a:0,1,2,3"
    assert stage.nack("a", 0) == "b:0"
    assert stage.ack(0, 1) == ""
    assert stage.ack(2) == "b:4"


@pytest.mark.row("L-DELAY-1")
@pytest.mark.parametrize(("profile", "turn"), [("pulsar-3.2", 6_000), ("pulsar-4.0", 6_000), ("pulsar-4.2", 5_000)])
def test_l_delay_1_on_shared_a_delayed_message_waits_for_the_turn_of_the_brokers_timer(profile, turn):
    """Turns come every second from the first timer on; 4.2 sets it for the bucket of 512 ms that begins at 4.608 s."""
    stage = Stage(SHARED, profile)
    stage.join("a")
    assert stage.publish("k", deliver_at=5_000) == ""
    assert stage.publish("k") == "a:1"
    assert stage.wait(3_900) == ""
    assert stage.wait(turn - 3_901) == ""
    assert stage.wait(1) == "a:0"


@pytest.mark.row("L-DELAY-1")
@pytest.mark.parametrize("profile", ["pulsar-3.2", "pulsar-4.0"])
def test_l_delay_1_a_read_for_another_message_takes_it_along_up_to_a_tick_early(profile):
    stage = Stage(SHARED, profile)
    stage.join("a"), stage.publish("k", deliver_at=5_000), stage.wait(3_999)
    assert stage.publish("k") == "a:1"
    stage.wait(1)
    assert stage.publish("k") == "a:2,0"


@pytest.mark.row("L-DELAY-1")
def test_l_delay_1_a_strict_delay_is_never_early():
    stage = Stage(SHARED, "pulsar-4.2", delay_strict=True)
    stage.join("a"), stage.publish("k", deliver_at=5_000)
    assert stage.wait(5_999) == ""
    assert stage.wait(1) == "a:0"


@pytest.mark.row("L-TTL-1")
@pytest.mark.parametrize("profile", PROFILES)
def test_l_ttl_1_expired_messages_count_as_acknowledged(profile):
    stage = Stage(SHARED, profile)
    stage.join("a"), stage.publish("k k k")
    stage.expire(1)
    assert stage.mark_delete == 1
    assert stage.redeliver_all("a") == "a:2"
    stage.expire(0)
    assert stage.mark_delete == 1


@pytest.mark.row("L-BATCH-2")
def test_l_batch_2_without_batch_index_acks_the_whole_batch_is_redelivered():
    stage = Stage(SHARED, "documented")
    stage.join("a"), stage.publish("k", messages=5), stage.ack_some(0, 2)
    stage.nack("a", 0)
    assert stage.rows.messages.tolist() == [5]


@pytest.mark.row("L-BATCH-2")
def test_l_batch_2_with_batch_index_acks_only_the_rest_is_redelivered():
    stage = Stage(SHARED, "documented", batch_index_acks=True)
    stage.join("a"), stage.publish("k", messages=5), stage.ack_some(0, 2)
    assert stage.consumer("a").unacked == 3
    stage.nack("a", 0)
    assert stage.rows.messages.tolist() == [3]
    stage.ack_some(0, 3)
    assert stage.mark_delete == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_all_chunks_of_a_message_go_to_one_consumer(profile):
    stage = Stage(SHARED, profile, max_turn=1)
    stage.join("a"), stage.join("b")
    first = stage.publish("k", chunked=7, chunk_id=0, chunks=2)
    second = stage.publish("k", chunked=7, chunk_id=1, chunks=2)
    assert (first, second) == ("a:0", "a:1")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_chunk_whose_first_was_never_sent_waits(profile):
    stage = Stage(SHARED, profile)
    stage.join("a")
    assert stage.publish("k", chunked=7, chunk_id=1, chunks=2) == ""
    assert stage.wait(1_000) == ""
