"""What was measured on real groups of Kafka 4.0.2 and 4.4.0 (``recordings/kafka-4.0``, ``-4.4``), each fact as a test.
Times in ms.

Heartbeats come every 10 ms, a record takes 1 ms, and an empty group waits for nobody, unless a test says otherwise.
"""

from dataclasses import replace

import pytest

from subreplay.simulation.kafka.simulation_parameters import Enlargement, MemberModel, Resubscription, Rewind, Stall
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND as MS
from subreplay.simulation.pulsar.service_model import Fixed
from tests.groups.consuming import TOPIC, consume

EAGER, COOPERATIVE, SERVER = "kafka.range", "kafka.cooperative_sticky", "kafka.server_range"
SYNC = MemberModel(Fixed(MS), commit="sync", commit_interval=0, commits_on_revoke=False, commits_on_close=False)
RARELY = replace(SYNC, commit_interval=1000 * MS)
DELAY = {"initial_rebalance_delay_us": 50_000}
SESSION = {"session_timeout_us": 100_000}


def complete(run):
    """When each generation was there."""
    return [at for _, at, _ in run.generations()]


# the classic protocol


def test_the_first_generation_begins_one_delay_after_a_single_join():
    assert complete(consume(EAGER, "5:+a", "", options=DELAY)) == [55]


def test_the_first_generation_waits_one_more_delay_after_another_join():
    assert complete(consume(EAGER, "5:+a 20:+b", "", options=DELAY)) == [105]


def test_a_group_that_was_empty_waits_one_delay_only_later_on():
    assert complete(consume(EAGER, "0:+a 60:-a 70:+b 80:+c", "", options=DELAY)) == [50, 60, 120]


def test_members_learn_of_a_rebalance_with_their_next_heartbeat():
    assert complete(consume(EAGER, "0:+a 3:+b", "")) == [0, 10]


def test_heartbeats_restart_with_each_generation():
    # the first generation is there at 50, so a hears of c at 70; then its heartbeats are at 80, 90, 100
    run = consume(EAGER, "0:+a 66:+b 95:+c", "", options=DELAY)

    assert complete(run) == [50, 70, 100]


def test_an_eager_group_gives_up_everything_and_waits_for_a_busy_member():
    run = consume(EAGER, "+a +b 15:+c", "p0*60")

    assert run.fetched_from(3)[1:] == [(20, None), (60, "c")]


def test_an_eager_pause_lasts_for_the_answers_when_all_are_idle():
    run = consume(EAGER, "+a 15:+b", "", rebalance_time=7 * MS)

    assert run.fetched_from(0) == [(7, "a"), (20, None), (27, "a")]


def test_a_partition_moved_by_a_cooperative_group_has_no_owner_for_one_heartbeat_interval():
    run = consume(COOPERATIVE, "+a 15:+b", "")

    assert complete(run) == [0, 20, 30]
    assert run.fetched_from(3) == [(0, "a"), (20, None), (30, "b")]
    assert run.fetched_from(0) == [(0, "a")]


def test_after_a_leave_a_cooperative_group_has_one_round_only():
    assert complete(consume(COOPERATIVE, "+a +b 15:-b", "")) == [0, 20]


def test_a_cooperative_member_reads_on_while_its_join_waits_and_cannot_commit():
    # c is busy until 55; b has joined at 20, and is given a record at 30
    run = consume(COOPERATIVE, "+b +c 15:+d", "p1*55 p0 30:p0 62:p0", SYNC)
    during = run.of(0, 1)[0]

    assert (during.consumer, during.delivered_at, during.processed_at) == ("b", 30, 31)
    assert during.acked_at == 63  # after the first batch that ends when it can


def test_records_polled_during_a_cooperative_join_are_redelivered_if_the_partition_moves():
    run = consume(COOPERATIVE, "+a 15:+b", "p0*60 62:p3", SYNC, others={"b": SYNC}, rebalance_time=5 * MS)
    moved = [row for row in run.rows if row.partition == 3]

    assert [(row.consumer, row.outcome) for row in moved] == [("a", "RETURNED"), ("b", "ACKED")]


def test_a_cooperative_member_that_closes_while_its_join_waits_leaves_its_work_uncommitted():
    run = consume(COOPERATIVE, "+b +c 15:+d 32:-b", "p1*55 p0 30:p0", MemberModel(Fixed(MS)))

    assert next((row.consumer, row.outcome) for row in run.of(0, 1)) == ("b", "RETURNED")
    assert run.of(0, 0)[0].outcome == "RETURNED" or run.of(0, 0)[0].acked_at <= 20


