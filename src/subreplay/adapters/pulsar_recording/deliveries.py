"""Canonical ``deliveries`` rows from the broker's events: what was dispatched to whom, and what ended each delivery.

A delivery is open from its dispatch until the message is acknowledged, its redelivery is asked for, or its consumer is
closed. A dispatch that does not name its connection is to the one connected consumer of its name; if there are several,
which of them is not known. An acknowledgement ends every open delivery of its message; where none is open it belongs to
the latest one (it came after a close), and where none exists yet it waits: an acknowledgement without any delivery is
itself a fact worth a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from subreplay.adapters.canonical import base_topic, day, micros
from subreplay.adapters.pulsar_recording.rows import (
    Ack,
    Closed,
    Created,
    Dispatch,
    Message,
    Position,
    Redeliver,
    Subscribe,
)

One = tuple[Position, int]  # one message: its entry and batch index
_Holder = tuple[str, str, str | None]  # topic, consumer, instance


@dataclass
class Delivery:
    """A delivery of one message while its events are read. Times in ns."""

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
class _Topic:
    """What is known of one internal topic's messages."""

    entries: list[tuple[int, int]] = field(default_factory=list)  # sorted (ledger, entry)
    cumulative: int = 0  # entries before this index are acknowledged cumulatively


class Replayer:
    """Folds the broker events of one subscription, in broker order, into the ``deliveries`` of each message. Messages
    must be complete before the first event."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._batches: dict[Position, list[int]] = defaultdict(list)
        for m in messages:
            self._batches[m.position].append(m.batch_index)
        self._topics: dict[str, _Topic] = defaultdict(_Topic)
        for position in sorted(self._batches):
            self._topics[position.topic].entries.append(position[1:])
        self.deliveries: dict[One, list[Delivery]] = defaultdict(list)
        self._held: dict[_Holder, dict[One, list[Delivery]]]  # of each message
        self._held = defaultdict(lambda: defaultdict(list))
        self._connected: dict[tuple[str, str], set[str]] = defaultdict(set)  # instances by (topic, consumer)
        self._early: dict[One, Ack] = {}
        self._individually: bool | None = None  # whether its type knows no cumulative acknowledgement; None: not known

    def apply(self, event: Any) -> None:
        """One broker event; kinds that say nothing of deliveries pass."""
        match event:
            case Dispatch():
                self._dispatch(event)
            case Subscribe() if self._individually is None:  # later ones may be refused because of their type
                self._individually = event.type in ("Shared", "Key_Shared")
            case Created():
                self._individually = event.type in ("Shared", "Key_Shared")
                if event.instance is not None:
                    self._connected[event.topic, event.consumer].add(event.instance)
            case Ack() if event.ack_type == "Individual" or self._individually:  # the broker ignores what is more
                for one in self._named(event):
                    self._ack(one, event)
            case Ack():
                for one in self._up_to(event):
                    self._ack(one, event)
            case Redeliver():
                self._redeliver(event)
            case Closed():
                self._close(event)

    def _messages_of(self, position: Position) -> list[int]:
        return self._batches.get(position, [-1])

    def _dispatch(self, event: Dispatch) -> None:
        """A batch comes again with its unacknowledged messages: clients skip the others. If none is left, all come."""
        position = Position(event.topic, event.ledger, event.entry)
        messages = [(position, index) for index in self._messages_of(position)]
        for one in [m for m in messages if not any(d.acked for d in self.deliveries[m])] or messages:
            delivery = Delivery(
                event.consumer, self._instance(event), event.subscription, event.t_ns, event.seq, event.redelivery_count
            )
            self.deliveries[one].append(delivery)
            self._held[event.topic, event.consumer, delivery.instance][one].append(delivery)

    def _instance(self, event: Dispatch | Redeliver) -> str | None:
        """Which consumer of its name an event is about; None: one of several."""
        connected = self._connected[event.topic, event.consumer]
        return event.instance or (next(iter(connected)) if len(connected) == 1 else None)

    def _close(self, event: Closed) -> None:
        """It ends what its consumer holds, and what any consumer of its name may hold when it is the last of them."""
        connected = self._connected[event.topic, event.consumer]
        connected.discard(event.instance or "")
        for instance in {event.instance} if connected else {event.instance, None}:
            for delivery in chain.from_iterable(self._held.pop((event.topic, event.consumer, instance), {}).values()):
                delivery.closed = delivery.open or delivery.closed

    def _named(self, ack: Ack) -> Iterator[One]:
        """The messages an individual acknowledgement names, each once; a bit set leaves those out whose bit is set."""
        for ledger, entry, pending in dict.fromkeys((i[0], i[1], tuple(i[2]) if len(i) > 2 else ()) for i in ack.ids):
            position = Position(ack.topic, ledger, entry)
            for index in self._messages_of(position):
                if not (0 <= index < 64 * len(pending) and pending[index // 64] >> (index % 64) & 1):
                    yield position, index

    def _up_to(self, ack: Ack) -> Iterator[One]:
        """The messages that a cumulative acknowledgement newly covers: entries, and what it names of the last one."""
        topic = self._topics[ack.topic]
        last = max(((i[0], i[1]) for i in ack.ids), default=(-1, -1))
        while topic.cumulative < len(topic.entries) and topic.entries[topic.cumulative] < last:
            position = Position(ack.topic, *topic.entries[topic.cumulative])
            yield from ((position, index) for index in self._messages_of(position))
            topic.cumulative += 1
        yield from self._named(ack)

    def _ack(self, one: One, ack: Ack) -> None:
        deliveries = self.deliveries.get(one)
        if not deliveries:
            self._early.setdefault(one, ack)
            return
        ended = [d for d in deliveries if d.open] or ([] if any(d.acked for d in deliveries) else deliveries[-1:])
        for delivery in ended:
            delivery.acked, delivery.ack_type = ack.t_ns, ack.ack_type
            self._held[ack.topic, delivery.consumer, delivery.instance].pop(one, None)

    def _redeliver(self, event: Redeliver) -> None:
        named = {Position(event.topic, i[0], i[1]) for i in event.ids}
        for instance in {self._instance(event), None}:
            held = self._held[event.topic, event.consumer, instance]
            for one in [o for o in held if not named or o[0] in named]:
                for delivery in held.pop(one):
                    delivery.nacked = event.t_ns if delivery.open else delivery.nacked

    def rows(self) -> Iterator[dict[str, Any]]:
        """Canonical rows, by message and time; an acknowledgement without a delivery has no ``delivered_at``."""
        for one, ack in self._early.items():
            first = next(iter(self.deliveries.get(one, ())), None)
            if first is None:
                row = Delivery(ack.consumer, ack.instance, ack.subscription, None, ack.seq, 0,
                                acked=ack.t_ns, ack_type=ack.ack_type)  # fmt: skip
                self.deliveries[one].append(row)
            elif first.acked is None:
                first.acked, first.ack_type = ack.t_ns, ack.ack_type
        for (position, index), deliveries in sorted(self.deliveries.items()):
            for d in sorted(deliveries, key=lambda d: (d.delivered or 0, d.seq)):
                yield _row(position, index, d)


_EXACT = ("delivered", "acked", "nacked")  # by the broker's clock, to the nanosecond


def _row(position: Position, index: int, d: Delivery) -> dict[str, Any]:
    topic, partition = base_topic(position.topic)
    times = {
        "delivered": d.delivered,
        "received": d.received,
        "acked": d.acked,
        "nacked": d.nacked,
        "refused": d.refused,
    }
    return {
        "date": day(micros(d.delivered if d.delivered is not None else d.acked or 0)),
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
        **{f"{name}_at": None if t is None else micros(t) for name, t in times.items()},
        **{f"{name}_nanos": None if t is None else t % 1_000 for name, t in times.items() if name in _EXACT},
    }
