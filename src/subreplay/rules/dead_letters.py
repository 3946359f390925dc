"""Dead letters: what was given up arrives on the dead letter topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from subreplay.model import Scope
from subreplay.rules.codes import MANY, Code, Excuse, Rule
from subreplay.rules.findings import Finding
from subreplay.words import clock, position

RULES = (
    Rule(
        Code.DLQ_ORDER,
        "Dead letters of a key out of order",
        "Messages of one key stand on the dead letter topic in the order of their own log; nobody promises it.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        allowed=MANY,
    ),
    Rule(
        Code.DLQ_INCOMPLETE,
        "Given up and not on the dead letter topic",
        "A message given back at its last attempt, or delivered beyond it, stands on the dead letter topic.",
        "ConsumerImpl.processPossibleToDLQ (3.2.3, 4.0.8); row D-DLQ-1",
        promised=MANY,
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
"""Messages whose highest redelivery count reached the maximum; one row each."""

LETTERS = pa.schema(
    [
        pa.field("topic", pa.string()),  # they came from (property REAL_TOPIC), and where there
        pa.field("partition", pa.int32()),
        pa.field("origin_ledger", pa.int64()),  # property ORIGIN_MESSAGE_ID
        pa.field("origin_entry", pa.int64()),
        pa.field("origin_batch_index", pa.int32()),
        pa.field("ledger", pa.int64()),  # on the dead letter topic
        pa.field("entry", pa.int64()),
        pa.field("batch_index", pa.int32()),
        pa.field("key", pa.string()),  # in words
        pa.field("published", pa.int64()),  # ns
    ]
)
"""Messages of the dead letter topic, with what they were."""


def dead_letters(exhausted: pa.Table, letters: pa.Table, max_redeliveries: int) -> Iterator[Finding]:
    """DLQ_INCOMPLETE over ``EXHAUSTED``, DLQ_ORDER over ``LETTERS``.

    A message that was acknowledged at its last attempt may have been processed there: excused. One that is still
    outstanding is not given up yet.
    """
    arrived = {(r["topic"], r["partition"], *_origin(r)) for r in letters.to_pylist()}
    for row in exhausted.to_pylist():
        beyond = row["redelivery_count"] > max_redeliveries
        if (row["topic"], row["partition"], *_place(row)) in arrived or not (beyond or row["nacked"] or row["acked"]):
            continue
        yield _missing(row, Excuse.NONE if beyond or row["nacked"] else Excuse.LAST_ATTEMPT)
    yield from _out_of_order(letters)


def _missing(row: dict[str, Any], excuse: Excuse) -> Finding:
    return Finding(
        Code.DLQ_INCOMPLETE,
        Scope(row["topic"], row["partition"]),
        row["at"],
        f"{position(*_place(row))} of key {row['key'] or '(none)'} was last delivered to {row['consumer']} at "
        f"{clock(row['at'])} with redelivery count {row['redelivery_count']}, and no dead letter names it",
        "unexplained",
        _place(row),
        row["consumer"],
        row["key"],
        excuse=excuse,
    )


def _out_of_order(letters: pa.Table) -> Iterator[Finding]:
    latest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(letters.to_pylist(), key=_place):
        stream = row["topic"], row["partition"], row["key"]
        before = latest.get(stream)
        if before is None or _origin(row) > _origin(before):
            latest[stream] = row
        elif row["key"] is not None:
            yield Finding(
                Code.DLQ_ORDER,
                Scope(row["topic"], row["partition"]),
                row["published"],
                f"the dead letter {position(*_place(row))} is {position(*_origin(row))} of key {row['key']}; the later "
                f"{position(*_origin(before))} stands before it",
                "each consumer gives up its messages by itself",
                _origin(row),
                key=row["key"],
                witness=(f"dead letter {position(*_place(before))}",),
            )


def _place(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["ledger"], row["entry"], row["batch_index"]


def _origin(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["origin_ledger"], row["origin_entry"], row["origin_batch_index"]
