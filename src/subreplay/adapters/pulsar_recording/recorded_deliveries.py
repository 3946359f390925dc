"""Build canonical ``deliveries`` rows from the broker's events: dispatches, and the event that ended each delivery.

A delivery is open from its dispatch until its message is acknowledged, its redelivery is requested, or its consumer is
closed. A dispatch without a connection belongs to the only connected consumer with its name; with several, the consumer
is unknown. An acknowledgement ends every open delivery of its message. If none is open, it belongs to the latest
delivery, because it arrived after a close. If none exists yet, it waits. An acknowledgement that never gets a delivery
becomes a row of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from subreplay.adapters.canonical import nanos_to_micros, split_topic, utc_date
from subreplay.adapters.pulsar_recording.recorded_events import (
    Ack,
    Closed,
    Created,
    Dispatch,
    Position,
    RecordedMessage,
    Redeliver,
    Subscribe,
)

MessageKey = tuple[Position, int]  # a message: its entry and batch index
_Holder = tuple[str, str, str | None]  # topic, consumer, instance


@dataclass
class OpenDelivery:
    """A delivery of one message while events are read. Times are in ns."""

    consumer: str
    instance: str | None
    subscription: str
    delivered: int | None
    seq: int
    redelivery_count: int
    received: int | None = None
    acked: int | None = None
    ack_type: str | None = None
    nacked: int | None = None
    refused: int | None = None
    closed: bool = False

    @property
    def open(self) -> bool:
        return self.acked is None and self.nacked is None and not self.closed

    @property
    def outcome(self) -> str:
        if self.acked is not None:
            return "acked"
        return "redelivered" if self.nacked is not None else "closed" if self.closed else "pending"


@dataclass
class _TopicEntries:
    """The entries of one topic partition."""

    entries: list[tuple[int, int]] = field(default_factory=list)  # sorted (ledger, entry)
    cumulative: int = 0  # entries before this index are acknowledged cumulatively


class DeliveryReplayer:
    """Folds the broker events of one subscription, in broker order, into the ``deliveries`` of each message. All
    messages must be known before the first event."""

    def __init__(self, messages: Iterable[RecordedMessage]) -> None:
        self._batches: dict[Position, list[int]] = defaultdict(list)
        for m in messages:
            self._batches[m.position].append(m.batch_index)
        self._topics: dict[str, _TopicEntries] = defaultdict(_TopicEntries)
        for position in sorted(self._batches):
            self._topics[position.topic].entries.append(position[1:])
        self.deliveries: dict[MessageKey, list[OpenDelivery]] = defaultdict(list)
        self._outstanding: dict[_Holder, dict[MessageKey, list[OpenDelivery]]]  # of each message
        self._outstanding = defaultdict(lambda: defaultdict(list))
        self._connected: dict[tuple[str, str], set[str]] = defaultdict(set)  # instances by (topic, consumer)
        self._early: dict[MessageKey, Ack] = {}
        self._individually: dict[str, bool] = {}  # by topic: whether the type ignores cumulative acknowledgements

    def apply(self, event: Any) -> None:
        """Apply one broker event; kinds that do not concern deliveries are ignored."""
        match event:
            case Dispatch():
                self._dispatch(event)
            case Subscribe():  # later ones may be rejected because of their type
                self._individually.setdefault(event.topic, event.type in ("Shared", "Key_Shared"))
            case Created():
                self._individually[event.topic] = event.type in ("Shared", "Key_Shared")
                if event.instance is not None:
                    self._connected[event.topic, event.consumer].add(event.instance)
            case Ack() if event.ack_type == "Individual" or self._individually.get(
                event.topic
            ):  # the broker ignores the rest
                for one in self._list_named(event):
                    self._ack(one, event)
            case Ack():
                for one in self._list_covered(event):
                    self._ack(one, event)
            case Redeliver():
                self._redeliver(event)
            case Closed():
                self._close(event)

    def _list_messages(self, position: Position) -> list[int]:
        return self._batches.get(position, [-1])

    def _dispatch(self, event: Dispatch) -> None:
        """Dispatch the unacknowledged messages of an entry, because clients skip the others; if none is left, all."""
        position = Position(event.topic, event.ledger, event.entry)
        messages = [(position, index) for index in self._list_messages(position)]
        for one in [m for m in messages if not any(d.acked for d in self.deliveries[m])] or messages:
            delivery = OpenDelivery(
                event.consumer,
                self._find_instance(event),
                event.subscription,
                event.t_ns,
                event.seq,
                event.redelivery_count,
            )
            self.deliveries[one].append(delivery)
            self._outstanding[event.topic, event.consumer, delivery.instance][one].append(delivery)

    def _find_instance(self, event: Dispatch | Redeliver) -> str | None:
        """Return the instance of an event's consumer; None where several have its name."""
        connected = self._connected[event.topic, event.consumer]
        return event.instance or (next(iter(connected)) if len(connected) == 1 else None)

    def _close(self, event: Closed) -> None:
        """End the deliveries of a consumer. If it is the last with its name, also end those of unknown instances."""
        connected = self._connected[event.topic, event.consumer]
        connected.discard(event.instance or "")
        for instance in {event.instance} if connected else {event.instance, None}:
            for delivery in chain.from_iterable(
                self._outstanding.pop((event.topic, event.consumer, instance), {}).values()
            ):
                delivery.closed = delivery.open or delivery.closed

    def _list_named(self, ack: Ack) -> Iterator[MessageKey]:
        """Yield each message that an individual acknowledgement names. A set bit excludes the message of that index."""
        for ledger, entry, pending in dict.fromkeys((i[0], i[1], tuple(i[2]) if len(i) > 2 else ()) for i in ack.ids):
            position = Position(ack.topic, ledger, entry)
            for index in self._list_messages(position):
                if not (0 <= index < 64 * len(pending) and pending[index // 64] >> (index % 64) & 1):
                    yield position, index

    def _list_covered(self, ack: Ack) -> Iterator[MessageKey]:
        """Yield the messages that a cumulative acknowledgement newly covers: whole entries, and part of the last
        one."""
        topic = self._topics[ack.topic]
        last = max(((i[0], i[1]) for i in ack.ids), default=(-1, -1))
        while topic.cumulative < len(topic.entries) and topic.entries[topic.cumulative] < last:
            position = Position(ack.topic, *topic.entries[topic.cumulative])
            yield from ((position, index) for index in self._list_messages(position))
            topic.cumulative += 1
        yield from self._list_named(ack)

    def _ack(self, one: MessageKey, ack: Ack) -> None:
        deliveries = self.deliveries.get(one)
        if not deliveries:
            self._early.setdefault(one, ack)
            return
        ended = [d for d in deliveries if d.open] or ([] if any(d.acked for d in deliveries) else deliveries[-1:])
        for delivery in ended:
            delivery.acked, delivery.ack_type = ack.t_ns, ack.ack_type
            self._outstanding[ack.topic, delivery.consumer, delivery.instance].pop(one, None)

    def _redeliver(self, event: Redeliver) -> None:
        named = {Position(event.topic, i[0], i[1]) for i in event.ids}
        for instance in {self._find_instance(event), None}:
            outstanding = self._outstanding[event.topic, event.consumer, instance]
            for one in [o for o in outstanding if not named or o[0] in named]:
                for delivery in outstanding.pop(one):
                    delivery.nacked = event.t_ns if delivery.open else delivery.nacked

    def build_rows(self) -> Iterator[dict[str, Any]]:
        """Yield canonical rows by message and time. An acknowledgement without a delivery has no ``delivered_at``."""
        for one, ack in self._early.items():
            first = next(iter(self.deliveries.get(one, ())), None)
            if first is None:
                row = OpenDelivery(ack.consumer, ack.instance, ack.subscription, None, ack.seq, 0,
                                acked=ack.t_ns, ack_type=ack.ack_type)  # fmt: skip
                self.deliveries[one].append(row)
            elif first.acked is None:
                first.acked, first.ack_type = ack.t_ns, ack.ack_type
        for (position, index), deliveries in sorted(self.deliveries.items()):
            for d in sorted(deliveries, key=lambda d: (d.delivered or 0, d.seq)):
                yield _build_row(position, index, d)


_EXACT = ("delivered", "acked", "nacked")  # by the broker's clock, to the nanosecond


def _build_row(position: Position, index: int, d: OpenDelivery) -> dict[str, Any]:
    topic, partition = split_topic(position.topic)
    times = {
        "delivered": d.delivered,
        "received": d.received,
        "acked": d.acked,
        "nacked": d.nacked,
        "refused": d.refused,
    }
    return {
        "date": utc_date(nanos_to_micros(d.delivered if d.delivered is not None else d.acked or 0)),
        "subscription": d.subscription,
        "topic": topic,
        "partition": partition,
        "ledger": position.ledger,
        "entry": position.entry,
        "batch_index": index,
        "consumer": d.consumer,
        "instance": d.instance,
        "seq": d.seq,
        "redelivery_count": d.redelivery_count,
        "ack_type": d.ack_type,
        "outcome": d.outcome,
        "source": "observed",
        **{f"{name}_at": None if t is None else nanos_to_micros(t) for name, t in times.items()},
        **{f"{name}_nanos": None if t is None else t % 1_000 for name, t in times.items() if name in _EXACT},
    }
