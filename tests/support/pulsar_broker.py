"""A real Pulsar broker (standalone, of the distribution that ``make brokers`` fetches), its log with what an audit
needs, its statistics polled beside it, and consumers of pulsar-client in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.request import urlopen

from tests.support.kafka_broker import BROKERS, free_port, until, why_no_java

TENANT = "public"
_LOG4J = Path(__file__).with_name("pulsar_log4j2.yaml")
_SETTINGS = """
brokerServicePort={port}
webServicePort={web}
bindAddress=127.0.0.1
advertisedAddress=localhost
"""


def missing() -> str | None:
    """Why there can be no broker here; None: there can."""
    if find_spec("pulsar") is None:
        return "pulsar-client is not installed: make brokers does it"
    if not list(BROKERS.glob("pulsar/bin/pulsar")):
        why = BROKERS / "pulsar-failed"
        return why.read_text() if why.exists() else f"no Pulsar in {BROKERS}: make brokers fetches it"
    return why_no_java()


@dataclass
class Broker:
    """A running broker, in a folder of its own: ``log/broker.log``, ``log/stats.jsonl``, and ``captured/``."""

    folder: Path
    port: int
    web: int
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"pulsar://localhost:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "log/broker.log"

    def ask(self, path: str) -> Any:
        """An answer of the admin interface; None where there is none."""
        try:
            with urlopen(f"http://localhost:{self.web}/admin/v2/{path}", timeout=30) as answer:
                return json.load(answer)
        except OSError:
            return None

    def produce(self, topic: str, records: Sequence[tuple[str, str]]) -> None:
        """Records with their keys, each an entry of its own."""
        import pulsar

        client = pulsar.Client(self.address, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, producer_name="till")
        for key, value in records:
            producer.send(value.encode(), partition_key=key)
        client.close()

    def consume(self, topic: str, subscription: str, name: str, *slow: str) -> subprocess.Popen[bytes]:
        """A consumer under Key_Shared, which goes on until it is ended, and records itself into ``captured/``; a "slow"
        one has nothing acknowledged that it would lose when it is killed."""
        command = [sys.executable, "-m", "tests.support.pulsar_consumer",
                   self.address, topic, subscription, name, str(self.folder / "captured"), *slow]  # fmt: skip
        with (self.folder / f"{name}.txt").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL)
        self.clients.append(process)
        return process

    def said(self, name: str) -> list[str]:
        """What a consumer has received."""
        return (self.folder / f"{name}.txt").read_text().splitlines()

    def backlog(self, topic: str, subscription: str) -> int | None:
        """How many messages wait for an acknowledgement; None where that is not told."""
        stats = self.ask(f"{topic.replace('://', '/')}/stats")
        return stats and stats["subscriptions"][subscription]["msgBacklog"]

    @contextmanager
    def polled(self, topic: str) -> Iterator[None]:
        """Keep the statistics of a topic meanwhile, each half second, as docs/guides/sources.md says."""
        ended = Event()

        def poll() -> None:
            with (self.folder / "log/stats.jsonl").open("a") as kept:
                while not ended.wait(0.5):
                    at = time.time_ns()
                    stats = self.ask(f"{topic.replace('://', '/')}/stats")
                    if stats is not None:
                        kept.write(json.dumps({"at_ns": at, "topic": topic, "stats": stats}) + "\n")

        thread = Thread(target=poll)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker until the end, and its consumers with it."""
    home = BROKERS / "pulsar"
    running = Broker(folder, free_port(), free_port())
    running.log.parent.mkdir()
    settings = folder / "standalone.conf"
    stock = (home / "conf/standalone.conf").read_text()
    settings.write_text(stock + _SETTINGS.format(port=running.port, web=running.web))
    environment = os.environ | {
        "PULSAR_STANDALONE_CONF": str(settings), "PULSAR_LOG_CONF": str(_LOG4J), "PULSAR_LOG_DIR": str(folder),
        "PULSAR_MEM": "-Xmx400m -XX:MaxDirectMemorySize=256m", "PULSAR_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }  # fmt: skip
    command = [str(home / "bin/pulsar"), "standalone", "--no-functions-worker", "--no-stream-storage",
               "--bookkeeper-port", str(free_port()), "--bookkeeper-dir", str(folder / "bookkeeper"),
               "--metadata-dir", str(folder / "metadata")]  # fmt: skip
    with (folder / "broker.txt").open("wb") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        until(lambda: running.ask(f"namespaces/{TENANT}") == [f"{TENANT}/default"], process)
        yield running
    finally:
        for each in (*running.clients, process):
            each.kill()
            each.wait()
