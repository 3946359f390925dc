"""What an audit gains by more cores: ``python -m tests.bench.cores [million deliveries]`` prints seconds by cores.

One audit runs on the cores of this machine, and Spark's event log tells how long each of its tasks took. These tasks
are then given to 1, 2, 4 … cores, each to the core that is free first, wave after wave: a wave are stages that ran at
the same time. To that comes the time in which no task ran. Beside it stand what was measured, for the cores that there
are, and the longest task of each wave: no number of cores makes a wave shorter. Two logs are looked at: one of 64 topic
partitions, and the same with half of its messages of one key, so in one of them. What the second takes longer at its
longest tasks is what a hot partition costs. ``python -m tests.bench.sizing`` says what follows for larger days.
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
    from subreplay import pipeline
    from subreplay.config import run as config
    from subreplay.spark.session import open_session

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
            pipeline.audit(spark, config.parse(asked, "benchmark"), quietly)

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
    deliveries = round(millions * 1e6)
    longest = []
    with tempfile.TemporaryDirectory() as scratch:
        warm_up = Path(scratch) / "warm_up"
        day.write(warm_up, WARM_UP)
        for name, of_one_key in (("64 topic partitions", 0), ("half of it of one key", deliveries // 2)):
            folder, logs = Path(scratch) / name.replace(" ", "_"), Path(scratch) / f"logs_{bool(of_one_key)}"
            day.write(folder, deliveries, of_one_key, PARTITIONS)
            logs.mkdir()
            found = measured("tests.bench.cores", str(warm_up), str(folder), str(logs)).found
            tasks = [task for wave in found["waves"] for task in wave]
            longest.append(sum(max(wave) for wave in found["waves"]))
            print(f"{name}: {deliveries:,} deliveries in {found['seconds']:.1f} s on this machine")
            print(
                f"  tasks {sum(tasks):.1f} s, no task ran for {found['idle']:.1f} s, longest tasks {longest[-1]:.1f} s"
            )
            for cores in CORES:
                seconds = found["idle"] + sum(makespan(wave, cores) for wave in found["waves"])
                print(f"  {cores:3} cores {seconds:8.1f} s {deliveries / seconds / 1e6:8.2f} M deliveries/s")
                figures.tell(f"audit of {name}, {cores} cores", seconds=seconds)
            if not of_one_key:
                megabytes = found["shuffled"] / 1e6 / millions
                print(f"  a million deliveries: {sum(tasks) / millions:.1f} core seconds, {megabytes:.0f} MB shuffled")
                figures.tell(MILLION, core_seconds=sum(tasks) / millions, shuffled_MB=megabytes)
        more = longest[1] - longest[0]  # of a partition that has, of each million, these more
        hot = max(0.0, more) / (millions * (0.5 - 0.5 / PARTITIONS))
        print(f"a million deliveries of one topic partition: {hot:.1f} s, on however many cores")
        figures.tell(MILLION, hot_seconds=hot)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        print(json.dumps(audit(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
    else:
        main(*map(float, sys.argv[1:]))