def test_a_busy_cooperative_member_commits_once_its_sync_is_answered_although_its_callbacks_wait():
    # b joins again and requests its assignment at 25; the answer is there at 30, within a batch that ends at 45
    run = consume(COOPERATIVE, "+b 15:+c", "p0*25 24:p0*20 60:p0", SYNC, rebalance_time=5 * MS, first_rebalance_time=0)

    assert [row.acked_at for row in run.rows] == [25] * 25 + [45] * 20 + [61]


def test_if_the_leader_leaves_the_first_member_of_the_map_of_ids_is_the_next_one():
    # String.hashCode: "a" is 97, "q" is 113, and 97 and 113 share bucket 1 of 16; "p" is 112, bucket 0
    run = consume(COOPERATIVE, "+z +q +p 15:-z", "", options={"initial_rebalance_delay_us": 0})

    assert run.names[run.replay.coordinator.leader] == "p"


def test_a_commit_in_the_revoked_callback_works():
    model = replace(SYNC, commits_on_revoke=True)
    run = consume(COOPERATIVE, "+a 15:+b", "p0*60 62:p3", model, rebalance_time=5 * MS)

    assert [(row.consumer, row.outcome) for row in run.rows if row.partition == 3] == [("a", "ACKED")]


def test_a_session_times_out_counted_from_the_last_heartbeat():
    run = consume(EAGER, "+a +b 17:!a", "", options=SESSION)

    assert run.generations()[1][1] == 120  # evicted at 110; of 110 is also b's heartbeat, a little earlier


def test_a_successful_commit_prolongs_a_classic_session():
    run = consume(EAGER, "+a +b 17:!a", "13:p0", SYNC, options=SESSION)

    assert run.rounds()[1] == (114, 120)


def test_a_commit_does_not_prolong_a_session_of_the_consumer_protocol():
    run = consume(SERVER, "+a +b 17:!a", "13:p0", SYNC, options=SESSION)

    assert run.generations()[2][1] == 120  # the epoch is bumped at 110, the target is b's next heartbeat's


def test_a_member_that_does_not_poll_in_time_leaves_a_classic_group_at_once():
    model = replace(SYNC, stalls=(Stall(0, 200 * MS),))
    run = consume(EAGER, "+a +b", "5:p0", SYNC, others={"a": model}, max_poll_interval=47 * MS)

    assert run.rounds()[1] == (52, 60)
    assert [(row.consumer, row.outcome) for row in run.of(0, 0)] == [("a", "TIMED_OUT"), ("b", "ACKED")]
    assert run.rounds()[2][0] == 206  # its next poll joins again


def test_a_member_that_does_not_poll_in_time_leaves_a_group_of_the_consumer_protocol_with_its_next_heartbeat():
    model = replace(SYNC, stalls=(Stall(0, 200 * MS),))
    run = consume(SERVER, "+a 3:+b", "15:p0", SYNC, others={"a": model}, max_poll_interval=37 * MS)

    assert run.generations()[2][1] == 63  # overdue at 52, out at 60, and b's heartbeat is at 63
    assert [row.consumer for row in run.of(0, 0)] == ["a", "b"]


def test_a_stall_begins_with_the_first_batch_that_is_large_enough_and_happens_once():
    model = replace(SYNC, stalls=(Stall(10 * MS, 30 * MS, least=3),))
    run = consume(EAGER, "+a", "5:p0*3 20:p0 25:p0*3 60:p0*3", model)

    assert [row.received_at for row in run.rows] == [5, 6, 7, 20, 55, 56, 57, 60, 61, 62]


def test_a_round_waits_no_longer_than_max_poll_interval_for_a_member_that_crashed():
    run = consume(EAGER, "+a +b 17:!a 25:+c", "", options=SESSION, max_poll_interval=40 * MS)

    assert run.generations()[1] == (2, 65, {"b": [0, 1], "c": [2, 3]})


def test_a_static_member_back_in_time_takes_its_place_in_the_same_generation():
    run = consume(EAGER, "+a +b 20:-a 50:+c", "", instances={"a": "i0", "b": "i1", "c": "i0"})

    assert len(run.generations()) == 1
    assert run.fetched_from(0) == [(0, "a"), (20, None), (50, "c")]
    assert run.fetched_from(3) == [(0, "b")]


