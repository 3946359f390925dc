"""Dead letters: what was given up arrives on the dead letter topic.

Rows come from wherever they are joined (``audit.lost_letters``), stream through and leave as findings;
what is carried from batch to batch is one row.
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
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, gathered, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import clock, position

RULES = (
    Rule(
        Code.DLQ_ORDER,
        "Dead letters of a key out of order",
        "Messages of one key stand on the dead letter topic in the order of their own log; nobody promises it.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        allowed=MANY,
        needs=frozenset({Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_INCOMPLETE,
        "Given up and not on the dead letter topic",
        "A message given back at its last attempt, or delivered beyond it, stands on the dead letter topic.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_MISSED,
        "Delivered more often than the dead letter policy allows",
        "A message comes maxRedeliverCount + 1 times at most, and is then a dead letter. A redelivery count that "
        "starts anew, or never rises, keeps the policy from acting.",
        "InMemoryRedeliveryTracker, ConsumerImpl.processPossibleToDLQ (4.0.8): the count is lost with the dispatcher's "
        "consumers; row D-DLQ-1",
        sentence="{message} of key {key} was delivered {times} times, last to {consumer} at {at}, under a policy of "
        "{max_redeliveries} redeliveries, and is no dead letter: its redelivery count {count}",
        promised=MANY,
        needs=frozenset({Need.DELIVERIES, Need.EVERY_DELIVERY, Need.DEAD_LETTER_POLICY}),
    ),
    Rule(
        Code.DLQ_ACKED,
        "A dead letter of an acknowledged message",
        "A message that was acknowledged does not go to the dead letter topic: it was processed, and is processed "
        "again from there. (A client acknowledges a message itself once its dead letter is stored.)",
        "ConsumerImpl.possibleSendToDeadLetterTopicMessages (4.0.8); apache/pulsar#26125; row D-DLQ-1",
        sentence="{message} of key {key} was acknowledged by {consumer} at {acked}, and it is a dead letter, too",
        cause="its client sends what it had noted for the dead letter topic, also if it was acknowledged since",
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
        pa.field("nacked", pa.bool_()),  # its last delivery was given back, as broker or application recorded
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
"""Messages of the dead letter topic that have a key, with what they were."""
STREAM = ("topic", "partition", "key", "ledger", "entry", "batch_index")
"""The order in which ``LETTERS`` are read: key by key, each as the dead letter topic has it."""


def incomplete(
    batches: Iterable[pa.RecordBatch], max_redeliveries: int, rejected: bool = False, dates: bool = False
) -> Iterator[Finding]:
    """DLQ_INCOMPLETE over ``EXHAUSTED``, where ``max_redeliveries`` is ``DeadLetterPolicy.maxRedeliverCount``.

    A message that was acknowledged at its last attempt may have been processed there: excused. One that is still
    outstanding is not given up yet. ``rejected``: dead letters are in quarantine.
    """
    missing = Exemption.LETTERS_REJECTED if rejected else Exemption.NONE
    for batch in batches:
        for row in batch.to_pylist():
            given_up = row["nacked"] or row["redelivery_count"] > max_redeliveries
            if given_up or row["acked"]:
                yield _missing(row, missing if given_up else Exemption.LAST_ATTEMPT, dates)


def by_policy(attempts: Ints, begin: Ints, end: Ints, letters: Ints, context: Context) -> None:
    """DLQ_MISSED and DLQ_ACKED over the attempts (``redelivery``) of messages, each from ``begin`` to ``end``, whose
    dead letters were published at these times; and what is on the dead letter topic is not UNACKED."""
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
    given_back = np.add.reduceat((known & (attempts[PREVIOUS] != Ending.CLOSED)).astype(np.int64), first) - 1
    codes[last[missed]] |= Code.DLQ_MISSED.bit
    restarts = np.add.reduceat(falls.astype(np.int64), first)
    attempts[RESTARTS, last[missed]] = restarts[missed]
    for holds, exemption in (
        (given_back <= limit, Exemption.DISCONNECTS_UNCOUNTED),
        (np.logical_or.reduceat(acked, first), Exemption.LAST_ATTEMPT),
        (restarts > 0, Exemption.COUNT_RESTARTED),
        (np.full(len(served), context.dead_letters.rejected), Exemption.LETTERS_REJECTED),
    ):
        exemptions[last[missed & holds]] |= exemption.bit


def disorder(batches: Iterable[pa.RecordBatch]) -> Iterator[Finding]:
    """DLQ_ORDER over ``LETTERS`` in the order ``STREAM``: a letter behind that of a later message of its key."""
    carried: pa.Table | None = None  # of the latest key, the letter of its latest message
    for rows in gathered(batches):
        rows = rows if carried is None else pa.concat_tables([carried, rows])
        if rows.num_rows:
            late, latest = _behind(rows)
            for i in np.flatnonzero(late & np.asarray(rows["judged"])).tolist():
                (row,), (before,) = rows.slice(i, 1).to_pylist(), rows.slice(latest[i], 1).to_pylist()
                yield _out_of_order(row, before)
            carried = rows.slice(latest[-1], 1)


def _behind(rows: pa.Table) -> tuple[Flags, Ints]:
    """Which letters stand behind that of a later message of their stream; and of each, the row of the latest message up
    to it."""
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


def _missing(row: Mapping[str, Any], exemption: Exemption, dates: bool) -> Finding:
    return Finding(
        Code.DLQ_INCOMPLETE,
        Scope(row["topic"], row["partition"]),
        row["at"],
        f"{position(*_position(row))} of key {row['key'] or '(none)'} was last delivered to {row['consumer']} at "
        f"{clock(row['at'], dates)} with redelivery count {row['redelivery_count']}, and no dead letter names it",
        _why_missing(row),
        _position(row),
        row["consumer"],
        row["key"],
        evidence=(f"{position(*_position(row))} at {row['consumer']} ({clock(row['at'], dates)})",),
        exemption=exemption,
    )


def _why_missing(row: Mapping[str, Any]) -> str:
    if row["nacked"]:
        return f"{row['consumer']} gave it back" + (" and acknowledged it" if row["acked"] else "")
    return f"{row['consumer']} acknowledged it" if row["acked"] else "unexplained"


def _out_of_order(row: Mapping[str, Any], before: Mapping[str, Any]) -> Finding:
    return Finding(
        Code.DLQ_ORDER,
        Scope(row["topic"], row["partition"]),
        row["published"],
        f"the dead letter {position(*_position(row))} is {position(*_origin(row))} of key {row['key']}; the later "
        f"{position(*_origin(before))} stands before it",
        "each consumer gives up its messages by itself",
        _origin(row),
        key=row["key"],
        evidence=(f"dead letter {position(*_position(before))}",),
    )


def _position(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["ledger"], row["entry"], row["batch_index"]


def _origin(row: Mapping[str, Any]) -> tuple[int, int, int]:
    return row["origin_ledger"], row["origin_entry"], row["origin_batch_index"]
