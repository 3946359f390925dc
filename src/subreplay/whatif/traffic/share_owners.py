"""The members of a share group that share each partition over time, as its assignor chooses them.

Each record of a partition may go to any of them. Without a dispatch replay its records are divided equally among them,
as if all of them were equally fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import numpy as np

from subreplay.rows.model.columns import Ints
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.kafka.assignor import (
    GroupMember,
    MemberClaim,
    Partitions,
    derive_topic_ids,
)
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.semantics.timelines.timeline import Timeline

NO_CLAIM: Ints = np.zeros(0, np.int64)


def find_sharers(
    policy: ShareGroupPolicy,
    timelines: Sequence[Timeline],
    scopes: Sequence[Scope],
    topic_ids: Mapping[str, UUID] | None = None,
) -> tuple[Ints, list[list[list[int]]]]:
    """Return the instants (ns) at which the group changed, and for each scope the indexes of its members from each of
    them on.

    A member subscribes to the topics whose timelines contain it. ``topic_ids`` None: derived from the names.
    """
    partitions = _build_partitions(scopes)
    partitions = replace(partitions, topic_ids=topic_ids or partitions.topic_ids)
    numbers = [partitions.find_number(scope) for scope in scopes]
    instants = sorted({epoch.start.at for timeline in timelines for epoch in timeline.epochs})
    known: dict[int, list[Mapping[str, int]]] = {}  # dispatchers with the same events share one index
    for timeline in timelines:
        if id(timeline.index) not in known:
            known[id(timeline.index)] = _list_connected(timeline, instants)
    groups = {(scope.topic, id(timeline.index)) for scope, timeline in zip(scopes, timelines, strict=True)}
    claims: dict[str, Ints] = {}
    sharers: list[list[list[int]]] = [[] for _ in scopes]
    for at in range(len(instants)):
        topics: dict[str, set[str]] = {}
        for topic, index in sorted(groups):
            for label in known[index][at]:
                topics.setdefault(label, set()).add(topic)
        labels = [*(label for label in claims if label in topics), *(one for one in topics if one not in claims)]
        members = [
            GroupMember(one, frozenset(topics[one]), claim=MemberClaim(claims.get(one, NO_CLAIM))) for one in labels
        ]
        claims = dict(zip(labels, policy.assign(partitions, members), strict=True)) if members else {}
        by_partition: dict[int, list[str]] = {}
        for label, owned in claims.items():
            for number in owned.tolist():
                by_partition.setdefault(number, []).append(label)
        for found, timeline, number in zip(sharers, timelines, numbers, strict=True):
            connected = known[id(timeline.index)][at]
            found.append([connected[label] for label in by_partition.get(number, ()) if label in connected])
    return np.array(instants, np.int64), sharers


def count_sharers(policy: ShareGroupPolicy, scopes: Sequence[Scope], names: Sequence[str]) -> list[list[int]]:
    """Return, for each scope, the positions of the members that share it if all of them join an empty group."""
    partitions = _build_partitions(scopes)
    topics = frozenset(scope.topic for scope in scopes)
    owned = policy.assign(partitions, [GroupMember(name, topics) for name in names])
    numbers = [partitions.find_number(scope) for scope in scopes]
    return [[member for member, mine in enumerate(owned) if number in mine] for number in numbers]


def _build_partitions(scopes: Sequence[Scope]) -> Partitions:
    counts: dict[str, int] = {}
    for scope in scopes:
        counts[scope.topic] = max(counts.get(scope.topic, 0), scope.partition + 1, 1)
    return Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts))


def _list_connected(timeline: Timeline, instants: Sequence[int]) -> list[Mapping[str, int]]:
    """Return the connected consumers at each instant, after its changes: their indexes by label, in join order."""
    starts = np.array([epoch.start.at for epoch in timeline.epochs], np.int64)
    epochs = np.searchsorted(starts, instants, "right") - 1
    return [
        {consumer.label: consumer.index for consumer in timeline.list_connected(epoch)} for epoch in epochs.tolist()
    ]
