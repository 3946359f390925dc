"""Exclusive and Failover: one active consumer, switches, everything again after a rejection."""

import pytest

from tests.dispatch.stage import EXCLUSIVE, FAILOVER, Stage


def failover(**settings):
    return Stage(FAILOVER, "documented", partition=0, **settings)


@pytest.mark.row("P-FO-6")
def test_p_fo_6_after_a_switch_the_next_consumer_starts_at_the_acknowledged_position():
    stage = failover()
    stage.join("A"), stage.wait(1_000)
    assert stage.publish("k k k k") == "A:0,1,2,3"
    stage.ack_up_to(3), stage.join("C"), stage.leave("A")
    assert stage.publish("k") == ""
    assert stage.wait(1_000) == "C:4"


@pytest.mark.row("P-FO-6")
def test_p_fo_6_unacknowledged_entries_are_redelivered_with_count_0():
    stage = failover()
    stage.join("A"), stage.wait(1_000), stage.publish("k k k k"), stage.join("C"), stage.leave("A")
    assert stage.wait(1_000) == "C:0,1,2,3"
    assert set(stage.redeliveries.values()) == {0}


def test_changes_within_the_delay_do_not_prolong_it_and_the_last_one_counts():
    stage = failover()
    stage.join("B"), stage.publish("k"), stage.wait(900)
    stage.join("A")  # sorts before B
    assert stage.wait(100) == "A:0"


def test_the_first_consumer_waits_too():
    stage = failover()
    stage.publish("k")
    assert stage.join("A") == ""
    assert stage.wait(1_000) == "A:0"


def test_a_new_consumer_that_sorts_first_takes_over():
    stage = failover(failover_delay=0)
    stage.join("B")
    assert stage.publish("k") == "B:0"
    assert stage.join("A") == "A:0"
    assert stage.publish("k") == "A:1"


@pytest.mark.row("D-NACK-1")
def test_d_nack_1_on_exclusive_a_rejection_redelivers_everything():
    stage = Stage(EXCLUSIVE, "documented")
    stage.join("A"), stage.publish("k k k"), stage.ack(1)
    assert stage.nack("A", 2) == "A:0,2"


@pytest.mark.row("D-ACK-1")
def test_d_ack_1_a_cumulative_acknowledgement_covers_everything_up_to_it():
    stage = Stage(EXCLUSIVE, "documented")
    stage.join("A"), stage.publish("k k k")
    stage.ack_up_to(1)
    assert stage.mark_delete == 1


@pytest.mark.row("L-DELAY-1")
def test_l_delay_1_on_exclusive_a_delayed_message_is_dispatched_at_once():
    stage = Stage(EXCLUSIVE, "documented")
    stage.join("A")
    assert stage.publish("k", deliver_at=3_600_000) == "A:0"


@pytest.mark.row("D-FLOW-1")
def test_d_flow_1_the_active_consumer_receives_as_many_messages_as_permits():
    stage = Stage(EXCLUSIVE, "documented")
    stage.join("A", permits=2)
    assert stage.publish("k k k") == "A:0,1"
    assert stage.flow("A", 1) == "A:2"


@pytest.mark.row("D-DISC-1")
def test_d_disc_1_nothing_goes_to_a_standby():
    stage = failover(failover_delay=0)
    stage.join("A"), stage.join("B")
    assert stage.publish("k") == "A:0"
    assert stage.leave("A") == "B:0"