def test_a_static_member_that_is_late_costs_two_rebalances():
    run = consume(EAGER, "+a +b 20:-a 200:+c", "", instances={"a": "i0", "b": "i1", "c": "i0"}, options=SESSION)

    assert [sorted(members) for _, _, members in run.generations()] == [["a", "b"], ["b"], ["b", "c"]]


def test_uncommitted_records_are_redelivered_after_an_eager_rebalance():
    run = consume(EAGER, "+a 15:+b", "p0 p3", RARELY)

    assert [(row.consumer, row.outcome) for row in run.of(3, 0)] == [("a", "RETURNED"), ("b", "PENDING")]
    assert [row.consumer for row in run.of(0, 0)] == ["a", "a"]


def test_records_uncommitted_at_close_are_redelivered():
    run = consume(EAGER, "+a +b 15:-a", "p0", RARELY)

    assert [row.consumer for row in run.of(0, 0)] == ["a", "b"]


def test_a_member_that_commits_before_it_closes_causes_no_redelivery():
    run = consume(EAGER, "+a +b 15:-a", "p0", replace(RARELY, commits_on_close=True))

    assert [row.consumer for row in run.of(0, 0)] == ["a"]


def test_an_application_commits_after_a_batch_not_while_it_is_idle():
    run = consume(EAGER, "+a", "2:p0 50:p0", replace(SYNC, commit_interval=10 * MS))

    assert [row.acked_at for row in run.rows] == [51, 51]


def test_auto_commit_counts_its_interval_from_the_callbacks():
    run = consume(EAGER, "+a 15:+b", "21:p0", commit_interval=30 * MS)

    assert run.of(0, 0)[0].acked_at == 50


def test_auto_commit_happens_before_partitions_are_revoked():
    run = consume(EAGER, "+a 15:+b", "2:p3", commit_interval=1000 * MS)

    assert [(row.consumer, row.acked_at) for row in run.of(3, 0)] == [("a", 20)]


@pytest.mark.parametrize("ids", [{}, {"a": "a-4d6f"}])
def test_an_application_that_seeks_back_gets_the_same_records_again(ids):
    run = consume(EAGER, "+a", "p0*5 20:p0", SYNC, ids=ids, client_actions=[Rewind(10 * MS, "a", 2)])

    assert run.of_consumer("a") == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 3), (0, 4), (0, 5)]


def test_an_idle_application_closes_when_its_poll_ends():
    run = consume(EAGER, "+a +b 25:-a", "3:p0", others={"a": replace(SYNC, poll_time=20 * MS)})

    assert run.fetched_from(0)[1] == (44, None)  # its polls end at 24 and 44


def test_the_leader_sees_new_partitions_with_its_next_refresh_and_rejoins_for_them():
    run = consume(
        EAGER, "+a +b", "24:p3", at_first=2, client_actions=[Enlargement(22 * MS, TOPIC, 4)], metadata_max_age=15 * MS
    )

    assert run.generations()[1] == (2, 30, {"a": [0, 1], "b": [2, 3]})
    assert run.of(3, 0)[0].delivered_at == 30


def test_with_latest_records_written_before_the_first_read_are_never_delivered():
    run = consume(
        EAGER,
        "+a +b",
        "24:p3 40:p3",
        at_first=2,
        client_actions=[Enlargement(22 * MS, TOPIC, 4)],
        metadata_max_age=15 * MS,
        reset="latest",
    )

    assert [(row.consumer, row.offset) for row in run.rows] == [("b", 1), (None, 0)]


def test_with_latest_a_committed_partition_continues_at_its_offset():
    run = consume(EAGER, "+a 25:+b", "10:p3 28:p3", SYNC, reset="latest", heartbeat_interval=15 * MS)

    assert [row.offset for row in run.rows if row.consumer] == [0, 1]


def test_a_changed_subscription_causes_a_rebalance_at_once():
    topics = {"s": 2, "t": 2}
    run = consume(COOPERATIVE, "+a +b", "", topics=topics, client_actions=[Resubscription(13 * MS, "a", ("s",))])

    first = run.generations()[0][2]["a"]
    dead_lettered = [partition for partition in first if partition > 1]
    assert run.fetched_from(dead_lettered[0])[1] == (13, None)
    assert complete(run)[:2] == [0, 20]


