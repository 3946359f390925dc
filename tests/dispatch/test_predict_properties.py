"""What holds of every prediction: nothing is lost, permits balance, mark-delete only goes forward, order is kept."""

from collections import Counter, defaultdict
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import POLICIES
from subreplay.simulation.pulsar.broker.broker_records import NO_CHUNK
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings
from subreplay.simulation.pulsar.consumer_model import SECOND, ConsumerModel, OnFailure
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal, PerByte
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay
from tests.dispatch.predicting import AUTO_SPLIT, EXCLUSIVE, KEY_HASH_RANGE, predict
from tests.support.properties import examples

PULSAR = tuple(policy.name for policy in POLICIES)
STICKY, CONSISTENT_HASH = "pulsar.key_shared.sticky", "pulsar.key_shared.consistent_hash"
PROFILES = ("documented", "pulsar-2.10", "pulsar-3.2", "pulsar-4.0", "pulsar-4.2")
SERVICES = (
    Fixed(0),
    Fixed(3 * MILLISECOND),
    PerByte(10_000, MILLISECOND),
    LogNormal(2 * MILLISECOND, 1.0),
    Empirical((0, MILLISECOND, 20 * MILLISECOND)),
)
ENDS = {"ACKED", "COVERED", "DEAD_LETTERED", "EXPIRED", "DROPPED", "DEDUPLICATED", "SKIPPED", "RETRIED"}
UNTIL = 3_000


@st.composite
def histories(draw):
    """Members that come and go, one at least at any time from the start on."""
    at, here, words = 0, ["c0"], ["0:+c0"]
    for number in range(draw(st.integers(0, 8))):
        at += draw(st.integers(0, 60))
        if len(here) > 1 and draw(st.booleans()):
            words.append(f"{at}:{draw(st.sampled_from('-!'))}{here.pop(draw(st.integers(0, len(here) - 1)))}")
        else:
            here.append(f"c{number + 1}")
            words.append(f"{at}:+{here[-1]}")
    return " ".join(words)


def members_for(name, members):
    """A history as the policy allows it: one consumer, or ranges that leave gaps."""
    if name == EXCLUSIVE:
        return "+c0"
    if name == KEY_HASH_RANGE:
        return "+c0[0-9999,20000-49999] 40:-c0 60:+c1[30000-65535]"
    if name == STICKY:
        joins = [word for word in members.split() if "+" in word]
        ranges = {word.split("+")[1]: f"[{7000 * at}-{7000 * at + 6999}]" for at, word in enumerate(joins)}
        return " ".join(word + ranges[word.split("+")[1]] if "+" in word else word for word in members.split())
    return members


@st.composite
def logs(draw):
    """Keys over time, and what each entry is: a message, a batch, delayed, or a chunk of which others are missing."""
    at, words, rows = 0, [], []
    for number in range(draw(st.integers(1, 60))):
        at += draw(st.sampled_from((0, 0, 1, 7)))
        words.append(f"{at}:k{draw(st.integers(0, 9))}")
        kind = draw(st.sampled_from(("single", "single", "single", "batch", "delayed", "chunk")))
        rows.append(
            {
                "messages": 3 if kind == "batch" else 1,
                "deliver_at": (at + draw(st.sampled_from((1, 300, 1_500)))) * MILLISECOND if kind == "delayed" else 0,
                "chunked": number // 3 if kind == "chunk" else NO_CHUNK,
                "chunk_id": number % 3 if kind == "chunk" else 0,
                "chunks": 3 if kind == "chunk" else 0,
                "size": 100,
                "producer": number % 2,
                "sequence": number % 11,
                "highest": number % 11,
            }
        )
    return " ".join(words), {name: [row[name] for row in rows] for name in rows[0]}


