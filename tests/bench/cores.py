"""What an audit gains by more cores: ``python -m tests.bench.cores [million deliveries]`` prints seconds by cores.

Audits run on a standalone cluster of two workers of one core each, on loopback, where Spark writes every table. Spark's
event log has the times of each task. These tasks are then dealt to 1, 2, 4 … cores, each to the core that is free
first, wave after wave: a wave is a set of Spark's stages that ran at the same time. To that comes the time in which no
task ran, by stage of the story: the driver plans, commits, adds up, and no number of cores makes that shorter. Beside
it stand what was measured, and the longest task of each wave.

Two logs are audited: one of 64 topic partitions, and the same with half of its messages of one key, so in one of them.
What the second takes longer at its longest tasks is what a hot partition costs. The cost of a further million is the
difference to an eighth of the first. ``python -m tests.bench.sizing`` prints what follows for larger days.
"""

from __future__ import annotations

import heapq
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any, NamedTuple

from tests.bench import day, figures
from tests.bench.audit import WARM_UP, measured

PARTITIONS = 64
CORES = (1, 2, 4, 16, 64)
MILLION = "audit, a million deliveries"
DRIVER = "driver of "
WHOLE = "the whole audit"


class Stage(NamedTuple):
    """A stage of Spark: when its first task began and its last one ended, the seconds of its tasks, in the order in
    which they were started, and how many bytes they wrote for a shuffle."""

    name: str
    begin: float
    end: float
    tasks: tuple[float, ...]
    shuffled: int


class Ran(NamedTuple):
    """A part of an audit: its seconds, those in which no task ran, the seconds of the tasks of each wave, bytes
    shuffled."""

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

    def busy(self, cores: int) -> float:
        """Seconds of the tasks on so many cores."""
        return sum(makespan(wave, cores) for wave in self.waves)


def stages(log: Iterable[str]) -> list[Stage]:
    """The stages of an event log, in order of time."""
    tasks: dict[int, list[tuple[float, float]]] = {}
    shuffled: dict[int, int] = {}
    names: dict[int, str] = {}
    for line in log:
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            info = event["Task Info"]
            begin, end = info["Launch Time"] / 1e3, info["Finish Time"] / 1e3
            tasks.setdefault(event["Stage ID"], []).append((begin, end))
            written = event.get("Task Metrics", {}).get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
            shuffled[event["Stage ID"]] = shuffled.get(event["Stage ID"], 0) + written
        elif event["Event"] == "SparkListenerStageCompleted":
            names[event["Stage Info"]["Stage ID"]] = event["Stage Info"]["Stage Name"]
    found = []
    for number, times in tasks.items():
        begin, end, taken = min(times)[0], max(end for _, end in times), (end - begin for begin, end in sorted(times))
        found.append(Stage(names.get(number, ""), begin, end, tuple(taken), shuffled[number]))
    return sorted(found, key=lambda stage: stage.begin)


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


def idle(begin: float, end: float, of: Iterable[Stage]) -> float:
    """Seconds between two instants in which no task ran; the stages are in order of time."""
    seconds, since = 0.0, begin
    for stage in of:
        seconds += max(0.0, min(stage.begin, end) - since)
        since = max(since, min(stage.end, end))
    return seconds + end - since


def part(begin: float, end: float, of: list[Stage]) -> Ran:
    """What ran between two instants; a wave belongs to the instant at which it began."""
    mine = [wave for wave in waves(of) if begin <= wave[0].begin < end]
    pooled = [[task for stage in wave for task in stage.tasks] for wave in mine]
    return Ran(end - begin, idle(begin, end, of), pooled, sum(stage.shuffled for wave in mine for stage in wave))


def makespan(tasks: Iterable[float], cores: int) -> float:
    """Seconds until all tasks are done, each given to the core that is free first."""
    free = [0.0] * cores
    for seconds in tasks:
        heapq.heappush(free, heapq.heappop(free) + seconds)
    return max(free)


