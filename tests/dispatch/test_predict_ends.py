"""How predictions end: every message in one way, and no sooner than nothing can happen any more."""

from collections import Counter
from itertools import pairwise

import pytest

from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings
from subreplay.simulation.pulsar.consumer_model import SECOND, ConsumerModel, OnFailure
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal
from tests.dispatch.predicting import AUTO_SPLIT, BROKERS, EXCLUSIVE, FAILOVER, SHARED, build_consumer, predict


def ends(run):
    """By message: how often it was settled, and was told to be pending."""
    settled = Counter((row.ordinal, row.index) for row in run.rows if row.settled)
    return settled + Counter((row.ordinal, row.index) for row in run.rows if row.outcome == "PENDING")


@pytest.mark.parametrize("name", [EXCLUSIVE, FAILOVER])
def test_several_rejections_at_one_instant_cause_one_redelivery(name):
    model = build_consumer(failure_rate=1.0, nack_delay=500 * MILLISECOND)
    run = predict(name, "pulsar-4.0", "+a", "k " * 10, model, until=900, settings=DispatchSettings(failover_delay=0))
    deliveries = Counter(row.delivered_at for row in run.rows)
    assert deliveries == {0: 10, 501: 10}


@pytest.mark.parametrize("profile", BROKERS)
def test_immediate_rejections_are_redelivered_after_the_minimum_delay(profile):
    """Nothing is settled and no work takes time: only the delay lets the clock go on."""
    model = build_consumer(0, failure_rate=0.6, nack_delay=0, stuck_from=10 * MILLISECOND)
    run = predict(EXCLUSIVE, profile, "+a", "20:k " * 10, model, until=1_000)
    times = sorted({row.delivered_at for row in run.rows})
    assert len(times) > 2
    assert all(later - earlier >= 100 for earlier, later in pairwise(times))


@pytest.mark.parametrize("name", [SHARED, FAILOVER, AUTO_SPLIT])
@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2", "pulsar-4.0", "pulsar-4.2"])
def test_a_consumer_without_a_queue_continues_after_batches_and_chunks(name, profile):
    one_by_one = build_consumer(receiver_queue_size=0)
    run = predict(name, profile, "+a", "k k k k k", one_by_one, columns={"messages": 3})
    assert sum(row.settled for row in run.rows) == 15
    assert sorted({row.delivered_at for row in run.rows if row.ordinal == 1}) == [run.of(0)[-1].acked_at]
    columns = {"chunked": [7, 7, 7, -1], "chunk_id": [0, 1, 2, 0], "chunks": [3, 3, 3, 0]}
    run = predict(name, profile, "+a", "k k k k", one_by_one, columns=columns)
    assert {row.ordinal for row in run.rows if row.settled} == {0, 1, 2, 3}


def test_a_message_that_expires_at_a_consumer_is_not_pending():
    model = build_consumer(failure_rate=1.0, on_failure=OnFailure.NOTHING)
    run = predict(SHARED, "pulsar-4.0", "+a", "k " * 6, model, ttl=SECOND)
    assert [run.outcomes(ordinal) for ordinal in range(6)] == [["a:EXPIRED", "EXPIRED"]] * 6
    assert [sum(row.settled for row in run.of(ordinal)) for ordinal in range(6)] == [1] * 6


def test_a_message_covered_by_a_later_acknowledgement_is_not_pending():
    model = build_consumer(cumulative=True, failure_rate=0.5, on_failure=OnFailure.NOTHING)
    run = predict(EXCLUSIVE, "pulsar-4.0", "+a", "k " * 6, model, seed=3)
    assert Counter(row.outcome for row in run.rows if row.settled) == {"ACKED": 3, "COVERED": 3}
    assert not any(row.outcome == "PENDING" for row in run.rows)


