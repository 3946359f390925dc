"""What rules need to look at, besides messages and deliveries: a rule without it could not look, and is not clean."""

from __future__ import annotations

from enum import Enum


class Need(Enum):
    """Something that a rule looks at. Its value says in words what it means that it is missing."""

    MEMBERSHIP = "no join of this subscription is known by the time of its deliveries"
    ACKNOWLEDGEMENTS = "no acknowledgement is recorded"
    RECEIPTS = "not every application recorded what it received"
    DISPATCH_TIMES = "the deliveries tell when applications received messages, not when they were dispatched"
    ROUTING = "the run does not say how producers choose a partition"
    STUCK_AFTER = "no threshold is set"
    STARVED_AFTER = "no threshold of waiting is set"
    DEAD_LETTER_POLICY = "the run names no dead letter policy"

    @property
    def essential(self) -> bool:
        """Whether its absence is a hole in the data (the rule is *unknown*), and not a trait of the source or a choice
        of the run (the rule is *not applicable*)."""
        return self is Need.MEMBERSHIP

    @property
    def of_data(self) -> bool:
        """Whether the tables should tell it, not the run file."""
        return self in (Need.MEMBERSHIP, Need.ACKNOWLEDGEMENTS, Need.RECEIPTS, Need.DISPATCH_TIMES)


def told(lacking: frozenset[Need]) -> str:
    """What is missing, in words, in the order above."""
    return "; ".join(need.value for need in Need if need in lacking)
