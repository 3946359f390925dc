"""What the report's figures mean, in one sentence each, which ``docs/reference/metrics.md`` repeats word for word."""

from __future__ import annotations

from typing import Final

METRICS: Final = {
    "share": "A consumer's part of all messages that were delivered to consumers.",
    "even share": (
        "The share of each consumer if all had the same: one divided by the most consumers connected at once in "
        "a window; of several windows their mean, each weighed with its messages."
    ),
    "skew": (
        "A consumer's share divided by the even share: 1× is balanced, 2× is twice the even share; that of a scenario "
        "is that of its largest share."
    ),
    "worst window": (
        "The highest skew of a consumer in a window that has ten messages or more for each connected consumer, or in "
        "the whole, if that is higher."
    ),
    "keys": "Distinct keys, counted in each topic partition.",
    "redelivered": "Deliveries of a message that had been delivered before.",
    "unacked": "Deliveries whose acknowledgement the data do not contain.",
    "consumers": "The most consumers that were connected at once.",
    "moved": (
        "Of the messages published from a change of the members until the next one, those that came to a slot (or "
        "partition) that this change had given from one consumer to another."
    ),
    "traffic moved": (
        "The part of all messages that were published between a change of the members and the next one, to a slot (or "
        "partition) that this change had given from one consumer to another. What is owned first is not a move, and "
        "what happens in one instant is one change."
    ),
    "slots moved": (
        "How much of all slots (or partitions) a change of the members gave from one consumer to another, on average "
        "over the changes between the first and the last message."
    ),
    "keys moved": "Distinct keys of the traffic that moved.",
    "ceiling": (
        "How many times faster than one consumer the work can get before the hottest key, which goes to one consumer "
        "at a time, is the limit: one over its share of the messages."
    ),
    "unowned": (
        "Messages that belonged to no consumer when they were published, with the reason; in a dispatch replay those "
        "that no application ever took."
    ),
    "latency": (
        "From the publication of a message, or the time it is delayed to, until an application first takes it: median, "
        "99th percentile, longest. A message that none ever takes is later than all others."
    ),
    "too early": "Delayed messages that an application receives before their delivery time.",
    "backlog": (
        "Messages published and not yet done with; the largest is that of the ends of all windows, and of the moment "
        "after the last publication."
    ),
    "left": "The backlog just after the last message was published, that message included.",
    "drain": "From the publication of the last message until the backlog is empty; never, if it does not become empty.",
    "blocked": (
        "How long messages that were due waited until a consumer released a key, a partition or the subscription. "
        "Waits at the same time count once: it is never longer than the replay."
    ),
    "dead letters": "Messages that the consumer gave up and sent to the dead letter topic.",
    "at the expected owner": (
        "First and later deliveries that went to the consumer that owned the key then; those during a join or a close "
        "are left out."
    ),
}
"""Definitions by the name that stands above the figure, in lower case."""
