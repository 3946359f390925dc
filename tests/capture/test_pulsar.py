from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from subreplay import capture
from tests.support import consumers as fakes
from tests.support.captured import rows
from tests.support.consumers import MessageId, PulsarMessage


def messages(number: int) -> deque[PulsarMessage]:
    return deque(PulsarMessage(MessageId(5, n), f"k{n}") for n in range(number))


def test_every_call_is_one_event_in_its_order(tmp_path: Path) -> None:
    consumer = capture.wrap(fakes.PulsarConsumer(messages(4)), tmp_path)
    first = consumer.receive()
    second = consumer.receive(timeout_millis=100)
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second.message_id())
    _, fourth = consumer.batch_receive()
    consumer.acknowledge_cumulative(fourth)
    consumer.redeliver_unacknowledged_messages()
    consumer.close()

    found = [(row["event"], row["entry"]) for row in rows(tmp_path)]
    assert found == [
        ("start", None), ("receive", 0), ("receive", 1), ("acknowledge", 0), ("negative_acknowledge", 1),
        ("receive", 2), ("receive", 3), ("acknowledge_cumulative", 3), ("redeliver_unacknowledged", None),
        ("closing", None), ("close", None),
    ]  # fmt: skip
    assert [row["seq"] for row in rows(tmp_path)] == list(range(11))


def test_a_receipt_records_what_the_client_reports(tmp_path: Path) -> None:
    message = PulsarMessage(MessageId(5, 7, 2, 3), "key", b"12345", "persistent://a/b/t-partition-3", 4, "order")
    consumer = capture.wrap(fakes.PulsarConsumer(deque([message])), tmp_path, subscription_type="Shared", name="mine")
    consumer.receive()
    consumer.close()

    row = rows(tmp_path)[1]
    assert row | {"instance": "", "at_ns": 0} == {
        "library": "pulsar-client", "instance": "", "subscription": "sub", "subscription_type": "Shared",
        "consumer": "mine", "seq": 1, "event": "receive", "at_ns": 0, "topic": "persistent://a/b/t-partition-3",
        "partition": 3, "ledger": 5, "entry": 7, "batch_index": 2, "key": b"key", "ordering_key": b"order",
        "producer": "producer-1", "publish_time_ms": 1_700_000_000_007, "event_time_ms": None, "size": 5,
        "redelivery_count": 4, "error": None,
    }  # fmt: skip


def test_a_call_that_fails_is_recorded_as_failed_and_fails(tmp_path: Path) -> None:
    client = fakes.PulsarConsumer(messages(1))
    consumer = capture.wrap(client, tmp_path)
    message = consumer.receive()
    client.fails = True
    with pytest.raises(fakes.Timeout):
        consumer.acknowledge(message)
    client.fails = False
    consumer.close()

    assert [row["error"] for row in rows(tmp_path) if row["event"] == "acknowledge"] == ["Timeout: acknowledge"]


def test_a_receive_that_times_out_is_no_event(tmp_path: Path) -> None:
    consumer = capture.wrap(fakes.PulsarConsumer(), tmp_path)
    with pytest.raises(fakes.Timeout):
        consumer.receive(timeout_millis=1)
    consumer.close()
    assert [row["event"] for row in rows(tmp_path)] == ["start", "closing", "close"]


def test_all_else_is_the_clients(tmp_path: Path) -> None:
    client = fakes.PulsarConsumer()
    consumer = capture.wrap(client, tmp_path)
    assert consumer.is_connected()
    assert consumer.subscription_name() == "sub"
    with pytest.raises(AttributeError):
        consumer.no_such_method  # noqa: B018
    consumer.close()
    assert client.calls == [("close", None)]


def test_a_listener_records_and_gets_a_consumer_that_records(tmp_path: Path) -> None:
    heard: list[Any] = []

    def on_message(consumer: Any, message: Any) -> None:
        heard.append(message)
        consumer.acknowledge(message)

    client = fakes.PulsarConsumer()
    listener = capture.message_listener(on_message, tmp_path)
    listener(client, PulsarMessage(MessageId(5, 0)))
    consumer = listener.wrap(client)
    listener(client, PulsarMessage(MessageId(5, 1)))
    consumer.close()

    assert [message.id.entry for message in heard] == [0, 1]
    found = rows(tmp_path)
    assert [row["event"] for row in found if row["entry"] is not None] == ["receive", "acknowledge"] * 2
    assert len({row["instance"] for row in found}) == 1


def test_a_listener_whose_recording_cannot_begin_is_called_all_the_same(tmp_path: Path) -> None:
    heard: list[Any] = []
    listener = capture.message_listener(lambda consumer, message: heard.append(message), tmp_path)
    listener(object(), PulsarMessage(MessageId(5, 0)))
    assert len(heard) == 1


def test_the_made_up_name_of_a_consumer_of_several_topics_is_no_topic(tmp_path: Path) -> None:
    class OfSeveral(fakes.PulsarConsumer):
        def topic(self) -> str:
            return "persistent://public/default/MultiTopicsConsumer-a1b2c3"

    capture.wrap(OfSeveral(), tmp_path / "untold").close()
    capture.wrap(OfSeveral(), tmp_path / "told", topics=["persistent://a/b/c", "persistent://a/b/d"]).close()
    assert [row["topic"] for row in rows(tmp_path / "untold") if row["event"] == "start"] == [None]
    started = [row["topic"] for row in rows(tmp_path / "told") if row["event"] == "start"]
    assert started == ["persistent://a/b/c", "persistent://a/b/d"]


def test_wrapping_a_client_that_cannot_be_recorded_fails(tmp_path: Path) -> None:
    class Asynchronous:
        async def receive(self) -> None: ...
        async def acknowledge(self, message: Any) -> None: ...

    with pytest.raises(TypeError, match="coroutine methods"):
        capture.wrap(Asynchronous(), tmp_path)
    with pytest.raises(TypeError, match="is not a consumer"):
        capture.wrap(object(), tmp_path)
    with pytest.raises(ValueError, match="flush_rows is 0"):
        capture.wrap(fakes.PulsarConsumer(), tmp_path, flush_rows=0)
    with pytest.raises(ValueError, match="flush_seconds"):
        capture.message_listener(print, tmp_path, flush_seconds=-1)
