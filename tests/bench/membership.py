"""What a thousand consumers cost: ``python -m tests.bench.membership [number of consumers]`` prints a table.

They join one by one and then leave one by one; members of a Kafka group share 100,000 partitions. In rows of churn, 200
members of a group join ten times each, and all timelines of its 100 partitions are made. Each row runs in a
process of its own, so that its peak memory is its own (interpreter and libraries included, about 120 MiB). To add one,
put a function of the number of consumers into ``ROWS``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import ASSIGNORS, REGISTRY, make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from tests.bench import figures
from tests.support.joins import fold

SLOTS = 65536


PARTITIONS = 100_000
SECOND = 1_000_000_000


class Kept(NamedTuple):
    """What is left in memory: epochs (generations), and ranges or moved partitions over all of them."""

    epochs: int
    changes: int


def pulsar(name: str, profile: str, consumers: int) -> Kept:
    """A timeline of a Pulsar policy; consumers of equal share bring their ranges."""
    width = SLOTS // consumers
    joins = [f"+c{i}[{i * width}-{(i + 1) * width - 1}]" for i in range(consumers)]
    timeline = fold(make_policy(name, profile), " ".join([*joins, *(f"-c{i}" for i in range(consumers))]))
    return Kept(len(timeline.epochs), len(timeline.index.owners))


def kafka(name: str, topics: int, members: int, partitions: int = PARTITIONS) -> Kept:
    """The timeline of a group, all members subscribed to all topics."""
    counts = {f"t{i:04d}": partitions // topics for i in range(topics)}
    steps = [(kind, f"m{i:04d}") for kind in ("join", "leave") for i in range(members)]
    instants = (Instant(second * SECOND) for second in range(len(steps)))
    events = [MembershipEvent(Scope(""), kind, name, at, at) for (kind, name), at in zip(steps, instants, strict=True)]
    policy = make_policy(name, "kafka-4.0", initial_rebalance_delay_us=0)
    group = GroupTimeline.fold(policy, Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts)), events)
    return Kept(len(group.steps), sum(len(step.change.owners) for step in group.steps))


def churn(name: str, consumers: int) -> Kept:
    """The timelines of 100 partitions of a group of which a fifth of ``consumers`` are members at a time; they join ten
    times each."""
    members, seq = max(consumers // 5, 1), 0
    events: list[MembershipEvent] = []
    for join in range(10 * members):
        for kind in ("leave", "join") if join >= members else ("join",):
            at = Instant(seq * SECOND, seq)
            events.append(MembershipEvent(Scope(""), kind, f"m{join % members:04d}", at, at))  # type: ignore[arg-type]
            seq += 1
    partitions = Partitions.from_counts({"t": 100}, topic_ids=derive_topic_ids(["t"]))
    group = GroupTimeline.fold(make_policy(name, "kafka-4.0", initial_rebalance_delay_us=0), partitions, events)
    timelines = group.timelines(Scope("t", number) for number in range(100))
    return Kept(len(group.steps), sum(len(timeline.index.owners) for timeline in timelines.values()))


ROWS: dict[str, Callable[[int], Kept]] = {
    f"{name} {profile}": partial(pulsar, name, profile)
    for name in REGISTRY
    for profile in ("pulsar-3.2", "pulsar-4.0")
    if name.startswith("pulsar.")
} | {
    f"{assignor.name} {topics} topics": partial(kafka, assignor.name, topics)
    for assignor in ASSIGNORS
    for topics in (1, 1_000)
}
ROWS |= {f"{assignor.name} churn": partial(churn, assignor.name) for assignor in ASSIGNORS}


def measure(row: str, consumers: int) -> dict[str, float]:
    """Seconds, peak resident memory (MiB) and what was kept, in this process."""
    ROWS[row](10)  # compiled code is loaded
    began = time.perf_counter()
    kept = ROWS[row](consumers)
    seconds = time.perf_counter() - began
    peak = figures.peak()
    return {"seconds": seconds, "peak": peak} | kept._asdict()


def main(consumers: int) -> None:
    print(f"{'policy':48}{'seconds':>9}{'MiB':>7}{'epochs':>8}{'changes':>12}   {consumers} consumers join, then leave")
    for row in ROWS:
        command = [sys.executable, "-m", "tests.bench.membership", str(consumers), row]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print("{0:48}{seconds:9.2f}{peak:7.0f}{epochs:8}{changes:12}".format(row, **found))
        figures.tell(f"fold of {row}", seconds=found["seconds"], MiB=found["peak"])


if __name__ == "__main__":
    requested = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[2], requested)))
    else:
        main(requested)
