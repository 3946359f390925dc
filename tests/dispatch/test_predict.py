"""Predicted deliveries: the documented rows that concern dispatch, through what consumers would have seen."""

import numpy as np
import pytest

from subreplay.errors import ConfigError
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings
from subreplay.simulation.pulsar.consumer_model import SECOND, ClientLibrary, ConsumerModel, OnFailure, Prediction
from subreplay.simulation.pulsar.service_model import Fixed
from tests.dispatch.predicting import (
    AUTO_SPLIT,
    BROKERS,
    EXCLUSIVE,
    FAILOVER,
    FAILS,
    KEY_FAILOVER,
    KEY_HASH_RANGE,
    SERVICE,
    SHARED,
    build_consumer,
    predict,
)


@pytest.mark.row("D-FLOW-1")
def test_d_flow_1_a_consumer_gets_no_more_than_its_permits_and_half_a_queue_again_when_half_was_taken():
    run = predict(SHARED, "documented", "+a", "k " * 8, build_consumer(receiver_queue_size=4))
    assert [row.delivered_at for row in run.rows] == [0, 0, 0, 0, 1, 1, 3, 3]
    assert [row.received_at for row in run.rows] == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.row("D-FLOW-1")
def test_d_flow_1_a_consumer_without_a_queue_requests_one_message_when_idle():
    run = predict(SHARED, "documented", "+a", "k k k", build_consumer(receiver_queue_size=0))
    assert [row.delivered_at for row in run.rows] == [row.received_at for row in run.rows] == [0, 1, 2]


@pytest.mark.row("D-FLOW-1")
def test_d_flow_1_the_receiver_queue_defaults_to_1000():
    run = predict(SHARED, "documented", "+a", "k " * 1200, build_consumer(), until=1)
    assert sum(row.consumer == "a" for row in run.rows) == 1000
    assert run.replay.compute_backlog().published.sum() == 1200


def test_an_infinitely_fast_consumer_processes_all_messages_at_once():
    run = predict(SHARED, "documented", "+a", "k " * 3000, ConsumerModel(service=Fixed(0)))
    assert {row.acked_at for row in run.rows} == {0}
    assert len(run.rows) == 3000


@pytest.mark.row("P-SH-1")
def test_p_sh_1_messages_of_a_leaving_consumer_go_to_the_others():
    run = predict(
        SHARED, "documented", "+a +b 2.5:-a", "k " * 8, build_consumer(), settings=DispatchSettings(max_turn=1)
    )
    assert run.taken("a")[:3] == [0, 2, 4]
    assert run.taken("b")[:3] == [1, 3, 5]
    assert run.outcomes(4) == ["a:RETURNED", "b:ACKED"]
    assert run.outcomes(6) == ["a:RETURNED", "b:ACKED"]
    assert [row.redeliveries for row in run.of(6)] == [0, 0]


@pytest.mark.row("D-ACK-1")
def test_d_ack_1_a_cumulative_acknowledgement_covers_what_failed_before():
    model = build_consumer(cumulative=True, failure_rate=0.3, nack_delay=1000 * MILLISECOND)
    run = predict(EXCLUSIVE, "documented", "+a", "k " * 12, model, seed=2)
    failed = {row.ordinal for row in run.rows if row.outcome == "NACKED"}
    covered = {row.ordinal for row in run.rows if row.outcome == "COVERED"}
    assert covered
    assert covered <= failed
    assert run.replay.broker.state[0].mark_delete == 11


@pytest.mark.row("D-ACK-1")
def test_d_ack_1_on_shared_a_cumulative_acknowledgement_does_nothing():
    run = predict(SHARED, "documented", "+a", "k k", build_consumer(cumulative=True))
    assert run.replay.broker.state[0].mark_delete == -1


@pytest.mark.row("P-KS-BAT-1")
@pytest.mark.parametrize("profile", BROKERS)
def test_p_ks_bat_1_on_key_shared_a_cumulative_acknowledgement_does_nothing(profile):
    run = predict(AUTO_SPLIT, profile, "+a +b", "k l m n", build_consumer(cumulative=True))
    assert run.replay.broker.state[0].mark_delete == -1
    assert not any(row.settled for row in run.rows)


