"""A consumer of confluent-kafka that records itself: run as a program, so that it can be killed.

Arguments: bootstrap server, topic, group, client id, folder of captures. It prints what it receives, commits by itself,
and leaves the group when it is terminated.
"""

from __future__ import annotations

import signal
import sys

from subreplay import capture


def main() -> None:
    """Consume until the process is terminated."""
    from confluent_kafka import Consumer  # no other test needs it

    address, topic, group, name, folder = sys.argv[1:]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "client.id": name,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 500,
        "auto.commit.interval.ms": 200,
        "auto.offset.reset": "earliest",
        "on_commit": lambda error, partitions: consumer.on_commit(error, partitions),
    }
    consumer = capture.wrap(Consumer(settings), folder, subscription=group, flush_seconds=0.1)
    consumer.subscribe([topic])
    while not ended:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            sys.stdout.write(message.value().decode() + "\n")
            sys.stdout.flush()
    consumer.close()


if __name__ == "__main__":
    main()