models = st.builds(
    ConsumerModel,
    service=st.sampled_from(SERVICES),
    factor=st.sampled_from((0.5, 1.0, 4.0)),
    receiver_queue_size=st.sampled_from((1, 2, 7, 1000)),
    failure_rate=st.sampled_from((0.0, 0.2, 0.6)),
    on_failure=st.sampled_from(OnFailure),
    nack_delay=st.sampled_from((0, 30 * MILLISECOND, 700 * MILLISECOND)),
    redelivery_multiplier=st.sampled_from((1.0, 2.0)),
    retry_delay=st.sampled_from((0, 40 * MILLISECOND)),
    ack_timeout=st.sampled_from((0, 25 * MILLISECOND)),
    ack_timeout_tick=st.just(5 * MILLISECOND),
    max_redeliver=st.sampled_from((None, 1, 2)),
    cumulative=st.booleans(),
    stuck_from=st.sampled_from((None, 10 * MILLISECOND)),
    stuck_until=st.none(),
    max_pending_chunked=st.sampled_from((0, 1, 10)),
    chunk_expiry=st.sampled_from((50 * MILLISECOND, 3600 * SECOND)),
    acks_oldest_chunked=st.booleans(),
)
topics = st.fixed_dictionaries(
    {
        "persistent": st.sampled_from((True, True, True, False)),
        "ttl": st.sampled_from((0, 50 * MILLISECOND)),
        "ttl_check": st.just(20 * MILLISECOND),
        "deduplicates": st.booleans(),
        "batch_index_acks": st.sampled_from((None, True, False)),
    }
)
brokers = st.builds(
    DispatchSettings,
    failover_delay=st.just(5 * MILLISECOND),
    max_read=st.sampled_from((2, 100)),
    max_unacked_per_consumer=st.sampled_from((5, 50_000)),
    max_unacked_per_subscription=st.sampled_from((8, 200_000)),
    look_ahead_per_subscription=st.sampled_from((3, 20_000)),
    delay_tick=st.sampled_from((40 * MILLISECOND, SECOND)),
    delay_strict=st.booleans(),
)


def possible(topic, model):
    """A topic that keeps nothing knows no duplicates and no retry letters."""
    persistent = topic["persistent"] or model.on_failure == OnFailure.RETRY
    return topic | {"persistent": persistent, "deduplicates": topic["deduplicates"] and persistent}


@pytest.mark.parametrize("name", PULSAR)
@given(profile=st.sampled_from(PROFILES), members=histories(), log=logs(), model=models, topic=topics, broker=brokers)
@examples(25)
def test_every_message_is_settled_once_or_pending(name, profile, members, log, model, topic, broker):
    keys, columns = log
    members, topic = members_for(name, members), possible(topic, model)
    run = predict(name, profile, members, keys, model, until=UNTIL, columns=columns, settings=broker, **topic)
    ends = defaultdict(list)
    for row in run.rows:
        ends[row.ordinal, row.index].append(row)
    every = {(ordinal, index) for ordinal, count in enumerate(columns["messages"]) for index in range(count)}
    assert set(ends) == every
    for rows in ends.values():
        settled = [row.outcome for row in rows if row.settled]
        letters = sum(row.outcome == "RETRIED" for row in rows)
        pending = any(row.outcome == "PENDING" or (row.outcome == "RETRIED" and not row.settled) for row in rows)
        assert set(settled) <= ENDS, rows
        assert len(settled) == 1 + letters or (len(settled) <= letters and pending), rows
    backlog = run.replay.compute_backlog()
    assert backlog.published.sum() == len(every) + sum(row.outcome == "RETRIED" for row in run.rows)
    assert backlog.settled.sum() == sum(row.settled for row in run.rows)
    assert all(row.received_at is None or row.delivered_at <= row.received_at for row in run.rows)


@pytest.mark.parametrize("name", PULSAR)
@given(profile=st.sampled_from(PROFILES), members=histories(), log=logs(), model=models, topic=topics, broker=brokers)
@examples(10)
def test_mark_delete_never_goes_back_and_all_before_it_is_settled(name, profile, members, log, model, topic, broker):
    keys, columns = log
    members, topic = members_for(name, members), possible(topic, model) | {"persistent": True, "deduplicates": False}
    before = -1
    for until in (1, 20, 60, 200, 1_000):
        run = predict(name, profile, members, keys, model, until=until, columns=columns, settings=broker, **topic)
        mark_delete = run.replay.broker.state[0].mark_delete
        pending = {row.ordinal for row in run.rows if row.outcome == "PENDING" and row.retries == 0}
        pending -= {row.ordinal for row in run.rows if row.settled and row.retries == 0 and row.index == 0}
        assert mark_delete >= before
        assert model.on_failure == OnFailure.RETRY or not pending or mark_delete < min(pending)
        before = mark_delete


