"""What a what-if costs: ``python -m tests.bench.whatif [million messages]`` prints ratios, each of one run.

The traffic has 100,000 keys on 8 partitions in 24 hours, and windows of an hour. The bare loop is the least that a
scenario can cost: one compiled pass that looks up the owner of a 16-bit slot and adds messages and bytes by window.
Scenarios have ten consumers, of which some join and leave; half of the forty send the messages to other partitions.
Seconds of evaluations are of the processor, on one core. Those of the profile and of the what-if are of the clock, on
the local engine, beside a bare scan and a group by of the same columns in Spark, in a process of its own, under the
settings that Spark comes with.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.config import run as config
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import profiled_traffic, story
from subreplay.pipeline.inputs import read_inputs, scan_inputs
from subreplay.rows.model.columns import DAY
from subreplay.rows.model.tables import INPUTS
from subreplay.semantics.policies import make_policy
from subreplay.whatif.scenario import PlannedMember, build_plan, build_planned_events
from subreplay.whatif.traffic.evaluation_counts import Extent
from subreplay.whatif.traffic.plan_evaluator import PlanEvaluator
from subreplay.whatif.traffic.producer_rerouting import PartitionRouting, reroute
from subreplay.whatif.traffic.profile_builder import BLOCK
from subreplay.whatif.traffic.traffic_profile import TrafficProfile
from tests.bench import figures

TOPIC, KEYS, PARTITIONS, HOUR = "persistent://public/default/t", 100_000, 8, DAY // 24
POLICIES = ("pulsar.key_shared.auto_split", "pulsar.key_shared.consistent_hash", "pulsar.failover", "pulsar.shared")
SCAN, PROFILE = "bare scan and group by in Spark", "traffic's profile of the raw table"
WHATIF = "what-if of four scenarios, from the raw table"
BEGIN = 20_635 * DAY  # in July 2026
RAN = [PlannedMember(f"c{i}", 0, None) for i in range(10)]
CAME = [PlannedMember(f"d{i}", BEGIN + HOUR * 4 * i, BEGIN + HOUR * (4 * i + 3)) for i in range(5)]


def write(folder: Path, messages: int) -> None:
    """Table ``messages`` below a folder, as Parquet."""
    schema = pa.schema([field for field in INPUTS["messages"] if field.name != "origin"])
    draws = np.random.default_rng(1)
    for begin in range(0, messages, BLOCK):
        n = min(BLOCK, messages - begin)
        number = np.arange(begin, begin + n)
        key = draws.integers(0, KEYS, n)
        names = np.char.add("customer-", key.astype(str)).astype(object)
        given = {
            "date": pa.array(np.full(n, BEGIN // DAY, np.int32)).cast(pa.date32()),
            "topic": [TOPIC] * n,
            "partition": key % PARTITIONS,
            "ledger": np.zeros(n, np.int64),
            "entry": number // PARTITIONS,
            "batch_index": np.full(n, -1),
            "key": pa.array(names, pa.binary()),
            "producer": ["p"] * n,
            "sequence_id": number,
            "publish_time": pa.array(BEGIN // 1000 + number * (DAY // 1000 // messages)).cast(
                schema.field("publish_time").type
            ),
            "size": draws.integers(100, 1_000, n),
        }
        columns = [_cast(given.get(field.name), field.type, n) for field in schema]
        (folder / "messages").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns, schema=schema), folder / f"messages/{begin:012}.parquet")


def _cast(values: object, kind: pa.DataType, n: int) -> pa.Array:
    if values is None:
        return pa.nulls(n, kind)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array.cast(kind)


@numba.njit
def bare(slots, window, size, owners, messages, total):  # type: ignore[no-untyped-def]
    for i in range(len(slots)):
        owner = owners[slots[i]]
        messages[window[i], owner] += 1
        total[window[i], owner] += size[i]


def bare_loop(profile: TrafficProfile) -> float:
    """Seconds of the bare loop."""
    draws = np.random.default_rng(2)
    slots = draws.integers(0, 65_536, len(profile)).astype(np.uint16)
    window = ((profile.at - profile.extent[0]) // HOUR).astype(np.int16)
    owners = draws.integers(0, 10, 65_536).astype(np.int16)
    size = profile.size.astype(np.int32)
    sums = [np.zeros((25, 10), np.int64) for _ in range(2)]
    bare(slots[:1], window[:1], size[:1], owners, *sums)
    return seconds(lambda: bare(slots, window, size, owners, *sums))


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


def evaluations(profile: TrafficProfile) -> dict[str, list[float]]:
    """Seconds of one scenario of each policy, and of forty, of which half are on other partitions."""
    extent = Extent(*profile.extent, HOUR)
    evaluator = PlanEvaluator(profile, extent)

    def evaluate(of: PlanEvaluator, policy: str, changing: bool) -> None:
        events = {scope: build_planned_events(RAN + CAME * changing, scope, 0) for scope in of.profile.scopes}
        folded = build_plan("s", make_policy(policy, "pulsar-4.0"), events)
        of.evaluate(folded.policy, folded.timelines)

    first = seconds(lambda: evaluate(evaluator, POLICIES[0], False))  # compiled code is loaded, runs are cut
    found = {"first of all, with what they have in common": [first]}
    for policy in POLICIES:
        found[policy] = [seconds(lambda p=policy: evaluate(evaluator, p, True)) for _ in range(3)]  # type: ignore[misc]

    def forty() -> None:
        own = PlanEvaluator(profile, extent)
        for partitions in (5, 10, 16, 24, 48):
            routing = PartitionRouting(partitions, "JavaStringHash", "round robin")
            elsewhere = PlanEvaluator(reroute(profile, routing), extent)
            for policy in POLICIES:
                evaluate(elsewhere, policy, True)
                evaluate(own, policy, bool(partitions % 2))

    found["forty scenarios"] = [seconds(forty)]
    return found


def compare(folder: str) -> None:
    """A what-if of a scenario of each policy, from raw messages to its report's data and tables."""
    members = [{"consumer": f"c{i}"} for i in range(10)]
    with tempfile.TemporaryDirectory() as out:
        requested = {
            "traffic": {"messages": {"path": f"{folder}/messages", "format": "parquet"}},
            "subscription": {"topic": TOPIC},
            "windows": {"width": "1h"},
            "scenarios": [{"name": policy, "policy": policy, "members": members} for policy in POLICIES],
            "output": {"tables": f"{out}/tables", "report": f"{out}/report"},
        }
        with LocalEngine() as engine:
            story.whatif(engine, config.parse(requested, "bench"))