@pytest.mark.row("D-NACK-1")
def test_d_nack_1_on_shared_only_the_message_is_redelivered_after_the_delay():
    model = build_consumer(failure_rate=0.3, nack_delay=100 * MILLISECOND)
    run = predict(SHARED, "documented", "+a", "k " * 10, model, seed=3)
    again = [run.of(ordinal) for ordinal in range(10) if len(run.of(ordinal)) > 1]
    assert 0 < len(again) < 10
    for first, second, *_ in again:
        assert second.delivered_at == first.nacked_at + 100
        assert (first.redeliveries, second.redeliveries) == (0, 1)


@pytest.mark.row("D-NACK-1")
@pytest.mark.parametrize("name", [EXCLUSIVE, FAILOVER])
def test_d_nack_1_with_one_active_consumer_everything_unacknowledged_is_redelivered(name):
    model = build_consumer(failure_rate=0.5, nack_delay=3 * MILLISECOND)
    run = predict(name, "documented", "+a", "k " * 10, model, seed=5, settings=DispatchSettings(failover_delay=0))
    assert any(row.outcome == "RETURNED" for row in run.rows)
    assert {row.redeliveries for row in run.rows} == {0}
    assert len({row.ordinal for row in run.rows if row.settled}) == 10


@pytest.mark.parametrize("profile", ["documented", "pulsar-3.2", "pulsar-4.0", "pulsar-4.2"])
def test_a_message_that_is_rejected_alone_waits_for_the_whole_delay(profile):
    model = build_consumer(failure_rate=1.0, nack_delay=1200 * MILLISECOND)
    run = predict(SHARED, profile, "+a", "k", model, until=1300)
    assert run.of(0)[1].delivered_at == 1_201


@pytest.mark.parametrize(
    ("rejected_at", "comes_again"),
    [(30, 1_200), (100, 1_280), (300, 1_280), (500, 1_536)],
)
def test_in_4_0_a_rejected_message_may_come_early_with_others(rejected_at, comes_again):
    """``NegativeAcksTracker``: its due time is cut down to 256 ms, but the first look comes after a whole delay."""
    model = build_consumer(0, failure_rate=1.0, nack_delay=1200 * MILLISECOND)
    run = predict(SHARED, "pulsar-4.0", "+a", f"k {rejected_at}:k", model, until=2000)
    assert [row.delivered_at for row in run.of(0)][:2] == [0, 1_200]
    assert [row.delivered_at for row in run.of(1)][:2] == [rejected_at, comes_again]


def test_in_3_2_a_rejected_message_waits_for_the_next_check():
    model = build_consumer(100, failure_rate=1.0, nack_delay=300 * MILLISECOND)
    run = predict(SHARED, "pulsar-3.2", "+a", "k 30:k", model, until=700)
    assert run.of(0)[1].delivered_at == 400
    assert run.of(1)[1].delivered_at == 500  # due at 500, looked for at 100 + n * 100
    model = build_consumer(130, failure_rate=1.0, nack_delay=300 * MILLISECOND)
    run = predict(SHARED, "pulsar-3.2", "+a", "k 30:k", model, until=700)
    assert run.of(0)[1].delivered_at == 430
    assert run.of(1)[1].delivered_at == 630  # due at 560, looked for at 130 + n * 100


@pytest.mark.row("D-NACK-2")
@pytest.mark.parametrize(
    ("published", "redelivered"),
    [
        ("k", [532]),  # rejected at 0; checks at 133, 266, 399 and 532: 400 ms are over at the last one
        ("k 50:k", [449, 582]),  # the second rejection starts the checks anew: 183, 316, 449, 582
        ("k 100:k 200:k 300:k 400:k 500:k", [633, 633, 633, 766, 899, 1032]),  # none until 133 ms after the last one
    ],
)
@pytest.mark.parametrize("profile", ["pulsar-3.2", "pulsar-5.0"])
def test_d_nack_2_each_rejection_starts_the_checks_of_a_cpp_client_anew(profile, published, redelivered):
    model = build_consumer(0, failure_rate=1.0, nack_delay=400 * MILLISECOND, client=ClientLibrary.CPP, max_redeliver=1)
    run = predict(SHARED, profile, "+a", published, model, until=2000)
    assert [run.of(ordinal)[1].delivered_at for ordinal in range(len(redelivered))] == redelivered


