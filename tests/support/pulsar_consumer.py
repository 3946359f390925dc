"""A consumer of pulsar-client under Key_Shared that records itself: run as a program, so that it can be killed.

Arguments: service URL, topic, subscription, name, folder of captures, and "slow" where each acknowledgement waits until
the receipt is on the disk. It prints what it receives, and closes when it is terminated.
"""

from __future__ import annotations

import signal
import sys
import time

from subreplay import capture


def main() -> None:
    """Consume until the process is terminated."""
    import pulsar  # no other test needs it

    address, topic, subscription, name, folder, *slow = sys.argv[1:]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    client = pulsar.Client(address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = capture.wrap(
        client.subscribe(topic, subscription, consumer_type=pulsar.ConsumerType.KeyShared, consumer_name=name),
        folder,
        subscription_type="Key_Shared",
        flush_seconds=0.1,
    )
    while not ended:
        try:
            message = consumer.receive(timeout_millis=100)
        except pulsar.Timeout:
            continue
        sys.stdout.write(message.data().decode() + "\n")
        sys.stdout.flush()
        while slow and consumer.recording.counts.waiting:
            time.sleep(0.01)
        consumer.acknowledge(message)
    consumer.close()
    client.close()


if __name__ == "__main__":
    main()