SCANNING = """
import sys, time
import pyspark.sql.functions as F
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
for _ in range(4):
    begun = time.perf_counter()
    by_key = spark.read.parquet(sys.argv[1]).groupBy("topic", "partition", "key")
    found = by_key.agg(F.count("*"), F.sum("size"), F.max("entry"), F.max("publish_time"))
    found.write.format("noop").mode("overwrite").save()
    print(time.perf_counter() - begun)
"""


def scans(table: str) -> list[float]:
    """Seconds of a bare scan, once Java knows its code."""
    reported = subprocess.run(
        [sys.executable, "-c", SCANNING, table], capture_output=True, text=True, check=True
    ).stdout
    return [float(line) for line in reported.split()][1:]


def main(millions: float = 10) -> None:
    messages = round(millions * 1e6)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), messages)
        run = config.parse(
            {"traffic": {"path": scratch, "format": "parquet"}, "subscription": {"topic": TOPIC}}, "bench"
        )
        made: list[profiled_traffic.ProfiledTraffic] = []
        engine = LocalEngine()

        def build() -> None:
            made.clear()
            inputs = read_inputs(engine, run, messages_only=True)
            blocks = scan_inputs(inputs, log=False, only=("messages",)).by_table["messages"]["profile"]
            made.append(profiled_traffic.ProfiledTraffic(engine, blocks, messages))
            assert made[-1].local_profile is not None

        built = min(seconds(build, time.perf_counter) for _ in range(2))
        scanned = statistics.median(scans(f"{scratch}/messages"))
        size = sum(len(block.as_py()) for block in made[-1].blocks.to_table()["block"])
        profile = made[-1].local_profile
        assert profile is not None
        assert len(profile) == messages
        whole = min(seconds(lambda: compare(scratch), time.perf_counter) for _ in range(2))
        for name, took in ((SCAN, scanned), (PROFILE, built), (WHATIF, whole)):
            figures.tell(name, seconds=took)
        print(f"{messages:,} messages, {KEYS:,} keys, {PARTITIONS} partitions")
        print(f"{SCAN:48}{scanned:8.2f} s")
        print(f"{PROFILE:48}{built:8.2f} s {built / scanned:6.1f} ×   at most 2 ×")
        print(f"{WHATIF:48}{whole:8.2f} s {whole / scanned:6.1f} ×   at most 3 ×")
        print(f"{'on disk':48}{size / messages:8.2f} bytes a message   at most 16")
        engine.close()
    least = bare_loop(profile)
    print(f"{'bare compiled loop':48}{messages / least / 1e6:8.0f} M messages/s")
    for name, times in evaluations(profile).items():
        best = min(times)
        many = 40 if name == "forty scenarios" else 1
        rate = many * messages / best / 1e6
        figures.tell(f"profile of {messages:,}: {name}", seconds=best)
        goal = "at most 10 s for 10 M" if many > 1 else "at least 50 M"
        print(f"{name:48}{rate:8.0f} M messages/s {best:8.2f} s   {goal}")
    peak = figures.peak()
    print(f"{'memory of this process':48}{peak:8.0f} MiB   at most 2,048")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
