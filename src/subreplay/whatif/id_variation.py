"""Measure how much the shares of a group's members depend on ids that are drawn at random.

Under the consumer protocol (KIP-848) a client draws its member id, and a cluster the ids of topics. The assignors sort
by both, so which member gets which partition differs from run to run.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.assignor import is_group
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy, is_share_group
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.semantics.timelines.timeline import BEGINNING, Timeline
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.scenario import build_partitions, find_group_events
from subreplay.whatif.traffic.share_owners import find_sharers

DRAWS: Final = 20
"""How often ids are drawn."""
_ALONE: Final = make_policy("pulsar.exclusive", "pulsar-4.0")


def depends_on_ids(policy: Policy) -> bool:
    """Check whether the coordinator assigns the partitions by ids that are drawn."""
    return is_share_group(policy) or (is_group(policy) and getattr(policy, "rebalance", "") == "server")


def build_partition_plan(plan: ScenarioPlan) -> ScenarioPlan:
    """Return a plan with the producers of another one, in which each partition is a consumer of its own."""
    timelines = {scope: Timeline.fold(_ALONE, scope, [_build_join(scope)]) for scope in plan.timelines}
    return ScenarioPlan(f"{plan.name} by partition", _ALONE, timelines, plan.routing)


def _build_join(scope: Scope) -> MembershipEvent:
    at = Instant(BEGINNING.at + 1)
    return MembershipEvent(scope, "join", _name_partition(scope), at, at)


def _name_partition(scope: Scope) -> str:
    return f"{scope.topic} {scope.partition}"


def measure_share_variation(
    policy: Policy, events: Mapping[Scope, tuple[MembershipEvent, ...]], rows: Iterable[Mapping[str, Any]]
) -> float:
    """Return by how many percentage points a consumer's share of the messages varies at most between draws, without the
    highest and the lowest twentieth of them.

    ``events`` are the members' joins and departures, and ``rows`` the ``TRAFFIC`` rows of level window under the plan
    of ``build_partition_plan``. A message belongs to the owner at the start of its window, or in equal parts to the
    members of a share group that share its partition then.
    """
    counts: dict[tuple[int, str], int] = {(r["window"], r["consumer"]): r["messages"] for r in rows}
    windows = np.array(sorted({window for window, _ in counts}), np.int64)
    scopes = list(events)
    messages = np.array([[counts.get((w, _name_partition(s)), 0) for s in scopes] for w in windows.tolist()], np.int64)
    names = sorted({event.consumer for scope_events in events.values() for event in scope_events})
    if not messages.sum() or not names:
        return 0.0
    shares = np.stack([_draw_shares(draw, policy, events, windows, messages, names) for draw in range(DRAWS)])
    low, high = np.quantile(shares, (0.05, 0.95), axis=0)
    return 100 * float((high - low).max())


def _draw_shares(
    draw: int,
    policy: Policy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    windows: NDArray[np.int64],
    messages: NDArray[np.int64],
    names: list[str],
) -> NDArray[np.float64]:
    """Return the share of each consumer in ``names`` under drawn ids."""
    random = np.random.default_rng(draw)
    labels = sorted({event.label for scope_events in events.values() for event in scope_events})
    ids = {label: urlsafe_b64encode(random.bytes(16)).decode().rstrip("=") for label in labels}
    partitions = build_partitions(events)
    partitions = replace(partitions, topic_ids={topic: UUID(bytes=random.bytes(16)) for topic in partitions.topics})
    drawn = {
        scope: tuple([replace(event, alias=ids[event.label]) for event in scope_events])
        for scope, scope_events in events.items()
    }
    if is_share_group(policy):
        return _divide_shares(policy, drawn, partitions.topic_ids, windows, messages, names)
    timeline = GroupTimeline.fold(policy, partitions, find_group_events(drawn))
    owners = timeline.owners([partitions.find_number(scope) for scope in events])
    starts = np.array([step.at.at for step in timeline.steps], np.int64)
    step = np.searchsorted(starts, windows, "right") - 1
    joins = [event.consumer for each in timeline.steps for event in each.events if event.event == "join"]
    positions = np.array([*map(names.index, joins), len(names)], np.int64)  # the last one for nobody
    consumers = np.where(step[:, None] >= 0, positions[owners[step]], len(names))
    loads = np.bincount(consumers.ravel(), messages.ravel(), minlength=len(names) + 1)
    shares: NDArray[np.float64] = loads[:-1] / messages.sum()
    return shares


def _divide_shares(
    policy: ShareGroupPolicy,
    events: Mapping[Scope, tuple[MembershipEvent, ...]],
    topic_ids: Mapping[str, UUID],
    windows: NDArray[np.int64],
    messages: NDArray[np.int64],
    names: list[str],
) -> NDArray[np.float64]:
    """Return the share of each consumer in ``names`` of a share group."""
    scopes = list(events)
    timelines = [Timeline.fold(policy, scope, events[scope]) for scope in scopes]
    since, sharers = find_sharers(policy, timelines, scopes, topic_ids)
    state = np.searchsorted(since, windows, "right") - 1
    loads = np.zeros(len(names))
    for column, (timeline, states) in enumerate(zip(timelines, sharers, strict=True)):
        counts = np.bincount(state, messages[:, column], minlength=len(states))
        for count, members in zip(counts.tolist(), states, strict=True):
            for index in members:
                loads[names.index(timeline.consumers[index].name)] += count / len(members)
    shares: NDArray[np.float64] = loads / messages.sum()
    return shares
