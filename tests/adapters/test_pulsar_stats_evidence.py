"""What polled statistics prove of limits and hangs: of real brokers, and of polls made for a test."""

from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS
from subreplay.adapters.base import Options, rank_subscriptions
from subreplay.adapters.pulsar_stats.limits_and_silences import describe_silent_consumers, infer_limits
from subreplay.adapters.pulsar_stats.stats_adapter import read_stats
from tests.adapters.topic_polls import AT, SECOND, TOPIC, consumer, make_reader, poll
from tests.support.source_reading import read_at_once

DATA = Path(__file__).parents[1] / "data"
INCIDENTS = DATA / "recordings-incidents" / "4.2.4"
ACKED = AT // 1_000_000


@pytest.fixture
def read_polls(tmp_path):
    return make_reader(tmp_path)


def polls_of(name):
    """The polls of an incident, or of another recording."""
    incident = INCIDENTS / name / "topic_stats.jsonl.gz"
    return incident if incident.exists() else DATA / "topic_stats" / f"{name}.jsonl.gz"


def repeated(make, until=60, step=10):
    """The same poll every ``step`` seconds, with its number."""
    return [make(AT + second * SECOND, second) for second in range(0, until + 1, step)]


def one(name="c1", permits=0, unacked=40, acked=ACKED, **more):
    return consumer(name, availablePermits=permits, unackedMessages=unacked, lastAckedTimestamp=acked, **more)


def limits_of(found):
    return infer_limits(found.found, "billing", TOPIC)[0]


# Limits


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("i3_shared_unacked_limit", {"max_unacked_per_consumer": 60}),
        ("i4_shared_subscription_limit", {"max_unacked_per_subscription": 118}),
        ("i2_failover_active_hangs", None),
        ("4.0.8-l08_shared_nack_close_dlq", None),
    ],
)
def test_the_run_file_gets_the_limits_that_a_real_broker_enforced(name, limits):
    found = read_at_once("pulsar-stats", polls_of(name))
    assert found.run.get("liveness") == limits
    assert sum("inferred from polls" in note for note in found.notes) == len(limits or {})


def test_a_limit_is_what_each_blocked_consumer_reached_not_where_it_was_unblocked(read_polls):
    blocked = {"blockedConsumerOnUnackedMsgs": True}
    polls = [poll(AT + i * SECOND, one(unacked=unacked, **blocked)) for i, unacked in enumerate((100, 80, 52))]
    assert limits_of(read_polls(*polls)) == {"max_unacked_per_consumer": 100}


def test_a_limit_is_more_than_any_consumer_has_that_is_not_blocked(read_polls):
    first = one("c1", unacked=60, blockedConsumerOnUnackedMsgs=True)
    second = one("c2", unacked=90, blockedConsumerOnUnackedMsgs=False, address="/10.0.0.2:5000")
    assert limits_of(read_polls(poll(AT, first, second))) == {"max_unacked_per_consumer": 91}


def test_polls_without_a_block_show_no_limit(read_polls):
    polls = repeated(lambda at, _: poll(at, one(unacked=5_000, blockedConsumerOnUnackedMsgs=False)))
    assert limits_of(read_polls(*polls)) == {}


def test_a_limit_that_is_known_is_not_concluded():
    found = read_stats(polls_of("i3_shared_unacked_limit")).found
    assert infer_limits(found, found[0].subscription, found[0].topic, {"max_unacked_per_consumer"}) == ({}, [])


def test_a_recording_gets_the_limit_that_its_settings_do_not_contain(tmp_path):
    name = "i4_shared_subscription_limit"
    for path in (INCIDENTS / name).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert ADAPTERS["pulsar-recording"](tmp_path, Options()).run["liveness"] == {"max_unacked_per_subscription": 120}
    (tmp_path / "scenario.json").unlink()
    assert ADAPTERS["pulsar-recording"](tmp_path, Options()).run["liveness"] == {"max_unacked_per_subscription": 118}


