"""The replay of a consumer group: ``python -m tests.bench.kafka [million records]`` prints a table.

Eight members share 32 partitions at 87 % of what they can do, so that what is not committed stays bounded; the records
are made as they are read. Rows of a thousand: 1,000 members, 10,000 partitions. The last row folds such a group, whose
members join one by one and then leave one by one. Each row runs in a process of its own, so that its peak memory
is its own (interpreter and libraries included, about 170 MiB). Seconds are of the processor, on one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.simulation.kafka.group_simulation import GroupReplay
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.service_model import Fixed, LogNormal, Service
from tests.bench import figures
from tests.bench.membership import kafka

TOPIC, BATCH = "t", 50_000
FEW, MANY = (8, 32), (1_000, 10_000)  # members, partitions
GAP, SERVICE = 100_000, 700_000  # ns between two records, and that a record takes
ROWS: dict[str, tuple[str, Service, float]] = {  # assignor, service model, times the records asked for
    "kafka.range": ("kafka.range", Fixed(SERVICE), 1),
    "kafka.cooperative_sticky": ("kafka.cooperative_sticky", Fixed(SERVICE), 1),
    "kafka.uniform": ("kafka.uniform", Fixed(SERVICE), 1),
    "kafka.uniform, lognormal": ("kafka.uniform", LogNormal(600_000, 0.5), 1),
    "kafka.range, five times as many": ("kafka.range", Fixed(SERVICE), 5),
    "kafka.cooperative_sticky, a thousand": ("kafka.cooperative_sticky", Fixed(SERVICE), 1),
    "kafka.uniform, a thousand": ("kafka.uniform", Fixed(SERVICE), 1),
}


SIZES = {"kafka.cooperative_sticky, a thousand": MANY, "kafka.uniform, a thousand": MANY}
FOLD = "fold of kafka.cooperative_sticky"


def records(count: int, partitions: int) -> Iterator[Records]:
    """The log as a stream."""
    draws = np.random.default_rng(1)
    for start in range(0, count, BATCH):
        rows = create_records(min(BATCH, count - start), LOGGED)
        rows.entry = np.arange(start, start + len(rows))
        rows.ready = rows.at = rows.entry * GAP
        rows["partition"] = draws.integers(0, partitions, len(rows))
        rows.size, rows.batch_index = 100, -1
        yield rows


def replay(assignor: str, service: Service, count: int, size: tuple[int, int] = FEW) -> int:
    """Rows of the replay; a member joins every tenth of the time, and the first one leaves."""
    tenth = count * GAP // 10
    members, count_of_partitions = size
    events = [("join", f"m{i}", 0) for i in range(members)]
    events += [(kind, f"m{i}", i * tenth) for i in range(1, 8) for kind in ("leave", "join")]
    story = [
        MembershipEvent(Scope(TOPIC), kind, name, Instant(at, seq), Instant(at, seq))
        for seq, (kind, name, at) in enumerate(events)
    ]
    partitions = Partitions.from_counts({TOPIC: count_of_partitions}, topic_ids=derive_topic_ids([TOPIC]))
    policy = make_policy(assignor, "kafka-4.0", initial_rebalance_delay_us=0)
    group = GroupReplay(
        policy,
        partitions,
        story,
        records(count, count_of_partitions),
        SimulationParameters(member=MemberModel(service)),
    )
    reported = 0
    for rows in group.predict_deliveries():
        reported += len(rows)
        for _ in group.take_lags():  # drawn, so that they need not be kept
            pass
    return reported


def measure(row: str, count: int) -> dict[str, float]:
    """Seconds, rows and peak resident memory (MiB), in this process."""
    if row == FOLD:
        return _fold()
    assignor, service, times = ROWS[row]
    replay(assignor, service, 1_000)  # compiled code is loaded
    began = time.process_time()
    reported = replay(assignor, service, round(count * times), SIZES.get(row, FEW))
    seconds = time.process_time() - began
    peak = figures.peak()
    return {"records": round(count * times), "rows": reported, "seconds": seconds, "peak": peak}


def _fold() -> dict[str, float]:
    members, partitions = MANY
    kafka("kafka.cooperative_sticky", 1, 10, partitions)  # compiled code is loaded
    began = time.process_time()
    kept = kafka("kafka.cooperative_sticky", 1, members, partitions)
    seconds = time.process_time() - began
    peak = figures.peak()
    return {"epochs": kept.epochs, "seconds": seconds, "peak": peak}


def main(millions: float = 2) -> None:
    print(f"{'consumer group':38}{'records':>12}{'rows':>12}{'M records/s':>13}{'MiB':>7}   at least 3 M records/s")
    for row in ROWS:
        command = [sys.executable, "-m", "tests.bench.kafka", str(millions), row]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        speed = found["records"] / found["seconds"] / 1e6
        print("{0:38}{records:12,}{rows:12,}{1:13.2f}{peak:7.0f}".format(row, speed, **found))
        figures.tell(row, ns_a_record=1e3 / speed, MiB=found["peak"])
    command = [sys.executable, "-m", "tests.bench.kafka", str(millions), FOLD]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("{0:38}{epochs:12,} rebalances in {seconds:.1f} s, {peak:.0f} MiB   at most 10 s".format(FOLD, **found))
    figures.tell(FOLD, seconds=found["seconds"], MiB=found["peak"])


if __name__ == "__main__":
    requested = float(sys.argv[1]) if len(sys.argv) > 1 else 2
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[2], round(requested * 1e6))))
    else:
        main(requested)
