"""What rules need besides messages: a rule without it cannot be evaluated, and is not clean."""

from __future__ import annotations

from enum import Enum


class Need(Enum):
    """Something that a rule needs. Its value explains what it means that it is missing."""

    MEMBERSHIP = "no join of this subscription is recorded before its deliveries"
    SOME_MESSAGE = "there are no messages"
    SOME_DELIVERY = "there are no deliveries"
    EXACT_MEMBERSHIP = "the joins and leaves of consumers are inferred from their deliveries"
    PRIORITIES = "the membership does not record priority levels"
    ACKNOWLEDGEMENTS = "no acknowledgement is recorded"
    RECEIPTS = "not every application recorded its receipts"
    DISPATCH_TIMES = "the deliveries record when applications received messages, not when the broker dispatched them"
    DELIVERIES = "the data record acknowledgements but no deliveries"
    EVERY_DELIVERY = "the deliveries are only a sample"
    COMMITS = "no commits of offsets are recorded"
    CALLBACKS = "the members do not record their rebalance callbacks (partitions assigned, revoked, lost)"
    DECISIONS = "the coordinator's decisions are not recorded, or are about tasks of a streams group"
    KEYS = "the messages do not record their keys"
    SOME_KEY = "no message has a key"
    STICKY_KEYS = "some messages have neither a key nor a producer with a sequence id, so their slot is not known"
    PRODUCERS = "the messages do not record their producers and sequence ids"
    ROUTING = "the run does not configure how producers choose a partition"
    STUCK_AFTER = "no threshold is set"
    STARVED_AFTER = "no threshold for waiting messages is set"
    STALLED_AFTER = "no threshold for a stall is set"
    LATE_AFTER = "no threshold for late deliveries is set"
    DEAD_LETTER_POLICY = "the run configures no dead letter policy"

    @property
    def essential(self) -> bool:
        """Whether its absence is a gap in the data (the rule is *unknown*), and not a property of the source or a
        setting of the run (the rule is *not applicable*)."""
        return self in (Need.MEMBERSHIP, Need.EXACT_MEMBERSHIP, Need.SOME_MESSAGE, Need.SOME_DELIVERY)

    @property
    def of_data(self) -> bool:
        """Whether it belongs in the tables, not in the run file."""
        return self not in _OF_RUN


_OF_RUN = frozenset(
    {Need.ROUTING, Need.STUCK_AFTER, Need.STARVED_AFTER, Need.STALLED_AFTER, Need.LATE_AFTER, Need.DEAD_LETTER_POLICY}
)


def describe_needs(lacking: frozenset[Need]) -> str:
    """Describe what is missing, in the order above."""
    return "; ".join(need.value for need in Need if need in lacking)
