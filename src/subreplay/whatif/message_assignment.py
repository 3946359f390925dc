"""Assignment without time: who owns each message under each scenario, by one pass over the traffic's profile.

It answers how load would spread and what would move, not who waits for whom: every consumer counts as always having
permits. A message belongs to the epoch in which it was published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.traffic.evaluation_counts import BLANK, Extent
from subreplay.whatif.traffic.plan_evaluator import Evaluator
from subreplay.whatif.traffic.producer_rerouting import ProducerRouting, relocated, rerouted
from subreplay.whatif.traffic.retention import Retention, kept
from subreplay.whatif.traffic.traffic_profile import TrafficProfile

TRAFFIC: Final = pa.schema(
    [
        pa.field("level", pa.string(), nullable=False),
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("window", pa.int64()),  # its start, ns
        pa.field("epoch", pa.int64()),
        pa.field("before", pa.string()),  # who would have got it before the change that opened the epoch; null: nobody
        pa.field("consumer", pa.string()),  # null: nobody owned it
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
        pa.field("messages_moved", pa.int64(), nullable=False),
        pa.field("keys_moved", pa.int64(), nullable=False),
    ]
)
"""The traffic of scenarios at four levels: ``window`` (scenario, window, consumer), ``consumer`` (scenario, consumer),
``move`` (scenario, dispatcher, epoch, before, consumer) and ``scenario``. Keys are distinct.

Of a scenario with other producers there is a row ``relocated``: keys that go to another partition, and their messages;
of one with a retention, by dispatcher, what is ``kept``: from the instant ``window`` on; of one whose broker takes all
messages without a key for those of one key, how many are ``keyless``."""


@dataclass(frozen=True)
class Plan:
    """One scenario, folded: its policy and the timeline of every dispatcher; how its producers choose partitions (None:
    as they did), and what the topic retains (None: not asked)."""

    name: str
    policy: Policy
    timelines: Mapping[Scope, Timeline]
    routing: ProducerRouting | None = None
    retention: Retention | None = None

    @property
    def consumers(self) -> Iterator[Consumer]:
        """The consumers of every dispatcher, rejected ones included."""
        return (consumer for timeline in self.timelines.values() for consumer in timeline.consumers)


@dataclass(frozen=True)
class Assigner:
    """Assigns the messages of profiles under every plan; picklable.

    ``moves_of``: the plan of which is asked what changed hands at its epochs; of the others only what nobody got.
    """

    plans: tuple[Plan, ...]
    extent: Extent
    moves_of: str | None = None

    def rows(self, profile: TrafficProfile) -> Iterator[dict[str, Any]]:
        """``TRAFFIC`` rows of the messages of a profile; those of one scenario and level are sorted."""
        evaluators: dict[ProducerRouting | None, Evaluator] = {None: Evaluator(profile, self.extent)}
        for plan in self.plans:
            routing = plan.routing
            if routing is not None:
                if routing not in evaluators:
                    evaluators[routing] = Evaluator(rerouted(profile, routing), self.extent)
                keys, messages = relocated(profile, routing)
                yield BLANK | {"level": "relocated", "scenario": plan.name, "messages": messages, "keys": keys}
            evaluator = evaluators[routing]
            found = evaluator.evaluate(plan.policy, plan.timelines, moves=plan.name == self.moves_of)
            yield from found.rows(plan.name)
            if alike := evaluator.keyless_alike(plan.policy):
                yield BLANK | {"level": "keyless", "scenario": plan.name, "messages": alike}
            if plan.retention is not None:
                yield from _kept(plan.name, evaluator.profile, plan.retention)


def _kept(scenario: str, profile: TrafficProfile, retention: Retention) -> Iterator[dict[str, Any]]:
    for one in kept(profile, retention):
        known = {"level": "kept", "scenario": scenario, "topic": one.scope.topic, "partition": one.scope.partition}
        yield BLANK | known | {"window": one.since, "messages": one.messages, "bytes": one.bytes}


def slot_and_owner(timeline: Timeline, murmur3: int, at: int) -> tuple[int, str | None]:
    """The slot of a key with that hash, and its owner's label at a time (ns)."""
    hashes = np.array([murmur3], np.uint32)
    slots = timeline.policy.compute_slots(hashes)
    epoch = timeline.find_epochs(np.array([at]), np.array([0]))
    owner = int(timeline.find_owners(slots, hashes, epoch)[0])
    return int(slots[0]), timeline.consumers[owner].label if owner >= 0 else None