@pytest.mark.row("D-TIMEOUT-1")
def test_d_timeout_1_an_unacknowledged_message_is_redelivered_with_the_next_tick():
    model = build_consumer(
        failure_rate=1.0, on_failure=OnFailure.NOTHING, ack_timeout=3 * SECOND, ack_timeout_tick=SECOND
    )
    run = predict(SHARED, "documented", "+a", "500:k", model, until=6000)
    first, second = run.of(0)
    assert (first.outcome, first.nacked_at, second.delivered_at) == ("TIMED_OUT", 4000, 4000)
    assert second.redeliveries == 1


@pytest.mark.row("D-TIMEOUT-1")
def test_d_timeout_1_work_that_takes_longer_is_acknowledged_too_late():
    model = build_consumer(5_000, ack_timeout=3 * SECOND)
    run = predict(SHARED, "documented", "+a +b", "k", model, settings=DispatchSettings(max_turn=1))
    assert run.outcomes(0) == ["a:ACKED", "b:RETURNED"] or len(run.of(0)) == 2
    assert sum(row.settled for row in run.of(0)) == 1


@pytest.mark.row("D-DLQ-1")
@pytest.mark.parametrize("name", [SHARED, AUTO_SPLIT])
def test_d_dlq_1_after_so_many_redeliveries_a_message_is_a_dead_letter(name):
    run = predict(name, "documented", "+a", "k", build_consumer(**FAILS, max_redeliver=3))
    assert [row.redeliveries for row in run.of(0)] == [0, 1, 2, 3]
    assert run.outcomes(0) == ["a:NACKED"] * 3 + ["a:DEAD_LETTERED"]
    assert run.replay.broker.state[0].mark_delete == 0


@pytest.mark.row("D-DLQ-1")
def test_d_dlq_1_redeliveries_are_not_counted_with_one_active_consumer():
    run = predict(FAILOVER, "documented", "+a", "k", build_consumer(**FAILS, max_redeliver=3), until=3000)
    assert len(run.of(0)) > 4
    assert not any(row.outcome == "DEAD_LETTERED" for row in run.rows)


@pytest.mark.row("D-DLQ-1")
def test_d_dlq_1_a_crash_does_not_count():
    run = predict(
        SHARED, "documented", "+a +b 5:!a 6:+a 10:!b", "k", build_consumer(100, **FAILS, max_redeliver=1), until=50
    )
    assert [row.redeliveries for row in run.of(0)] == [0] * len(run.of(0))


@pytest.mark.row("D-RETRY-1")
def test_d_retry_1_a_failed_message_comes_back_through_the_retry_letter_topic_and_ends_as_a_dead_letter():
    model = build_consumer(failure_rate=1.0, on_failure=OnFailure.RETRY, retry_delay=5 * SECOND, max_redeliver=2)
    run = predict(SHARED, "documented", "+a", "k", model)
    assert run.outcomes(0) == ["a:RETRIED", "a:RETRIED", "a:DEAD_LETTERED"]
    assert [row.retries for row in run.of(0)] == [0, 1, 2]
    assert [row.redeliveries for row in run.of(0)] == [0, 0, 0]
    assert [row.delivered_at for row in run.of(0)] == [0, 5001, 10002]
    assert all(row.settled for row in run.of(0))
    assert run.replay.compute_backlog().published.sum() == 3


@pytest.mark.row("D-RETRY-1")
def test_d_retry_1_without_a_configured_limit_it_is_retried_16_times():
    model = build_consumer(failure_rate=1.0, on_failure=OnFailure.RETRY, retry_delay=SECOND)
    run = predict(SHARED, "documented", "+a", "k", model)
    assert run.outcomes(0) == ["a:RETRIED"] * 16 + ["a:DEAD_LETTERED"]


