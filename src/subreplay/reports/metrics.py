"""Define each figure of a report in one or two sentences, which ``docs/reference/metrics.md`` repeats exactly."""

from __future__ import annotations

from typing import Final

METRICS: Final = {
    "share": "A consumer's part of all messages that were delivered to consumers.",
    "fair share": (
        "The share of each consumer in perfect balance: one divided by the most consumers connected at once in a "
        "window. Over several windows it is their mean, weighted by messages."
    ),
    "skew": (
        "A consumer's share divided by the fair share: 1× is balanced, 2× is twice the fair share. The skew of a "
        "scenario is that of its largest share."
    ),
    "worst window": (
        "The highest skew of a consumer in a window with at least ten messages per connected consumer, or over all "
        "windows together if that is higher."
    ),
    "keys": "Distinct keys, counted in each topic partition.",
    "redelivered": "Deliveries of a message that had been delivered before.",
    "unacked": "Deliveries whose acknowledgement the data do not contain.",
    "consumers": "The most consumers that were connected at once.",
    "moved": (
        "Messages published between a membership change and the next one, to slots (or partitions) that the change "
        "moved from one consumer to another."
    ),
    "traffic moved": (
        "The fraction of all messages that were published to a moved slot (or partition) between a membership "
        "change and the next one. The first owner of a slot is not a move, and events at one instant are one "
        "change."
    ),
    "slots moved": (
        "The fraction of all slots (or partitions) that a membership change moves from one consumer to another. It "
        "is the mean over the changes between the first and the last message."
    ),
    "keys moved": "Distinct keys of the messages that moved.",
    "ceiling": (
        "How many times faster than one consumer the work can get before the hottest key is the limit: one divided "
        "by the key's share of the messages."
    ),
    "unowned": (
        "Messages that had no owner when they were published, with the reason. In a dispatch replay: messages that "
        "no application received."
    ),
    "latency": (
        "The time from the publication of a message, or its delivery time if it is delayed, until an application "
        "first receives it: median, 99th percentile, longest. A message that is never received counts as the "
        "latest."
    ),
    "too early": "Delayed messages that an application receives before their delivery time.",
    "backlog": (
        "Messages that are published and not yet settled. The largest backlog is taken at the ends of all windows "
        "and just after the last publication."
    ),
    "left": "The backlog just after the last message was published, that message included.",
    "drain": (
        "The time from the publication of the last message until the backlog is empty; never, if it does not "
        "become empty."
    ),
    "blocked": (
        "How long due messages waited for a consumer to release a key, a partition or the subscription. Waits at "
        "the same time count once, so the sum is never longer than the replay."
    ),
    "dead letters": "Messages that the consumer gave up and sent to the dead letter topic.",
    "expired or dropped": (
        "Messages that ended by their time to live, or that a non-persistent topic dropped because no consumer had a "
        "permit."
    ),
    "at the expected owner": (
        "Deliveries and redeliveries that went to the consumer that owned the key at the time, without those "
        "during a join or a close."
    ),
}
"""Definitions by the label of the figure, in lower case."""