def audit(warm_up: Path, folder: Path, logs: str, master: str) -> dict[str, dict[str, list[Any]]]:
    """Audit two folders in one session; the parts (``Ran``) of the ``first`` audit and the ``next``, by stage of the
    story."""
    from subreplay.config import run as config
    from subreplay.engine.spark.engine import SparkEngine
    from subreplay.engine.spark.session import open_session
    from subreplay.pipeline import story
    from tests.support.cluster import SETTINGS

    def run(tables: Path) -> list[tuple[str, float, float]]:
        found = []

        @contextmanager
        def timed(stage: str) -> Iterator[None]:
            began = time()
            yield
            found.append((stage, began, time()))

        with tempfile.TemporaryDirectory() as out:
            configured = {
                "traffic": {"path": str(tables), "format": "parquet"},
                "windows": {"width": "1m"},
                "output": {"tables": f"{out}/tables", "report": f"{out}/report", "audited": "findings"},
            }
            with timed(WHOLE), SparkEngine(spark) as engine:
                story.audit(engine, config.parse(configured, "benchmark"), timed)
        return found

    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": logs, "spark.eventLog.rolling.enabled": "false"}
    conf["spark.eventLog.compress"] = "false"
    spark = open_session(config.Spark(master=master, shuffle_partitions=PARTITIONS, conf=SETTINGS | conf))
    ran = {"first": run(warm_up), "next": run(folder)}
    spark.stop()
    (log,) = Path(logs).iterdir()
    with log.open() as lines:
        all_stages = stages(lines)
    return {
        audit: {stage: list(part(begin, end, all_stages)) for stage, begin, end in parts}
        for audit, parts in ran.items()
    }


def main(millions: float = 4) -> None:
    from tests.support.cluster import cluster

    of_one_key = round(millions * 1e6) // 2
    with tempfile.TemporaryDirectory() as scratch, cluster(Path(scratch)) as running:
        warm_up = Path(scratch) / "warm_up"
        day.write(warm_up, WARM_UP)

        def ran(name: str, millions: float, of_one_key: int = 0) -> Ran:
            folder, logs = Path(scratch) / "tables" / name, Path(scratch) / "logs" / name
            day.write(folder, round(millions * 1e6), of_one_key, PARTITIONS)
            logs.mkdir(parents=True)
            found = measured("tests.bench.cores", str(warm_up), str(folder), str(logs), running.address).found
            first, later = ({stage: Ran(*each) for stage, each in found[audit].items()} for audit in ("first", "next"))
            for line in by_stage(f"{millions:g} M, {name}", first, later):
                print(line)
            return _printed(name, millions, later[WHOLE])

        few = ran("an eighth of it", millions / 8)
        hot = ran("half of it of one key", millions, of_one_key)
        whole = ran("64 topic partitions", millions)
    more = millions - millions / 8
    work, shuffled = (whole.work - few.work) / more, (whole.shuffled - few.shuffled) / 1e6 / more
    alone = (hot.longest - whole.longest) / (millions * (0.5 - 0.5 / PARTITIONS))
    print(f"a million deliveries more: {work:.1f} core seconds, {shuffled:.0f} MB shuffled")
    print(f"a million more in one topic partition: {alone:.1f} s, on however many cores")
    figures.tell(MILLION, core_seconds=work, shuffled_MB=shuffled, hot_seconds=alone)


def by_stage(name: str, first: dict[str, Ran], later: dict[str, Ran]) -> Iterator[str]:
    """A row of each stage of the story: the seconds in which no task ran, in the first audit of a session and in a
    later one, and the seconds of the later one's tasks on some cores. Their figures are kept."""
    yield f"{name:44}{'no task, first':>15}{'later':>7}" + "".join(f"{cores:>5} cores" for cores in CORES)
    for stage, ran in later.items():
        busy = {f"tasks_{cores}": ran.busy(cores) for cores in CORES}
        figures.tell(f"{DRIVER}{name}: {stage}", first=first[stage].idle, later=ran.idle, **busy)
        yield f"  {stage:42}{first[stage].idle:15.1f}{ran.idle:7.1f}" + "".join(
            f"{each:11.1f}" for each in busy.values()
        )


def _printed(name: str, millions: float, ran: Ran) -> Ran:
    print(f"{name}: {millions * 1e6:,.0f} deliveries in {ran.seconds:.1f} s on this machine")
    print(f"  tasks {ran.work:.1f} s, no task ran for {ran.idle:.1f} s, longest tasks {ran.longest:.1f} s")
    for cores in CORES:
        seconds = ran.idle + ran.busy(cores)
        print(f"  {cores:3} cores {seconds:8.1f} s {millions / seconds:8.2f} M deliveries/s")
        figures.tell(f"audit of {name}, {cores} cores", seconds=seconds)
    return ran


if __name__ == "__main__":
    if len(sys.argv) > 3:
        print(json.dumps(audit(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])))
    else:
        main(*map(float, sys.argv[1:]))
