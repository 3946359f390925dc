"""What becomes of each span: a delivery, a rejected row, or a count."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Reason, Rejected
from subreplay.adapters.canonical import base_topic
from subreplay.adapters.capture.checks import Mask
from subreplay.adapters.capture.joins import ranks
from subreplay.adapters.otlp.columns import codes, in_words, ints, mask, natural, nonempty, number, times, whole
from subreplay.adapters.otlp.lines import SPANS
from subreplay.adapters.otlp.repeats import again, beside_named, of_worse_tellers
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import (
    BATCH_INDEX,
    ENTRY,
    HAPPENED,
    LEDGER,
    OF_A_LEDGER,
    PARTITION,
    Numbers,
    shortened,
)
from subreplay.rows.model.tables import DELIVERIES, TIME

ACKNOWLEDGED: Final = {"acknowledge": "Individual", "cumulative_acknowledge": "Cumulative"}
GIVEN_BACK: Final = ("negative_acknowledge", "ack_timeout")
"""What ``messaging.pulsar.acknowledgment.type`` may be (``OpenTelemetryConsumerInterceptor`` of the Java client)."""

TOLD: Final = pa.schema(
    [f.with_nullable(True) for f in DELIVERIES] + [pa.field("process", pa.string()), pa.field("received", pa.int64())]
)
"""Deliveries without ``seq`` and ``instance``, with the process of the consumer and the time (ns) of the receipt."""
FATES: Final = pa.schema([("file", pa.string()), ("fate", pa.string()), ("count", pa.int64())])

_PROCESS: Final = "process"
_RECEIVE: Final = ("receive", "poll")
# ``ledger:entry:partition[:batch]``; of chunks the id of the last stands after those of the others
_MESSAGE_ID: Final = (
    r"^(?:[^;]*;)?(?P<ledger>\d{1,19}):(?P<entry>\d{1,19}):(?P<partition>-1|\d{1,18})"
    r"(?::(?P<batch_index>-1|\d{1,18}))?$"
)
_MOMENTS: Final = Numbers(HAPPENED.least * 1_000, HAPPENED.most * 1_000 + 999, HAPPENED.rule, "check its unit (ns)")
_NAME_IT: Final = "give the subscription that these spans are of, or export them with the stable conventions"


@dataclass(frozen=True)
class Wanted:
    """Which spans are judged, and what they may leave out.

    ``topics`` and ``subscriptions`` select (None: all): spans of others are counted. ``subscription`` is the one of
    spans that name none, as the agent's Pulsar spans with the default conventions.
    """

    topics: Collection[str] | None = None
    subscriptions: Collection[str] | None = None
    subscription: str | None = None


@dataclass
class Fates:
    """Spans on their way: ``fate`` is what became of each, by the names of ``SpanCounts``; empty while it is open.

    What a span tells by itself decides at once. Then ``repeated``, which has to have all spans of one id;
    ``told_twice``, which has to have all of one message at a consumer; and ``check``.
    """

    spans: pa.Table
    wanted: Wanted
    reasons: dict[int, list[Reason]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.spans = self.spans.combine_chunks()
        self.count = len(self.spans)
        self.fate = np.full(self.count, "", "U11")
        self.kafka = self._is("system", "kafka")
        self.process = self._is("operation", _PROCESS)
        self.receive = mask(pc.is_in(self["operation"], pa.array(_RECEIVE)))
        self._locate()
        self._identify()
        self._close(~(self.process | self.receive), "others")
        self._select()
        nowhere = self._null("offset") & self._null("message_id")
        self._close(nowhere & (self.receive | ~self._null("batch_size")), "batches")
        self._times()

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.spans[name]

    def _is(self, name: str, value: str) -> Mask:
        return mask(pc.equal(self[name], value))

    def _null(self, name: str) -> Mask:
        return mask(pc.is_null(self[name]))

    @property
    def position(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Where the message of each span is."""
        return self.partition, self.ledger, self.entry, self.batch_index

    def _close(self, rows: Mask, fate: str) -> None:
        self.fate[rows & self.open] = fate

    @property
    def open(self) -> Mask:
        return np.asarray(self.fate == "", np.bool_)

    def _locate(self) -> None:
        """Where the message of each span is; ``odd`` columns are not null and tell nothing."""
        names = pc.dictionary_encode(self["topic"].combine_chunks())
        pairs = [base_topic(name) for name in names.dictionary.to_pylist()]
        whole = pa.array([pair[0] for pair in pairs], pa.string()).take(names.indices)
        numbered = ints(pa.array([pair[1] for pair in pairs], pa.int64()).take(names.indices), -1)
        self.topic = pc.if_else(pa.array(self.kafka), self["topic"].combine_chunks(), whole)
        ids = pc.extract_regex(self["message_id"].combine_chunks(), _MESSAGE_ID)
        self.odd_id = mask(pc.is_null(ids)) & ~self._null("message_id")
        part = {name: number(pc.struct_field(ids, name)) for name in ("ledger", "entry", "partition", "batch_index")}
        offset, partition = (number(natural(self[name])) for name in ("offset", "partition"))
        self.ledger = np.where(self.kafka, 0, part["ledger"])
        self.entry = np.where(self.kafka, offset, part["entry"])
        self.batch_index = np.where(self.kafka, -1, np.maximum(part["batch_index"], -1))  # the id of no batch has none
        # of a consumer of one partition alone the id may say -1, and its topic's name says more
        self.partition = np.where(self.kafka, partition, np.where(part["partition"] >= 0, part["partition"], numbered))
        self.contradicts = ~self.kafka & (numbered >= 0) & (part["partition"] >= 0) & (numbered != part["partition"])

    def _identify(self) -> None:
        known = pc.and_(pc.is_valid(self["host"]), pc.is_valid(self["process"]))
        process = pc.if_else(
            known, pc.binary_join_element_wise(self["host"], self["process"], "/"), pa.scalar(None, pa.string())
        )
        where = pc.coalesce(nonempty(self["service_instance"]), nonempty(self["pod"]), process)
        client = nonempty(self["client_id"])
        self.consumer = pc.coalesce(client, where)
        self.process_id = where
        named = nonempty(self["subscription"])
        self.unnamed = mask(pc.is_null(named))
        self.subscription = pc.coalesce(named, pa.scalar(self.wanted.subscription, pa.string()))

    def _select(self) -> None:
        for values, names in ((self.topic, self.wanted.topics), (self.subscription, self.wanted.subscriptions)):
            if names is not None:
                kept = mask(pc.is_in(values, pa.array(sorted(names), pa.string())))
                self._close(~kept & mask(pc.is_valid(values)), "others")

    def _times(self) -> None:
        begin, end = (number(natural(self[name])) for name in ("begin", "end"))
        self.received = np.where(self.process, begin, end)
        self.ended = end

    def repeated(self) -> None:
        """Close spans that are there already, and reject those that tell something else then."""
        rows = np.flatnonzero(self.open & ~self._null("span_id"))
        taken = pa.array(rows)
        span = ranks(*(codes(self[name].take(taken)) for name in ("trace_id", "span_id")))
        told = ranks(
            *(codes(values.take(taken)) for values in (self.topic, self["operation"], self["acknowledgment"])),
            *(values[rows] for values in self.position),
            *(values[rows] for values in (self.received, self.ended)),
        )
        same, other = again(span, told)
        self._close(self._of(rows[same]), "repeated")
        self._reject(self._of(rows[other]), "span_id", self["span_id"], "one span, two contents",
                     "export spans with random ids, as SDKs make them")  # fmt: skip

    def told_twice(self) -> None:
        """Close spans of messages of which another span tells more."""
        rows = np.flatnonzero(self.open)
        taken = pa.array(rows)
        teller = ranks(self.process[rows].astype(np.int64), in_words(self["scope"].take(taken)))
        rank = np.where(~self._null("acknowledgment"), 0, np.where(self.process, 1, 2))[rows]
        position = (each[rows] for each in self.position)
        whose = ranks(codes(self.topic.take(taken)), codes(self.consumer.take(taken)), *position)
        worse = of_worse_tellers(ranks(whose, codes(self.subscription.take(taken))), teller, rank)
        worse |= beside_named(whose, ~self.unnamed[rows], rank)
        self._close(self._of(rows[worse]), "told_twice")

    def _of(self, rows: Ints) -> Mask:
        found = np.zeros(self.count, np.bool_)
        found[rows] = True
        return found

    def check(self) -> None:
        """Reject the others that break a rule."""
        pulsar = ~self.kafka
        rows = self.open
        self._need(rows, "topic", self.topic, "map messaging.destination.name")
        self._need(rows, "subscription", self.subscription, _NAME_IT)
        self._need(rows, "service_instance", self.consumer, "set OTEL_RESOURCE_ATTRIBUTES=service.instance.id=…",
                   "a span tells its consumer: a client's id, or an identity of its process")  # fmt: skip
        for name, values in (("begin", self.received), ("end", self.received)):
            used = rows & (self.process if name == "begin" else self.receive)
            self._range(used, name, values, _MOMENTS)
        self._range(rows & ~self._null("acknowledgment"), "end", self.ended, _MOMENTS)
        self._range(rows & self.kafka, "offset", self.entry, ENTRY)
        kafka_partition = Numbers(0, PARTITION.most, PARTITION.rule, PARTITION.remedy)
        self._range(rows & self.kafka, "partition", self.partition, kafka_partition)
        rule, remedy = "an id is ledger:entry:partition[:batch]", "map messaging.message.id"
        odd = self.odd_id | self._null("message_id")
        self._reject(rows & pulsar & odd, "message_id", self["message_id"], rule, remedy)
        placed = rows & pulsar & ~odd
        ranges = ((self.ledger, LEDGER), (self.entry, OF_A_LEDGER), (self.partition, PARTITION))
        for values, legal in (*ranges, (self.batch_index, BATCH_INDEX)):
            self._range(placed, "message_id", values, legal)
        rule, remedy = "the topic's name and the id tell one partition", "check what sets messaging.message.id"
        self._reject(placed & self.contradicts, "message_id", self["message_id"], rule, remedy)
        known = pa.array([*ACKNOWLEDGED, *GIVEN_BACK])
        strange = ~self._null("acknowledgment") & ~mask(pc.is_in(self["acknowledgment"], known))
        rule = f"it is one of {', '.join([*ACKNOWLEDGED, *GIVEN_BACK])}"
        self._reject(rows & strange, "acknowledgment", self["acknowledgment"], rule, "report the client's version")

    def _need(self, rows: Mask, column: str, values: pa.Array, remedy: str, rule: str = "it is told") -> None:
        self._reject(rows & mask(pc.is_null(values)), column, self[column], rule, remedy)

    def _range(self, rows: Mask, column: str, values: Ints, legal: Numbers) -> None:
        self._reject(rows & ((values < legal.least) | (values > legal.most)), column, self[column], legal.rule,
                     legal.remedy)  # fmt: skip

    def _reject(self, rows: Mask, column: str, values: pa.ChunkedArray, rule: str, remedy: str) -> None:
        found = np.flatnonzero(rows)
        for row, value in zip(found.tolist(), values.take(pa.array(found)).to_pylist(), strict=True):
            shown = "null" if value is None else shortened(value or "(empty)", 200)
            self.reasons.setdefault(row, []).append(Reason(column, shown, rule, remedy))
        self.fate[found] = "quarantined"

    def told(self) -> pa.Table:
        """The spans that are left as ``TOLD``."""
        rows = np.flatnonzero(self.open)
        self.fate[rows] = "deliveries"
        take = pa.array(rows)
        acknowledgment = self["acknowledgment"].take(take)
        types = pc.index_in(acknowledgment, pa.array([*ACKNOWLEDGED]))
        acked = pc.is_valid(types)
        back = pc.is_in(acknowledgment, pa.array(GIVEN_BACK))
        received, ended = times(self.received[rows]), times(self.ended[rows])
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
            "ack_type": pa.array([*ACKNOWLEDGED.values()]).take(whole(types)),
            "nacked_at": pc.if_else(back, ended, never),
            "nacked_nanos": pc.if_else(back, nanos, pa.scalar(None, pa.int16())),
            "outcome": pc.if_else(acked, "acked", pc.if_else(back, "redelivered", pa.scalar(None, pa.string()))),
            "source": pa.repeat("observed", len(rows)),
            "process": self.process_id.take(take),
            "received": pa.array(self.received[rows]),
        }
        given = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(rows), f.type) for f in TOLD]
        return pa.table(given, schema=TOLD)

    def rejected(self) -> tuple[Rejected, ...]:
        """Spans that broke a rule, in their order."""
        rows = sorted(self.reasons)
        shown = self.spans.select(SPANS.names).take(pa.array(rows, pa.int64())).to_pylist()
        found = []
        for row, told in zip(rows, shown, strict=True):
            file, line = told.pop("file"), told.pop("line")
            raw = json.dumps({name: value for name, value in told.items() if value is not None}, ensure_ascii=False)
            found.append(Rejected("deliveries", file, line, shortened(raw), tuple(self.reasons[row])))
        return tuple(found)

    def counts(self) -> pa.Table:
        """How many spans of each file ended how (``FATES``), of those that are not open."""
        fates = self.spans.select(["file"]).append_column("fate", pa.array(self.fate)).filter(pa.array(~self.open))
        return fates.group_by(FATES.names[:2]).aggregate([([], "count_all")]).rename_columns(FATES.names).cast(FATES)
