"""What the members of a group do with their records: polls, commits, rebalances, crashes, evictions. Times in ms."""

import pytest

from subreplay.simulation.kafka.simulation_parameters import MemberModel
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND as MS
from subreplay.simulation.pulsar.service_model import Fixed, LogNormal
from tests.groups.consuming import consume

EAGER, COOPERATIVE, SERVER = "kafka.range", "kafka.cooperative_sticky", "kafka.uniform"


def owners(run, *partitions):
    """Who was given the last record of each partition."""
    last = {row.partition: row.consumer for row in run.rows if row.delivered_at is not None}
    return [last[p] for p in partitions]


# a poll


def test_a_member_processes_the_records_of_all_its_partitions_one_by_one():
    run = consume(EAGER, "+a", "p0*2 p1*2")

    assert [(r.partition, r.offset, r.received_at, r.processed_at) for r in run.rows] == [
        (0, 0, 0, 1), (0, 1, 1, 2), (1, 0, 2, 3), (1, 1, 3, 4),
    ]  # fmt: skip
    assert {r.delivered_at for r in run.rows} == {0}


def test_a_poll_brings_max_poll_records_at_most():
    run = consume(EAGER, "+a", "p0*5", max_poll_records=2)

    assert [r.delivered_at for r in run.rows] == [0, 0, 2, 2, 4]


def test_a_partition_with_new_records_waits_behind_the_others():
    run = consume(EAGER, "+a", "p0*2 p1 1:p0*2", max_poll_records=2)

    assert run.of_consumer("a") == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3)]


def test_a_partition_with_much_data_lets_the_others_have_their_turn():
    run = consume(EAGER, "+a", "p0*4 p1", max_partition_fetch_bytes=200, size=100)

    assert run.of_consumer("a") == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3)]


def test_an_idle_member_polls_when_a_record_is_published():
    run = consume(EAGER, "+a", "7:p0")

    assert run.of(0, 0)[0].delivered_at == 7


def test_a_member_with_a_factor_is_slower():
    run = consume(EAGER, "+a", "p0", others={"a": MemberModel(Fixed(MS), factor=3)})

    assert run.of(0, 0)[0].processed_at == 3


def test_a_stuck_member_finishes_nothing_until_it_is_free():
    run = consume(EAGER, "+a", "p0*2", MemberModel(Fixed(MS), stuck_from=0, stuck_until=50 * MS))

    assert [r.processed_at for r in run.rows] == [50, 51]


# commits


def test_offsets_are_committed_with_the_first_poll_after_the_interval():
    run = consume(EAGER, "+a", "p0 3:p0 12:p0", commit_interval=10 * MS)

    assert [r.acked_at for r in run.rows] == [10, 10, 20]


def test_without_an_interval_every_poll_commits():
    run = consume(EAGER, "+a", "p0*2 5:p0", commit_interval=0)

    assert [r.acked_at for r in run.rows] == [2, 2, 6]


def test_uncommitted_records_of_a_crashed_member_are_redelivered():
    run = consume(EAGER, "+a +b 5:!a", "p0*9", MemberModel(Fixed(MS)), options={"session_timeout_us": 30_000})
    first, again = run.of(0, 4)

    assert (first.consumer, first.outcome, first.processed_at) == ("a", "RETURNED", 5)
    assert (again.consumer, again.outcome, again.redeliveries) == ("b", "ACKED", 1)
    assert run.of(0, 5)[0].processed_at is None  # it was at it
    assert run.of(0, 6)[0].received_at is None  # it never came to it
    assert [r.consumer for r in run.of(0, 6)] == ["a", "b"]


def test_a_member_that_closes_processes_its_batch_and_commits_it_first():
    run = consume(EAGER, "+a +b 5:-a", "p0*9 20:p0")

    assert {r.acked_at for r in run.rows if r.consumer == "a"} == {9}
    assert all(r.redeliveries == 0 for r in run.rows)
    assert run.of(0, 9)[0].consumer == "b"


# eager and cooperative rebalances


