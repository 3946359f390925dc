"""What recording costs a consumer's own thread: ``python -m tests.bench.capture`` prints µs a message.

A message is received and acknowledged (of Kafka: every hundredth is committed), plainly and recorded, in turns; the
difference is the cost. Messages are the clients' own objects where the clients are installed, without a broker. As an
application does work, too, there is a pause after each round, in which the writing thread catches up; *sustained*
leaves it out, so the writing thread's work for the interpreter counts as well.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from subreplay import capture
from tests.capture import fakes

MESSAGES = 10_000
ROUNDS = 9


class PulsarConsumer(fakes.PulsarConsumer):
    """Always has the same message, and does nothing with acknowledgements."""

    message: Any

    def receive(self, timeout_millis: int | None = None) -> Any:
        return self.message

    def acknowledge(self, message: Any) -> None:
        return None


class KafkaConsumer(fakes.KafkaConsumer):
    """Always has the same message, and does nothing with commits."""

    message: Any

    def poll(self, timeout: float = -1) -> Any:
        return self.message

    def commit(self, message: Any = None, offsets: Any = None, asynchronous: bool = True) -> None:
        return None


def pulsar_message() -> Any:
    """A message of the client's own class, else one that is shaped like it."""
    try:
        import _pulsar
        import pulsar
    except ImportError:
        return fakes.PulsarMessage(fakes.MessageId(5, 17), "user-17", b"x" * 200)
    return pulsar.Message._wrap(_pulsar.MessageBuilder().content(b"x" * 200).partition_key("user-17").build())


def kafka_message() -> Any:
    """A message of the client's own class, else one that is shaped like it."""
    try:
        from confluent_kafka import Message

        return Message(topic="orders", partition=1, offset=5, key=b"user-17", value=b"x" * 200, timestamp=(1, 5))
    except (ImportError, TypeError):
        return fakes.KafkaMessage(5)


def of_pulsar(consumer: Any) -> None:
    for _ in range(MESSAGES):
        consumer.acknowledge(consumer.receive())


def of_kafka(consumer: Any) -> None:
    for n in range(MESSAGES):
        message = consumer.poll(1.0)
        if n % 100 == 99:
            consumer.commit(message)


def cost(consumer: Any, work: Callable[[Any], None], pause: float) -> float:
    """µs a message that recording adds, the median of rounds."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = capture.wrap(consumer, folder, subscription="sub", buffer_rows=10_000_000)
        found = []
        for _ in range(ROUNDS):
            seconds = []
            for each in (consumer, recorded):
                began = time.perf_counter()
                work(each)
                seconds.append(time.perf_counter() - began)
            found.append((seconds[1] - seconds[0]) / MESSAGES * 1e6)
            while pause and recorded.recording.buffered:
                time.sleep(pause)
        recorded.close()
        counts = recorded.recording.counts
        assert counts.flushed == counts.seen, counts
    return statistics.median(found)


def main() -> None:
    pulsar_consumer, kafka_consumer = PulsarConsumer(deque()), KafkaConsumer(deque())
    pulsar_consumer.message, kafka_consumer.message = pulsar_message(), kafka_message()
    print(f"{'recording, µs a message':48}{'with pauses':>12}{'sustained':>12}")
    for name, consumer, work in (
        ("Pulsar: receive and acknowledge", pulsar_consumer, of_pulsar),
        ("Kafka: poll, commit every 100", kafka_consumer, of_kafka),
    ):
        what = f"{name} ({type(consumer.message).__module__})"
        print(f"{what:48}{cost(consumer, work, 0.05):12.2f}{cost(consumer, work, 0):12.2f}")


if __name__ == "__main__":
    main()
