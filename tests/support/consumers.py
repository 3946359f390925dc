"""Consumers shaped like those of pulsar-client 3.13 and confluent-kafka 2.16, without a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MessageId:
    """``_pulsar.MessageId``."""

    ledger: int
    entry: int
    batch: int = -1
    part: int = -1

    def ledger_id(self) -> int:
        return self.ledger

    def entry_id(self) -> int:
        return self.entry

    def batch_index(self) -> int:
        return self.batch

    def partition(self) -> int:
        return self.part


@dataclass(frozen=True)
class PulsarMessage:
    """``pulsar.Message``."""

    id: MessageId
    key: str = ""
    payload: bytes = b"payload"
    topic: str = "persistent://public/default/orders"
    redeliveries: int = 0
    ordering: str = ""

    def message_id(self) -> MessageId:
        return self.id

    def topic_name(self) -> str:
        return self.topic

    def partition_key(self) -> str:
        return self.key

    def ordering_key(self) -> str:
        return self.ordering

    def producer_name(self) -> str:
        return "producer-1"

    def publish_timestamp(self) -> int:
        return 1_700_000_000_000 + self.id.entry

    def event_timestamp(self) -> int:
        return 0

    def redelivery_count(self) -> int:
        return self.redeliveries

    def data(self) -> bytes:
        return self.payload


class Timeout(Exception):
    """``pulsar.Timeout``."""


@dataclass
class PulsarConsumer:
    """``pulsar.Consumer`` that holds these messages."""

    messages: deque[PulsarMessage] = field(default_factory=deque)
    name: str = "c1"
    calls: list[tuple[str, Any]] = field(default_factory=list)
    fails: bool = False

    def topic(self) -> str:
        return "persistent://public/default/orders"

    def subscription_name(self) -> str:
        return "sub"

    def consumer_name(self) -> str:
        return self.name

    def receive(self, timeout_millis: int | None = None) -> PulsarMessage:
        if not self.messages:
            raise Timeout
        return self.messages.popleft()

    def batch_receive(self) -> list[PulsarMessage]:
        messages = list(self.messages)
        self.messages.clear()
        return messages

    def acknowledge(self, message: Any) -> None:
        self._called("acknowledge", message)

    def acknowledge_cumulative(self, message: Any) -> None:
        self._called("acknowledge_cumulative", message)

    def negative_acknowledge(self, message: Any) -> None:
        self._called("negative_acknowledge", message)

    def redeliver_unacknowledged_messages(self) -> None:
        self._called("redeliver_unacknowledged_messages", None)

    def unsubscribe(self) -> None:
        self._called("unsubscribe", None)

    def close(self) -> None:
        self._called("close", None)

    def is_connected(self) -> bool:
        return True

    def _called(self, name: str, about: Any) -> None:
        if self.fails:
            raise Timeout(name)
        self.calls.append((name, about))


@dataclass(frozen=True)
class TopicPartition:
    """``confluent_kafka.TopicPartition``."""

    topic: str
    partition: int
    offset: int = -1001
    error: Any = None


@dataclass(frozen=True)
class KafkaMessage:
    """``confluent_kafka.Message``."""

    at: int
    part: int = 0
    the_key: Any = b"key"
    the_error: Any = None
    the_value: Any = b"value"

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self.part

    def offset(self) -> int:
        return self.at

    def key(self) -> Any:
        return self.the_key

    def value(self) -> Any:
        return self.the_value

    def error(self) -> Any:
        return self.the_error

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000 + self.at


@dataclass
class KafkaConsumer:
    """``confluent_kafka.Consumer`` that holds these messages."""

    messages: deque[KafkaMessage] = field(default_factory=deque)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    callbacks: dict[str, Callable[[Any, Any], Any]] = field(default_factory=dict)

    def poll(self, timeout: float = -1) -> KafkaMessage | None:
        return self.messages.popleft() if self.messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[KafkaMessage]:
        return [self.messages.popleft() for _ in range(min(num_messages, len(self.messages)))]

    def commit(
        self, message: Any = None, offsets: Any = None, asynchronous: bool = True
    ) -> list[TopicPartition] | None:
        self.calls.append(("commit", (message, offsets)))
        return None if asynchronous else offsets or [TopicPartition("orders", 0, 7), TopicPartition("orders", 1, 9)]

    def store_offsets(self, message: Any = None, offsets: Any = None) -> None:
        self.calls.append(("store_offsets", (message, offsets)))

    def subscribe(self, topics: Iterable[str], **callbacks: Callable[[Any, Any], Any]) -> None:
        self.calls.append(("subscribe", list(topics)))
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.calls.append(("unsubscribe", None))

    def assign(self, partitions: Any) -> None:
        self.calls.append(("assign", partitions))

    def unassign(self) -> None:
        self.calls.append(("unassign", None))

    def memberid(self) -> str:
        return "app-0001"

    def close(self) -> None:
        self.calls.append(("close", None))
        if "on_revoke" in self.callbacks:
            self.callbacks["on_revoke"](self, [TopicPartition("orders", 0)])

    def __enter__(self) -> KafkaConsumer:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
