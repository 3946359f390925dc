from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from subreplay import capture
from tests.support import consumers as fakes
from tests.support.captured import rows
from tests.support.consumers import KafkaMessage, TopicPartition


def consumer_of(folder: Path, *messages: KafkaMessage, **options: Any) -> tuple[Any, fakes.KafkaConsumer]:
    client = fakes.KafkaConsumer(deque(messages))
    return capture.wrap(client, folder, subscription="group", **options), client


def events(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns) for row in rows(folder) if row["event"] not in ("start", "closing", "close")]


def test_polled_and_consumed_messages_are_receipts_and_errors_are_not(tmp_path: Path) -> None:
    consumer, _ = consumer_of(
        tmp_path, KafkaMessage(0), KafkaMessage(0, the_error="end of partition"), KafkaMessage(1), KafkaMessage(2)
    )
    assert consumer.poll(1.0).offset() == 0
    assert consumer.poll(1.0).error() == "end of partition"
    assert len(consumer.consume(5, timeout=1.0)) == 2
    assert consumer.poll() is None
    consumer.close()

    columns = ("event", "topic", "partition", "ledger", "entry", "batch_index", "key", "publish_time_ms", "size")
    assert events(tmp_path, *columns) == [
        ("receive", "orders", 0, 0, n, -1, b"key", 1_700_000_000_000 + n, 5) for n in range(3)
    ]


def test_a_commit_contains_the_next_offset_to_read(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path, KafkaMessage(41))
    message = consumer.poll()
    consumer.commit(message)
    consumer.commit(message=message)
    consumer.commit(offsets=[TopicPartition("orders", 3, 8), TopicPartition("orders", 4, 9)])
    consumer.store_offsets(message)
    consumer.close()

    assert events(tmp_path, "event", "partition", "entry")[1:] == [
        ("commit", 0, 42), ("commit", 0, 42), ("commit", 3, 8), ("commit", 4, 9), ("store_offsets", 0, 42),
    ]  # fmt: skip


def test_a_commit_of_everything_contains_offsets_only_if_the_client_returns_them(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path)
    consumer.commit()
    consumer.commit(asynchronous=False)
    consumer.on_commit(None, [TopicPartition("orders", 5, 6)])
    consumer.on_commit(fakes.Timeout("not coordinator"), [TopicPartition("orders", 5, 7)])
    consumer.close()

    assert events(tmp_path, "partition", "entry", "error") == [
        (None, None, None), (0, 7, None), (1, 9, None), (5, 6, None), (5, 7, "Timeout: not coordinator"),
    ]  # fmt: skip


def test_callbacks_are_the_applications_and_what_they_commit_is_recorded(tmp_path: Path) -> None:
    reported: list[tuple[str, Any]] = []

    def on_assign(consumer: Any, partitions: Any) -> None:
        reported.append(("assigned", partitions))

    def on_revoke(consumer: Any, partitions: Any) -> None:
        reported.append(("revoked", partitions))
        consumer.commit(offsets=[TopicPartition("orders", 0, 3)])

    consumer, client = consumer_of(tmp_path)
    consumer.subscribe(["orders"], on_assign=on_assign, on_revoke=on_revoke)
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    client.callbacks["on_assign"](client, both)
    client.callbacks["on_revoke"](client, both[:1])
    client.callbacks["on_lost"](client, both[1:])  # no callback of its own: on_revoke is told
    client.callbacks["on_assign"](client, [])
    consumer.unsubscribe()

    assert reported == [("assigned", both), ("revoked", both[:1]), ("revoked", both[1:]), ("assigned", [])]
    consumer.close()
    assert events(tmp_path, "event", "topic", "partition") == [
        ("subscribe", "orders", None), ("assign", "orders", 0), ("assign", "orders", 1),
        ("commit", "orders", 0), ("revoke", "orders", 0), ("commit", "orders", 0), ("lost", "orders", 1),
        ("assign", None, None), ("unsubscribe", None, None), ("commit", "orders", 0), ("revoke", "orders", 0),
    ]  # fmt: skip


def test_a_callback_that_fails_fails_and_the_revocation_is_recorded(tmp_path: Path) -> None:
    def on_revoke(consumer: Any, partitions: Any) -> None:
        raise KeyError("mine")

    consumer, client = consumer_of(tmp_path)
    consumer.subscribe(["orders"], on_revoke=on_revoke)
    with pytest.raises(KeyError, match="mine"):
        client.callbacks["on_revoke"](client, [TopicPartition("orders", 0)])
    client.callbacks.clear()
    consumer.close()
    assert ("revoke", 0) in events(tmp_path, "event", "partition")


def test_without_a_name_a_consumer_is_called_by_its_member_id_once_it_has_one(tmp_path: Path) -> None:
    unnamed, client = consumer_of(tmp_path / "unnamed", KafkaMessage(0), KafkaMessage(1))
    named, other = consumer_of(tmp_path / "named", KafkaMessage(0), name="c1")
    for consumer, its in ((unnamed, client), (named, other)):
        consumer.subscribe(["orders"])
        consumer.poll()
        its.callbacks["on_assign"](its, [TopicPartition("orders", 0)])
        consumer.poll()
        consumer.close()

    names = dict(events(tmp_path / "unnamed", "entry", "consumer"))
    assert names[1] == "app-0001" != names[0]
    assert {name for (name,) in events(tmp_path / "named", "consumer")} == {"c1"}


def test_assigning_by_hand_is_recorded_unless_the_group_assigns(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.assign([TopicPartition("orders", 1)])
    consumer.unassign()
    consumer.subscribe(["orders"])
    consumer.assign([TopicPartition("orders", 2)])
    consumer.close()
    assert events(tmp_path, "event", "partition") == [
        ("assign", 0), ("revoke", 0), ("assign", 1), ("revoke", 1), ("subscribe", None), ("revoke", 0),
    ]  # fmt: skip


def test_leaving_a_with_block_closes(tmp_path: Path) -> None:
    with consumer_of(tmp_path, KafkaMessage(0))[0] as consumer:
        consumer.poll()
    assert [row["event"] for row in rows(tmp_path)] == ["start", "receive", "closing", "close"]


def test_a_deserialized_key_is_reported(tmp_path: Path) -> None:
    consumer, _ = consumer_of(tmp_path, KafkaMessage(0, the_key="text"), KafkaMessage(1, the_key={"a": 1}))
    consumer.poll()
    consumer.poll()
    consumer.close()
    (text, no_error), (none, error) = events(tmp_path, "key", "error")
    assert (text, no_error, none) == (b"text", None, None)
    assert "key is a dict" in error


def test_a_group_has_to_be_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="consumer group"):
        capture.wrap(fakes.KafkaConsumer(), tmp_path)
