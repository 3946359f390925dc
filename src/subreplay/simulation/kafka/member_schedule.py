"""When each member acts next, as a tournament tree whose root is the earliest time. Ties go to the first member."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from subreplay.kernels.inlining import inlined
from subreplay.simulation.pulsar.broker.broker_records import NEVER

Schedule = NDArray[np.int64]
"""A complete binary tree: node n has the earliest time below it, and its children are 2n and 2n + 1.

Node 1 is the root, and the leaves belong to the members.
"""


def create_schedule(members: int) -> Schedule:
    """Create a schedule for at least ``members`` members, none of which acts."""
    leaves = 1 << max(members - 1, 1).bit_length()
    return np.full(2 * leaves, NEVER, np.int64)


def enlarge_schedule(schedule: Schedule, members: int) -> Schedule:
    """Return the schedule with space for at least ``members`` members."""
    grown = create_schedule(members)
    known, leaves = len(schedule) // 2, len(grown) // 2
    grown[leaves : leaves + known] = schedule[known:]
    for node in range(leaves - 1, 0, -1):
        grown[node] = min(grown[2 * node], grown[2 * node + 1])
    return grown


@inlined
def schedule_member(schedule: Schedule, member: int, at: int) -> None:
    """Set the time of the member's next action."""
    node = len(schedule) // 2 + member
    schedule[node] = at
    while node > 1:
        node >>= 1
        earliest = min(schedule[2 * node], schedule[2 * node + 1])
        if schedule[node] == earliest:
            break
        schedule[node] = earliest


@inlined
def find_first_member(schedule: Schedule) -> int:
    """Return the member with the earliest action."""
    node, leaves = 1, len(schedule) // 2
    while node < leaves:
        node *= 2
        if schedule[node + 1] < schedule[node]:
            node += 1
    return node - leaves
