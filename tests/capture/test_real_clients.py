"""The wrappers on the clients' own classes, where these are installed; no broker is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from subreplay import capture
from subreplay.capture.kafka_consumer import KafkaConsumer
from subreplay.capture.pulsar_consumer import PulsarConsumer
from tests.support import consumers as fakes
from tests.support.captured import rows


def own_methods(wrapper: type) -> set[str]:
    return {name for name, value in vars(wrapper).items() if callable(value) and not name.startswith("_")}


def test_every_method_that_is_recorded_is_one_of_pulsars_consumer() -> None:
    pulsar = pytest.importorskip("pulsar")
    assert own_methods(PulsarConsumer) - {"received"} <= set(dir(pulsar.Consumer))
    assert own_methods(fakes.PulsarConsumer) <= set(dir(pulsar.Consumer))
    assert own_methods(fakes.PulsarMessage) <= set(dir(pulsar.Message))


def test_pulsars_own_consumer_and_message_are_recorded(tmp_path: Path) -> None:
    pulsar = pytest.importorskip("pulsar")
    import _pulsar

    message = _pulsar.MessageBuilder().content(b"12345").partition_key("k").ordering_key("o").build()
    called: list[Any] = []

    class Core:
        """What pulsar.Consumer hands its calls on to."""

        def topic(self) -> str:
            return "persistent://a/b/c"

        def subscription_name(self) -> str:
            return "sub"

        def consumer_name(self) -> str:
            return "c1"

        def receive(self, *timeout: int) -> Any:
            return message

        def batch_receive(self) -> Any:
            return [message]

        def acknowledge(self, what: Any) -> None:
            called.append(what)

        negative_acknowledge = acknowledge_cumulative = acknowledge

    client = pulsar.Consumer()
    client._consumer, client._schema = Core(), pulsar.schema.BytesSchema()
    consumer = capture.wrap(client, tmp_path)
    consumer.acknowledge(consumer.receive())
    consumer.acknowledge(consumer.receive(100).message_id())
    consumer.negative_acknowledge(consumer.batch_receive()[0])
    consumer.recording.close()

    assert len(called) == 3
    found = rows(tmp_path)
    assert [row["event"] for row in found[1:]] == [
        "receive", "acknowledge", "receive", "acknowledge", "receive", "negative_acknowledge",
    ]  # fmt: skip
    assert not [row["error"] for row in found if row["error"]]
    assert (found[1]["key"], found[1]["ordering_key"], found[1]["size"], found[1]["ledger"]) == (b"k", b"o", 5, -1)


def test_every_method_that_is_recorded_is_one_of_kafkas_consumer() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    assert own_methods(KafkaConsumer) - {"on_commit"} <= set(dir(confluent_kafka.Consumer))
    assert own_methods(fakes.KafkaConsumer) <= set(dir(confluent_kafka.Consumer))


def test_kafkas_own_consumer_and_message_are_recorded(tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    configuration = {
        "group.id": "g",
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
        "enable.auto.offset.store": False,
    }
    consumer = capture.wrap(confluent_kafka.Consumer(configuration), tmp_path, subscription="g")
    consumer.subscribe(["orders"], on_assign=lambda consumer, partitions: None)
    assert consumer.poll(0.05) is None or consumer.poll(0.05).error() is not None
    assert consumer.consume(1, timeout=0.05) == []
    with pytest.raises(confluent_kafka.KafkaException):
        consumer.commit(asynchronous=False)
    message = confluent_kafka.Message(topic="orders", partition=1, offset=5, key=b"k", value=b"123", timestamp=(1, 7))
    consumer._received(message)
    consumer.unsubscribe()
    consumer.assign([confluent_kafka.TopicPartition("orders", 1)])
    consumer.close()

    found = [(row["event"], row["partition"], row["entry"], row["key"], row["size"]) for row in rows(tmp_path)]
    assert found == [
        ("start", None, None, None, None), ("subscribe", None, None, None, None), ("commit", None, None, None, None),
        ("receive", 1, 5, b"k", 3), ("unsubscribe", None, None, None, None),
        ("assign", 1, None, None, None), ("closing", None, None, None, None), ("close", None, None, None, None),
    ]  # fmt: skip
    assert "KafkaException" in rows(tmp_path)[2]["error"]