@pytest.mark.row("D-RETRY-1")
def test_d_retry_1_a_retry_letter_follows_read_entries_and_precedes_unread_ones():
    model = build_consumer(
        failure_rate=1.0, on_failure=OnFailure.RETRY, retry_delay=0, max_redeliver=1, receiver_queue_size=1
    )
    run = predict(SHARED, "documented", "+a", "k k k", model)
    assert [(row.ordinal, row.retries) for row in run.rows] == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


@pytest.mark.row("D-NACK-1")
def test_d_nack_1_each_redelivery_may_double_the_delay():
    model = build_consumer(**FAILS, redelivery_multiplier=2.0, longest_redelivery=300 * MILLISECOND, max_redeliver=4)
    first, *others = predict(SHARED, "documented", "+a", "k", model).of(0)
    before = [first, *others[:-1]]
    assert [row.delivered_at - last.nacked_at for last, row in zip(before, others, strict=True)] == [100, 200, 300, 300]


@pytest.mark.row("D-TIMEOUT-1")
def test_d_timeout_1_each_redelivery_may_double_the_timeout():
    model = build_consumer(
        failure_rate=1.0, on_failure=OnFailure.NOTHING, ack_timeout=SECOND, redelivery_multiplier=2.0, max_redeliver=3
    )
    run = predict(SHARED, "documented", "+a", "k", model)
    assert [row.nacked_at for row in run.of(0)] == [2_000, 5_000, 10_000, 19_000]


@pytest.mark.parametrize("name", [SHARED, EXCLUSIVE])
def test_a_prediction_ends_when_nothing_can_be_settled(name):
    run = predict(name, "pulsar-4.0", "+a", "k k", build_consumer(**FAILS))
    assert run.outcomes(0)[-1] == "a:PENDING" or run.outcomes(0)[-1] == "PENDING"
    assert 100 < len(run.rows) < 1_000
    assert not any(row.settled for row in run.rows)


def test_many_consumers_wait_in_one_read():
    """More of them than a read has entries."""
    names = [f"c{number}" for number in range(150)]
    keys = " ".join(f"k{number}" for number in range(600))
    run = predict(
        AUTO_SPLIT, "pulsar-4.0", " ".join(f"+{name}" for name in names), keys, build_consumer(receiver_queue_size=1)
    )
    assert {row.ordinal for row in run.rows if row.settled} == set(range(600))


def test_delayed_messages_that_expire_are_tracked_until_they_are_due():
    """More of them than the window of the log holds."""
    keys = " ".join(f"{10 * number}:k" for number in range(2_500))
    run = predict(SHARED, "pulsar-4.0", "+a", keys, columns={"deliver_at": 3600 * SECOND}, ttl=SECOND, ttl_check=SECOND)
    assert {row.outcome for row in run.rows} == {"EXPIRED"}
    assert len(run.replay.broker.log) < 2_500 <= len(run.replay.broker.delayed)


def test_a_prediction_may_span_centuries():
    run = predict(SHARED, "documented", "+a", "k k", columns={"deliver_at": [200 * 365 * 86_400 * SECOND, 0]})
    assert run.outcomes(0) == ["a:ACKED"]
    assert len(run.replay.compute_backlog().starts) == 2


@pytest.mark.row("D-DISC-1")
@pytest.mark.parametrize("name", [SHARED, FAILOVER, AUTO_SPLIT])
def test_d_disc_1_messages_of_a_leaving_consumer_go_to_the_others(name):
    run = predict(
        name, "documented", "+a +b 2.5:-a", "k " * 6, build_consumer(), settings=DispatchSettings(failover_delay=0)
    )
    assert any(row.outcome == "RETURNED" and row.consumer == "a" for row in run.rows)
    assert {row.ordinal for row in run.rows if row.settled} == set(range(6))