@pytest.mark.parametrize("profile", ["pulsar-3.2", "pulsar-4.2"])
@pytest.mark.parametrize("messages", [1, 3])
def test_a_message_is_settled_or_pending_exactly_once(profile, messages):
    """Two consumers hold what a switch took from the first, and a third of it is acknowledged."""
    model = build_consumer(10, failure_rate=0.5, on_failure=OnFailure.NOTHING)
    for name in (SHARED, FAILOVER, AUTO_SPLIT):
        run = predict(name, profile, "+b@1 1050:+a", "k l m n " * 3, model, columns={"messages": messages}, partition=0)
        assert ends(run) == {(ordinal, index): 1 for ordinal in range(12) for index in range(messages)}


def test_a_chunk_of_an_incomplete_message_is_pending_once():
    columns = {"chunked": 7, "chunk_id": [0, 1], "chunks": 3}
    run = predict(EXCLUSIVE, "documented", "+a", "k k", build_consumer(), columns=columns, until=10)
    assert ends(run) == {(0, 0): 1, (1, 0): 1}


def test_duplicates_without_a_consumer_are_counted_in_their_interval():
    columns = {"producer": 0, "sequence": [1, 1, 2], "highest": [1, 1, 2]}
    run = predict(SHARED, "pulsar-4.0", "", "k 2500:k k", deduplicates=True, columns=columns)
    assert [run.outcomes(ordinal) for ordinal in range(3)] == [["PENDING"], ["DEDUPLICATED"], ["PENDING"]]
    starts, published, settled = run.replay.compute_backlog()
    assert (starts // SECOND).tolist() == [0, 2]
    assert (published.tolist(), settled.tolist()) == ([1, 2], [0, 1])


@pytest.mark.parametrize("service", [Fixed(1e30), LogNormal(1e18, 300.0), Empirical((1e25, 1e25)), LogNormal(0, 1e300)])
def test_work_time_is_bounded_and_never_negative(service):
    model = ConsumerModel(service=service, factor=1e3)
    run = predict(SHARED, "documented", "+a", " ".join(["k"] * 30), model)
    assert all(row.acked_at is None or row.acked_at >= row.received_at for row in run.rows)
    assert sum(ends(run).values()) == 30


FAILS = {"failure_rate": 1.0, "nack_delay": 1000 * MILLISECOND}


def test_a_message_that_always_fails_expires_at_last():
    run = predict(SHARED, "pulsar-4.0", "+a", "k", build_consumer(**FAILS), ttl=3600 * SECOND)
    assert run.outcomes(0)[-1] == "EXPIRED"


def test_a_prediction_waits_for_delayed_messages_despite_failures():
    columns = {"deliver_at": [0, 3600 * SECOND]}
    run = predict(SHARED, "pulsar-4.0", "+a", "k k", build_consumer(**FAILS), columns=columns)
    assert len(run.of(1)) > 1
    assert ends(run) == {(0, 0): 1, (1, 0): 1}


@pytest.mark.long
def test_a_prediction_waits_for_slow_consumers_despite_failures():
    slow = {"b": build_consumer(3600 * 1000)}
    run = predict(AUTO_SPLIT, "pulsar-4.0", "+a +b", "k1 k2 k3 k4 k5 k6", build_consumer(**FAILS), others=slow)
    to_b = {row.ordinal for row in run.rows if row.consumer == "b"}
    assert to_b
    assert {row.ordinal for row in run.rows if row.settled} == to_b


@pytest.mark.parametrize("seed", range(5))
def test_a_consumer_that_sometimes_succeeds_settles_every_message(seed):
    model = build_consumer(failure_rate=0.99, nack_delay=1000 * MILLISECOND)
    run = predict(SHARED, "pulsar-4.0", "+a", "k", model, seed=seed)
    assert run.outcomes(0)[-1] == "a:ACKED"


@pytest.mark.long
def test_a_batch_that_can_never_succeed_as_a_whole_ends_pending():
    model = build_consumer(failure_rate=0.5, nack_delay=1000 * MILLISECOND)
    run = predict(SHARED, "pulsar-4.0", "+a", "k", model, columns={"messages": 25})
    assert ends(run) == {(0, index): 1 for index in range(25)}
    assert not any(row.settled for row in run.rows)


@pytest.mark.parametrize("profile", ["pulsar-4.0", "pulsar-4.2"])
def test_skipped_retries_keep_the_timing_of_later_ones(profile):
    """Whether the stuck consumer acknowledges after 3 seconds or 3 hours, the rest happens alike, and as soon."""
    settings = DispatchSettings(max_unacked_per_consumer=7, look_ahead_per_consumer=5, look_ahead_per_subscription=30)
    keys = " ".join(f"k{number % 25}" for number in range(400))
    after, reads = [], []
    for stuck in (3 * SECOND, 3 * 3600 * SECOND):
        others = {"a": build_consumer(stuck_from=0, stuck_until=stuck)}
        run = predict(AUTO_SPLIT, profile, "+a 50:+b", keys, build_consumer(), others=others, settings=settings)
        assert sum(row.settled for row in run.rows) == 400
        times = [(row.ordinal, row.delivered_at - stuck // MILLISECOND, row.consumer) for row in run.rows]
        after.append([row for row in times if row[1] >= 0])
        reads.append(int(run.replay.broker.state[0].reads))
    assert after[0]
    assert after[0] == after[1]
    assert reads[0] == reads[1] < 1000


@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2"])
@pytest.mark.parametrize("failure_rate", [0.0, 1.0])
def test_in_3_x_expired_messages_count_as_unacknowledged_until_acknowledged_or_rejected(profile, failure_rate):
    model = build_consumer(300, failure_rate=failure_rate, nack_delay=100 * MILLISECOND)
    few = DispatchSettings(max_unacked_per_consumer=5)
    keys = "k k k k k 10000:k k k k k"
    ttl = {"ttl": SECOND, "ttl_check": 100 * MILLISECOND}
    run = predict(SHARED, profile, "+a", keys, model, settings=few, until=12_000, **ttl)
    assert {run.of(ordinal)[0].consumer for ordinal in range(5, 10)} == {"a"}
    assert run.replay.broker.consumers[0].unacked <= 5
    stuck = build_consumer(stuck_from=0)
    run = predict(SHARED, profile, "+a", keys, stuck, settings=few, until=12_000, **ttl)
    assert {run.of(ordinal)[0].consumer for ordinal in range(5, 10)} == {None}


@pytest.mark.parametrize("profile", BROKERS)
def test_an_application_that_hangs_takes_nothing_more_until_its_permits_run_out(profile):
    """It works on the fourth message when it hangs; its queue of three fills, and the rest goes to the other one."""
    hangs = build_consumer(hangs_from=3 * MILLISECOND + 1, receiver_queue_size=3)
    run = predict(SHARED, profile, "+a 900:+b", "k " * 20, hangs, others={"b": build_consumer()})
    of_a = [row for row in run.rows if row.consumer == "a"]
    taken = [row.received_at for row in of_a if row.received_at is not None]
    assert taken == [0, 1, 2, 3]
    assert [row.acked_at for row in of_a if row.acked_at is not None] == [1, 2, 3]
    pending = [row for row in of_a if row.outcome == "PENDING"]
    assert len(pending) <= 1 + 3
    assert {row.consumer for row in run.rows if row.delivered_at and row.delivered_at >= 900} == {"b"}
    assert ends(run) == dict.fromkeys([(number, 0) for number in range(20)], 1)


@pytest.mark.parametrize("profile", BROKERS)
def test_an_application_continues_after_a_hang(profile):
    model = build_consumer(hangs_from=2 * MILLISECOND + 1, hangs_until=500 * MILLISECOND)
    run = predict(SHARED, profile, "+a", "k k k 100:k", model)
    assert [row.acked_at for row in run.rows] == [1, 2, 500.999999, 501.999999]
    idle = predict(
        SHARED, profile, "+a", "k 100:k k", build_consumer(hangs_from=50 * MILLISECOND, hangs_until=500 * MILLISECOND)
    )
    assert [row.received_at for row in idle.rows] == [0, 500, 501]
