"""What an audit gains by more cores: ``python -m tests.bench.cores [million deliveries]`` prints seconds by cores.

One audit runs on the cores of this machine, and Spark's event log tells how long each of its tasks took. These tasks
are then given to 1, 2, 4 … cores, each to the core that is free first, wave after wave: a wave are stages that ran at
the same time. To that comes the time in which no task ran. Beside it stand what was measured, for the cores that there
are, and the longest task of each wave: no number of cores makes a wave shorter. Two logs are looked at: one of 64 topic
partitions, and the same with half of its messages of one key, so in one of them. What the second takes longer at its
longest tasks is what a hot partition costs. What a million more cost is the difference to an eighth of the first.
``python -m tests.bench.sizing`` says what follows for larger days.
"""

from __future__ import annotations

import heapq
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, time
from typing import Any, NamedTuple

from tests.bench import day, figures
from tests.bench.audit import WARM_UP, measured

PARTITIONS = 64
CORES = (1, 2, 4, 16, 64)
MILLION = "audit, a million deliveries"


class Stage(NamedTuple):
    """When a stage began and ended, the seconds of its tasks, in the order in which they were started, and how many
    bytes they wrote for a shuffle."""

    name: str
    begin: float
    end: float
    tasks: tuple[float, ...]
    shuffled: int


class Ran(NamedTuple):
    """An audit: its seconds, those in which no task ran, the seconds of the tasks of each wave, bytes shuffled."""

    seconds: float
    idle: float
    waves: list[list[float]]
    shuffled: int

    @property
    def work(self) -> float:
        """Seconds of all tasks."""
        return sum(map(sum, self.waves))

    @property
    def longest(self) -> float:
        """Seconds of the longest task of each wave."""
        return sum(map(max, self.waves))


def stages(log: Iterable[str], since: float) -> list[Stage]:
    """The stages of an event log that began after ``since`` (s), in order of time."""
    tasks: dict[int, list[tuple[float, float]]] = {}
    shuffled: dict[int, int] = {}
    found: list[tuple[int, str, float, float]] = []
    for line in log:
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            begin, end = info["Launch Time"] / 1e3, info["Finish Time"] / 1e3
            tasks.setdefault(event["Stage ID"], []).append((begin, end - begin))
            written = event.get("Task Metrics", {}).get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
            shuffled[event["Stage ID"]] = shuffled.get(event["Stage ID"], 0) + written
        elif event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            begin, end = info["Submission Time"] / 1e3, info["Completion Time"] / 1e3
            found.append((info["Stage ID"], info["Stage Name"], begin, end))
    return sorted(
        (
            Stage(name, begin, end, tuple(taken for _, taken in sorted(tasks.get(number, []))), shuffled.get(number, 0))
            for number, name, begin, end in found
            if begin >= since
        ),
        key=lambda stage: stage.begin,
    )


def waves(of: Iterable[Stage]) -> Iterator[list[Stage]]:
    """Stages that ran at the same time."""
    wave: list[Stage] = []
    for stage in of:
        if wave and stage.begin >= max(one.end for one in wave):
            yield wave
            wave = []
        wave.append(stage)
    if wave:
        yield wave


def makespan(tasks: Iterable[float], cores: int) -> float:
    """Seconds until all tasks are done, each given to the core that is free first."""
    free = [0.0] * cores
    for seconds in tasks:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def audit(warm_up: Path, folder: Path, logs: str) -> dict[str, Any]:
    """Audit a folder; seconds it took, since when, and the event log below ``logs``."""
    from subreplay.config import run as config
    from subreplay.engine.spark.engine import SparkEngine
    from subreplay.engine.spark.session import open_session
    from subreplay.pipeline import story

    @contextmanager
    def quietly(_: str) -> Iterator[None]:
        yield

    def run(tables: Path) -> None:
        with tempfile.TemporaryDirectory() as out:
            asked = {
                "traffic": {"path": str(tables), "format": "parquet"},
                "windows": {"width": "1m"},
                "output": {"tables": f"{out}/tables", "report": f"{out}/report", "audited": "findings"},
            }
            with SparkEngine(spark) as engine:
                story.audit(engine, config.parse(asked, "benchmark"), quietly)

    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs, "spark.eventLog.rolling.enabled": "false"}
    conf["spark.eventLog.compress"] = "false"
    spark = open_session(config.Spark(shuffle_partitions=PARTITIONS, conf=conf))
    run(warm_up)
    since, began = time(), perf_counter()
    run(folder)
    seconds = perf_counter() - began
    spark.stop()
    (log,) = Path(logs).iterdir()
    with log.open() as lines:
        ran = stages(lines, since)
    groups = [*waves(ran)]
    idle = seconds - sum(max(one.end for one in wave) - min(one.begin for one in wave) for wave in groups)
    pooled = [[task for stage in wave for task in stage.tasks] for wave in groups]
    return {
        "seconds": seconds,
        "idle": idle,
        "waves": [tasks for tasks in pooled if tasks],
        "shuffled": sum(stage.shuffled for stage in ran),
    }


def main(millions: float = 4) -> None:
    of_one_key = round(millions * 1e6) // 2
    with tempfile.TemporaryDirectory() as scratch:
        warm_up = Path(scratch) / "warm_up"
        day.write(warm_up, WARM_UP)

        def ran(name: str, millions: float, of_one_key: int = 0) -> Ran:
            folder, logs = Path(scratch) / "tables" / name, Path(scratch) / "logs" / name
            day.write(folder, round(millions * 1e6), of_one_key, PARTITIONS)
            logs.mkdir(parents=True)
            found = measured("tests.bench.cores", str(warm_up), str(folder), str(logs)).found
            return _told(name, millions, Ran(**found))

        whole = ran("64 topic partitions", millions)
        hot = ran("half of it of one key", millions, of_one_key)
        few = ran("an eighth of it", millions / 8)
    more = millions - millions / 8
    work, shuffled = (whole.work - few.work) / more, (whole.shuffled - few.shuffled) / 1e6 / more
    alone = (hot.longest - whole.longest) / (millions * (0.5 - 0.5 / PARTITIONS))
    print(f"a million deliveries more: {work:.1f} core seconds, {shuffled:.0f} MB shuffled")
    print(f"a million more in one topic partition: {alone:.1f} s, on however many cores")
    figures.tell(MILLION, core_seconds=work, shuffled_MB=shuffled, hot_seconds=alone)


def _told(name: str, millions: float, ran: Ran) -> Ran:
    print(f"{name}: {millions * 1e6:,.0f} deliveries in {ran.seconds:.1f} s on this machine")
    print(f"  tasks {ran.work:.1f} s, no task ran for {ran.idle:.1f} s, longest tasks {ran.longest:.1f} s")
    for cores in CORES:
        seconds = ran.idle + sum(makespan(wave, cores) for wave in ran.waves)
        print(f"  {cores:3} cores {seconds:8.1f} s {millions / seconds:8.2f} M deliveries/s")
        figures.tell(f"audit of {name}, {cores} cores", seconds=seconds)
    return ran


if __name__ == "__main__":
    if len(sys.argv) > 3:
        print(json.dumps(audit(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
    else:
        main(*map(float, sys.argv[1:]))
