"""Contiguous ranges of each topic's partitions for its subscribers, as both Range assignors compute them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from subreplay.kernels.compiled import compiled
from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, Ints, Owners, Partitions
from subreplay.semantics.policies.kafka.subscriptions import Flags


class RackFit(NamedTuple):
    """Whether a member may take a partition: ``fits[kind[number], rack[member]]``.

    Partitions with the same replica racks have the same ``kind`` (by number). Members of one rack are equivalent.
    """

    kind: Ints
    rack: Ints
    fits: Flags


def assign_ranges(partitions: Partitions, subscribed: Flags, owners: Owners) -> None:
    """Assign every unassigned partition to a subscriber of its topic with free capacity, by writing into ``owners``.

    With n partitions and m subscribers, each may have ``n // m``, and ``n % m`` of them one more. In the order of
    ``subscribed``'s second axis, members take the first unassigned partitions up to their capacity. If nothing was
    assigned before, these are contiguous, and the first ``n % m`` members have one more, for every topic.
    """
    any_rack = np.zeros(len(partitions), np.int64), np.zeros(subscribed.shape[1], np.int64), np.ones((1, 1), np.bool_)
    assign_ranges_within_racks(partitions, subscribed, owners, RackFit(*any_rack), np.arange(len(partitions.topics)))


def assign_ranges_within_racks(
    partitions: Partitions, subscribed: Flags, owners: Owners, rack_fit: RackFit, topics: Ints
) -> None:
    """Do as ``assign_ranges`` for these topics only, and only for members that may take a partition."""
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
