"""Check the rows of capture files against their contract: each is valid, or rejected with every reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.capture.event_joins import rank_rows
from subreplay.capture.file_format import EVENTS, KAFKA, CaptureEvent
from subreplay.rows.model.columns import Ints, ints
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    ENTRY,
    HAPPENED,
    KEYS,
    LEDGER,
    LEDGER_ENTRY,
    PARTITION,
    REDELIVERY_COUNT,
    SEQ,
    SIZE,
    NumberRange,
    shorten,
)

Mask = NDArray[np.bool_]
MESSAGE_EVENTS: Final = (
    CaptureEvent.RECEIVE,
    CaptureEvent.ACKNOWLEDGE,
    CaptureEvent.ACKNOWLEDGE_CUMULATIVE,
    CaptureEvent.NEGATIVE_ACKNOWLEDGE,
    CaptureEvent.REJECT,
    CaptureEvent.ACKNOWLEDGEMENT_REFUSED,
)
"""The events that concern one message."""
NUMBERED_EVENTS: Final = pa.schema(
    [f.with_nullable(True) for f in EVENTS]
    + [pa.field("file", pa.string()), pa.field("file_number", pa.int32()), pa.field("row", pa.int64())]
)
"""Events with the name and number of their file and their row number (from 1), which locate a rejected row."""
VALID_EVENTS: Final = pa.schema([f.with_type(pa.int64()) if f.name == "partition" else f for f in NUMBERED_EVENTS])
"""Valid events, with the topic without its partition, and the partition."""
LEDGERS: Final = pa.schema([("instance", pa.string()), ("ledger", pa.int64()), ("topic", pa.string()),
                            ("partition", pa.int64()), ("file_number", pa.int32()), ("row", pa.int64())])  # fmt: skip
"""The topic partition of each ledger in the events of an instance, and the event that shows it."""
_NAMES: Final = ("library", "instance", "subscription", "consumer", "event")
_NANOS: Final = NumberRange(HAPPENED.least * 1_000, HAPPENED.most * 1_000 + 999, HAPPENED.rule, "check its unit (ns)")
_MILLIS: Final = NumberRange(-(-HAPPENED.least // 1_000), HAPPENED.most // 1_000, HAPPENED.rule, "check its unit (ms)")
_RECORD_AGAIN: Final = "record again with the subreplay release that reads the file, or correct the row"


@dataclass
class EventChecks:
    """The rule checks of a table. ``original`` are the same rows as their files contain them."""

    events: pa.Table
    original: pa.Table
    reasons: dict[int, list[Reason]] = field(default_factory=dict)

    def add(self, rows: Mask, column: str, rule: str, remedy: str) -> None:
        """Reject these rows for breaking a rule about a column."""
        for row in np.flatnonzero(rows).tolist():
            value = self.events[column][row].as_py()
            shown = f"({len(value):,} bytes)" if column in KEYS and value is not None else shorten(str(value), 200)
            self.reasons.setdefault(row, []).append(Reason(column, "null" if value is None else shown, rule, remedy))

    def check_range(self, rows: Mask, column: str, legal: NumberRange) -> None:
        """Reject those of these rows whose value is null or outside the legal range."""
        values, null = ints(self.events, column, 0), is_null(self.events, column)
        self.add(rows & (null | (values < legal.least) | (values > legal.most)), column, legal.rule, legal.remedy)

    def build_rejected_rows(self, table: str) -> Iterator[RejectedRow]:
        """Yield the rows that broke a rule, in order."""
        for row, reasons in sorted(self.reasons.items()):
            values = self.original.slice(row, 1).to_pylist()[0]
            shown = {name: values[name] for name in EVENTS.names}
            yield RejectedRow(table, values["file"], values["row"], _mask_keys(shown), tuple(reasons))

    @property
    def valid(self) -> Mask:
        """The rows that broke no rule."""
        found = np.ones(len(self.events), np.bool_)
        found[list(self.reasons)] = False
        return found


def check_events(events: pa.Table, ledgers: pa.Table) -> tuple[pa.Table, EventChecks]:
    """Check events, and return the valid ones with all checks. ``ledgers`` (``LEDGERS``) contain the topics of events
    that name only a ledger. All events of one number of an instance must be present, in order."""
    checks = EventChecks(split_topics(events, ledgers), events)
    events = checks.events
    known = np.ones(len(events), np.bool_)
    for name in _NAMES:
        empty = to_mask(pc.equal(pc.fill_null(events[name], ""), ""))
        checks.add(empty, name, "the value must not be empty", _RECORD_AGAIN)
    unknown = ~to_mask(pc.is_in(events["event"], pa.array([event.value for event in CaptureEvent])))
    checks.add(unknown, "event", "the value must be an event of capture files", _RECORD_AGAIN)
    checks.check_range(known, "seq", SEQ)
    checks.check_range(known, "at_ns", _NANOS)
    checks.add(_find_repeated(events), "seq", "an event must occur once", "pass each capture file once")

    unread = is_event(events, CaptureEvent.RECEIVE) & ~is_null(events, "error")
    checks.add(unread, "error", "the client must be able to read the message", "fix the error of the client or its key")
    placed = is_event(events, *MESSAGE_EVENTS) & is_null(events, "error")
    of_kafka = to_mask(pc.equal(events["library"], KAFKA))
    checks.check_range(placed, "ledger", LEDGER)
    checks.check_range(placed & of_kafka, "entry", ENTRY)
    checks.check_range(placed & ~of_kafka, "entry", LEDGER_ENTRY)
    checks.check_range(placed, "batch_index", BATCH_INDEX)
    checks.check_range(is_event(events, CaptureEvent.RECEIVE) & ~unread, "redelivery_count", REDELIVERY_COUNT)

    has_topic = ~is_null(events, "topic")
    checks.add(placed & ~has_topic, "topic", "a receipt of the same ledger must show the topic of a message id",
               "record the consumer from its start, or acknowledge messages instead of ids")  # fmt: skip
    scoped = is_event(
        events,
        *MESSAGE_EVENTS,
        CaptureEvent.START,
        CaptureEvent.ASSIGN,
        CaptureEvent.REVOKE,
        CaptureEvent.LOST,
        CaptureEvent.COMMIT,
    )
    checks.check_range(scoped & has_topic, "partition", PARTITION)
    return events.filter(pa.array(checks.valid)), checks


def select_messages(receipts: pa.Table) -> tuple[pa.Table, EventChecks]:
    """Select one receipt of each message, and check what a message needs besides its delivery."""
    checks = EventChecks(receipts, receipts)
    every = np.ones(len(receipts), np.bool_)
    checks.check_range(every, "publish_time_ms", _MILLIS)
    checks.check_range(every, "size", SIZE)
    message = rank_rows(
        encode_column(receipts, "topic"),
        *(ints(receipts, name) for name in ("partition", "ledger", "entry", "batch_index")),
    )
    content = rank_rows(*(encode_column(receipts, name) for name in (*KEYS[:2], "producer", "publish_time_ms", "size")))
    order = np.lexsort((ints(receipts, "at_ns"), message))
    first = order[np.searchsorted(message[order], message)]  # of each row's message
    differs = np.zeros(len(receipts), np.bool_)
    differs[first[content != content[first]]] = True
    checks.add(differs[first], "entry", "the messages at one position must be equal",
               "record all consumers with the same key_secret")  # fmt: skip
    once = checks.valid & (first == np.arange(len(receipts)))
    return receipts.filter(pa.array(once)), checks


def is_event(events: pa.Table, *kinds: CaptureEvent) -> Mask:
    """Mark the rows that are events of these kinds."""
    return to_mask(pc.is_in(events["event"], pa.array([kind.value for kind in kinds])))


def split_topics(events: pa.Table, ledgers: pa.Table) -> pa.Table:
    """Split the topics of events into topic and partition. Where the application acknowledged a message id, the
    receipts of its ledger show both, because a ledger belongs to one partition."""
    topic, partition = _split_topic_names(events)
    silent = np.flatnonzero(is_null(events, "topic") & ~is_null(events, "ledger"))
    taken = np.arange(len(events))
    if len(silent):
        keys = ["instance", "ledger"]
        both = pa.concat_tables([events.select(keys).take(pa.array(silent)), ledgers.select(keys)])
        owner = rank_rows(encode_column(both, "instance"), ints(both, "ledger"))
        row_of_ledger = np.full(len(both), -1, np.int64)
        row_of_ledger[owner[len(silent) :]] = np.arange(len(ledgers)) + len(events)
        taken[silent] = row_of_ledger[owner[: len(silent)]]
    source = pa.array(taken, mask=taken < 0)
    for name, own in (("topic", topic), ("partition", partition)):
        values = pa.chunked_array([own, *ledgers[name].chunks], own.type).take(source)
        events = events.set_column(events.schema.get_field_index(name), name, values)
    return events


def find_ledger_topics(events: pa.Table) -> pa.Table:
    """Find the topic of each ledger of an instance from its last event with a topic (``LEDGERS``)."""
    topic, partition = _split_topic_names(events)
    found = pa.table([events["instance"], events["ledger"], topic, partition, events["file_number"], events["row"]],
                     schema=LEDGERS)  # fmt: skip
    return select_last_of_ledgers(found.filter(pa.array(~is_null(found, "topic") & ~is_null(found, "ledger"))))


def select_last_of_ledgers(rows: pa.Table) -> pa.Table:
    """Select the last row of each ledger of an instance from ``LEDGERS`` of any number of files."""
    owner = rank_rows(encode_column(rows, "instance"), ints(rows, "ledger"))
    order = np.lexsort((ints(rows, "row"), ints(rows, "file_number"), owner))
    last = np.append(np.diff(owner[order]) != 0, True)[: len(order)]
    return rows.take(pa.array(order[last]))


def _split_topic_names(events: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return topics without partitions, and partitions. Pulsar's name of a topic partition contains both."""
    named = pc.dictionary_encode(events["topic"].combine_chunks())
    pairs = [split_topic(topic) for topic in named.dictionary.to_pylist()]
    of_kafka = pa.array(to_mask(pc.equal(events["library"], KAFKA)))
    whole = pa.array([pair[0] for pair in pairs], pa.string()).take(named.indices)
    numbers = pa.array([pair[1] for pair in pairs], pa.int64()).take(named.indices)
    topic = pc.if_else(of_kafka, events["topic"].combine_chunks(), whole)
    return topic, pc.if_else(of_kafka, events["partition"].combine_chunks().cast(pa.int64()), numbers)


def _find_repeated(events: pa.Table) -> Mask:
    """Mark events that occurred before, as in a copied file."""
    seq = ints(events, "seq")
    of_one = rank_rows(encode_column(events, "instance"), seq)
    _, first = np.unique(of_one, return_index=True)
    found = np.ones(len(events), np.bool_)
    found[first] = False
    return found & ~is_null(events, "seq")


def encode_column(events: pa.Table, name: str) -> Ints:
    """Number the distinct values of a column; null is -1."""
    coded = pc.dictionary_encode(events[name].combine_chunks())
    return np.array(pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False), np.int64)


def is_null(events: pa.Table, name: str) -> Mask:
    return to_mask(pc.is_null(events[name]))


def to_mask(values: pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def _mask_keys(row: dict[str, Any]) -> str:
    """Mask a row for quarantine: keep only the length of keys."""
    shown = {name: f"({len(v):,} bytes)" if name in KEYS and v is not None else v for name, v in row.items()}
    return shorten(json.dumps({name: value for name, value in shown.items() if value is not None}, default=str))
