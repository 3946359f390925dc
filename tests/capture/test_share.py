"""A share consumer that is wrapped behaves the same, and what it did can be audited."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from subreplay import capture
from subreplay.capture.share_consumer import KafkaShareConsumer
from subreplay.cli.main import main
from tests.support.captured import rows
from tests.support.consumers import KafkaMessage, TopicPartition

ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass(frozen=True)
class SharedMessage(KafkaMessage):
    """``confluent_kafka.Message`` of a share consumer."""

    deliveries: int = 1

    def delivery_count(self) -> int:
        return self.deliveries


@dataclass
class ShareConsumer:
    """``confluent_kafka.ShareConsumer`` that holds these batches."""

    batches: deque[list[SharedMessage]] = field(default_factory=deque)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    callback: Callable[[Any, Any], Any] | None = None

    def poll(self, timeout: float = -1) -> list[SharedMessage]:
        return self.batches.popleft() if self.batches else []

    def acknowledge(self, message: Any, ack_type: int = ACCEPT) -> None:
        self.calls.append(("acknowledge", (message.offset(), ack_type)))

    def acknowledge_offset(self, topic: str, partition: int, offset: int, ack_type: int = ACCEPT) -> None:
        self.calls.append(("acknowledge_offset", (offset, ack_type)))

    def commit_sync(self, timeout: float = 60) -> dict[Any, Any]:
        return {TopicPartition("orders", 0): None}

    def commit_async(self) -> None:
        self.calls.append(("commit_async", None))

    def set_acknowledgement_commit_callback(self, callback: Any) -> None:
        self.callback = callback

    def subscribe(self, topics: Any) -> None:
        self.calls.append(("subscribe", topics))

    def unsubscribe(self) -> None:
        self.calls.append(("unsubscribe", None))

    def close(self) -> None:
        self.calls.append(("close", None))


def consumer_of(folder: Path, *batches: list[SharedMessage]) -> tuple[Any, ShareConsumer]:
    client = ShareConsumer(deque(batches))
    return capture.wrap(client, folder, subscription="shared", name="c1"), client


def events(folder: Path) -> list[tuple[Any, ...]]:
    found = [(row["event"], row["entry"]) for row in rows(folder)]
    return [each for each in found if each[0] not in ("start", "closing", "close", "subscribe")]


def deliveries(folder: Path, to: Path) -> list[dict[str, Any]]:
    assert main(["ingest", str(folder), "--from", "capture", "--to", str(to), "--format", "parquet"]) == 0
    return sorted(pq.read_table(to / "deliveries").to_pylist(), key=lambda row: row["entry"])


def test_the_next_poll_accepts_what_was_polled_unless_the_application_acknowledges(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path, [SharedMessage(0), SharedMessage(1)], [SharedMessage(2)])
    assert isinstance(consumer, KafkaShareConsumer)
    assert len(consumer.poll(1.0)) == 2
    consumer.poll(1.0)
    consumer.close()
    received, accepted = [("receive", 0), ("receive", 1)], [("acknowledge", 0), ("acknowledge", 1)]
    assert events(tmp_path) == [*received, *accepted, ("receive", 2)]


def test_records_are_accepted_released_or_rejected(tmp_path: Path) -> None:
    batch = [SharedMessage(n) for n in range(4)]
    consumer, client = consumer_of(tmp_path, batch, [SharedMessage(1, deliveries=2)])
    consumer.subscribe(["orders"])
    consumer.poll()
    consumer.acknowledge(batch[0])
    consumer.acknowledge(batch[1], RELEASE)
    consumer.acknowledge_offset("orders", 0, 2, ack_type=REJECT)
    consumer.commit_sync()
    consumer.poll()
    consumer.close()
    assert client.calls[1:4] == [
        ("acknowledge", (0, ACCEPT)), ("acknowledge", (1, RELEASE)), ("acknowledge_offset", (2, REJECT)),
    ]  # fmt: skip

    found = deliveries(tmp_path, tmp_path.parent / "tables")
    shown = [(row["entry"], row["redelivery_count"], row["ack_type"], row["outcome"]) for row in found]
    assert sorted(shown, key=lambda row: row[:2]) == [
        (0, 0, "Accept", "acked"),
        (1, 0, "Release", "released"),
        (1, 1, None, "closed"),
        (2, 0, "Reject", "rejected"),
        (3, 0, None, "closed"),
    ]
    members = pq.read_table(tmp_path.parent / "tables" / "membership").to_pylist()
    assert Counter((row["event"], row["topic"], row["partition"], row["type"]) for row in members) == {
        ("join", "orders", None, "share"): 1,
        ("leave", "orders", None, "share"): 1,
    }
    assert "policy: kafka.share" in (tmp_path.parent / "tables" / "audit.yaml").read_text()


def test_an_acknowledgement_that_the_broker_refused_is_known(tmp_path: Path) -> None:
    reported: list[Any] = []
    message = SharedMessage(7)
    consumer, client = consumer_of(tmp_path, [message])
    consumer.set_acknowledgement_commit_callback(lambda offsets, error: reported.append(error))
    consumer.poll()
    consumer.acknowledge(message)
    assert client.callback is not None
    client.callback({TopicPartition("orders", 0): {7}}, "INVALID_RECORD_STATE")
    consumer.close()

    assert reported == ["INVALID_RECORD_STATE"]
    (found,) = deliveries(tmp_path, tmp_path.parent / "refused")
    assert (found["ack_type"], found["outcome"]) == ("Accept", "refused")


def test_a_topic_that_is_no_longer_subscribed_is_left(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path, [SharedMessage(0)])
    consumer.subscribe(["orders", "bills"])
    consumer.poll()
    consumer.subscribe(["orders"])
    consumer.unsubscribe()
    consumer.close()
    deliveries(tmp_path, tmp_path.parent / "left")
    members = pq.read_table(tmp_path.parent / "left" / "membership").to_pylist()
    found = [(row["event"], row["topic"]) for row in sorted(members, key=lambda row: row["at"])]
    assert sorted(found[:2]) == [("join", "bills"), ("join", "orders")]
    assert found[2:] == [("leave", "bills"), ("leave", "orders")]