# the consumer protocol


def test_a_join_has_its_target_at_once():
    run = consume(SERVER, "+a 15:+b", "")

    assert run.generations() == [(1, 0, {"a": [0, 1, 2, 3]}), (2, 15, {"a": [0, 1], "b": [2, 3]})]


def test_a_new_member_takes_revoked_partitions_with_its_next_heartbeat():
    # a hears of it at 20 and gives it up; b's first heartbeat was at 13
    run = consume(SERVER, "+a 13:+b", "")

    assert run.fetched_from(3) == [(0, "a"), (20, None), (23, "b")]
    assert run.fetched_from(0) == [(0, "a")]


def test_heartbeats_are_timed_from_the_acknowledgement_of_an_assignment():
    # a is busy until 27, when it gives up and says so; so it hears of c at 37, not at 40
    run = consume(SERVER, "+a 13:+b 36:+c", "p0*27", partitions=6)

    assert (27, None) in run.fetched_from(4)
    assert (37, None) in run.fetched_from(2)


def test_the_target_after_a_leave_is_computed_by_the_next_heartbeat_of_any_member():
    run = consume(SERVER, "+a 3:+b 6:+c 41:-a", "", partitions=3)

    assert run.generations()[-1][:2] == (4, 43)


def test_when_the_last_members_leave_no_target_is_computed():
    run = consume(SERVER, "+a 3:+b 41:-a 42:-b", "")

    assert [number for number, *_ in run.generations()] == [1, 2]


LATEST = {"profile": "kafka-4.4", "options": {"assignment_interval_us": 30_000}, "heartbeat_interval": 20 * MS}


def test_from_4_4_on_epochs_begin_at_2_and_a_join_within_the_assignment_interval_has_no_target_of_its_own():
    run = consume(SERVER, "+a 5:+b 12:+c", "", partitions=3, **LATEST)

    # the heartbeats are at 20 (a), 25 (b), 32 (c): the first one that is 30 after the first target computes it
    assert run.generations() == [(2, 0, {"a": [0, 1, 2]}), (4, 32, {"a": [0], "b": [1], "c": [2]})]


def test_a_join_after_the_assignment_interval_has_its_target_at_once():
    run = consume(SERVER, "+a 31:+b", "", partitions=2, **LATEST)

    assert run.generations() == [(2, 0, {"a": [0, 1]}), (3, 31, {"a": [0], "b": [1]})]


def test_a_member_that_comes_back_to_an_empty_group_does_not_wait_for_the_assignment_interval():
    run = consume(SERVER, "+a 5:-a 11:+b", "", partitions=2, **LATEST)

    assert run.generations() == [(2, 0, {"a": [0, 1]}), (3, 5, {}), (4, 11, {"b": [0, 1]})]


def test_the_release_decides_the_assignment_interval():
    before = consume(SERVER, "+a 5:+b", "", profile="kafka-4.2")
    after = consume(SERVER, "+a 5:+b", "", profile="kafka-4.4")

    assert [at for _, at, _ in before.generations()] == [0, 5]
    assert [at for _, at, _ in after.generations()] == [0, 1000]


def test_a_static_member_back_in_time_gets_its_partitions_back_under_the_same_epoch():
    run = consume(SERVER, "+a +b 20:-a 50:+c", "", instances={"a": "i0", "b": "i1", "c": "i0"})

    assert len(run.generations()) == 2
    assert run.fetched_from(0)[-2:] == [(20, None), (50, "c")]


def test_a_topic_grows_with_the_next_heartbeat_of_any_member():
    run = consume(SERVER, "+a 3:+b", "", at_first=2, client_actions=[Enlargement(41 * MS, TOPIC, 4)])

    assert run.generations()[-1] == (3, 43, {"a": [0, 1], "b": [2, 3]})


def test_a_changed_subscription_is_sent_with_the_members_next_heartbeat():
    run = consume(SERVER, "+a +b", "", topics={"s": 2, "t": 2}, client_actions=[Resubscription(43 * MS, "a", ("s",))])

    assert run.generations()[-1][1] == 50


def test_callbacks_of_the_consumer_protocol_run_between_two_polls():
    run = consume(SERVER, "+a 13:+b", "", others={"a": replace(SYNC, poll_time=16 * MS)})

    assert (32, None) in run.fetched_from(3)  # told at 20
