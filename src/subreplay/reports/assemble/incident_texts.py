"""The title of an incident and what to do about it, by the rule that explains it.

A title names its findings as what they are of: ``{messages}`` (such as "480 of 600 messages"), ``{deliveries}``,
``{batches}`` or ``{keys}``. It may name ``{consumer}``, ``{longest}`` (the longest wait), ``{place}`` (the
subscription or its partitions), and words that depend on the number: ``{were}``, ``{are}``, ``{have}``, ``{mix}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from subreplay.audit.codes import Code


class IncidentText(NamedTuple):
    """The ``title`` of an incident, and the ``next_step`` as sentences. ``ongoing`` is the title if the messages still
    wait when the data end, and ``alone`` the title if no message waits yet."""

    title: str
    next_step: str
    ongoing: str = ""
    alone: str = ""


_ORDER_STEP: Final = (
    "Open the evidence: it names both deliveries. Check that the policy and the release of the run are those of the "
    "broker. If they are, report the evidence to the broker's developers."
)
_COMMIT_STEP: Final = "Check where the application calls commit, above all in its rebalance callback."
_DISPATCH_STEP: Final = (
    "Look at the broker's log and at the subscription's statistics (unacknowledged messages, permits) at this time. "
    "Unloading the topic or restarting the consumer usually makes the broker continue."
)
INCIDENT_TEXTS: Final[Mapping[Code, IncidentText]] = {
    Code.STUCK: IncidentText(
        "{messages} waited up to {longest}: {consumer} blocked {place}",
        "Restart or close {consumer}, and set an acknowledgement timeout (or negative acknowledgements) in its "
        "application.",
        "{messages} {were} not delivered: {consumer} blocks {place}",
        "{consumer} reached its limit of unacknowledged messages, so the broker sends it no more",
    ),
    Code.STALLED: IncidentText(
        "{messages} waited up to {longest} although consumers were connected and idle",
        _DISPATCH_STEP,
        "{messages} {were} not delivered although consumers are connected and idle",
    ),
    Code.STARVED: IncidentText(
        "{messages} waited up to {longest} for {consumer} while others were served",
        _DISPATCH_STEP,
        "{messages} {were} not delivered to {consumer} while others were served",
    ),
    Code.LATE: IncidentText("{messages} {were} delivered up to {longest} after they were due", _DISPATCH_STEP),
    Code.LOST: IncidentText(
        "{messages} {were} never delivered although later ones were",
        "Look in the log for a skipped or cleared backlog, an expired retention or a reset, and declare it "
        "(topic.resets, topic.ttl). Otherwise read the listed positions again, because the application has not "
        "processed them.",
    ),
    Code.UNROUTABLE: IncidentText(
        "{messages} belonged to no connected consumer",
        "Correct the key ranges of the consumers so that they cover all slots.",
    ),
    Code.STICKY_GAP: IncidentText(
        "No consumer requested some of the slots",
        "Correct the key ranges of the consumers so that they cover all slots.",
    ),
    Code.STICKY_OVERLAP: IncidentText(
        "The broker rejected a consumer whose key ranges overlap those of another",
        "Correct the key ranges of the consumers so that they do not overlap.",
    ),
    Code.DLQ_MISSED: IncidentText(
        "{messages} {were} delivered more often than the dead letter policy allows",
        "Use a subscription type and a client that count redeliveries, or reconsumeLater, which keeps the count in the "
        "message.",
    ),
    Code.OVER_LIMIT: IncidentText(
        "{messages} {were} delivered more often than the share group allows",
        "Check that group.share.delivery.count.limit in the run file is that of the group.",
    ),
    Code.DLQ_INCOMPLETE: IncidentText(
        "{messages} {were} given up but {are} not on the dead letter topic",
        "Check that the consumer's producer for dead letters can write to that topic, and process the listed messages.",
    ),
    Code.DLQ_ACKED: IncidentText(
        "{messages} {were} acknowledged and then also sent to the dead letter topic",
        "Update the client library, and remove duplicates when you process dead letters.",
    ),
    Code.DLQ_ORDER: IncidentText(
        "{messages} on the dead letter topic {are} out of the order of their key", _ORDER_STEP
    ),
    Code.NOT_CONNECTED: IncidentText(
        "{deliveries} went to {consumer} although it was not connected",
        "Find out whether that process still runs after it left: it may process what another consumer owns. Make its "
        "writes idempotent, and look at the session timeout and max.poll.interval.ms.",
    ),
    Code.NEVER_JOINED: IncidentText(
        "{deliveries} went to {consumer}, whose join is not recorded",
        "Record the joins of all consumers, or take the membership from the broker's log.",
    ),
    Code.TWO_OWNERS: IncidentText(
        "A partition had two owners at once",
        "Look at the coordinator's log at this time, and at the rebalance callbacks of both members.",
    ),
    Code.OWNER_DIFFERS: IncidentText(
        "The coordinator assigned partitions to other members than its assignor does",
        "Check that the assignor and the release of the run are those of the group.",
    ),
    Code.TOLD_DIFFERS: IncidentText(
        "{consumer} was assigned other partitions than its coordinator decided",
        "Update the client library, and restart the member.",
    ),
    Code.TWO_ACTIVE: IncidentText("{deliveries} went to a second active consumer", _ORDER_STEP),
    Code.WRONG_OWNER: IncidentText("{deliveries} went to {consumer}, which did not own the message", _ORDER_STEP),
    Code.KEY_TWO_OWNERS: IncidentText(
        "{deliveries} began while another consumer still had messages of the same key", _ORDER_STEP
    ),
    Code.BEFORE_PREDECESSOR_ACK: IncidentText(
        "{messages} of moved keys {were} delivered before the previous owner had finished", _ORDER_STEP
    ),
    Code.COMMIT_BACK: IncidentText("{consumer} committed an earlier offset than before", _COMMIT_STEP),
    Code.COMMIT_AHEAD: IncidentText("{consumer} committed records that it had not received", _COMMIT_STEP),
    Code.COMMIT_NOT_OWNER: IncidentText(
        "{consumer} committed offsets of a partition that it did not own", _COMMIT_STEP
    ),
    Code.MIXED_BATCH: IncidentText(
        "{batches} {mix} keys, so messages go to the consumer of another key",
        "Set BatcherBuilder.KEY_BASED in the producers, or switch batching off.",
    ),
    Code.ROUTING_MISMATCH: IncidentText(
        "{messages} {are} in another partition than the producer's routing selects",
        "Use one routing mode, hashing scheme and number of partitions in all producers, or change topic.routing in "
        "the run file.",
    ),
    Code.KEY_TWO_PARTITIONS: IncidentText(
        "The messages of {keys} are in two partitions, so their order is not kept",
        "Use one routing mode and hashing scheme in all producers, and drain a topic before you add partitions.",
    ),
    Code.KEY_ORDER: IncidentText("{messages} {were} delivered out of the order of their key", _ORDER_STEP),
    Code.PARTITION_ORDER: IncidentText("{messages} {were} delivered out of the order of their partition", _ORDER_STEP),
    Code.SKIP: IncidentText("{consumer} received later messages but not {messages}", _ORDER_STEP),
    Code.REDELIVERY_ORDER: IncidentText("{deliveries} repeated a message after newer ones of its key", _ORDER_STEP),
    Code.DUP_DELIVERY: IncidentText(
        "{deliveries} repeated messages that had been acknowledged",
        "Check whether somebody reset the cursor or the offsets, and make the application idempotent.",
    ),
    Code.DUP_OUTSTANDING: IncidentText(
        "{deliveries} repeated messages that were still outstanding",
        "Check the acknowledgement timeout of the consumers, and make the application idempotent.",
    ),
    Code.REDELIVERED_UNASKED: IncidentText(
        "{deliveries} repeated messages without a recorded cause",
        "Record negative acknowledgements and acknowledgement timeouts of the clients.",
    ),
    Code.CUM_ACK_MISUSE: IncidentText(
        "{consumer} acknowledged {messages} cumulatively on a shared subscription",
        "Acknowledge each message individually: the broker ignores cumulative acknowledgements of this subscription.",
    ),
    Code.ACK_EARLY: IncidentText(
        "{messages} {were} acknowledged before their delivery",
        "Compare the clocks of the broker and of the consumers.",
    ),
    Code.EARLY: IncidentText(
        "{messages} {were} delivered before their time",
        "Check whether the broker rounds delays to its tick (delayedDeliveryTickTimeMillis), and set "
        "topic.delivery_tick.",
    ),
    Code.OVER_PERMITS: IncidentText(
        "{deliveries} to {consumer} exceeded its receiver queue",
        "Check the receiver queue size in the run file. If it is right, report the evidence to the broker's "
        "developers.",
    ),
    Code.PRODUCER_ORDER: IncidentText(
        "{messages} {are} stored after a later message of the same producer",
        "Check whether the producer sends again after a timeout, and whether it sets its own sequence ids.",
    ),
    Code.DUP_PUBLISH: IncidentText(
        "{messages} {were} published twice",
        "Switch on deduplication for the topic (Pulsar) or idempotence in the producer (Kafka).",
    ),
    Code.DIVERGENT_ID: IncidentText(
        "{messages} {have} two different contents at one position",
        "Check the tables: two rows with one position must be equal.",
    ),
    Code.UNKNOWN_MESSAGE: IncidentText(
        "{deliveries} {are} of messages that are not in the messages table",
        "Check that the messages table covers the whole time of the deliveries.",
    ),
    Code.BEFORE_PUBLICATION: IncidentText(
        "{deliveries} {are} earlier than the publication of the message",
        "Compare the clocks of the producers and of the broker, or raise topic.clock_skew.",
    ),
    Code.DROPPED: IncidentText(
        "{messages} {were} dropped: the topic is non-persistent",
        "Use a persistent topic, or give the consumers a larger receiver queue.",
    ),
    Code.ARCHIVED: IncidentText(
        "{messages} {were} archived after the last attempt",
        "Process the listed records by another way, because the group does not deliver them again. Find out why the "
        "attempts failed, or raise group.share.delivery.count.limit.",
    ),
    Code.LATE_ACK: IncidentText(
        "{deliveries} {were} acknowledged too late, so the work was done again",
        "Raise group.share.record.lock.duration.ms, lower max.poll.records, or renew the locks of slow records "
        "(AcknowledgeType.RENEW). Make the application's writes idempotent.",
    ),
}
"""The rules that can fail a run; those that explain the findings of others come first."""
CONSEQUENCES: Final[Mapping[Code, str]] = {
    Code.LOST: "{messages} {were} never delivered",
    Code.DUP_DELIVERY: "{deliveries} repeated messages",
    Code.DUP_OUTSTANDING: "{deliveries} repeated messages",
    Code.PARTITION_ORDER: "{messages} {were} delivered out of order",
    Code.KEY_ORDER: "{messages} {were} delivered out of order",
}
"""What a title adds if another rule explains these findings, the most severe first."""
ACT_STEP: Final = (
    "If nobody intended this, find out who reset, sought or unloaded at this time. Declare it with topic.resets so "
    "that later audits expect it."
)
