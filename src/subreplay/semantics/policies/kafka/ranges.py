"""Contiguous ranges of each topic's partitions for its subscribers: what both Range assignors do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.subscriptions import Flags


class Nearness(NamedTuple):
    """Which member may take which partition: ``fits[kind[number], rack[member]]``.

    Partitions with the same replica racks are of one ``kind`` (by number); members of one rack are alike.
    """

    kind: Ints
    rack: Ints
    fits: Flags


def add_ranges(partitions: Partitions, subscribed: Flags, owners: Owners) -> None:
    """Give every unassigned partition to a subscriber of its topic that has room, by writing into ``owners``.

    Of n partitions and m subscribers, each may have ``n // m``, and ``n % m`` of them one more. In their order (that of
    ``subscribed``'s second axis) members take the first partitions that are left, as many as they have room for. Where
    nothing was assigned before, these are contiguous, and the first ``n % m`` have one more, the same ones for every
    topic.
    """
    anywhere = np.zeros(len(partitions), np.int64), np.zeros(subscribed.shape[1], np.int64), np.ones((1, 1), np.bool_)
    add_near_ranges(partitions, subscribed, owners, Nearness(*anywhere), np.arange(len(partitions.topics)))


def add_near_ranges(partitions: Partitions, subscribed: Flags, owners: Owners, near: Nearness, topics: Ints) -> None:
    """As ``add_ranges``, of these topics only, and only to members that may take a partition."""
    _add_ranges(topics, partitions.bounds, partitions.counts, subscribed, *near, owners)


@compiled
def _add_ranges(
    topics: Ints, bounds: Ints, counts: Ints, subscribed: Flags, kind: Ints, rack: Ints, fits: Flags, owners: Owners
) -> None:  # pragma: no cover - compiled
    held = np.zeros(subscribed.shape[1], np.int64)
    for topic in topics:
        first, count = bounds[topic], counts[topic]
        members = np.flatnonzero(subscribed[topic])
        if len(members) == 0:
            continue
        share, extras = count // len(members), count % len(members)
        held[:] = 0
        for owner in owners[first : first + count]:
            if owner != UNASSIGNED:
                held[owner] += 1
                extras -= held[owner] == share + 1
        seen = np.full(fits.shape[1], first, np.int64)  # by rack: what comes before is taken, or too far
        for member in members:
            room = share + (extras > 0) - held[member]
            number = seen[rack[member]]
            while room > 0 and number < first + count:
                if owners[number] == UNASSIGNED and fits[kind[number], rack[member]]:
                    owners[number] = member
                    room -= 1
                    held[member] += 1
                    extras -= held[member] == share + 1
                number += 1
            seen[rack[member]] = number
