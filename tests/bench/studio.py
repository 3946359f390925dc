"""What a change on the page of the studio costs: ``python -m tests.bench.studio [million messages]``.

The traffic is that of ``tests.bench.whatif``: 100,000 keys on 8 partitions in 24 hours. Each change is another number
of consumers under one of the policies, from 4 to 64, with one consumer that leaves. It is evaluated, drawn and written
as JSON, as the server does. Times are of the processor, on one core.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from subreplay.engine.local.engine import LocalEngine
from subreplay.hashing.profiles import get_latest_profile
from subreplay.pipeline import story
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.source import read_profile
from subreplay.studio.state import StudioRun
from subreplay.studio.workbench import Workbench
from tests.bench import figures
from tests.bench.whatif import TOPIC, write

COUNTS = (4, 8, 16, 32, 64)
POLICIES = (
    "pulsar.key_shared.auto_split", "pulsar.key_shared.consistent_hash", "pulsar.key_shared.sticky", "pulsar.failover",
    "pulsar.shared", "kafka.range", "kafka.roundrobin", "kafka.cooperative_sticky", "kafka.uniform",
)  # fmt: skip


def build_state(policy: str, count: int, width: str) -> dict[str, object]:
    members: list[dict[str, object]] = [{"consumer": f"c{number:05}"} for number in range(1, count + 1)]
    if policy.endswith("key_shared.sticky"):
        size = 65_536 // count
        for number, member in enumerate(members):
            member["ranges"] = [[number * size, (number + 1) * size - 1]]
    members[-1]["leave"] = "8h"
    setup = {"name": "today", "policy": policy, "profile": get_latest_profile(policy), "members": members}
    plan = {"service": {"model": "fixed", "time": "20ms"}}
    return {"scenarios": [setup], "windows": {"width": width}, "plan": plan}


def measure(workbench: Workbench, width: str) -> dict[str, list[float]]:
    """Milliseconds of a change to each number of consumers, by policy; each is measured three times."""
    found: dict[str, list[float]] = {}
    for policy in POLICIES:
        for count in COUNTS:
            state = build_state(policy, count, width)
            workbench.evaluate(state, 0, 0)  # the compiled code of the policy
            for _ in range(3):
                workbench._kept.clear()
                began = time.process_time()
                json.dumps(workbench.evaluate(state, 0, 0))
                found.setdefault(policy, []).append((time.process_time() - began) * 1000)
    return found


def main(millions: float = 10) -> None:
    messages = round(millions * 1e6)
    with tempfile.TemporaryDirectory() as scratch, LocalEngine() as engine:
        write(Path(scratch), messages)
        kept = f"{scratch}/kept"
        sections = {
            "traffic": {"path": scratch, "format": "parquet", "profile": kept},
            "subscription": {"topic": TOPIC},
        }
        story.profile(engine, StudioRun(sections, "bench").parse({}))
        run = StudioRun({"traffic": {"profile": kept}}, "bench")
        began = time.perf_counter()
        config = run.parse({})
        workbench = Workbench(run, read_profile(engine, config, run_tables(engine, config, "whatif_", kept=True)))
        state = workbench.describe()["state"]
        workbench.evaluate(state, 0, 0)
        print(f"{messages:,} messages; from the kept profile to the first chart {time.perf_counter() - began:.1f} s")
        for width in (state["windows"]["width"], "6m"):
            times = measure(workbench, width)
            for policy, each in times.items():
                print(f"{width:4} {policy:36}{np.median(each):8.0f} ms {max(each):8.0f} ms at most")
            every = [ms for each in times.values() for ms in each]
            median, p95 = np.median(every), np.quantile(every, 0.95)
            print(f"{width:4} {'every policy':36}{median:8.0f} ms {p95:8.0f} ms for 95%")
            figures.tell(f"studio, windows of {width}: a change", seconds=float(median) / 1000)
    print(f"memory of this process {figures.peak():,.0f} MiB")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
