"""Predictions for tests: times in ms, consumers by name, one entry a key.

``predict(SHARED, "documented", "+a +b 20:-a", "k k 5:k")``: members and entries happen at the ms before the colon, and
without one when the one before does, at first at 0.
"""

from __future__ import annotations

import numpy as np

from subreplay.hashing.murmur3 import murmur3_32
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND, DispatchSettings
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.simulation.pulsar.consumer_model import ConsumerModel, Prediction
from subreplay.simulation.pulsar.service_model import Fixed
from subreplay.simulation.pulsar.subscription_replay import SubscriptionReplay
from tests.support.joins import KIND, WORD
from tests.support.log import log_of

SHARED, FAILOVER, EXCLUSIVE = "pulsar.shared", "pulsar.failover", "pulsar.exclusive"
AUTO_SPLIT, KEY_FAILOVER = "pulsar.key_shared.auto_split", "pulsar.key_failover"
KEY_HASH_RANGE = "pulsar.key_hash_range"
SERVICE = Fixed(MILLISECOND)
BROKERS = ("pulsar-3.2", "pulsar-4.0", "pulsar-4.2")
FAILS = {"failure_rate": 1.0, "nack_delay": 100 * MILLISECOND}
WAIT_NAMES = ("start", "end", "hash", "consumer", "blocker", "entries")


def build_consumer(service_ms=1, **settings):
    """A consumer that works for so long on each message."""
    return ConsumerModel(service=Fixed(service_ms * MILLISECOND), **settings)


def to_ms(time):
    return None if time < 0 else time / MILLISECOND


class Delivery:
    """A row in a test's words."""

    def __init__(self, row, names):
        """``row`` has plain values by name: of numpy each costs many times as much."""
        self.ordinal, self.index, self.redeliveries = row["ordinal"], row["index"], row["redeliveries"]
        self.consumer = names[row["consumer"]] if row["consumer"] >= 0 else None
        self.outcome, self.settled, self.retries = (
            DeliveryOutcome(row["outcome"]).name,
            bool(row["settled"]),
            row["retries"],
        )
        for name in ("delivered_at", "received_at", "acked_at", "nacked_at"):
            setattr(self, name, to_ms(row[name]))

    def __repr__(self):
        return f"{self.consumer}:{self.ordinal} {self.outcome} {self.delivered_at} {self.received_at} {self.acked_at}"


class Predicted:
    def __init__(self, replay, until):
        self.replay = replay
        arrays = list(replay.predict_deliveries(until))
        self.table = np.concatenate(arrays) if arrays else np.zeros(0)
        self.names = [consumer.name for consumer in replay.timeline.consumers]
        plain = (dict(zip(rows.dtype.names, row, strict=True)) for rows in arrays for row in rows.tolist())
        rows = [Delivery(row, self.names) for row in plain]
        self.rows = sorted(rows, key=lambda r: (r.delivered_at is None, r.delivered_at or 0, r.ordinal, r.index))

    def of(self, ordinal):
        """The deliveries of one entry, in order; what ended it otherwise comes last."""
        return [row for row in self.rows if row.ordinal == ordinal]

    def outcomes(self, ordinal):
        return [f"{row.consumer}:{row.outcome}" if row.consumer else row.outcome for row in self.of(ordinal)]

    def taken(self, consumer):
        """What the application of a consumer took, in order."""
        took = [row for row in self.rows if row.consumer == consumer and row.received_at is not None]
        return [row.ordinal for row in sorted(took, key=lambda row: row.received_at)]

    def waits(self):
        """(consumer, blocker, start, end, entries) of every wait, by its start."""
        rows = sorted(self.replay.collect_waits().tolist())
        named = [dict(zip(WAIT_NAMES, row, strict=True)) for row in rows]
        return [
            (self.names[w["consumer"]], self.names[w["blocker"]], to_ms(w["start"]), to_ms(w["end"]), w["entries"])
            for w in named
        ]


def parse_timed(words):
    """(word, ns) of words such as ``20:-a``."""
    at, found = 0, []
    for word in words.split():
        if ":" in word:
            time, word = word.split(":", 1)
            at = round(float(time) * MILLISECOND)
        found.append((word, at))
    return found


def build_timeline(name, profile, members, partition=-1, **options):
    scope = Scope("persistent://public/default/t", partition)
    events = []
    for seq, (word, at) in enumerate(parse_timed(members)):
        sign, who, priority, ranges = WORD.fullmatch(word).groups()
        pairs = None if ranges is None else tuple(tuple(map(int, r.split("-"))) for r in ranges.split(",") if r)
        instant = Instant(at, seq)
        events.append(MembershipEvent(scope, KIND[sign], who, instant, instant, int(priority or 0), pairs))
    return Timeline.fold(make_policy(name, profile, **options), scope, events)


def build_log(policy, keys, **columns):
    """Entries; ``columns`` give a value for all, or one each."""
    words = parse_timed(keys)
    hashes = np.array([murmur3_32(key.encode()) for key, _ in words], np.uint32)
    rows = log_of(policy, np.array([at for _, at in words], np.int64), hashes)
    for name, values in columns.items():
        rows[name] = values
    return rows


def predict(
    name,
    profile,
    members,
    keys,
    model=ConsumerModel(service=SERVICE),
    *,
    until=None,
    columns=None,
    cut=None,
    settings=DispatchSettings(),
    options=None,
    partition=-1,
    **prediction,
):
    story = build_timeline(name, profile, members, partition, **(options or {}))
    rows = build_log(story.policy, keys, **(columns or {}))
    arrays = [rows] if cut is None else [rows[at : at + cut] for at in range(0, len(rows), cut)]
    replay = SubscriptionReplay(story, arrays, Prediction(consumer=model, **prediction), settings)
    return Predicted(replay, NEVER if until is None else round(until * MILLISECOND))