def test_an_eager_rebalance_pauses_all_until_the_slowest_member_has_rejoined():
    # heartbeats every 10 ms: at 20 both know of c; a is done at 60, and that is when all go on
    run = consume(EAGER, "+a +b 15:+c", "p0*60 30:p3", rebalance_time=0)

    assert run.rounds()[1] == (15, 60)
    assert run.of(3, 0)[0].delivered_at == 60
    assert (3, "c", "a", 30, 60, 1) in run.pauses()


def test_members_of_an_eager_group_learn_of_a_rebalance_with_a_heartbeat():
    run = consume(EAGER, "+a 15:+b", "16:p0", heartbeat_interval=10 * MS)

    assert run.of(0, 0)[0].delivered_at == 16  # a does not know yet
    assert run.rounds()[1] == (15, 20)


def test_a_rebalance_may_take_time_when_all_have_rejoined():
    run = consume(EAGER, "+a 15:+b", "21:p0", rebalance_time=7 * MS)

    assert run.rounds()[1] == (15, 27)
    assert run.of(0, 0)[0].delivered_at == 27


def test_a_cooperative_rebalance_pauses_only_what_moves():
    run = consume(COOPERATIVE, "+a +b 15:+c", "p0*5 21:p0 p1 p2 p3", partitions=4)
    moved = {p for p, *_ in run.pauses()}

    assert len(run.rounds()) == 3  # the newcomer's, and the one that hands on
    assert len(moved) <= 1
    assert all(run.of(p, 5 if p == 0 else 0)[0].delivered_at <= 26 for p in {0, 1, 2, 3} - moved)


def test_a_cooperative_group_reassigns_a_partition_one_heartbeat_after_its_old_owner_finished():
    # b joins at 5; a is done with its batch at 40 and hears what it loses; b's heartbeats begin anew with that round
    run = consume(COOPERATIVE, "+a 5:+b", "p0*40 41:p0 p1 p2 p3")
    late = [(r.consumer, r.delivered_at) for r in run.rows if r.delivered_at > 0]

    assert run.rounds() == [(0, 0), (5, 40), (40, 50)]
    assert late == [("a", 41), ("a", 41), ("b", 50), ("b", 50)]


def test_the_server_side_protocol_moves_each_partition_separately():
    # b joins at 5: a hears of it at 10, but is busy until 40, gives up two, and b hears of that at 45
    run = consume(SERVER, "+a 5:+b", "p0*40 41:p0 p1 p2 p3")
    by_b = [r for r in run.rows if r.consumer == "b"]

    assert run.rounds() == [(0, 0), (5, 45)]
    assert {r.delivered_at for r in by_b} == {45}
    assert len({r.partition for r in by_b}) == 2


def test_members_of_the_server_side_protocol_do_not_wait_for_each_other():
    # a has p0 and p1, b has p2 and p3; c joins at 15 and gets p3 of b, although a is busy until 60
    run = consume(SERVER, "+a +b 15:+c", "p0*60 30:p1 p2 p3")

    assert [run.of(p, 0)[0].delivered_at for p in (1, 2, 3)] == [60, 30, 30]
    assert [run.of(p, 0)[0].consumer for p in (1, 2, 3)] == ["a", "b", "c"]


# crashes, static members, evictions


def test_a_crash_is_detected_one_session_timeout_after_the_last_heartbeat():
    run = consume(EAGER, "+a +b 17:!a", "p0 p3 18:p0", options={"session_timeout_us": 100_000})

    assert run.rounds()[1] == (110, 120)  # the last heartbeat was at 10; b's at 110 comes a little too early
    assert run.pauses() == [(0, "b", "a", 17, 120, 2)]


@pytest.mark.row("K-STATIC-2")
def test_k_static_2_a_static_member_back_in_time_keeps_its_partitions_without_a_rebalance():
    instances = {"a": "i0", "b": "i1", "c": "i0"}
    run = consume(EAGER, "+a +b 20:-a 50:+c", "p0 30:p0*3 p3", instances=instances)

    assert [r.consumer for r in run.rows if r.partition == 0] == ["a", "c", "c", "c"]
    assert run.of(0, 1)[0].delivered_at == 50
    assert run.of(3, 0)[0].delivered_at == 30  # the other one noticed nothing
    assert run.rounds() == [(0, 0), (50, 50)]
    assert run.timeline.steps[-1].generation == 1


