"""Build the run for copies of ``__consumer_offsets``, and notes about what they do not contain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.kafka_group.group_members import SHARE
from subreplay.adapters.kafka_group.group_rows import GroupRows
from subreplay.adapters.kafka_group.streams_records import STREAMS
from subreplay.hashing.profiles import KAFKA_4_0, KAFKA_4_2, KAFKA_4_4, LATEST_PROFILES

POLICIES: Final = {
    ("classic", "range"): "kafka.range",
    ("classic", "roundrobin"): "kafka.roundrobin",
    ("classic", "sticky"): "kafka.sticky",
    ("classic", "cooperative-sticky"): "kafka.cooperative_sticky",
    ("consumer", "uniform"): "kafka.uniform",
    ("consumer", "range"): "kafka.server_range",
}
"""The policies by protocol and assignor."""
ASSIGNORS: Final = pa.schema(
    [
        ("group", pa.string()),
        ("protocol", pa.string()),
        ("assignors", pa.list_(pa.string())),
        ("profile", pa.string()),
    ]
)
"""The protocol of a group's latest generation (null: unknown), its assignors in the order of their changes, and the
profile of its coordinator."""
NOTES: Final = (
    "records of __consumer_offsets contain no messages. Name them as traffic.messages, such as {from: "
    "kafka-table.spark, path: ...}",
    "deliveries are commits and the records that they acknowledge. They do not show what was delivered, so rules that "
    "need deliveries are not applicable. Receipts come from traffic.deliveries, such as {from: otlp-spans, path: ...}",
)
NO_LOG: Final = (
    "without the coordinator's log (option coordinator_log) a leave is known only from the next generation, and a "
    "failure counts as a leave"
)
SHARE_NOTE: Final = (
    "records of __consumer_offsets contain the members of a share group and their partitions, but no delivery. Set "
    "subscription.options to the group's lock duration and delivery limit, and take deliveries from captures"
)
STREAMS_POLICY: Final = "kafka.uniform"
STREAMS_NOTE: Final = (
    f"a streams group assigns tasks, and no policy does. Recorded decisions are followed; {STREAMS_POLICY} stands in "
    "where none is recorded, and for what-ifs. Standby and warm-up tasks, patterns of topics and the coordinator's log "
    "of streams groups are not read"
)
_DELAY_OPTIONS: Final = {"session.timeout.ms": 0, "group.initial.rebalance.delay.ms": 0}
"""Events have the times of complete rebalances, so these delays are already included."""


def list_assignors(rows: GroupRows, decoded: Mapping[str, pa.Table]) -> Iterator[dict[str, Any]]:
    """Yield rows of ``ASSIGNORS`` for the groups in ``rows``, which were built from the records in ``decoded``."""
    for group in sorted({*rows.generations["subscription"].to_pylist(), *rows.members["subscription"].to_pylist()}):
        generations = [row for row in rows.generations.to_pylist() if row["subscription"] == group]
        requested = [row["assignor"] for row in rows.members.to_pylist() if row["subscription"] == group]
        protocol = generations[-1]["protocol"] if generations else None
        used = [row["assignor"] for row in generations if row["protocol"] == protocol]
        known = [name for name in used if name] or [name for name in requested if name]
        changed = [name for i, name in enumerate(known) if i == 0 or known[i - 1] != name]
        profile = find_profile(decoded, group) if protocol == "consumer" else LATEST_PROFILES["kafka"]
        yield {"group": group, "protocol": protocol, "assignors": changed, "profile": profile}


def find_profile(decoded: Mapping[str, pa.Table], group: str) -> str:
    """Find the profile of the coordinator of a group under the consumer protocol by the form of its records.

    Up to 4.0 it writes records about topics, and from 4.3 on targets have a time.
    """
    topics, targets = (
        decoded[name].filter(pc.equal(decoded[name]["group"], group)) for name in ("topic_metadata", "target_epochs")
    )
    if targets["computed_at"].null_count < len(targets):
        return KAFKA_4_4
    return KAFKA_4_0 if len(topics) else KAFKA_4_2


def build_run(found: Mapping[str, Any] | None, group: str, topic: str) -> tuple[dict[str, Any], list[str]]:
    """Build a run with the policy of the latest generation, if a row of ``ASSIGNORS`` shows it."""
    profile = LATEST_PROFILES["kafka"] if found is None else found["profile"]
    run: dict[str, Any] = {"name": group, "topic": topic, "profile": profile}
    protocol, used = (None, []) if found is None else (found["protocol"], found["assignors"])
    if protocol == SHARE:
        return {"subscription": run | {"policy": "kafka.share"}}, [SHARE_NOTE]
    if protocol == STREAMS:
        return {"subscription": run | {"policy": STREAMS_POLICY, "options": _DELAY_OPTIONS}}, [STREAMS_NOTE]
    if protocol is None or not used or (protocol, used[-1]) not in POLICIES:
        problem = f"assignor {used[-1]} has no policy" if used else "the source does not record the assignor"
        return {"subscription": run}, [f"{problem}. Set subscription.policy to one of kafka.*"]
    run |= {"policy": POLICIES[protocol, used[-1]], "options": _DELAY_OPTIONS}
    notes = []
    if len(set(used)) > 1:
        notes.append(
            f"the group changed its assignor ({', '.join(dict.fromkeys(used))}), and the policy is the last one"
        )
    if protocol == "classic":
        notes.append("the source does not record the release of the clients, which assign partitions themselves. Check "
                     "subscription.profile (kafka-2.3 for old clients)")  # fmt: skip
    return {"subscription": run}, notes


def describe_commits(first: int, back: int, without_partition: list[str]) -> Iterator[str]:
    """Yield notes about the number of commits that are ``first`` of their partition or went ``back``, and about files
    without partitions."""
    if first:
        yield (f"{first:,} commits are the first of their partition, so the records that they acknowledge are unknown: "
               "the copy does not show where the group began")  # fmt: skip
    if back:
        yield f"{back:,} commits moved back, so the records after them count as redelivered"
    if without_partition:
        files = ", ".join(without_partition)
        yield f"{files}: no record contains its partition of __consumer_offsets, so 0 is assumed"
