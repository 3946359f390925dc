"""What rules need to look at, besides messages: a rule without it could not look, and is not clean."""

from __future__ import annotations

from enum import Enum


class Need(Enum):
    """Something that a rule looks at. Its value says in words what it means that it is missing."""

    MEMBERSHIP = "no join of this subscription is known by the time of its deliveries"
    SOME_MESSAGE = "there is no message to look at"
    SOME_DELIVERY = "there is no delivery to look at"
    EXACT_MEMBERSHIP = "when consumers joined and left is inferred from what they were given"
    PRIORITIES = "the membership does not tell priority levels"
    ACKNOWLEDGEMENTS = "no acknowledgement is recorded"
    RECEIPTS = "not every application recorded what it received"
    DISPATCH_TIMES = "the deliveries tell when applications received messages, not when they were dispatched"
    DELIVERIES = "the data tell what was acknowledged, not what was delivered"
    EVERY_DELIVERY = "the deliveries are a sample of all"
    COMMITS = "no commits of offsets are recorded"
    CALLBACKS = "the members do not tell what they were told of their partitions"
    DECISIONS = "the coordinator's decisions are not recorded"
    KEYS = "the messages do not tell their keys"
    SOME_KEY = "no message has a key"
    STICKY_KEYS = "some messages have neither a key nor a producer with a sequence id, so that their slot is not known"
    PRODUCERS = "the messages do not tell their producers and sequence ids"
    ROUTING = "the run does not say how producers choose a partition"
    STUCK_AFTER = "no threshold is set"
    STARVED_AFTER = "no threshold of waiting is set"
    STALLED_AFTER = "no threshold of a stall is set"
    LATE_AFTER = "no threshold of a late delivery is set"
    DEAD_LETTER_POLICY = "the run names no dead letter policy"

    @property
    def essential(self) -> bool:
        """Whether its absence is a hole in the data (the rule is *unknown*), and not a trait of the source or a choice
        of the run (the rule is *not applicable*)."""
        return self in (Need.MEMBERSHIP, Need.EXACT_MEMBERSHIP, Need.SOME_MESSAGE, Need.SOME_DELIVERY)

    @property
    def of_data(self) -> bool:
        """Whether the tables should tell it, not the run file."""
        return self not in _OF_RUN


_OF_RUN = frozenset(
    {Need.ROUTING, Need.STUCK_AFTER, Need.STARVED_AFTER, Need.STALLED_AFTER, Need.LATE_AFTER, Need.DEAD_LETTER_POLICY}
)


def told(lacking: frozenset[Need]) -> str:
    """What is missing, in words, in the order above."""
    return "; ".join(need.value for need in Need if need in lacking)
