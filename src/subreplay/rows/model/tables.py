"""The canonical tables: every column, its type and its meaning, in one place.

Inputs are ``messages``, ``membership`` and ``deliveries``; the rest is what a run writes. Timestamps are UTC
microseconds. A position is ``(ledger, entry, batch_index)``: ``batch_index`` is -1 outside a batch, and a Kafka offset
is ``(0, offset, -1)``. ``partition`` is -1 for a topic without partitions. ``date`` is the UTC day that partitions the
table on disk.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_POSITION = [
    _required("topic", pa.string()),
    _required("partition", pa.int32()),
    _required("ledger", pa.int64()),
    _required("entry", pa.int64()),
    _required("batch_index", pa.int32()),
]

ORIGIN: Final = pa.struct(_POSITION)

MESSAGES: Final = pa.schema(
    [
        _required("date", pa.date32()),
        *_POSITION,
        pa.field("key", pa.binary()),
        pa.field("ordering_key", pa.binary()),
        # The outer metadata of the entry a message was batched into: the only keys that a broker reads.
        pa.field("batch_key", pa.binary()),
        pa.field("batch_ordering_key", pa.binary()),
        pa.field("batch_sequence_id", pa.int64()),
        pa.field("batch_size", pa.int32()),
        pa.field("producer", pa.string()),
        pa.field("sequence_id", pa.int64()),
        _required("publish_time", TIME),
        pa.field("event_time", TIME),
        pa.field("deliver_at", TIME),
        pa.field("size", pa.int64()),
        pa.field("chunk_uuid", pa.string()),
        pa.field("chunk_id", pa.int32()),
        pa.field("chunk_count", pa.int32()),
        pa.field("replicated_from", pa.string()),  # the cluster that it was replicated from; null: published here
        pa.field("aborted", pa.bool_()),  # a record of a transaction that was aborted
        pa.field("origin", ORIGIN),  # of a dead letter: the original message (properties REAL_TOPIC, ORIGIN_MESSAGE_ID)
    ]
)

RANGES: Final = pa.list_(pa.struct([_required("start", pa.int64()), _required("end", pa.int64())]))

MEMBERSHIP: Final = pa.schema(
    [
        _required("date", pa.date32()),
        _required("subscription", pa.string()),
        _required("topic", pa.string()),
        pa.field("partition", pa.int32()),  # null: every partition of the topic
        _required("type", pa.string()),  # Exclusive, Failover, Shared, Key_Shared
        _required("consumer", pa.string()),
        # Distinguishes consumers that are connected under one name at once, such as the address of the connection with
        # the consumer id. Its values are those of ``deliveries``. Null: not known.
        pa.field("instance", pa.string()),
        # join, leave, crash, rejected; of a Kafka group also what its consumers learned of a partition: assigned,
        # revoked, lost; and what its coordinator decided: owner (from then on), withdrawn (no owner yet)
        _required("event", pa.string()),
        _required("at", TIME),  # when the change was complete
        pa.field("at_nanos", pa.int16()),  # 0..999 beyond the microsecond, where the source has them
        _required("seq", pa.int64()),  # order in the source among events of one instant
        pa.field("since", TIME),  # when it was requested; null: unknown, assumed to be `at`
        pa.field("since_nanos", pa.int16()),
        pa.field("since_seq", pa.int64()),
        pa.field("priority", pa.int32()),
        pa.field("ranges", RANGES),
        pa.field("receiver_queue_size", pa.int32()),
        pa.field("key_shared_mode", pa.string()),
        pa.field("allow_out_of_order", pa.bool_()),
        pa.field("reason", pa.string()),  # of a rejection; ``closed`` of a partition that was revoked by closing
        # Only for members of a Kafka group; null if the source does not record it
        pa.field("generation", pa.int64()),  # in which the change is in force; an epoch in the consumer protocol
        pa.field("topics", pa.list_(pa.string())),  # subscribed
        pa.field("instance_id", pa.string()),  # group.instance.id: a static member
        pa.field("rack", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("assignor", pa.string()),
    ]
)

DELIVERIES: Final = pa.schema(
    [
        _required("date", pa.date32()),
        _required("subscription", pa.string()),
        *_POSITION,
        _required("consumer", pa.string()),
        pa.field("instance", pa.string()),  # as in ``membership``
        pa.field("delivered_at", TIME),  # null: only its receipt or its acknowledgement is recorded
        pa.field("delivered_nanos", pa.int16()),  # 0..999 beyond the microsecond, where the source has them
        _required("seq", pa.int64()),
        _required("redelivery_count", pa.int32()),
        pa.field("received_at", TIME),  # when the application took it, by the client's clock
        pa.field("acked_at", TIME),
        pa.field("acked_nanos", pa.int16()),
        # Individual, Cumulative; of a share group Accept, Release, Reject, Renew. Commit, AutoCommit (the client's own,
        # at intervals): no delivery but the commit of an offset, the row's position, at `acked_at`
        pa.field("ack_type", pa.string()),
        pa.field("nacked_at", TIME),  # when its redelivery was requested (nack or ack timeout)
        pa.field("nacked_nanos", pa.int16()),
        pa.field("refused_at", TIME),  # when the application nacked it, by the client's clock
        # acked, redelivered, closed, pending; of a commit acked or refused; of a share group acked, released, rejected,
        # renewed, refused (its acknowledgement came too late), pending
        pa.field("outcome", pa.string()),
        _required("source", pa.string()),  # observed, predicted
        pa.field("scenario", pa.string()),
    ]
)

REASON: Final = pa.struct(
    [
        _required("column", pa.string()),
        _required("value", pa.string()),
        _required("rule", pa.string()),
        _required("remedy", pa.string()),
    ]
)

QUARANTINE: Final = pa.schema(
    [
        _required("table", pa.string()),
        _required("file", pa.string()),
        _required("row", pa.int64()),  # line of the file, from 1; -1 where rows have no number
        _required("raw", pa.string()),
        _required("reasons", pa.list_(REASON)),
    ]
)

REJECTED: Final = pa.struct(
    [
        pa.field("file", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("raw", pa.string()),
        pa.field("reasons", pa.list_(pa.struct([field.with_nullable(True) for field in REASON]))),
    ]
)
"""Column ``rejected`` of an input table that is made of a source: why a row could not be read. All other
columns are null."""

INPUTS: Final = {"messages": MESSAGES, "membership": MEMBERSHIP, "deliveries": DELIVERIES}

CHECKPOINT: Final = pa.struct(
    [
        _required("name", pa.string()),  # of an array
        _required("width", pa.int32()),  # of its rows
        _required("rows", pa.int32()),
        _required("part", pa.int32()),  # from 0: an array may be cut
        _required("data", pa.binary()),  # packed (`audit.checkpoint`); identities are also encrypted
    ]
)
"""A part of the state that one daily run passes to the next (``audit.checkpoint``)."""

STATE: Final = pa.schema(
    [
        _required("date", pa.date32()),  # of the run that wrote it
        _required("subscription", pa.string()),
        _required("topic", pa.string()),
        _required("partition", pa.int32()),
        *CHECKPOINT,
    ]
)
"""The state that the runs of a date pass on: ``CHECKPOINT`` values, by run and topic partition."""

OPEN_POSITIONS: Final = pa.schema(
    [
        *_POSITION,
        _required("waiting", pa.bool_()),  # its message has not been delivered yet
        pa.field("day", pa.date32()),  # of its message
    ]
)
"""Positions that a daily run leaves open, and the next one judges again."""

MESSAGE, DELIVERY, COMMIT, COMMIT_REFUSED, COMMIT_AUTOMATIC = range(5)
"""Kinds of rows of a log."""

# The log of one dispatcher as the audit reads it: rows of messages and of deliveries, times in ns.
LOG: Final = pa.schema(
    [
        *_POSITION,
        # -2: a position that an earlier run left open (``audit.other_days``), -1: state of an earlier run, 0: the
        # message, 1: a delivery of it, 2: the commit of an offset, 3: one that was refused, 4: an automatic one
        _required("kind", pa.int8()),
        _required("at", pa.int64()),  # published, delivered, committed (the smallest integer where unknown)
        _required("seq", pa.int64()),
        pa.field("judged", pa.bool_()),  # a message whose absence counts: of the day, or open since an earlier one
        pa.field("before", pa.bool_()),  # of an earlier day, and judged there
        pa.field("content", pa.int64()),  # fingerprint of the message's row
        pa.field("key", pa.binary()),
        pa.field("ordering_key", pa.binary()),
        pa.field("batch_key", pa.binary()),
        pa.field("batch_ordering_key", pa.binary()),
        pa.field("producer", pa.string()),
        pa.field("sequence_id", pa.int64()),  # of the entry's outer metadata
        pa.field("own_sequence_id", pa.int64()),  # of the message itself
        pa.field("deliver_at", pa.int64()),
        pa.field("size", pa.int64()),
        pa.field("chunk_id", pa.int32()),
        pa.field("chunk_count", pa.int32()),
        pa.field("replicated_from", pa.string()),
        pa.field("aborted", pa.bool_()),
        pa.field("consumer", pa.string()),
        pa.field("instance", pa.string()),
        pa.field("redelivery_count", pa.int64()),
        pa.field("received_at", pa.int64()),
        pa.field("acked_at", pa.int64()),
        pa.field("nacked_at", pa.int64()),
        pa.field("cumulative", pa.bool_()),  # acknowledged by a cumulative acknowledgement
        pa.field("ack_refused", pa.bool_()),  # of a share group: the broker refused its acknowledgement
        pa.field("rejected", pa.bool_()),  # of a share group: its consumer rejected it for good
        pa.field("by_receipt", pa.bool_()),  # only its receipt is recorded: `at` is when the application received it
        pa.field("checkpoint", CHECKPOINT),
    ]
)
CARRIED: Final = tuple(f.name for f in MESSAGES if f.name in LOG.names and f not in _POSITION)
"""Columns of ``messages`` that the log has under the same name, and ``FACTS`` too, where a rule reads them."""

_MESSAGE_ID = pa.struct([pa.field(name, pa.int64()) for name in ("ledger", "entry", "batch_index")])

# One row per delivery and per undelivered message, with everything that the rules use. Times are in ns; the largest
# integer means "never", the smallest "unknown".
FACTS: Final = pa.schema(
    [
        *_POSITION,
        _required("delivered", pa.bool_()),
        _required("before", pa.bool_()),  # a delivery of an earlier day, used only to find outstanding messages
        _required("ordinal", pa.int64()),  # rises with the position in its topic partition's log
        pa.field("key", pa.string()),  # as it may be shown (``key_masking.KeyMasking``)
        _required("key_id", pa.int64()),  # identity within which order is promised; -1: none
        _required("slot", pa.int64()),  # a hash of the key; in result tables -1 where it is hidden (``key_masking``)
        _required("hash", pa.int64()),
        _required("published", pa.int64()),
        _required("due", pa.int64()),  # published, or the time it was delayed to
        _required("size", pa.int64()),
        pa.field("consumer", pa.string()),
        _required("session", pa.int64()),
        _required("expected", pa.int64()),  # the index of the consumer that owns it; -1: no consumer
        _required("epoch", pa.int64()),
        _required("at", pa.int64()),
        _required("seq", pa.int64()),
        _required("received", pa.int64()),
        _required("acked", pa.int64()),
        _required("held_until", pa.int64()),
        _required("redelivery_count", pa.int64()),
        _required("nth", pa.int64()),  # deliveries of the message before this one
        _required("restarts", pa.int64()),  # of DLQ_MISSED: how often its redelivery count had restarted
        _required("previous", pa.int64()),  # how the one before ended: a `audit.deliveries.Ending`, with `WHY`
        _required("by_receipt", pa.bool_()),  # only its receipt is recorded: `at` is the time of the receipt
        _required("reset", pa.int64()),  # when the act happened that may explain it (``audit.acts``)
        _required("commit", pa.int8()),  # 0: a delivery; else the kind of a commit (``rules.commits``)
        _required("mixed", pa.bool_()),  # its key is not the one that dispatched its batch
        _required("in_transition", pa.bool_()),
        _required("codes", pa.int64()),  # bit per rule
        _required("excuses", pa.int64()),  # bit per excuse
        _required("repeated", pa.int64()),  # further input rows that agree about this delivery
        _required("contradicted", pa.int64()),  # ... that contradict it
        _required("stored_again", pa.int64()),  # ... that agree about its message
        pa.field("twin", _MESSAGE_ID),  # the message that contradicts it in a finding about its publication
        pa.field("skipped", _MESSAGE_ID),  # the message that its consumer skipped
        _required("skipped_others", pa.bool_()),  # and others beside it
        pa.field("checkpoint", CHECKPOINT),  # not null: the row is state for the next daily run
    ]
)

LOAD: Final = pa.struct(
    [
        _required("width", pa.int64()),  # of the windows, ns; the largest integer: all time
        _required("slide", pa.int64()),
        _required("pane", pa.int64()),  # of one slide, by its start: what is counted here
        _required("first", pa.int64()),  # the first window with the pane that counts these keys
        pa.field("consumer", pa.string()),
        *[_required(name, pa.int64()) for name in ("messages", "bytes", "keys", "redelivered", "unacked")],
        # of all time only
        pa.field("undelivered", pa.int64()),
        pa.field("outside", pa.int64()),  # of membership changes
        pa.field("at_owner", pa.int64()),  # of these
        pa.field("in_transition", pa.int64()),
        # deliveries of a message for the first time. In a row of a window, about no consumer: messages published in it
        pa.field("firsts", pa.int64()),
        pa.field("batched", pa.int64()),
        pa.field("entries", pa.int64()),  # that were batches
        *[pa.field(name, pa.int64()) for name in ("repeated", "contradicted", "stored_again", "by_receipt")],
        pa.field("begin", pa.int64()),  # first and last delivery
        pa.field("end", pa.int64()),
        # of no window
        pa.field("lag", pa.string()),  # one of ``audit.clocks.LAGS``: so many of its deliveries (``messages``) had it
        pa.field("size", pa.int64()),  # the number of the lag's size (``audit.clocks.compute_size_bounds``)
        pa.field("selector", pa.string()),  # one that ``outside`` deliveries were compared by (``audit.selectors``)
    ]
)
"""The load of a consumer: a part of the sum (``audit.passes.loads``)."""

LOADS: Final = pa.schema(
    [
        pa.field("date", pa.date32()),  # of the run; null: all dates at once
        _required("subscription", pa.string()),
        _required("topic", pa.string()),
        *LOAD,
    ]
)
"""The loads of consumers, as parts to add up: ``LOAD`` values, by run."""

_EVIDENCE = pa.struct(
    [
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int64()),
        pa.field("consumer", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("held_until", pa.int64()),
        pa.field("same_key", pa.bool_()),  # of the same key as the finding; two keys may share a slot
        pa.field("held", pa.int64()),  # outstanding messages of its consumer at once; 0: not counted
    ]
)
JUDGED: Final = pa.schema(
    [
        *[
            pa.field("expected", pa.string()) if field.name == "expected" else field
            for field in FACTS
            if field.name not in ("before", "reset")
        ],
        pa.field("order_witness", _EVIDENCE),  # the later message delivered before, or the commit before this one
        pa.field("owner_witness", _EVIDENCE),  # the delivery at another consumer
        pa.field("holder_witness", _EVIDENCE),  # the delivery that blocked others
        _required("shown", pa.int64()),  # bits of findings that do not fail and are kept as examples
    ]
)


def nullable_parts(kind: pa.DataType) -> pa.DataType:
    """Make the parts of a type nullable: Spark cannot write a null struct whose parts are required."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, nullable_parts(part.type)) for part in kind])
    return pa.list_(nullable_parts(kind.value_type)) if pa.types.is_list(kind) else kind


