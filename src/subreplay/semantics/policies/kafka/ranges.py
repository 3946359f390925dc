"""Contiguous ranges of each topic's partitions for its subscribers: what both Range assignors do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.subscriptions import Flags


class RackFit(NamedTuple):
    """Which member may take which partition: ``fits[kind[number], rack[member]]``.

    Partitions with the same replica racks are of one ``kind`` (by number); members of one rack are alike.
    """

    kind: Ints
    rack: Ints
    fits: Flags


def assign_ranges(partitions: Partitions, subscribed: Flags, owners: Owners) -> None:
    """Give every unassigned partition to a subscriber of its topic that has room, by writing into ``owners``.

    Of n partitions and m subscribers, each may have ``n // m``, and ``n % m`` of them one more. In their order (that of
    ``subscribed``'s second axis) members take the first partitions that are left, as many as they have room for. Where
    nothing was assigned before, these are contiguous, and the first ``n % m`` have one more, the same ones for every
    topic.
    """
    any_rack = np.zeros(len(partitions), np.int64), np.zeros(subscribed.shape[1], np.int64), np.ones((1, 1), np.bool_)
    assign_ranges_within_racks(partitions, subscribed, owners, RackFit(*any_rack), np.arange(len(partitions.topics)))


def assign_ranges_within_racks(
    partitions: Partitions, subscribed: Flags, owners: Owners, rack_fit: RackFit, topics: Ints
) -> None:
    """As ``assign_ranges``, of these topics only, and only to members that may take a partition."""
    _assign_ranges(topics, partitions.bounds, partitions.counts, subscribed, *rack_fit, owners)


@compiled
def _assign_ranges(
    topics: Ints, bounds: Ints, counts: Ints, subscribed: Flags, kind: Ints, rack: Ints, fits: Flags, owners: Owners
) -> None:  # pragma: no cover - compiled
    owned_counts = np.zeros(subscribed.shape[1], np.int64)
    for topic in topics:
        first, count = bounds[topic], counts[topic]
        members = np.flatnonzero(subscribed[topic])
        if len(members) == 0:
            continue
        share, extras = count // len(members), count % len(members)
        owned_counts[:] = 0
        for owner in owners[first : first + count]:
            if owner != UNASSIGNED:
                owned_counts[owner] += 1
                extras -= owned_counts[owner] == share + 1
        first_free = np.full(fits.shape[1], first, np.int64)  # by rack: what comes before is taken, or too far
        for member in members:
            free = share + (extras > 0) - owned_counts[member]
            number = first_free[rack[member]]
            while free > 0 and number < first + count:
                if owners[number] == UNASSIGNED and fits[kind[number], rack[member]]:
                    owners[number] = member
                    free -= 1
                    owned_counts[member] += 1
                    extras -= owned_counts[member] == share + 1
                number += 1
            first_free[rack[member]] = number