@pytest.mark.row("P-FO-6")
def test_p_fo_6_the_next_consumer_starts_at_the_acknowledged_position():
    run = predict(
        FAILOVER, "documented", "+a +b 4.5:-a", "k " * 8, build_consumer(), settings=DispatchSettings(failover_delay=0)
    )
    assert run.taken("a") == [0, 1, 2, 3, 4]
    assert run.taken("b") == [4, 5, 6, 7]
    assert run.of(4)[1].delivered_at == 4.5


@pytest.mark.row("P-FO-6")
def test_p_fo_6_the_old_consumer_may_still_be_working_when_a_better_one_takes_over():
    run = predict(
        FAILOVER,
        "pulsar-4.0",
        "+b@1 2.5:+a",
        "k " * 6,
        build_consumer(),
        settings=DispatchSettings(failover_delay=0),
        partition=0,
    )
    assert run.taken("b") == [0, 1, 2, 3, 4, 5]
    assert run.taken("a") == [2, 3, 4, 5]
    both = [row for row in run.of(3) if row.outcome in ("ACKED", "RETURNED")]
    assert sorted(row.consumer for row in both) == ["a", "b"]
    assert sum(row.settled for row in run.of(3)) == 1


@pytest.mark.row("P-FO-6")
@pytest.mark.parametrize("profile", BROKERS)
def test_p_fo_6_a_switch_takes_effect_after_a_second(profile):
    run = predict(FAILOVER, profile, "+a 2000:+b 3000:-a", "k 3500:k", build_consumer(), partition=0)
    assert run.of(0)[0].delivered_at == 1000
    assert (run.of(1)[0].consumer, run.of(1)[0].delivered_at) == ("b", 4000)


STUCK = {"b": ConsumerModel(service=SERVICE, stuck_from=0, stuck_until=500 * MILLISECOND)}
KEYS = " ".join(f"k{i}" for i in range(40))


@pytest.mark.row("P-KS-ORD-1")
def test_p_ks_ord_1_in_3_x_a_new_consumer_gets_nothing_until_all_before_it_is_acknowledged():
    keys = f"{KEYS} 100:{KEYS}"
    run = predict(AUTO_SPLIT, "pulsar-3.2", "+a +b 50:+c", keys, build_consumer(), others=STUCK)
    first = min(row.delivered_at for row in run.rows if row.consumer == "c")
    kept_back = sum(row.consumer == "c" and row.delivered_at == 500 for row in run.rows)
    assert first == 500
    assert kept_back > 0
    assert ("c", "b", 50, 500, kept_back) in run.waits()


@pytest.mark.row("P-KS-ORD-1")
@pytest.mark.parametrize("profile", ["pulsar-4.0", "pulsar-4.2"])
def test_p_ks_ord_1_in_4_x_only_hashes_in_flight_at_the_previous_consumer_wait(profile):
    keys = f"{KEYS} 100:{' '.join(f'n{i}' for i in range(40))} {KEYS}"
    run = predict(AUTO_SPLIT, profile, "+a +b 50:+c", keys, build_consumer(), others=STUCK)
    mine = [row for row in run.rows if row.consumer == "c"]
    at_once = {row.ordinal for row in mine if row.delivered_at == 100}
    late = {row.ordinal for row in mine if row.delivered_at >= 500}
    delivered = {row.ordinal for row in run.rows if row.consumer == "b" and row.delivered_at == 0}
    assert at_once
    assert late
    assert late == {ordinal + 80 for ordinal in delivered} & {row.ordinal for row in mine}
    assert {(w[0], w[1], w[2]) for w in run.waits()} == {("c", "b", 100)}
    assert sum(entries for *_, entries in run.waits()) == len(late)


@pytest.mark.row("P-KS-ORD-2")
@pytest.mark.parametrize("profile", BROKERS)
def test_p_ks_ord_2_a_stuck_consumer_blocks_new_consumers_until_it_leaves(profile):
    others = {"a": ConsumerModel(service=SERVICE, stuck_from=0)}
    run = predict(AUTO_SPLIT, profile, "+a 50:+b 900:-a", f"{KEYS} 100:{KEYS}", build_consumer(), others=others)
    waits = [wait for wait in run.waits() if wait[:2] == ("b", "a")]
    assert waits
    assert {end for _, _, _, end, _ in waits} == {900}
    assert {row.ordinal for row in run.rows if row.settled} == set(range(80))


