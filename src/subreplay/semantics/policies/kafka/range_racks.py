"""Rack awareness of the client's Range assignor (KIP-881): partitions first go to members near a replica."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupMember, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.racks import NO_RACKS, classify_replica_racks
from subreplay.semantics.policies.kafka.ranges import RackFit, assign_ranges_within_racks
from subreplay.semantics.policies.kafka.subscriptions import Flags


def assign_rack_matches(
    partitions: Partitions, members: Sequence[GroupMember], subscribed: Flags, owners: Owners
) -> None:
    """Assign the partitions that can be consumed in the rack of a replica, by writing into ``owners``.

    Racks must be relevant for some topic: a subscriber's rack has a replica, and not every partition is in all racks of
    the topic. Then partition p of all topics with the same subscribers and the same number of partitions goes to one
    member, so that these topics stay co-partitioned. A topic without such a counterpart is assigned in ranges if racks
    are relevant for it. A member without a rack takes any partition. As ``RangeAssignor`` (4.0.2).
    """
    racks = sorted({member.rack for member in members if member.rack})
    if not racks or not partitions.racks:
        return
    rack_fit = _build_rack_fit(partitions, members, racks)
    topics_by_kind: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for topic in np.flatnonzero(partitions.counts).tolist():
        if (rack_fit.rack[subscribed[topic]] < len(racks)).any():
            topics_by_kind[subscribed[topic].tobytes(), int(partitions.counts[topic])].append(topic)
    relevant = {
        topic
        for topics in topics_by_kind.values()
        for topic in topics
        if _is_rack_relevant(partitions, rack_fit, subscribed, topic)
    }
    if not relevant:
        return
    for topics in topics_by_kind.values():
        if len(topics) > 1:
            _assign_together(partitions, np.array(topics), subscribed[topics[0]], rack_fit, owners)
    single_topics = [topics[0] for topics in topics_by_kind.values() if len(topics) == 1 and topics[0] in relevant]
    assign_ranges_within_racks(partitions, subscribed, owners, rack_fit, np.array(single_topics, np.int64))


def _build_rack_fit(partitions: Partitions, members: Sequence[GroupMember], racks: list[str]) -> RackFit:
    """Map racks to their index in the list. No rack has the index after the last one, and fits everywhere."""
    kind, kinds = classify_replica_racks(partitions)
    number_of = {rack: r for r, rack in enumerate(racks)}
    rack = np.array([number_of.get(member.rack or "", len(racks)) for member in members], np.int64)
    fits = np.array([[*(rack in replicas for rack in racks), True] for replicas in kinds], np.bool_)
    return RackFit(kind, rack, fits)


def _is_rack_relevant(partitions: Partitions, rack_fit: RackFit, subscribed: Flags, topic: int) -> bool:
    first = partitions.bounds[topic]
    used = np.unique(rack_fit.kind[first : first + partitions.counts[topic]])
    kinds = classify_replica_racks(partitions)[1]
    replicas = {kinds[k] for k in used.tolist()}
    racks = rack_fit.rack[subscribed[topic]]
    in_reach = rack_fit.fits[np.ix_(used, racks[racks < rack_fit.fits.shape[1] - 1])]
    return replicas != {NO_RACKS.union(*replicas)} and bool(in_reach.any())


def _assign_together(
    partitions: Partitions, topics: Ints, subscribers: Flags, rack_fit: RackFit, owners: Owners
) -> None:
    numbers = partitions.bounds[topics, np.newaxis] + np.arange(partitions.counts[topics[0]])
    fits = np.all(rack_fit.fits[rack_fit.kind[numbers]], axis=0)
    owners[numbers] = _assign_first_fitting(fits, rack_fit.rack, np.flatnonzero(subscribers))


@compiled
def _assign_first_fitting(fits: Flags, rack: Ints, members: Ints) -> Owners:  # pragma: no cover - compiled
    """Return, for each partition, the first member with free capacity whose rack fits."""
    share, extras = len(fits) // len(members), len(fits) % len(members)
    owned_counts = np.zeros(len(members), np.int64)
    front = np.zeros(fits.shape[1], np.int64)  # by rack: the members before are in another rack, or full for good
    owners = np.full(len(fits), UNASSIGNED, np.int32)
    for partition in range(len(fits)):
        first = len(members)
        for r in np.flatnonzero(fits[partition]):
            position = front[r]
            while position < first and (rack[members[position]] != r or owned_counts[position] >= share + (extras > 0)):
                position += 1
            front[r] = position
            first = min(first, position)
        if first < len(members):
            owners[partition] = members[first]
            owned_counts[first] += 1
            extras -= owned_counts[first] == share + 1
    return owners