def queue_lengths(clients):
    for it in clients.clients:
        count, at = 0, it.first
        while at >= 0:
            count, at = count + 1, clients.messages[at].next
        yield count


@pytest.mark.parametrize("name", PULSAR)
@given(profile=st.sampled_from(PROFILES), members=histories(), log=logs(), model=models, topic=topics, broker=brokers)
@examples(10)
def test_permits_equal_the_free_space_of_the_queue(name, profile, members, log, model, topic, broker):
    """What the broker has left, what is queued, and what was taken and not asked for again are the whole queue."""
    keys, columns = log[0], log[1] | {"chunked": NO_CHUNK}  # chunks give theirs back as they come
    members, topic = members_for(name, members), possible(topic, model)
    queued, end = [], SubscriptionReplay._finish

    def count_and_end(replay):
        queued.extend(queue_lengths(replay.clients))
        return end(replay)

    with patch.object(SubscriptionReplay, "_finish", count_and_end):
        run = predict(name, profile, members, keys, model, until=100, columns=columns, settings=broker, **topic)
    consumers, clients = run.replay.broker.consumers, run.replay.clients
    for index, it in enumerate(clients.clients):
        of = consumers[index]
        if not of.connected:
            continue
        total = of.permits + of.parked + it.taken + queued[index]
        assert total == model.receiver_queue_size


def outstanding_twice(replay):
    """Slots of which entries are unacknowledged at two consumers at this instant."""
    state, log = replay.broker.state[0], replay.broker.log
    entries = log[np.arange(state.start, state.end) & (len(log) - 1)]
    pairs = {(int(entry.slot), int(entry.holder)) for entry in entries if entry.holder >= 0}
    return [slot for slot, count in Counter(slot for slot, _ in pairs).items() if count > 1]


@pytest.mark.parametrize("profile", ["pulsar-4.0", "pulsar-4.2"])
@given(
    name=st.sampled_from((AUTO_SPLIT, CONSISTENT_HASH)),
    members=histories(),
    log=logs(),
    model=models,
    broker=brokers,
    until=st.lists(st.integers(1, 600), min_size=1, max_size=4),
)
@examples(40)
def test_in_4_x_no_key_is_unacknowledged_at_two_consumers(profile, name, members, log, model, broker, until):
    keys, columns = log
    for time in until:
        run = predict(name, profile, members, keys, model, until=time, columns=columns, settings=broker)
        assert outstanding_twice(run.replay) == []


@given(
    st.sampled_from((AUTO_SPLIT, CONSISTENT_HASH)),
    histories(),
    logs(),
    st.sampled_from(SERVICES),
    st.sampled_from((1, 5, 1000)),
)
@examples(60)
def test_in_4_0_no_acknowledged_key_was_at_two_consumers_at_once(name, members, log, service, queue):
    keys, columns = log
    model = ConsumerModel(service=service, receiver_queue_size=queue)
    run = predict(name, "pulsar-4.0", members, keys, model, until=UNTIL, columns=columns)
    of_key = [word.split(":")[1] for word in keys.split()]
    spans = defaultdict(list)
    for row in run.rows:
        if row.outcome == "ACKED":
            spans[of_key[row.ordinal]].append(row)
    for rows in spans.values():
        for one in rows:
            for other in rows:
                if one.consumer != other.consumer:
                    assert not other.delivered_at <= one.delivered_at < other.acked_at, (one, other)


@pytest.mark.parametrize("name", PULSAR)
@given(
    profile=st.sampled_from(PROFILES),
    members=histories(),
    log=logs(),
    model=models,
    topic=topics,
    broker=brokers,
    cut=st.integers(1, 9),
)
@examples(10)
def test_the_same_input_gives_the_same_rows_however_it_is_cut(name, profile, members, log, model, topic, broker, cut):
    keys, columns = log
    members, given_ = members_for(name, members), possible(topic, model) | {"columns": columns, "settings": broker}
    one, two, three = (
        predict(name, profile, members, keys, model, until=2_000, cut=size, **given_).table
        for size in (None, None, cut)
    )
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
