"""Predicted deliveries: the documented rows about the log, its batches, chunks, lives and delays."""

import pytest

from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings
from subreplay.simulation.pulsar.consumer_model import SECOND
from tests.dispatch.predicting import AUTO_SPLIT, BROKERS, EXCLUSIVE, FAILOVER, SHARED, build_consumer, predict


@pytest.mark.row("L-BATCH-1")
def test_l_batch_1_a_batch_is_dispatched_whole_and_acknowledged_as_one_entry():
    columns = {"messages": 3}
    run = predict(SHARED, "documented", "+a +b", "k k", build_consumer(receiver_queue_size=2), columns=columns)
    assert [(row.consumer, row.ordinal, row.index) for row in run.rows[:3]] == [("a", 0, 0), ("a", 0, 1), ("a", 0, 2)]
    assert [row.acked_at for row in run.of(0)] == [1, 2, 3]
    assert run.replay.compute_backlog().settled.sum() == 6


@pytest.mark.row("L-BATCH-2")
def test_l_batch_2_without_batch_index_acknowledgement_the_whole_batch_is_redelivered():
    model = build_consumer(failure_rate=0.3, nack_delay=100 * MILLISECOND)
    run = predict(SHARED, "pulsar-4.0", "+a", "k", model, columns={"messages": 4}, seed=4)
    times = sorted({row.delivered_at for row in run.rows})
    assert len(times) > 1
    for time in times:
        assert [row.index for row in run.rows if row.delivered_at == time] == [0, 1, 2, 3]
    assert sum(row.settled for row in run.rows) == 4


@pytest.mark.row("L-BATCH-2")
@pytest.mark.parametrize("profile", ["documented", *BROKERS])
@pytest.mark.parametrize("by_index", [False, True])
def test_l_batch_2_the_setting_decides_under_every_profile(profile, by_index):
    model = build_consumer(failure_rate=0.3, nack_delay=SECOND)
    run = predict(SHARED, profile, "+a", "k", model, columns={"messages": 8}, seed=4, batch_index_acks=by_index)
    first, second = sorted({row.delivered_at for row in run.rows})[:2]
    failed = [row.index for row in run.rows if row.delivered_at == first and row.outcome == "NACKED"]
    again = [row.index for row in run.rows if row.delivered_at == second]
    assert 0 < len(failed) < 8
    assert again == (failed if by_index else list(range(8)))


@pytest.mark.row("L-BATCH-2")
def test_l_batch_2_with_batch_index_acknowledgement_only_the_rest_is_redelivered():
    model = build_consumer(failure_rate=0.3, nack_delay=SECOND)
    run = predict(SHARED, "pulsar-4.2", "+a", "k", model, columns={"messages": 8}, seed=4)
    first, second, *_ = (
        [row for row in run.rows if row.delivered_at == time] for time in sorted({r.delivered_at for r in run.rows})
    )
    assert [row.index for row in first] == list(range(8))
    assert [row.index for row in second] == [row.index for row in first if row.outcome == "NACKED"]
    assert sum(row.settled for row in run.rows) == 8


def chunks(of, ids, count):
    return {"chunked": of, "chunk_id": ids, "chunks": count, "size": 10}


@pytest.mark.row("L-CHUNK-1")
@pytest.mark.parametrize("name", [EXCLUSIVE, FAILOVER])
def test_l_chunk_1_interleaved_chunks_of_several_producers_form_whole_messages(name):
    columns = chunks([0, 1, 2, 0, 1, 2], [0, 0, 0, 1, 1, 1], 2) | {"producer": [0, 1, 2] * 2}
    run = predict(name, "documented", "+a", "k " * 6, columns=columns, settings=DispatchSettings(failover_delay=0))
    taken = {number: {row.received_at for row in run.rows if row.ordinal % 3 == number} for number in range(3)}
    assert taken == {0: {0}, 1: {1}, 2: {2}}
    assert all(row.settled for row in run.rows)


@pytest.mark.row("L-CHUNK-2")
def test_l_chunk_2_the_message_is_delivered_when_it_is_complete_and_one_acknowledgement_covers_it():
    columns = chunks([0, 1, 0, 1, 0], [0, 0, 1, 1, 2], [3, 2, 3, 2, 3])
    run = predict(EXCLUSIVE, "documented", "+a", "k 1:k 2:k 3:k 4:k", build_consumer(10), columns=columns)
    assert {row.ordinal: row.received_at for row in run.rows} == {1: 3, 3: 3, 0: 13, 2: 13, 4: 13}
    assert {row.ordinal: row.acked_at for row in run.rows} == {1: 13, 3: 13, 0: 23, 2: 23, 4: 23}