@pytest.mark.row("K-STATIC-1")
def test_k_static_1_a_dynamic_member_that_restarts_pauses_everybody_twice():
    run = consume(EAGER, "+a +b 20:-a 50:+c", "p0 30:p0*3 p3")

    assert [step.generation for step in run.timeline.steps] == [1, 2, 3]
    assert run.of(3, 0)[0].delivered_at >= 30


def test_a_static_member_that_stays_away_is_evicted():
    run = consume(
        EAGER, "+a +b 20:-a", "30:p0", instances={"a": "i0", "b": "i1"}, options={"session_timeout_us": 50_000}
    )

    assert run.of(0, 0)[0].consumer == "b"
    assert run.of(0, 0)[0].delivered_at == 80  # evicted at 70


def test_a_crashed_static_member_reads_its_uncommitted_records_again():
    run = consume(EAGER, "+a +b 3:!a 20:+c", "p0*5", instances={"a": "i0", "b": "i1", "c": "i0"})

    assert [r.consumer for r in run.of(0, 0)] == ["a", "c"]
    assert run.of(0, 0)[1].delivered_at == 20


def test_a_member_that_does_not_poll_in_time_is_evicted_and_its_work_is_lost():
    stuck = MemberModel(Fixed(MS), stuck_from=10 * MS, stuck_until=200 * MS)
    run = consume(EAGER, "+a +b", "10:p0*2 250:p0", others={"a": stuck}, max_poll_interval=50 * MS, commit_interval=0)
    first, again = run.of(0, 0)

    assert (first.consumer, first.outcome, first.processed_at) == ("a", "TIMED_OUT", 200)
    assert (again.consumer, again.delivered_at) == ("b", 60)
    assert run.of(0, 2)[0].consumer == "a"  # it joined again when it was done
    assert len(run.names) == 3


def test_the_group_continues_without_a_member_that_is_stuck_for_ever():
    run = consume(
        EAGER, "+a +b", "10:p0*3", others={"a": MemberModel(Fixed(MS), stuck_from=0)}, max_poll_interval=50 * MS
    )

    assert [r.consumer for r in run.of(0, 0)] == ["a", "b"]
    assert run.of(0, 0)[0].processed_at is None


def test_a_group_that_can_never_finish_a_batch_in_time_ends_pending():
    run = consume(EAGER, "+a", "p0*9", MemberModel(Fixed(20 * MS)), max_poll_interval=50 * MS)

    assert {r.outcome for r in run.rows} == {"TIMED_OUT", "PENDING"}
    assert len(run.of(0, 0)) > 1


def test_an_empty_group_waits_for_more_members_first():
    run = consume(EAGER, "+a 20:+b", "p0 p3", options={"initial_rebalance_delay_us": 50_000})

    assert run.rounds() == [(0, 100)]
    assert owners(run, 0, 3) == ["a", "b"]


def test_records_without_a_member_stay_pending():
    run = consume(EAGER, "5:+a 10:-a", "p0 20:p0")

    assert [(r.consumer, r.outcome) for r in run.rows] == [("a", "ACKED"), (None, "PENDING")]


def test_draws_depend_on_the_seed_and_nothing_else():
    model = MemberModel(LogNormal(MS, 1.0))
    text = "p0*9 p1*9 p2*9"
    one, same, other = (consume(EAGER, "+a", text, model, seed=s, cut=c) for s, c in ((1, None), (1, 5), (2, None)))

    assert (one.table == same.table).all()
    assert [r.processed_at for r in one.rows] != [r.processed_at for r in other.rows]


@pytest.mark.parametrize("seed", range(4))
def test_a_group_continues_while_random_work_may_finish_in_time(seed):
    model = MemberModel(LogNormal(1000 * MS, 1.0))
    run = consume(
        EAGER, "0:+a", "0:p0*40", model, max_poll_records=1, max_poll_interval=1000 * MS, commit_interval=0, seed=seed
    )
    assert {row.offset for row in run.rows if row.outcome == "ACKED"} == set(range(40))
    assert not any(row.outcome == "PENDING" for row in run.rows)
