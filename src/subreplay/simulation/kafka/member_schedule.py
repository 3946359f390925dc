"""When each member does something next: a tournament, so that the earliest is known at once. Ties go to the first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER

Schedule = NDArray[np.int64]
"""A complete binary tree: node n has the earliest time below it, its children are 2n and 2n + 1, node 1 is the root;
the leaves are the members'."""


def new_schedule(members: int) -> Schedule:
    """A schedule for at least so many members, of whom nobody does anything."""
    leaves = 1 << max(members - 1, 1).bit_length()
    return np.full(2 * leaves, NEVER, np.int64)


def larger(schedule: Schedule, members: int) -> Schedule:
    """The same with room for at least ``members``."""
    grown = new_schedule(members)
    known, leaves = len(schedule) // 2, len(grown) // 2
    grown[leaves : leaves + known] = schedule[known:]
    for node in range(leaves - 1, 0, -1):
        grown[node] = min(grown[2 * node], grown[2 * node + 1])
    return grown


@inlined
def put(schedule: Schedule, member: int, at: int) -> None:
    """The member's next action is ``at``."""
    node = len(schedule) // 2 + member
    schedule[node] = at
    while node > 1:
        node >>= 1
        earliest = min(schedule[2 * node], schedule[2 * node + 1])
        if schedule[node] == earliest:
            break
        schedule[node] = earliest


@inlined
def first(schedule: Schedule) -> int:
    """The member with the earliest action."""
    node, leaves = 1, len(schedule) // 2
    while node < leaves:
        node *= 2
        if schedule[node + 1] < schedule[node]:
            node += 1
    return node - leaves