AUDITED: Final = pa.schema(
    [
        *[
            field.with_type(nullable_parts(field.type))
            for field in JUDGED
            if field.name not in ("key_id", "hash", "checkpoint")
        ],
        pa.field("subscription", pa.string()),
        pa.field("delivered_at", TIME),
        pa.field("published_at", TIME),
        pa.field("date", pa.date32()),
    ]
)
"""Deliveries, and messages that were never delivered, as they were judged."""

VIOLATIONS: Final = pa.schema(
    [
        _required("date", pa.date32()),
        _required("subscription", pa.string()),
        *_POSITION,
        _required("code", pa.string()),
        _required("verdict", pa.string()),
        pa.field("excuse", pa.string()),  # why it does not fail the run
        pa.field("consumer", pa.string()),
        _required("moment", TIME),  # the time that decides its window: of the delivery, or of the publication
        pa.field("at", TIME),  # of the delivery; null: there was none
        pa.field("key", pa.string()),  # digest, or the key where the run shows keys
        _required("slot", pa.int64()),
        _required("epoch", pa.int64()),
        _required("cause", pa.string()),
        _required("witness", pa.list_(pa.string())),
        _required("explanation", pa.string()),
        pa.field("circumstances", pa.string()),  # of its message: delayed, chunk, unowned; null: none
        pa.field("attribution", pa.string()),  # who is likely responsible, as far as the data show
        pa.field("waited", pa.int64()),  # µs past due that a message waited; null: no finding about waiting
    ]
)

RETRACTED_FINDINGS: Final = pa.schema(
    [
        *(field for field in _POSITION if field.name != "topic"),
        _required("code", pa.string()),
        _required("told", pa.date32()),  # the day of the run that reported it
        _required("at", TIME),  # the delivery that retracts it
        _required("explanation", pa.string()),
    ]
)
