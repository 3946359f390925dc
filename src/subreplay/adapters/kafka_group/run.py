"""What copies of ``__consumer_offsets`` tell beside rows: a run to start from, and sentences on what is not told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from subreplay.adapters.kafka_group.rows import GroupRows
from subreplay.hashing.profiles import LATEST_PROFILES

POLICIES: Final = {
    ("classic", "range"): "kafka.range",
    ("classic", "roundrobin"): "kafka.roundrobin",
    ("classic", "sticky"): "kafka.sticky",
    ("classic", "cooperative-sticky"): "kafka.cooperative_sticky",
    ("consumer", "uniform"): "kafka.uniform",
    ("consumer", "range"): "kafka.server_range",
}
"""Policies by protocol and assignor."""
ASSIGNORS: Final = pa.schema([("group", pa.string()), ("protocol", pa.string()), ("assignors", pa.list_(pa.string()))])
"""The protocol of a group's latest generation (null: none is told), and its assignors as often as they changed."""
NOTES: Final = (
    "records of __consumer_offsets have no messages: name them as traffic.messages, such as {from: kafka-table.spark, "
    "path: ...}",
    "deliveries are commits and what these acknowledge: they do not tell what was delivered, so rules that need it are "
    "not applicable. Receipts come from traffic.deliveries, such as {from: otlp-spans, path: ...}",
)
NO_LOG: Final = (
    "without the coordinator's log (option coordinator_log) a member's leave is known by the next generation only, and "
    "counts as a leave though it may have been a failure"
)
_NO_DELAYS: Final = {"session.timeout.ms": 0, "group.initial.rebalance.delay.ms": 0}
"""Events have the instants of complete rebalances: the coordinator has waited already."""


def assignors(rows: GroupRows) -> Iterator[dict[str, Any]]:
    """Rows of ``ASSIGNORS``."""
    for group in sorted({*rows.generations["subscription"].to_pylist(), *rows.members["subscription"].to_pylist()}):
        generations = [row for row in rows.generations.to_pylist() if row["subscription"] == group]
        asked = [row["assignor"] for row in rows.members.to_pylist() if row["subscription"] == group]
        protocol = generations[-1]["protocol"] if generations else None
        told = [row["assignor"] for row in generations if row["protocol"] == protocol]
        known = [name for name in told if name] or [name for name in asked if name]
        changed = [name for i, name in enumerate(known) if i == 0 or known[i - 1] != name]
        yield {"group": group, "protocol": protocol, "assignors": changed}


def run_of(found: Mapping[str, Any] | None, group: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """A run to start from: the policy of the latest generation, as far as it is told (a row of ``ASSIGNORS``)."""
    run: dict[str, Any] = {"name": group, "topic": topic, "profile": LATEST_PROFILES["kafka"]}
    protocol, told = (None, []) if found is None else (found["protocol"], found["assignors"])
    if protocol is None or not told or (protocol, told[-1]) not in POLICIES:
        why = f"assignor {told[-1]} is none that is known" if told else "the assignor is not told"
        return {"subscription": run}, [f"{why}: set subscription.policy to one of kafka.*"]
    run |= {"policy": POLICIES[protocol, told[-1]], "options": _NO_DELAYS}
    notes = []
    if len(set(told)) > 1:
        notes.append(f"the group changed its assignor ({', '.join(dict.fromkeys(told))}): the policy is the last one")
    if protocol == "classic":
        notes.append("the release of the clients, which assign by themselves, is not told: check profile (kafka-2.3)")
    return {"subscription": run}, notes


def of_commits(first: int, back: int, without_partition: list[str]) -> Iterator[str]:
    """Sentences on how many commits are ``first`` of their partition or went ``back``, and on files that tell no
    partition."""
    if first:
        yield (f"what the first commit of a partition here acknowledges is not told ({first:,} commits): nobody knows "
               "where its group began")  # fmt: skip
    if back:
        yield f"{back:,} commits went back: what they take back comes again as a delivery of its own"
    if without_partition:
        files = ", ".join(without_partition)
        yield f"{files}: no record tells its partition of __consumer_offsets, which is taken to be 0"
