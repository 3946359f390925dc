"""Racks in the client's Range assignor (KIP-881): partitions go to members beside a replica first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Member, Owners, Partitions
from subreplay.semantics.policies.kafka.racks import NOWHERE, replica_kinds
from subreplay.semantics.policies.kafka.ranges import Nearness, add_near_ranges
from subreplay.semantics.policies.kafka.subscriptions import Flags


def add_rack_matches(partitions: Partitions, members: Sequence[Member], subscribed: Flags, owners: Owners) -> None:
    """Give away the partitions that can be consumed in the rack of a replica, by writing into ``owners``.

    Only if racks matter for any topic: a subscriber's rack has a replica of it, and not every partition is in all the
    racks that the topic is in. Then partition p of all topics with the same subscribers and as many partitions goes to
    one member, whether racks matter for them or not, so that they stay co-partitioned. A topic that is the only one of
    its kind is given in ranges if racks matter for it. A member without a rack takes any partition. As
    ``RangeAssignor`` (4.0.2).
    """
    racks = sorted({member.rack for member in members if member.rack})
    if not racks or not partitions.racks:
        return
    near = _near(partitions, members, racks)
    alike: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for topic in np.flatnonzero(partitions.counts).tolist():
        if (near.rack[subscribed[topic]] < len(racks)).any():
            alike[subscribed[topic].tobytes(), int(partitions.counts[topic])].append(topic)
    matters = {topic for topics in alike.values() for topic in topics if _matters(partitions, near, subscribed, topic)}
    if not matters:
        return
    for topics in alike.values():
        if len(topics) > 1:
            _add_together(partitions, np.array(topics), subscribed[topics[0]], near, owners)
    alone = [topics[0] for topics in alike.values() if len(topics) == 1 and topics[0] in matters]
    add_near_ranges(partitions, subscribed, owners, near, np.array(alone, np.int64))


def _near(partitions: Partitions, members: Sequence[Member], racks: list[str]) -> Nearness:
    """The racks by their index in the list; no rack is the one after the last, and fits everywhere."""
    kind, kinds = replica_kinds(partitions)
    number_of = {rack: r for r, rack in enumerate(racks)}
    rack = np.array([number_of.get(member.rack or "", len(racks)) for member in members], np.int64)
    fits = np.array([[*(rack in replicas for rack in racks), True] for replicas in kinds], np.bool_)
    return Nearness(kind, rack, fits)


def _matters(partitions: Partitions, near: Nearness, subscribed: Flags, topic: int) -> bool:
    first = partitions.bounds[topic]
    used = np.unique(near.kind[first : first + partitions.counts[topic]])
    kinds = replica_kinds(partitions)[1]
    replicas = {kinds[k] for k in used.tolist()}
    racks = near.rack[subscribed[topic]]
    in_reach = near.fits[np.ix_(used, racks[racks < near.fits.shape[1] - 1])]
    return replicas != {NOWHERE.union(*replicas)} and bool(in_reach.any())


def _add_together(partitions: Partitions, topics: Ints, subscribers: Flags, near: Nearness, owners: Owners) -> None:
    numbers = partitions.bounds[topics, np.newaxis] + np.arange(partitions.counts[topics[0]])
    fits = np.all(near.fits[near.kind[numbers]], axis=0)
    owners[numbers] = _first_that_fit(fits, near.rack, np.flatnonzero(subscribers))


@compiled
def _first_that_fit(fits: Flags, rack: Ints, members: Ints) -> Owners:  # pragma: no cover - compiled
    """The first member with room whose rack fits, for one partition after the other."""
    share, extras = len(fits) // len(members), len(fits) % len(members)
    held = np.zeros(len(members), np.int64)
    front = np.zeros(fits.shape[1], np.int64)  # by rack: the members before are in another rack, or full for good
    owners = np.full(len(fits), UNASSIGNED, np.int32)
    for partition in range(len(fits)):
        first = len(members)
        for r in np.flatnonzero(fits[partition]):
            position = front[r]
            while position < first and (rack[members[position]] != r or held[position] >= share + (extras > 0)):
                position += 1
            front[r] = position
            first = min(first, position)
        if first < len(members):
            owners[partition] = members[first]
            held[first] += 1
            extras -= held[first] == share + 1
    return owners