@pytest.mark.row("L-CHUNK-2")
def test_l_chunk_2_a_cumulative_acknowledgement_covers_all_chunks_and_messages_between_them():
    """Of the second chunked message the last chunk never comes."""
    columns = chunks([0, 1, 0, 0], [0, 0, 1, 2], [3, 2, 3, 3])
    run = predict(EXCLUSIVE, "documented", "+a", "k k k k", build_consumer(cumulative=True), columns=columns, until=10)
    assert [run.outcomes(ordinal) for ordinal in (0, 2, 3)] == [["a:ACKED"]] * 3
    assert [row.acked_at for ordinal in (0, 2, 3) for row in run.of(ordinal)] == [1, 1, 1]
    assert "COVERED" in run.outcomes(1)
    assert sum(row.settled for row in run.rows) == 4


@pytest.mark.row("L-CHUNK-2")
def test_l_chunk_2_an_incomplete_message_expires():
    columns = chunks([0, 0], [0, 1], 3)
    run = predict(EXCLUSIVE, "documented", "+a", "k k", build_consumer(chunk_expiry=SECOND), columns=columns)
    assert [(row.outcome, row.received_at, row.acked_at) for row in run.rows] == [("EXPIRED", None, 1000)] * 2


@pytest.mark.row("L-CHUNK-2")
@pytest.mark.parametrize(("acks", "outcomes"), [(True, ["a:ACKED"]), (False, ["a:PENDING"])])
def test_l_chunk_2_of_too_many_incomplete_messages_the_oldest_is_acknowledged_or_left(acks, outcomes):
    model = build_consumer(max_pending_chunked=1, acks_oldest_chunked=acks)
    columns = chunks([0, 1, 1], [0, 0, 1], 2)
    run = predict(EXCLUSIVE, "documented", "+a", "k k k", model, columns=columns, until=10)
    assert run.outcomes(0) == outcomes
    assert run.taken("a") == [1, 2]


@pytest.mark.row("L-DEDUP-1")
@pytest.mark.parametrize("deduplicates", [True, False])
def test_l_dedup_1_duplicates_of_a_producer_are_not_stored(deduplicates):
    columns = {"producer": [0, 0, 1, 0, 0], "sequence": [1, 2, 2, 2, 5], "highest": [1, 2, 2, 2, 5]}
    run = predict(SHARED, "documented", "+a", "k k k k k", columns=columns, deduplicates=deduplicates)
    assert [row.ordinal for row in run.rows if row.outcome == "DEDUPLICATED"] == ([3] if deduplicates else [])
    assert sorted(run.taken("a")) == ([0, 1, 2, 4] if deduplicates else [0, 1, 2, 3, 4])


@pytest.mark.row("L-TTL-1")
def test_l_ttl_1_expired_messages_count_as_acknowledged_and_are_not_delivered():
    run = predict(SHARED, "documented", "5000:+a", "k 1500:k 3500:k", ttl=2 * SECOND, ttl_check=SECOND)
    assert [run.outcomes(ordinal) for ordinal in range(3)] == [["EXPIRED"], ["EXPIRED"], ["a:ACKED"]]


@pytest.mark.row("L-TTL-1")
def test_l_ttl_1_a_message_may_expire_at_a_consumer():
    run = predict(SHARED, "documented", "+a", "k", build_consumer(5_000), ttl=2 * SECOND, ttl_check=SECOND)
    assert run.outcomes(0) == ["a:ACKED", "EXPIRED"]
    assert [row.settled for row in run.of(0)] == [False, True]


@pytest.mark.row("L-NONPERS-1")
@pytest.mark.parametrize("name", [SHARED, EXCLUSIVE, AUTO_SPLIT])
def test_l_nonpers_1_without_a_consumer_or_a_permit_a_message_is_dropped(name):
    model = build_consumer(10, receiver_queue_size=2)
    run = predict(name, "pulsar-4.0", "5:+a 50:-a", "k 5:k k k 18:k 55:k", model, persistent=False)
    assert [run.outcomes(ordinal) for ordinal in range(6)] == [
        ["DROPPED"],
        ["a:ACKED"],
        ["a:ACKED"],
        ["a:ACKED"],
        ["a:ACKED"],
        ["DROPPED"],
    ]


@pytest.mark.row("L-NONPERS-1")
def test_l_nonpers_1_a_full_queue_drops_and_nothing_is_redelivered():
    model = build_consumer(10, receiver_queue_size=4, failure_rate=1.0, nack_delay=MILLISECOND)
    run = predict(SHARED, "pulsar-4.0", "+a", "k " * 7, model, persistent=False)
    assert all(row.outcome == "DROPPED" for row in run.rows)
    assert len(run.rows) == 7
    assert run.taken("a") == [0, 1, 2, 3]


@pytest.mark.row("L-DELAY-1")
@pytest.mark.parametrize("name", [SHARED, EXCLUSIVE])
def test_l_delay_1_only_shared_waits_for_the_time(name):
    columns = {"deliver_at": [3 * SECOND, 0]}
    run = predict(name, "documented", "+a", "k k", columns=columns)
    assert run.of(0)[0].delivered_at == (3000 if name == SHARED else 0)
    assert run.of(1)[0].delivered_at == 0
