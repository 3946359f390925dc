"""What recording costs a consumer's own thread: ``python -m tests.bench.capture`` prints µs a message.

A message is received and acknowledged (of Kafka: every hundredth is committed), plainly and recorded, in turns; the
difference is the cost. Messages are the clients' own objects where the clients are installed, without a broker.
*own thread* is the processor time of the application's thread. *all threads* adds what the recording threads take
until everything is read: what an application that keeps its process busy all the time would notice.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from subreplay import capture
from tests.bench import figures
from tests.support import consumers as fakes

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


def cost(consumer: Any, work: Callable[[Any], None]) -> tuple[float, float]:
    """µs a message that recording adds to the application's thread, and to the process; medians of rounds."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = capture.wrap(consumer, folder, subscription="sub", buffer_rows=10_000_000)
        own, together = [], []
        for _ in range(ROUNDS):
            began = time.thread_time()
            work(consumer)
            plain = time.thread_time() - began
            began, of_process = time.thread_time(), time.process_time()
            work(recorded)
            own.append(time.thread_time() - began - plain)
            while recorded.recording.buffered:
                time.sleep(0.05)
            together.append(time.process_time() - of_process - plain)
        recorded.close()
        counts = recorded.recording.counts
        assert counts.flushed == counts.seen, counts
    return statistics.median(own) / MESSAGES * 1e6, statistics.median(together) / MESSAGES * 1e6


def main() -> None:
    pulsar_consumer, kafka_consumer = PulsarConsumer(deque()), KafkaConsumer(deque())
    pulsar_consumer.message, kafka_consumer.message = pulsar_message(), kafka_message()
    print(f"{'recording, µs a message':56}{'own thread':>12}{'all threads':>13}")
    for name, consumer, work in (
        ("Pulsar: receive and acknowledge", pulsar_consumer, of_pulsar),
        ("Kafka: poll, commit every 100", kafka_consumer, of_kafka),
    ):
        what = f"{name} ({type(consumer.message).__module__})"
        own, together = cost(consumer, work)
        figures.tell(f"recording, {what}", own_us=own, together_us=together)
        print(f"{what:56}{own:12.2f}{together:13.2f}")


if __name__ == "__main__":
    main()