@pytest.mark.row("P-KS-ORD-2")
@pytest.mark.parametrize("profile", BROKERS)
def test_p_ks_ord_2_an_acknowledgement_timeout_frees_new_consumers(profile):
    others = {"a": ConsumerModel(service=SERVICE, stuck_from=0, stuck_until=5 * SECOND, ack_timeout=SECOND)}
    run = predict(AUTO_SPLIT, profile, "+a 50:+b", f"{KEYS} 100:{KEYS}", build_consumer(), others=others)
    assert any(row.nacked_at for row in run.rows)
    assert {row.ordinal for row in run.rows if row.settled} == set(range(80))


@pytest.mark.row("P-KS-ORD-3")
@pytest.mark.parametrize("profile", BROKERS)
def test_p_ks_ord_3_out_of_order_delivery_lifts_the_wait(profile):
    others = {"a": ConsumerModel(service=SERVICE, stuck_from=0)}
    run = predict(
        AUTO_SPLIT,
        profile,
        "+a 50:+b",
        f"{KEYS} 100:{KEYS}",
        build_consumer(),
        others=others,
        until=1000,
        options={"allow_out_of_order": True},
    )
    assert run.waits() == []
    assert {row.delivered_at for row in run.rows if row.consumer == "b"} == {100}


@pytest.mark.row("P-KF-5")
def test_p_kf_5_a_message_without_a_permit_waits_regardless_of_priority():
    others = {"a": build_consumer(10, receiver_queue_size=1)}
    run = predict(KEY_FAILOVER, "documented", "+a@5 +b", KEYS, build_consumer(), others=others)
    ends = {name: max(row.acked_at for row in run.rows if row.consumer == name) for name in "ab"}
    assert ends["a"] == 10 * len(run.taken("a"))
    assert ends["b"] == len(run.taken("b"))
    assert run.taken("a") == sorted(run.taken("a"))


@pytest.mark.row("P-KR-1")
def test_p_kr_1_a_reader_skips_what_is_outside_its_ranges():
    run = predict(KEY_HASH_RANGE, "pulsar-4.0", "+r[0-10000,20001-30000]", KEYS, build_consumer())
    slots = run.replay._rows
    assert len(run.rows) == 40
    skipped = [row for row in run.rows if row.outcome == "SKIPPED"]
    assert 0 < len(skipped) < 40
    assert all(row.consumer is None and row.settled for row in skipped)
    assert run.replay.broker.state[0].mark_delete == 39
    assert len(slots) == 0


def test_the_backlog_is_what_was_published_and_not_settled():
    run = predict(SHARED, "documented", "+a", "k " * 5 + "10:k k", build_consumer(2), interval=5 * MILLISECOND)
    starts, published, settled = run.replay.compute_backlog()
    assert (starts // MILLISECOND).tolist() == [0, 5, 10]
    assert published.tolist() == [5, 0, 2]
    assert settled.tolist() == [2, 2, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [("receiver_queue_size", -1), ("failure_rate", 1.5), ("nack_delay", -1), ("ack_timeout_tick", 0), ("factor", -1)],
)
def test_an_illegal_setting_is_named(key, value):
    with pytest.raises(ConfigError, match=key):
        ConsumerModel(**{key: value})
    with pytest.raises(ConfigError, match="interval"):
        Prediction(interval=0)


@pytest.mark.parametrize("on_failure", OnFailure)
def test_rows_do_not_depend_on_how_the_log_is_cut(on_failure):
    model = build_consumer(failure_rate=0.2, on_failure=on_failure, nack_delay=10 * MILLISECOND, retry_delay=0)
    keys = " ".join(f"{i // 3}:k{i % 7}" for i in range(90))
    one, two, three = (
        predict(AUTO_SPLIT, "pulsar-4.0", "+a 9:+b 15:-a 20:+c", keys, model, cut=cut).table for cut in (None, 1, 7)
    )
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
