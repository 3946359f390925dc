"""Assign messages to their owners under each scenario, in one pass over the traffic profile.

The result shows how load spreads and which messages move. It does not show waiting: every consumer counts as always
having permits. A message belongs to the epoch in which it was published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa

from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.traffic.evaluation_counts import BLANK, Extent
from subreplay.whatif.traffic.plan_evaluator import PlanEvaluator
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting, count_relocated, reroute
from subreplay.whatif.traffic.retention import Retention, find_retained
from subreplay.whatif.traffic.traffic_profile import TrafficProfile

TRAFFIC: Final = pa.schema(
    [
        pa.field("level", pa.string(), nullable=False),
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("window", pa.int64()),  # start of the window, ns
        pa.field("epoch", pa.int64()),
        pa.field("before", pa.string()),  # owner before the change that began the epoch; null: none
        pa.field("consumer", pa.string()),  # null: the messages had no owner
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
        pa.field("messages_moved", pa.int64(), nullable=False),
        pa.field("keys_moved", pa.int64(), nullable=False),
    ]
)
"""Traffic of scenarios at four levels.

``window`` has a row for each scenario, window and consumer; ``consumer`` for each scenario and consumer; ``move`` for
each scenario, dispatcher, epoch, previous owner and consumer; ``scenario`` for each scenario. Keys are distinct.

A scenario with other producers also has a row ``relocated``: the keys that go to another partition, and their messages.
A scenario with a retention policy has rows ``kept`` by dispatcher: the messages retained from the instant ``window``
on. If the broker treats all messages without a key as one key, a row ``keyless`` counts them.
"""


@dataclass(frozen=True)
class ScenarioPlan:
    """One scenario: its policy and the timeline of every dispatcher.

    ``routing`` is how its producers choose partitions (None: as recorded). ``retention`` is what the topic retains
    (None: not requested).
    """

    name: str
    policy: Policy
    timelines: Mapping[Scope, Timeline]
    routing: PartitionRouting | None = None
    retention: Retention | None = None

    @property
    def consumers(self) -> Iterator[Consumer]:
        """The consumers of every dispatcher, including rejected ones."""
        return (consumer for timeline in self.timelines.values() for consumer in timeline.consumers)


@dataclass(frozen=True, eq=False)
class RoutedEvaluators:
    """Evaluators of one profile, for each way in which producers choose partitions.

    They keep what plans over the same windows and partitions have in common. Of other partitions than the recorded ones
    only the latest ``MOST_ROUTINGS`` are kept, because each is another copy of the runs.
    """

    profile: TrafficProfile
    extent: Extent
    _rerouted: dict[PartitionRouting, PlanEvaluator] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def recorded(self) -> PlanEvaluator:
        """The evaluator of the recorded partitions."""
        return PlanEvaluator(self.profile, self.extent)

    def find(self, routing: PartitionRouting | None) -> PlanEvaluator:
        """Return the evaluator for producers that choose partitions like this; None: as recorded."""
        if routing is None:
            return self.recorded
        found = self._rerouted.pop(routing, None) or PlanEvaluator(reroute(self.profile, routing), self.extent)
        self._rerouted[routing] = found
        while len(self._rerouted) > MOST_ROUTINGS:
            del self._rerouted[next(iter(self._rerouted))]
        return found


MOST_ROUTINGS: Final = 2


@dataclass(frozen=True)
class MessageAssigner:
    """Assigns the messages of traffic profiles under every plan.

    Instances are picklable.

    ``moves_plan`` names the plan whose changes of ownership are reported for each epoch. For the other plans only
    messages without an owner are reported.
    """

    plans: tuple[ScenarioPlan, ...]
    extent: Extent
    moves_plan: str | None = None

    def assign_rows(self, profile: TrafficProfile) -> Iterator[dict[str, Any]]:
        """Yield ``TRAFFIC`` rows for the messages of a profile. Rows of one scenario and level are sorted."""
        return self.evaluate_rows(RoutedEvaluators(profile, self.extent))

    def evaluate_rows(self, evaluators: RoutedEvaluators) -> Iterator[dict[str, Any]]:
        """Yield the rows of ``assign_rows`` with evaluators that are kept for other plans over the same extent."""
        for plan in self.plans:
            if plan.routing is not None:
                keys, messages = count_relocated(evaluators.profile, plan.routing)
                yield BLANK | {"level": "relocated", "scenario": plan.name, "messages": messages, "keys": keys}
            evaluator = evaluators.find(plan.routing)
            evaluation = evaluator.evaluate(plan.policy, plan.timelines, moves=plan.name == self.moves_plan)
            yield from evaluation.rows(plan.name)
            if same_key := evaluator.count_keyless_alike(plan.policy):
                yield BLANK | {"level": "keyless", "scenario": plan.name, "messages": same_key}
            if plan.retention is not None:
                yield from _build_retained_rows(plan.name, evaluator.profile, plan.retention)


def _build_retained_rows(scenario: str, profile: TrafficProfile, retention: Retention) -> Iterator[dict[str, Any]]:
    for part in find_retained(profile, retention):
        scope = {"level": "kept", "scenario": scenario, "topic": part.scope.topic, "partition": part.scope.partition}
        yield BLANK | scope | {"window": part.since, "messages": part.messages, "bytes": part.bytes}


def find_slot_and_owner(timeline: Timeline, murmur3: int, at: int) -> tuple[int, str | None]:
    """Return the slot of a key with this murmur3 hash, and the label of its owner at a time (ns)."""
    hashes = np.array([murmur3], np.uint32)
    slots = timeline.policy.compute_slots(hashes)
    epoch = timeline.find_epochs(np.array([at]), np.array([0]))
    owner = int(timeline.find_owners(slots, hashes, epoch)[0])
    return int(slots[0]), timeline.consumers[owner].label if owner >= 0 else None