def test_the_topics_of_the_system_itself_are_never_the_first_of_a_run():
    system = ("__compaction", "persistent://public/default/__change_events")
    mine = ("billing", "persistent://public/default/orders")
    assert rank_subscriptions({system: 4, mine: 3}) == [mine, system]


# Hangs


@pytest.mark.parametrize(
    ("name", "consumers", "shows"),
    [
        ("i2_failover_active_hangs", ["fo-a"], "its receiver queue is full (availablePermits 0)"),
        ("i3_shared_unacked_limit", ["s2"], "the broker blocks it at the limit of unacknowledged messages"),
        ("i4_shared_subscription_limit", ["batch-2"], "the broker blocks the subscription at its limit"),
        ("i10_key_shared_look_ahead_blackout", ["p2", "p1", "p3"], "msgInReplay is 150"),
        ("4.0.8-l01_key_shared_autosplit", [], ""),
    ],
)
def test_consumers_that_hung_or_were_served_nothing_at_a_real_broker_are_named(name, consumers, shows):
    sentences = describe_silent_consumers(read_stats(polls_of(name)).found)
    assert [sentence.partition("consumer ")[2].partition(" (")[0] for sentence in sentences] == consumers
    assert shows in "; ".join(sentences)


def test_a_consumer_with_permits_while_nobody_is_served_and_nobody_holds_is_named(read_polls):
    polls = repeated(
        lambda at, _: poll(at, one(permits=500, unacked=0), msgBacklogNoDelayed=70, lastConsumedTimestamp=ACKED)
    )
    (sentence,) = describe_silent_consumers(read_polls(*polls).found)
    assert "no consumer received a message although this one had 500 permits" in sentence
    assert "70 messages waited in the subscription" in sentence


def test_a_consumer_without_permits_that_holds_nothing_is_paused_or_lost_its_permits(read_polls):
    polls = repeated(lambda at, _: poll(at, one(permits=-3, unacked=0), msgBacklogNoDelayed=9))
    (sentence,) = describe_silent_consumers(read_polls(*polls).found)
    assert "has no message and the broker has no permits from it (availablePermits -3)" in sentence


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda at, i: poll(at, one(acked=ACKED + i)), id="it acknowledges"),
        pytest.param(lambda at, i: poll(at, one(permits=500 - i, unacked=0), msgBacklogNoDelayed=9), id="served"),
        pytest.param(lambda at, _: poll(at, one(permits=500, unacked=0), msgBacklogNoDelayed=0), id="a quiet topic"),
        pytest.param(lambda at, _: poll(at, one(permits=0, unacked=0), msgBacklogNoDelayed=0), id="nothing waits"),
        pytest.param(
            lambda at, i: poll(at, one(permits=9, unacked=0), msgBacklogNoDelayed=9, lastConsumedTimestamp=ACKED + i),
            id="others are served",
        ),
        pytest.param(
            lambda at, _: poll(at, one(permits=0, unacked=0), kind="Failover", activeConsumerName="other",
                               msgBacklogNoDelayed=9),
            id="a standby",
        ),
        pytest.param(
            lambda at, _: poll(at, consumer(availablePermits=0), msgBacklogNoDelayed=9),
            id="no time of an acknowledgement",
        ),
    ],
)  # fmt: skip
def test_a_consumer_that_is_served_or_owed_nothing_is_not_named(make, read_polls):
    assert describe_silent_consumers(read_polls(*repeated(make)).found) == ()


def test_a_silence_below_the_threshold_is_not_named(read_polls):
    assert describe_silent_consumers(read_polls(*repeated(lambda at, _: poll(at, one()), until=20)).found) == ()


def test_a_hang_that_ended_is_named_until_when_it_lasted(read_polls):
    hung = repeated(lambda at, _: poll(at, one()), until=50)
    well = [poll(AT + (60 + i) * SECOND, one(permits=400, unacked=i, acked=ACKED + i)) for i in range(3)]
    (sentence,) = describe_silent_consumers(read_polls(*hung, *well).found)
    assert "polls from 2026-11-22 01:25:00 to 2026-11-22 01:25:50 UTC" in sentence
