"""Check dead letters: messages that a consumer gives up arrive on the dead letter topic.

``audit.lost_letters`` joins the rows, which stream through these steps. One row is carried from batch to batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import MANY, Code, Exemption, Rule
from subreplay.audit.context import Context
from subreplay.audit.deliveries import Ending, Flags
from subreplay.audit.findings import Finding
from subreplay.audit.needs import Need
from subreplay.audit.rules.redelivery import ACKED, AT, CODES, COUNT, EXEMPTIONS, NACKED, NTH, PREVIOUS, RESTARTS
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, gather_batches, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_clock, format_position

RULES = (
    Rule(
        Code.DLQ_ORDER,
        "Dead letters of a key out of order",
        "Messages of one key are on the dead letter topic in the order of their own log. No policy promises this.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        allowed=MANY,
        needs=frozenset({Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_INCOMPLETE,
        "Given up but missing from the dead letter topic",
        "A message that is negatively acknowledged at its last attempt, or delivered after it, is on the dead letter "
        "topic.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_MISSED,
        "Delivered more often than the dead letter policy allows",
        "A message is delivered at most maxRedeliverCount + 1 times and then becomes a dead letter. The policy "
        "does not act if the redelivery count restarts or never increases.",
        "InMemoryRedeliveryTracker, ConsumerImpl.processPossibleToDLQ (4.0.8): the count is lost with the dispatcher's "
        "consumers; row D-DLQ-1",
        sentence="{message} of key {key} was delivered {times} times, last to {consumer} at {at}, although the dead "
        "letter policy allows {max_redeliveries} redeliveries. It is no dead letter: its redelivery count {count}",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_ACKED,
        "A dead letter of an acknowledged message",
        "An acknowledged message does not go to the dead letter topic, because it would be processed twice. (A "
        "client acknowledges a message itself once its dead letter is stored.)",
        "ConsumerImpl.possibleSendToDeadLetterTopicMessages (4.0.8); apache/pulsar#26125; row D-DLQ-1",
        sentence="{message} of key {key} was acknowledged by {consumer} at {acked}, but it is also a dead letter",
        cause="its client still sends messages that it marked as dead letters after they were acknowledged",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES, Need.ACKNOWLEDGEMENTS, Need.DEAD_LETTER_POLICY}),
    ),
)

EXHAUSTED = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("ledger", pa.int64()),
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("key", pa.string()),  # in words
        pa.field("consumer", pa.string()),  # of its last delivery
        pa.field("at", pa.int64()),  # of its last delivery, ns
        pa.field("redelivery_count", pa.int64()),
        pa.field("nacked", pa.bool_()),  # its last delivery was nacked, as recorded by broker or application
        pa.field("acked", pa.bool_()),
    ]
)
"""Messages that no dead letter names although their redelivery count reached the maximum; one row each."""

LETTERS = pa.schema(
    [
        pa.field("topic", pa.string()),  # they came from, and where there
        pa.field("partition", pa.int32()),
        pa.field("origin_ledger", pa.int64()),
        pa.field("origin_entry", pa.int64()),
        pa.field("origin_batch_index", pa.int32()),
        pa.field("ledger", pa.int64()),  # on the dead letter topic
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("key", pa.string()),  # in words
        pa.field("published", pa.int64()),  # ns
        pa.field("judged", pa.bool_()),  # of the audited day
    ]
)
"""Messages of the dead letter topic that have a key, with their original positions."""
LETTER_ORDER = ("topic", "partition", "key", "ledger", "entry", "batch_index")
"""The sort order of ``LETTERS``: by key, each key in the order of the dead letter topic."""


def find_incomplete(
    batches: Iterable[pa.RecordBatch], max_redeliveries: int, rejected: bool = False, dates: bool = False
) -> Iterator[Finding]:
    """Yield DLQ_INCOMPLETE over ``EXHAUSTED``. ``max_redeliveries`` is ``DeadLetterPolicy.maxRedeliverCount``.

    A message that was acknowledged at its last attempt may have been processed then, so it is exempt. An outstanding
    message is not given up yet. ``rejected``: dead letters are in quarantine.
    """
    missing = Exemption.LETTERS_REJECTED if rejected else Exemption.NONE
    for batch in batches:
        for row in batch.to_pylist():
            given_up = row["nacked"] or row["redelivery_count"] > max_redeliveries
            if given_up or row["acked"]:
                yield _make_missing_finding(row, missing if given_up else Exemption.LAST_ATTEMPT, dates)


def judge_by_policy(attempts: Ints, begin: Ints, end: Ints, letters: Ints, context: Context) -> None:
    """Judge DLQ_MISSED and DLQ_ACKED over the attempts (``redelivery``) of messages, each from ``begin`` to ``end``.

    ``letters`` are the publication times of their dead letters. A message on the dead letter topic is not UNACKED.
    """
    limit, skew = context.terms.max_redeliveries or 0, context.terms.clock_skew
    served = np.flatnonzero(begin < end)
    first, last, arrived = begin[served], end[served] - 1, letters[served] != NEVER
    codes, exemptions, counts = attempts[CODES], attempts[EXEMPTIONS], attempts[COUNT]
    known, acked, nacked = (attempts[row] != UNKNOWN for row in (AT, ACKED, NACKED))
    codes[last[arrived]] &= ~Code.UNACKED.bit
    published = np.repeat(letters, end - begin)
    by_application = known & acked & ~nacked & (counts <= limit) & (published != NEVER)
    codes[by_application & (attempts[ACKED] < published - skew)] |= Code.DLQ_ACKED.bit

    falls = known & (attempts[NTH] > 0) & (np.diff(counts, prepend=0) < 0)
    at_limit = (counts > limit) | ((counts == limit) & (acked | nacked))  # which is for DLQ_INCOMPLETE
    ended = np.logical_or.reduceat(at_limit, first)
    missed = ~arrived & ~ended & (np.add.reduceat(known.astype(np.int64), first) > limit + 1)
    nacked_count = np.add.reduceat((known & (attempts[PREVIOUS] != Ending.CLOSED)).astype(np.int64), first) - 1
    codes[last[missed]] |= Code.DLQ_MISSED.bit
    restarts = np.add.reduceat(falls.astype(np.int64), first)
    attempts[RESTARTS, last[missed]] = restarts[missed]
    for holds, exemption in (
        (nacked_count <= limit, Exemption.DISCONNECTS_UNCOUNTED),
        (np.logical_or.reduceat(acked, first), Exemption.LAST_ATTEMPT),
        (restarts > 0, Exemption.COUNT_RESTARTED),
        (np.full(len(served), context.dead_letters.rejected), Exemption.LETTERS_REJECTED),
    ):
        exemptions[last[missed & holds]] |= exemption.bit


def find_disorder(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
    """Yield DLQ_ORDER over ``LETTERS`` in ``LETTER_ORDER``: a letter after that of a later message of its key."""
    carried: pa.Table | None = None  # of the latest key, the letter of its latest message
    for rows in gather_batches(batches):
        rows = rows if carried is None else pa.concat_tables([carried, rows])
        if rows.num_rows:
            late, latest = _find_late_letters(rows)
            for i in np.flatnonzero(late & np.asarray(rows["judged"])).tolist():
                (row,), (before,) = rows.slice(i, 1).to_pylist(), rows.slice(latest[i], 1).to_pylist()
                yield _make_order_finding(row, before)
            carried = rows.slice(latest[-1], 1)


def _find_late_letters(rows: pa.Table) -> tuple[Flags, Ints]:
    """Return which letters follow that of a later message of their stream, and the row of the latest message up to each
    letter."""
    n = rows.num_rows
    other = np.zeros(n, np.bool_)
    for name in ("topic", "partition", "key"):
        codes = np.asarray(rows[name].combine_chunks().dictionary_encode().indices)
        other[1:] |= codes[1:] != codes[:-1]
    origins = np.stack([ints(rows, name) for name in ("origin_ledger", "origin_entry", "origin_batch_index")])
    rank = np.unique(origins, axis=1, return_inverse=True)[1].reshape(n)
    height = np.cumsum(other) * n + rank  # every stream above the one before, so one running maximum does
    highest = np.maximum.accumulate(height)
    rises = np.append(True, highest[1:] > highest[:-1])
    return height < highest, np.maximum.accumulate(np.where(rises, np.arange(n), 0))


def _make_missing_finding(row: Mapping[str, Any], exemption: Exemption, dates: bool) -> Finding:
    at, where = format_clock(row["at"], dates), format_position(*_get_position(row))
    return Finding(
        Code.DLQ_INCOMPLETE,
        Scope(row["topic"], row["partition"]),
        row["at"],
        f"{where} of key {row['key'] or '(none)'} was last delivered to {row['consumer']} at {at} with redelivery "
        f"count {row['redelivery_count']}, and no dead letter names it",
        _explain_missing(row),
        _get_position(row),
        row["consumer"],
        row["key"],
        evidence=(f"{where} at {row['consumer']} ({at})",),
        exemption=exemption,
    )


def _explain_missing(row: Mapping[str, Any]) -> str:
    if row["nacked"]:
        return f"{row['consumer']} negatively acknowledged it" + (" and acknowledged it" if row["acked"] else "")
    return f"{row['consumer']} acknowledged it" if row["acked"] else "unexplained"


def _make_order_finding(row: Mapping[str, Any], before: Mapping[str, Any]) -> Finding:
    message, later = format_position(*_get_origin(row)), format_position(*_get_origin(before))
    return Finding(
        Code.DLQ_ORDER,
        Scope(row["topic"], row["partition"]),
        row["published"],
        f"dead letter {format_position(*_get_position(row))} is message {message} of key {row['key']}, and the later "
        f"message {later} precedes it on the dead letter topic",
        "each consumer sends its own dead letters",
        _get_origin(row),
        key=row["key"],
        evidence=(f"dead letter {format_position(*_get_position(before))}",),
    )


def _get_position(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["ledger"], row["entry"], row["batch_index"]


def _get_origin(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["origin_ledger"], row["origin_entry"], row["origin_batch_index"]
