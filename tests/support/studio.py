"""A studio over the bundled recording, in this process, and random states of its page."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from subreplay.adapters import Options
from subreplay.cli.commands.sources import ingest_folder
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.source import read_traffic
from subreplay.studio.replay import BackgroundReplay
from subreplay.studio.serve import create_server
from subreplay.studio.state import StudioRun
from subreplay.studio.workbench import Workbench

POLICIES = (
    "pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split", "pulsar.key_shared.sticky", "pulsar.failover",
    "pulsar.shared", "pulsar.exclusive", "kafka.range", "kafka.cooperative_sticky", "kafka.uniform",
)  # fmt: skip


def write_recording(folder: Path) -> StudioRun:
    """Write the bundled recording as tables, and return the run over them."""
    with as_file(files("subreplay.demo") / "recording") as recording:
        ingest_folder(recording, str(folder / "in"), "pulsar-recording", "parquet", {}, Options())
    sections = {
        "traffic": {"path": str(folder / "in"), "format": "parquet"},
        "subscription": {"name": "sub", "policy": "pulsar.key_shared.consistent_hash", "profile": "pulsar-4.0"},
        "windows": {"width": "500ms"},
    }
    return StudioRun(sections, "the recording")


@contextmanager
def open_workbench(run: StudioRun) -> Iterator[Workbench]:
    """Read the traffic of a run."""
    with closing(LocalEngine(cores=1)) as engine:
        config = run.parse({})
        yield Workbench(run, read_traffic(engine, config, run_tables(engine, config, "whatif_", kept=True)), True)


@dataclass
class RunningStudio:
    """A studio that answers at ``url``."""

    url: str
    workbench: Workbench

    @property
    def origin(self) -> str:
        return self.url.split("/#")[0]

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]

    def post(self, name: str, asked: Any, headers: Mapping[str, str | None] | None = None) -> tuple[int, Any]:
        """Send a request as the page does, with other ``headers`` if they are given; None leaves one out."""
        sent = {"Origin": self.origin, "X-Studio-Token": self.token, "Content-Type": "application/json"}
        sent.update(headers or {})  # type: ignore[arg-type]
        connection = http.client.HTTPConnection(urlsplit(self.origin).netloc, timeout=60)
        with closing(connection):
            body = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
            connection.request("POST", f"/api/{name}", body, {k: v for k, v in sent.items() if v is not None})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@contextmanager
def start_studio(workbench: Workbench, replay: BackgroundReplay | None = None) -> Iterator[RunningStudio]:
    """Serve a workbench in a thread."""
    made = create_server(workbench, "127.0.0.1", 0, replay=replay)
    thread = Thread(target=made.run, daemon=True)
    thread.start()
    while not made.server.started:
        time.sleep(0.01)
    try:
        yield RunningStudio(made.url, workbench)
    finally:
        made.server.should_exit = True
        thread.join(10)


def draw_state(seed: int) -> dict[str, Any]:
    """Draw a state of the page: set-ups with any policy, members, changes, partitions and windows."""
    rng = random.Random(seed)
    setups = [_draw_setup(rng, f"set-up {number}") for number in range(rng.randint(1, 3))]
    service = {"model": "fixed", "time": f"{rng.randint(1, 40)}ms"}
    return {
        "scenarios": setups,
        "windows": {"width": rng.choice(["100ms", "500ms", "1s", "5s"])},
        "plan": {"service": service, "sizing": {"utilisation": rng.choice([0.5, 0.7, 0.9])}},
    }


def _draw_setup(rng: random.Random, name: str) -> dict[str, Any]:
    policy = rng.choice(POLICIES)
    profiles = ("kafka-4.1", "kafka-4.2") if policy.startswith("kafka.") else ("pulsar-4.0", "pulsar-3.2")
    setup: dict[str, Any] = {"name": name, "policy": policy, "profile": rng.choice(profiles)}
    if policy in ("kafka.uniform",):
        setup["profile"] = "kafka-4.1"
    count = rng.choice([1, 2, 3, 5, 8, 13])
    if rng.random() < 0.2 and not policy.endswith("sticky"):
        setup["members"] = "recorded"
    else:
        setup["members"] = [_draw_member(rng, number, count, policy) for number in range(count)]
    if rng.random() < 0.4:
        setup["partitions"] = rng.choice([1, 2, 3, 8, 24])
    if rng.random() < 0.2:
        setup["hashing"] = rng.choice(["JavaStringHash", "Murmur3_32Hash"])
    return setup


def _draw_member(rng: random.Random, number: int, count: int, policy: str) -> dict[str, Any]:
    member: dict[str, Any] = {"consumer": f"c{number:05}"}
    if rng.random() < 0.2:
        member["join"] = f"{rng.randint(1, 8)}s"
    if rng.random() < 0.3:
        member[rng.choice(["leave", "crash"])] = f"{rng.randint(9, 12)}s"
        if rng.random() < 0.5:
            member["restart"] = f"{rng.randint(1, 3)}s"
    if policy.endswith("key_shared.sticky"):
        size = 65_536 // count
        member["ranges"] = [[number * size, 65_535 if number == count - 1 else (number + 1) * size - 1]]
    elif rng.random() < 0.1 and policy.startswith("pulsar."):
        member["priority"] = rng.randint(0, 2)
    return member
