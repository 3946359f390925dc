"""What the report of a large group costs: ``python -m tests.bench.report [joins]`` prints a table.

200 consumers join, leave and come back, at each of 100 partitions; every window has all of them. Timed is all that
turns folded timelines and counted rows into a report, and what renders it; time is linear in the joins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from subreplay.config.run import parse
from subreplay.reports.assemble import report as assemble
from subreplay.reports.assemble import scenario_comparison
from subreplay.reports.assemble.audit_verdict import RunJudgement
from subreplay.reports.data import EngineInfo
from subreplay.reports.figures import Figures
from subreplay.reports.json_report import to_json
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope, Verdict
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.fair_share import find_connected_intervals
from subreplay.whatif.message_assignment import ScenarioPlan

CONSUMERS, PARTITIONS, WINDOWS = 200, 100, 240
SECOND = 1_000_000_000
TOPIC = "persistent://public/default/t"
POLICIES = ("pulsar.key_shared.auto_split", "pulsar.key_shared.consistent_hash", "pulsar.failover")
Made = TypeVar("Made")


def story(joins: int) -> list[MembershipEvent]:
    """Consumers join one after the other; each leaves half a second before its turn comes again."""
    events = []
    for number in range(joins):
        name, at = f"c{number % CONSUMERS}", number * SECOND
        if number >= CONSUMERS:
            leaves = Instant(at - SECOND // 2, 2 * number)
            events.append(MembershipEvent(Scope(TOPIC), "leave", name, leaves, leaves))
        joined = Instant(at, 2 * number + 1)
        events.append(MembershipEvent(Scope(TOPIC), "join", name, joined, joined))
    return events


def figures(policy: str, joins: int) -> Figures:
    """What such a run counts: the membership is folded once, and taken for every partition."""
    made = make_policy(policy, "pulsar-4.0")
    folded = Timeline.fold(made, Scope(TOPIC), story(joins))
    scopes = [Scope(TOPIC, partition) for partition in range(PARTITIONS)]
    plan = ScenarioPlan("as recorded", made, {scope: replace(folded, scope=scope) for scope in scopes})
    width = max(joins * SECOND // WINDOWS, 1)
    names = [f"c{i}" for i in range(CONSUMERS)]
    load = [
        {"window": window * width, "consumer": name, "messages": 100, "bytes": 1_000, "keys": 10}
        for window in range(WINDOWS) for name in names
    ]  # fmt: skip
    totals = [{"consumer": name, "messages": 100 * WINDOWS, "bytes": 1_000, "keys": 10} for name in names]
    extent = {"first": 0, "last": joins * SECOND, "messages": 100 * WINDOWS * CONSUMERS}
    intervals = find_connected_intervals(plan.timelines.values(), extent["last"])
    return Figures(TOPIC, (), extent, width, plan, intervals, load=load, consumers=totals)


def timed(work: Callable[[], Made]) -> tuple[Made, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began


def main(joins: int) -> None:
    print(f"{'report of a group':48}{'joins':>7}{'assembled':>11}{'compared':>10}{'JSON':>8}   seconds")
    config = parse({"subscription": {"policy": POLICIES[0]}}, "bench")
    for policy in POLICIES:
        for some in (joins // 4, joins // 2, joins):
            counted = figures(policy, some)
            run = assemble.build_run_info(config, counted, "audit", EngineInfo("none", ""))
            report, built = timed(lambda: assemble.build_report(run, counted, RunJudgement(Verdict.VALID), ()))  # noqa: B023
            plans = (counted.plan,)
            _, compared = timed(lambda: scenario_comparison.build_scenario_views(plans, counted))  # noqa: B023
            text, written = timed(lambda: to_json(report))  # noqa: B023
            print(f"{policy:48}{some:7}{built:11.2f}{compared:10.2f}{written:8.2f}   {len(text) / 1e6:.1f} MB of JSON")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
