"""Rows of capture files against their contract: each is valid, or rejected with every reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.capture.joins import ranks
from subreplay.capture.events import EVENTS, KAFKA, Event
from subreplay.rows.model.columns import Ints, ints
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    ENTRY,
    HAPPENED,
    KEYS,
    LEDGER,
    OF_A_LEDGER,
    PARTITION,
    REDELIVERY_COUNT,
    SEQ,
    SIZE,
    Numbers,
    shortened,
)

Mask = NDArray[np.bool_]
PLACED: Final = (Event.RECEIVE, Event.ACKNOWLEDGE, Event.ACKNOWLEDGE_CUMULATIVE, Event.NEGATIVE_ACKNOWLEDGE)
"""Events about one message."""
NUMBERED: Final = pa.schema(
    [f.with_nullable(True) for f in EVENTS]
    + [pa.field("file", pa.string()), pa.field("file_number", pa.int32()), pa.field("row", pa.int64())]
)
"""Events with the name and number of their file, and their row numbers, from 1: where to look for a rejected row."""
VALID: Final = pa.schema([f.with_type(pa.int64()) if f.name == "partition" else f for f in NUMBERED])
"""Valid ones, with the whole topic and its partition."""
LEDGERS: Final = pa.schema([("instance", pa.string()), ("ledger", pa.int64()), ("topic", pa.string()),
                            ("partition", pa.int64()), ("file_number", pa.int32()), ("row", pa.int64())])  # fmt: skip
"""Of which partition a ledger is that an instance has events of, and which event says so."""
_NAMES: Final = ("library", "instance", "subscription", "consumer", "event")
_MOMENTS: Final = Numbers(HAPPENED.least * 1_000, HAPPENED.most * 1_000 + 999, HAPPENED.rule, "check its unit (ns)")
_PUBLISHED: Final = Numbers(-(-HAPPENED.least // 1_000), HAPPENED.most // 1_000, HAPPENED.rule, "check its unit (ms)")
_AGAIN: Final = "record again with the release that reads it, or correct the row"


@dataclass
class Checks:
    """Which rows of a table break which rules; ``given`` are the same rows as they stand in their files."""

    events: pa.Table
    given: pa.Table
    reasons: dict[int, list[Reason]] = field(default_factory=dict)

    def add(self, rows: Mask, column: str, rule: str, remedy: str) -> None:
        """These rows break a rule about a column."""
        for row in np.flatnonzero(rows).tolist():
            value = self.events[column][row].as_py()
            shown = f"({len(value):,} bytes)" if column in KEYS and value is not None else shortened(str(value), 200)
            self.reasons.setdefault(row, []).append(Reason(column, "null" if value is None else shown, rule, remedy))

    def range(self, rows: Mask, column: str, legal: Numbers) -> None:
        """Of these rows, those whose value is null or outside its range break it."""
        values, null = ints(self.events, column, 0), nulls(self.events, column)
        self.add(rows & (null | (values < legal.least) | (values > legal.most)), column, legal.rule, legal.remedy)

    def rejected(self, table: str) -> Iterator[Rejected]:
        """The rows that broke a rule, in order."""
        for row, reasons in sorted(self.reasons.items()):
            values = self.given.slice(row, 1).to_pylist()[0]
            shown = {name: values[name] for name in EVENTS.names}
            yield Rejected(table, values["file"], values["row"], _raw(shown), tuple(reasons))

    @property
    def valid(self) -> Mask:
        """Rows that broke none."""
        found = np.ones(len(self.events), np.bool_)
        found[list(self.reasons)] = False
        return found


def checked(events: pa.Table, ledgers: pa.Table) -> tuple[pa.Table, Checks]:
    """Valid events with whole ``topic`` and ``partition``, and the checks of all. ``ledgers`` (``LEDGERS``) tell the
    topics of those that name a ledger only. All events of one number of an instance have to be there, in order."""
    checks = Checks(with_partitions(events, ledgers), events)
    events = checks.events
    known = np.ones(len(events), np.bool_)
    for name in _NAMES:
        empty = mask_of(pc.equal(pc.fill_null(events[name], ""), ""))
        checks.add(empty, name, "it is not empty", _AGAIN)
    strange = ~mask_of(pc.is_in(events["event"], pa.array([event.value for event in Event])))
    checks.add(strange, "event", "it is an event of capture files", _AGAIN)
    checks.range(known, "seq", SEQ)
    checks.range(known, "at_ns", _MOMENTS)
    checks.add(_repeated(events), "seq", "the event is there already", "give each file once")

    unread = are(events, Event.RECEIVE) & ~nulls(events, "error")
    checks.add(unread, "error", "the message could be read", "see what its client and its key say")
    placed = are(events, *PLACED) & nulls(events, "error")
    of_kafka = mask_of(pc.equal(events["library"], KAFKA))
    checks.range(placed, "ledger", LEDGER)
    checks.range(placed & of_kafka, "entry", ENTRY)
    checks.range(placed & ~of_kafka, "entry", OF_A_LEDGER)
    checks.range(placed, "batch_index", BATCH_INDEX)
    checks.range(are(events, Event.RECEIVE) & ~unread, "redelivery_count", REDELIVERY_COUNT)

    told = ~nulls(events, "topic")
    checks.add(placed & ~told, "topic", "a receipt of its ledger tells the topic of a message id",
               "record the consumer from its beginning, or acknowledge messages")  # fmt: skip
    scoped = are(events, *PLACED, Event.START, Event.ASSIGN, Event.REVOKE, Event.LOST, Event.COMMIT)
    checks.range(scoped & told, "partition", PARTITION)
    return events.filter(pa.array(checks.valid)), checks


def seen_messages(receipts: pa.Table) -> tuple[pa.Table, Checks]:
    """One receipt of each message that was seen, and the checks of all: what a message needs beside a delivery."""
    checks = Checks(receipts, receipts)
    every = np.ones(len(receipts), np.bool_)
    checks.range(every, "publish_time_ms", _PUBLISHED)
    checks.range(every, "size", SIZE)
    message = ranks(
        codes(receipts, "topic"), *(ints(receipts, name) for name in ("partition", "ledger", "entry", "batch_index"))
    )
    content = ranks(*(codes(receipts, name) for name in (*KEYS[:2], "producer", "publish_time_ms", "size")))
    order = np.lexsort((ints(receipts, "at_ns"), message))
    first = order[np.searchsorted(message[order], message)]  # of each row's message
    differs = np.zeros(len(receipts), np.bool_)
    differs[first[content != content[first]]] = True
    checks.add(differs[first], "entry", "one position, two contents", "record all consumers with the same key_secret")
    once = checks.valid & (first == np.arange(len(receipts)))
    return receipts.filter(pa.array(once)), checks


def are(events: pa.Table, *kinds: Event) -> Mask:
    """Which rows are events of these kinds."""
    return mask_of(pc.is_in(events["event"], pa.array([kind.value for kind in kinds])))


def with_partitions(events: pa.Table, ledgers: pa.Table) -> pa.Table:
    """Events with their topic as a whole and its partition. Where a message id alone was acknowledged, the receipts of
    its ledger tell both, as a ledger is of one partition."""
    topic, partition = _named(events)
    silent = np.flatnonzero(nulls(events, "topic") & ~nulls(events, "ledger"))
    taken = np.arange(len(events))
    if len(silent):
        keys = ["instance", "ledger"]
        both = pa.concat_tables([events.select(keys).take(pa.array(silent)), ledgers.select(keys)])
        owner = ranks(codes(both, "instance"), ints(both, "ledger"))
        teller = np.full(len(both), -1, np.int64)
        teller[owner[len(silent) :]] = np.arange(len(ledgers)) + len(events)
        taken[silent] = teller[owner[: len(silent)]]
    source = pa.array(taken, mask=taken < 0)
    for name, own in (("topic", topic), ("partition", partition)):
        told = pa.chunked_array([own, *ledgers[name].chunks], own.type).take(source)
        events = events.set_column(events.schema.get_field_index(name), name, told)
    return events


def of_ledgers(events: pa.Table) -> pa.Table:
    """What the last event of each ledger of an instance that tells its topic says of it (``LEDGERS``)."""
    topic, partition = _named(events)
    told = pa.table([events["instance"], events["ledger"], topic, partition, events["file_number"], events["row"]],
                    schema=LEDGERS)  # fmt: skip
    return last_of_ledgers(told.filter(pa.array(~nulls(told, "topic") & ~nulls(told, "ledger"))))


def last_of_ledgers(told: pa.Table) -> pa.Table:
    """The last row of each ledger of an instance, of ``LEDGERS`` of any number of files."""
    owner = ranks(codes(told, "instance"), ints(told, "ledger"))
    order = np.lexsort((ints(told, "row"), ints(told, "file_number"), owner))
    last = np.append(np.diff(owner[order]) != 0, True)[: len(order)]
    return told.take(pa.array(order[last]))


def _named(events: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Topics as a whole and their partitions. Pulsar's name of a partition tells both."""
    named = pc.dictionary_encode(events["topic"].combine_chunks())
    pairs = [base_topic(topic) for topic in named.dictionary.to_pylist()]
    of_kafka = pa.array(mask_of(pc.equal(events["library"], KAFKA)))
    whole = pa.array([pair[0] for pair in pairs], pa.string()).take(named.indices)
    numbers = pa.array([pair[1] for pair in pairs], pa.int64()).take(named.indices)
    topic = pc.if_else(of_kafka, events["topic"].combine_chunks(), whole)
    return topic, pc.if_else(of_kafka, events["partition"].combine_chunks().cast(pa.int64()), numbers)


def _repeated(events: pa.Table) -> Mask:
    """Events that are there already, as where a file was copied."""
    seq = ints(events, "seq")
    of_one = ranks(codes(events, "instance"), seq)
    _, first = np.unique(of_one, return_index=True)
    found = np.ones(len(events), np.bool_)
    found[first] = False
    return found & ~nulls(events, "seq")


def codes(events: pa.Table, name: str) -> Ints:
    """A number for each distinct value of a column; -1 for null."""
    coded = pc.dictionary_encode(events[name].combine_chunks())
    return np.array(pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False), np.int64)


def nulls(events: pa.Table, name: str) -> Mask:
    return mask_of(pc.is_null(events[name]))


def mask_of(values: pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def _raw(row: dict[str, Any]) -> str:
    """A row as it may leave: of keys their length only."""
    shown = {name: f"({len(v):,} bytes)" if name in KEYS and v is not None else v for name, v in row.items()}
    return shortened(json.dumps({name: value for name, value in shown.items() if value is not None}, default=str))
