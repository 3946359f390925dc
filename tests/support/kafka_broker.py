"""A real Kafka broker (KRaft, one node) and its command-line tools, as Java processes of the jars that ``make brokers``
fetches, and consumers of confluent-kafka in processes of their own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pyspark

BROKERS = Path(os.environ.get("SUBREPLAY_BROKERS", Path(sys.prefix) / "brokers"))
"""Folders ``kafka`` (broker and clients), ``spark`` (Spark's Kafka source) and ``pulsar`` (the distribution)."""
_PATIENCE = 120.0  # seconds
_LOG4J = """<Configuration><Appenders><File name="f" fileName="{file}">
<PatternLayout pattern="[%d{{yyyy-MM-dd HH:mm:ss,SSS}}{{UTC}}] %p %m (%c)%n"/></File></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="f"/></Root></Loggers></Configuration>"""
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{controller}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def missing() -> str | None:
    """Why there can be no broker here; None: there can."""
    if find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed: make brokers does it"
    if not any((BROKERS / "kafka").glob("*kafka-server-*.jar")) or not any((BROKERS / "spark").glob("*.jar")):
        why = BROKERS / "failed"
        return why.read_text() if why.exists() else f"no jars of Kafka in {BROKERS}: make brokers fetches them"
    return why_no_java()


def why_no_java() -> str | None:
    return None if shutil.which("java") else "there is no java on the PATH"


@dataclass
class Broker:
    """A running broker, in a folder of its own."""

    folder: Path
    port: int
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def log(self) -> Path:
        """What the broker says, the group coordinator with it."""
        return self.folder / "server.log"

    def tool(self, name: str, *arguments: str, given: str = "") -> str:
        """Run a command-line tool of Kafka to its end."""
        command = [*_java(self.folder, "tool"), f"org.apache.kafka.tools.{name}", *arguments]
        done = subprocess.run(command, input=given.encode(), capture_output=True, timeout=_PATIENCE, check=True)
        return done.stdout.decode()

    def create(self, topic: str, partitions: int) -> None:
        self.tool("TopicCommand", "--bootstrap-server", self.address, "--create", "--topic", topic,
                  "--partitions", str(partitions), "--replication-factor", "1")  # fmt: skip

    def produce(self, topic: str, records: Sequence[tuple[str, str]]) -> None:
        """Records with their keys, by the console producer."""
        lines = "".join(f"{key}:{value}\n" for key, value in records)
        self.tool("ConsoleProducer", "--bootstrap-server", self.address, "--topic", topic, "--property",
                  "parse.key=true", "--property", "key.separator=:", given=lines)  # fmt: skip

    def consume(self, topic: str, group: str, client: str) -> subprocess.Popen[bytes]:
        """A consumer of confluent-kafka, which goes on until it is ended, and records itself into ``captured/``."""
        command = [sys.executable, "-m", "tests.support.kafka_consumer",
                   self.address, topic, group, client, str(self.folder / "captured")]  # fmt: skip
        with (self.folder / f"{client}.txt").open("wb") as said:
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL)
        self.clients.append(process)
        return process

    def said(self, client: str) -> int:
        """How many records a consumer has printed."""
        return len((self.folder / f"{client}.txt").read_bytes().splitlines())


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker until the end, and its consumers with it."""
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, data=folder / "data"))
    java = _java(folder, "server")
    formatted = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(settings)]
    subprocess.run(formatted, check=True, capture_output=True, timeout=_PATIENCE)
    with (folder / "broker.txt").open("wb") as said:
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said)
    running = Broker(folder, port)
    try:
        until(lambda: "Kafka Server started" in running.log.read_text(), process)
        yield running
    finally:
        for each in (*running.clients, process):
            each.kill()
            each.wait()


def until(holds: object, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait for a condition. Raises ``TimeoutError`` where it does not come, or its process has ended."""
    assert callable(holds)
    end = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > end or (process is not None and process.poll() is not None):
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.1)


def _java(folder: Path, name: str) -> list[str]:
    log4j = folder / f"{name}.xml"
    log4j.write_text(_LOG4J.format(file=folder / f"{name}.log"))
    scala = next((Path(pyspark.__file__).parent / "jars").glob("scala-library-*.jar"))  # which Spark's Ivy leaves out
    return ["java", "-Xmx300m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={log4j}",
            "-cp", f"{BROKERS / 'kafka'}/*:{scala}"]  # fmt: skip


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port: int = found.getsockname()[1]
        return port
