"""Decide the outcome of each span: a delivery, a rejected row, or a count."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, RejectedRow
from subreplay.adapters.canonical import split_topic
from subreplay.adapters.capture.event_checks import Mask
from subreplay.adapters.capture.event_joins import rank_rows
from subreplay.adapters.otlp.duplicate_spans import find_repeated, find_unnamed_duplicates, find_worse_spans
from subreplay.adapters.otlp.otlp_json import SPANS
from subreplay.adapters.otlp.span_columns import (
    combine_chunks,
    drop_empty_texts,
    encode_values,
    nanos_to_times,
    parse_numbers,
    rank_texts,
    select_numbers,
    to_ints,
    to_mask,
)
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    ENTRY,
    HAPPENED,
    LEDGER,
    LEDGER_ENTRY,
    PARTITION,
    NumberRange,
    shorten,
)
from subreplay.rows.model.tables import DELIVERIES, TIME

ACK_TYPES: Final = {"acknowledge": "Individual", "cumulative_acknowledge": "Cumulative"}
NACK_TYPES: Final = ("negative_acknowledge", "ack_timeout")
"""The values of ``messaging.pulsar.acknowledgment.type`` (Java client, ``OpenTelemetryConsumerInterceptor``)."""

RECEIPTS: Final = pa.schema(
    [f.with_nullable(True) for f in DELIVERIES] + [pa.field("process", pa.string()), pa.field("received", pa.int64())]
)
"""Deliveries without ``seq`` and ``instance``, with the process of the consumer and the time (ns) of the receipt."""
OUTCOMES: Final = pa.schema([("file", pa.string()), ("outcome", pa.string()), ("count", pa.int64())])

_PROCESS: Final = "process"
_RECEIVE: Final = ("receive", "poll")
# ``ledger:entry:partition[:batch]``; the id of a chunked message ends with the id of its last chunk
_MESSAGE_ID: Final = (
    r"^(?:[^;]*;)?(?P<ledger>\d{1,19}):(?P<entry>\d{1,19}):(?P<partition>-1|\d{1,18})"
    r"(?::(?P<batch_index>-1|\d{1,18}))?$"
)
_NANOS: Final = NumberRange(HAPPENED.least * 1_000, HAPPENED.most * 1_000 + 999, HAPPENED.rule, "check its unit (ns)")
_SUBSCRIPTION_REMEDY: Final = (
    "pass the subscription of these spans, or export them with the stable semantic conventions"
)


@dataclass(frozen=True)
class SpanSelection:
    """The spans to read, and the subscription of spans that contain none.

    ``topics`` and ``subscriptions`` select spans (None: all); the other spans are only counted. The agent's Pulsar
    spans with the default conventions have no subscription, so they take ``subscription``.
    """

    topics: Collection[str] | None = None
    subscriptions: Collection[str] | None = None
    subscription: str | None = None


@dataclass
class SpanOutcomes:
    """The spans of a batch with their outcomes. ``outcome`` is a name of ``SpanCounts``, or empty while it is open.

    The attributes of a span alone decide first. ``close_repeated`` then needs all spans of one id, and
    ``close_duplicates`` all spans of one message at a consumer. ``check`` comes last.
    """

    spans: pa.Table
    selection: SpanSelection
    reasons: dict[int, list[Reason]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spans = self.spans.combine_chunks()
        self.count = len(self.spans)
        self.outcome = np.full(self.count, "", "U11")
        self.kafka = self._is("system", "kafka")
        self.process = self._is("operation", _PROCESS)
        self.receive = to_mask(pc.is_in(self["operation"], pa.array(_RECEIVE)))
        self._parse_positions()
        self._identify_consumers()
        self._close(~(self.process | self.receive), "others")
        self._close_unselected()
        nowhere = self._is_null("offset") & self._is_null("message_id")
        self._close(nowhere & (self.receive | ~self._is_null("batch_size")), "batches")
        self._parse_times()

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.spans[name]

    def _is(self, name: str, value: str) -> Mask:
        return to_mask(pc.equal(self[name], value))

    def _is_null(self, name: str) -> Mask:
        return to_mask(pc.is_null(self[name]))

    @property
    def position(self) -> tuple[Ints, Ints, Ints, Ints]:
        """The position of each span's message: partition, ledger, entry and batch index."""
        return self.partition, self.ledger, self.entry, self.batch_index

    def _close(self, rows: Mask, outcome: str) -> None:
        self.outcome[rows & self.open] = outcome

    @property
    def open(self) -> Mask:
        return np.asarray(self.outcome == "", np.bool_)

    def _parse_positions(self) -> None:
        """Parse the position of each span's message. ``odd_id`` marks message ids that cannot be parsed."""
        names = pc.dictionary_encode(self["topic"].combine_chunks())
        pairs = [split_topic(name) for name in names.dictionary.to_pylist()]
        combine_chunks = pa.array([pair[0] for pair in pairs], pa.string()).take(names.indices)
        numbered = to_ints(pa.array([pair[1] for pair in pairs], pa.int64()).take(names.indices), -1)
        self.topic = pc.if_else(pa.array(self.kafka), self["topic"].combine_chunks(), combine_chunks)
        ids = pc.extract_regex(self["message_id"].combine_chunks(), _MESSAGE_ID)
        self.odd_id = to_mask(pc.is_null(ids)) & ~self._is_null("message_id")
        part = {
            name: parse_numbers(pc.struct_field(ids, name)) for name in ("ledger", "entry", "partition", "batch_index")
        }
        offset, partition = (parse_numbers(select_numbers(self[name])) for name in ("offset", "partition"))
        self.ledger = np.where(self.kafka, 0, part["ledger"])
        self.entry = np.where(self.kafka, offset, part["entry"])
        self.batch_index = np.where(self.kafka, -1, np.maximum(part["batch_index"], -1))  # -1: not part of a batch
        # A consumer of a single partition may report -1 in the id, while its topic name contains the partition.
        self.partition = np.where(self.kafka, partition, np.where(part["partition"] >= 0, part["partition"], numbered))
        self.contradicts = ~self.kafka & (numbered >= 0) & (part["partition"] >= 0) & (numbered != part["partition"])

    def _identify_consumers(self) -> None:
        known = pc.and_(pc.is_valid(self["host"]), pc.is_valid(self["process"]))
        process = pc.if_else(
            known, pc.binary_join_element_wise(self["host"], self["process"], "/"), pa.scalar(None, pa.string())
        )
        where = pc.coalesce(drop_empty_texts(self["service_instance"]), drop_empty_texts(self["pod"]), process)
        client = drop_empty_texts(self["client_id"])
        self.consumer = pc.coalesce(client, where)
        self.process_id = where
        named = drop_empty_texts(self["subscription"])
        self.unnamed = to_mask(pc.is_null(named))
        self.subscription = pc.coalesce(named, pa.scalar(self.selection.subscription, pa.string()))

    def _close_unselected(self) -> None:
        for values, names in ((self.topic, self.selection.topics), (self.subscription, self.selection.subscriptions)):
            if names is not None:
                kept = to_mask(pc.is_in(values, pa.array(sorted(names), pa.string())))
                self._close(~kept & to_mask(pc.is_valid(values)), "others")

    def _parse_times(self) -> None:
        begin, end = (parse_numbers(select_numbers(self[name])) for name in ("begin", "end"))
        self.received = np.where(self.process, begin, end)
        self.ended = end

    def close_repeated(self) -> None:
        """Close copies of spans, and reject spans that have the id of another span but other content."""
        rows = np.flatnonzero(self.open & ~self._is_null("span_id"))
        taken = pa.array(rows)
        span = rank_rows(*(encode_values(self[name].take(taken)) for name in ("trace_id", "span_id")))
        content = rank_rows(
            *(encode_values(values.take(taken)) for values in (self.topic, self["operation"], self["acknowledgment"])),
            *(values[rows] for values in self.position),
            *(values[rows] for values in (self.received, self.ended)),
        )
        same, other = find_repeated(span, content)
        self._close(self._mark_rows(rows[same]), "repeated")
        self._reject(self._mark_rows(rows[other]), "span_id", self["span_id"], "two spans with one id must be equal",
                     "export spans with random ids, as SDKs generate them")  # fmt: skip

    def close_duplicates(self) -> None:
        """Close spans of messages that another span describes better."""
        rows = np.flatnonzero(self.open)
        taken = pa.array(rows)
        library = rank_rows(self.process[rows].astype(np.int64), rank_texts(self["scope"].take(taken)))
        rank = np.where(~self._is_null("acknowledgment"), 0, np.where(self.process, 1, 2))[rows]
        position = (each[rows] for each in self.position)
        message = rank_rows(encode_values(self.topic.take(taken)), encode_values(self.consumer.take(taken)), *position)
        is_worse = find_worse_spans(rank_rows(message, encode_values(self.subscription.take(taken))), library, rank)
        is_worse |= find_unnamed_duplicates(message, ~self.unnamed[rows], rank)
        self._close(self._mark_rows(rows[is_worse]), "duplicates")

    def _mark_rows(self, rows: Ints) -> Mask:
        found = np.zeros(self.count, np.bool_)
        found[rows] = True
        return found

    def check(self) -> None:
        """Reject the open spans that break a rule."""
        pulsar = ~self.kafka
        rows = self.open
        self._require(rows, "topic", self.topic, "map messaging.destination.name")
        self._require(rows, "subscription", self.subscription, _SUBSCRIPTION_REMEDY)
        self._require(rows, "service_instance", self.consumer, "set OTEL_RESOURCE_ATTRIBUTES=service.instance.id=…",
                   "a span must name its consumer by a client id or its process")  # fmt: skip
        for name, values in (("begin", self.received), ("end", self.received)):
            used = rows & (self.process if name == "begin" else self.receive)
            self._check_range(used, name, values, _NANOS)
        self._check_range(rows & ~self._is_null("acknowledgment"), "end", self.ended, _NANOS)
        self._check_range(rows & self.kafka, "offset", self.entry, ENTRY)
        kafka_partition = NumberRange(0, PARTITION.most, PARTITION.rule, PARTITION.remedy)
        self._check_range(rows & self.kafka, "partition", self.partition, kafka_partition)
        rule, remedy = "a message id has the form ledger:entry:partition[:batch]", "map messaging.message.id"
        odd = self.odd_id | self._is_null("message_id")
        self._reject(rows & pulsar & odd, "message_id", self["message_id"], rule, remedy)
        placed = rows & pulsar & ~odd
        ranges = ((self.ledger, LEDGER), (self.entry, LEDGER_ENTRY), (self.partition, PARTITION))
        for values, contract in (*ranges, (self.batch_index, BATCH_INDEX)):
            self._check_range(placed, "message_id", values, contract)
        rule = "the topic name and the message id must agree on the partition"
        remedy = "check the code that sets messaging.message.id"
        self._reject(placed & self.contradicts, "message_id", self["message_id"], rule, remedy)
        known = pa.array([*ACK_TYPES, *NACK_TYPES])
        unknown = ~self._is_null("acknowledgment") & ~to_mask(pc.is_in(self["acknowledgment"], known))
        rule = f"the acknowledgment type is one of {', '.join([*ACK_TYPES, *NACK_TYPES])}"
        self._reject(rows & unknown, "acknowledgment", self["acknowledgment"], rule, "report the client's version")

    def _require(
        self, rows: Mask, column: str, values: pa.Array, remedy: str, rule: str = "it must be present"
    ) -> None:
        self._reject(rows & to_mask(pc.is_null(values)), column, self[column], rule, remedy)

    def _check_range(self, rows: Mask, column: str, values: Ints, contract: NumberRange) -> None:
        self._reject(rows & ((values < contract.least) | (values > contract.most)), column, self[column], contract.rule,
                     contract.remedy)  # fmt: skip

    def _reject(self, rows: Mask, column: str, values: pa.ChunkedArray, rule: str, remedy: str) -> None:
        found = np.flatnonzero(rows)
        for row, value in zip(found.tolist(), values.take(pa.array(found)).to_pylist(), strict=True):
            shown = "null" if value is None else shorten(value or "(empty)", 200)
            self.reasons.setdefault(row, []).append(Reason(column, shown, rule, remedy))
        self.outcome[found] = "quarantined"

    def build_receipts(self) -> pa.Table:
        """Build ``RECEIPTS`` from the spans that are still open."""
        rows = np.flatnonzero(self.open)
        self.outcome[rows] = "deliveries"
        take = pa.array(rows)
        acknowledgment = self["acknowledgment"].take(take)
        types = pc.index_in(acknowledgment, pa.array([*ACK_TYPES]))
        acked = pc.is_valid(types)
        back = pc.is_in(acknowledgment, pa.array(NACK_TYPES))
        received, ended = nanos_to_times(self.received[rows]), nanos_to_times(self.ended[rows])
        nanos = pa.array(self.ended[rows] % 1_000, pa.int16())
        never = pa.scalar(None, TIME)
        columns = {
            "date": received.cast(pa.date32()),
            "subscription": self.subscription.take(take),
            "topic": self.topic.take(take),
            **{name: pa.array(getattr(self, name)[rows]) for name in ("partition", "ledger", "entry", "batch_index")},
            "consumer": self.consumer.take(take),
            "redelivery_count": pa.array(np.zeros(len(rows), np.int32)),
            "received_at": received,
            "acked_at": pc.if_else(acked, ended, never),
            "acked_nanos": pc.if_else(acked, nanos, pa.scalar(None, pa.int16())),
            "ack_type": pa.array([*ACK_TYPES.values()]).take(combine_chunks(types)),
            "nacked_at": pc.if_else(back, ended, never),
            "nacked_nanos": pc.if_else(back, nanos, pa.scalar(None, pa.int16())),
            "outcome": pc.if_else(acked, "acked", pc.if_else(back, "redelivered", pa.scalar(None, pa.string()))),
            "source": pa.repeat("observed", len(rows)),
            "process": self.process_id.take(take),
            "received": pa.array(self.received[rows]),
        }
        arrays = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in RECEIPTS]
        return pa.table(arrays, schema=RECEIPTS)

    def build_rejected_rows(self) -> tuple[RejectedRow, ...]:
        """Build the rejected rows, in span order."""
        rows = sorted(self.reasons)
        shown = self.spans.select(SPANS.names).take(pa.array(rows, pa.int64())).to_pylist()
        found = []
        for row, content in zip(rows, shown, strict=True):
            file, line = content.pop("file"), content.pop("line")
            present = {name: value for name, value in content.items() if value is not None}
            raw = json.dumps(present, ensure_ascii=False)
            found.append(RejectedRow("deliveries", file, line, shorten(raw), tuple(self.reasons[row])))
        return tuple(found)

    def count_outcomes(self) -> pa.Table:
        """Count the closed spans of each file by outcome (``OUTCOMES``)."""
        outcomes = (
            self.spans.select(["file"]).append_column("outcome", pa.array(self.outcome)).filter(pa.array(~self.open))
        )
        return (
            outcomes.group_by(OUTCOMES.names[:2])
            .aggregate([([], "count_all")])
            .rename_columns(OUTCOMES.names)
            .cast(OUTCOMES)
        )
