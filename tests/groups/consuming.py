"""Groups for tests: times in ms, members and records in words.

``consume("kafka.range", "0:+a +b 20:-a", "0:p0 p1 5:p0")``: members join (+), leave (-) and crash (!), and records are
published to partitions, at the ms before the colon, and without one when the one before was, at first at 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.simulation.kafka.group_simulation import GroupReplay
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER, create_records
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome
from subreplay.simulation.pulsar.service_model import Fixed

TOPIC = "persistent://public/default/t"
KIND = {"+": "join", "-": "leave", "!": "crash"}
MODEL = MemberModel(Fixed(MILLISECOND))


def to_ms(time):
    return None if time < 0 else time / MILLISECOND


def parse_timed(words):
    """(word, ns) of words such as ``20:-a``."""
    at, found = 0, []
    for word in words.split():
        if ":" in word:
            time, word = word.split(":", 1)
            at = round(float(time) * MILLISECOND)
        found.append((word, at))
    return found


def build_events(members, instances=(), ids=()):
    """Membership events; ``instances`` are the instance ids of static members, ``ids`` member ids."""
    for seq, (word, at) in enumerate(parse_timed(members)):
        instant = Instant(at, seq)
        yield MembershipEvent(
            Scope(TOPIC), KIND[word[0]], word[1:], instant, instant, instance_id=dict(instances).get(word[1:]),
            alias=dict(ids).get(word[1:]),
        )  # fmt: skip


def build_log(words, size=100):
    """Records of ``p0 p1 …``; ``p0*9`` are nine of them. Positions count per partition."""
    rows, ends = [], {}
    for word, at in parse_timed(words):
        partition, _, times = word.removeprefix("p").partition("*")
        for _ in range(int(times or 1)):
            offset = ends.get(partition, 0)
            ends[partition] = offset + 1
            rows.append((at, at, 0, offset, -1, int(partition), size))
    return np.array(rows, LOGGED).view(np.recarray) if rows else create_records(0, LOGGED)


class Delivery:
    """A row in a test's words."""

    COLUMNS = ("partition", "entry", "redeliveries", "member", "outcome", "delivered_at", "received_at", "processed_at",
               "acked_at")  # fmt: skip

    def __init__(self, row, names):
        self.partition, self.offset, self.redeliveries, self.member, outcome, *times = row
        self.consumer = names[self.member] if self.member >= 0 else None
        self.outcome = DeliveryOutcome(outcome).name
        self.delivered_at, self.received_at, self.processed_at, self.acked_at = map(to_ms, times)

    def __repr__(self):
        times = f"{self.delivered_at} {self.received_at} {self.processed_at} {self.acked_at}"
        return f"{self.consumer}:p{self.partition}/{self.offset} {self.outcome} {times}"


def _order(row):
    times = [NEVER if at is None else at for at in (row.delivered_at, row.received_at)]
    return (*times, row.partition, row.offset)


class Consumed:
    def __init__(self, replay, partitions):
        self.replay = replay
        arrays = list(replay.predict_deliveries())
        self.lags = list(replay.take_lags())
        self.table = np.concatenate(arrays) if arrays else np.zeros(0)
        self.names = [process.event.consumer for process in replay.members.processes]
        rows = [Delivery(row, self.names) for rows in arrays for row in rows[[*Delivery.COLUMNS]].tolist()]
        self.rows = sorted(rows, key=_order)
        self.timeline = GroupTimeline.from_rebalances(replay.coordinator.policy, partitions, replay.list_rebalances())

    def of(self, partition, offset):
        """The deliveries of one record, in order."""
        return [row for row in self.rows if (row.partition, row.offset) == (partition, offset)]

    def of_consumer(self, consumer):
        """What a consumer was given, in order: (partition, offset)."""
        return [(row.partition, row.offset) for row in self.rows if row.consumer == consumer]

    def pauses(self):
        """(partition, consumer, blocker, start, end, records) of every pause, by its start."""
        named = [*self.names, None]
        return [
            (int(p.partition), named[p.member], named[p.blocker], to_ms(p.start), to_ms(p.end), int(p.records))
            for p in sorted(self.replay.collect_pauses(), key=lambda p: (p.start, p.partition))
        ]

    def generations(self):
        """(number, at, the partitions of each member by name) of every generation or target."""
        return [
            (g.number, to_ms(g.at), {self.names[m]: np.flatnonzero(g.owners == m).tolist() for m in g.members})
            for g in self.replay.list_generations()
        ]

    def fetched_from(self, partition):
        """(at, consumer) whenever a partition got another fetcher; None is nobody."""
        named = [*self.names, None]
        return [
            (to_ms(at), named[owners[which == partition][0]])
            for at, which, owners in self.replay.iterate_fetchers()
            if (which == partition).any()
        ]

    def rounds(self):
        """(since, at) of every decision."""
        return [(to_ms(r.since), to_ms(r.at)) for r in self.replay.list_rebalances()]


def consume(
    name,
    members,
    records,
    model=MODEL,
    *,
    partitions=4,
    instances=(),
    ids=(),
    cut=None,
    profile="kafka-4.0",
    options=None,
    size=100,
    others=None,
    client_actions=(),
    at_first=None,
    topics=None,
    **parameters,
):
    options = {"initial_rebalance_delay_us": 0} | (options or {})
    counts = topics or {TOPIC: partitions}
    numbered = Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts))
    if at_first is not None:
        numbered = replace(numbered, counts=np.array([at_first]))
    rows = build_log(records, size)
    arrays = [rows] if cut is None else [rows[at : at + cut] for at in range(0, len(rows), cut)]
    parameters = {"heartbeat_interval": 10 * MILLISECOND} | parameters
    replay = GroupReplay(
        make_policy(name, profile, **options), numbered, list(build_events(members, instances, ids)), arrays,
        SimulationParameters(member=model, others=others or {}, **parameters), client_actions, keeps_history=True,
    )  # fmt: skip
    return Consumed(replay, numbered)
