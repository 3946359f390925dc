"""Find the decisions of a Kafka group's coordinator: the owner of each partition, generation by generation.

The record of a classic generation contains the assignments of all members. Under the consumer protocol a decision is
the target assignment of an epoch, which the coordinator computes itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from subreplay.adapters.kafka_group.group_members import Row

TopicPartition = tuple[str, int]


class GroupDecision(NamedTuple):
    """The owners in a generation (a target epoch), decided at ``at`` (µs)."""

    protocol: str
    generation: int
    at: int
    owners: Mapping[TopicPartition, str]
    assignor: str | None


def find_decisions(records: Iterable[tuple[str, Row]], topic_names: Mapping[str, str]) -> Iterator[GroupDecision]:
    """Yield the decisions about one group in record order.

    ``topic_names`` are names of topic ids that no record contains; partitions of unnamed topics are omitted."""
    names, targets = dict(topic_names), dict[str, list[TopicPartition]]()
    epoch, open_ = -1, False  # open_: a target was written whose epoch has no record yet
    for table, row in records:
        if table == "classic_groups" and not row["tombstone"]:
            owners = {
                (one["topic"], one["partition"]): member["member_id"]
                for member in row["members"] or ()
                for one in member["assignment"] or ()
            }
            yield GroupDecision("classic", row["generation"], row["record_time"], owners, row["protocol"])
        elif table == "topic_metadata":
            names |= {topic["topic_id"]: topic["topic"] for topic in row["topics"] or ()}
        elif table == "members" and row["tombstone"]:
            targets.pop(row["member_id"], None)
        elif table == "targets":
            open_ = open_ or not row["tombstone"]
            targets[row["member_id"]] = [
                (names[one["topic_id"]], one["partition"])
                for one in row["assignment"] or ()
                if one["topic_id"] in names
            ]
        elif (table == "target_epochs" and not row["tombstone"]) or (table == "current_assignments" and open_):
            # a returning static member takes over its target within the epoch
            epoch, open_ = row["epoch"] if table == "target_epochs" else epoch, False
            owners = {one: member for member, owned in targets.items() for one in owned}
            yield GroupDecision(row.get("protocol", "consumer"), epoch, row["record_time"], owners, None)


def build_decision_rows(decided: Iterable[GroupDecision]) -> Iterator[dict[str, Any]]:
    """Yield rows of table ``membership``, without the group's name and ``seq``, for the changes of each decision."""
    before: Mapping[TopicPartition, str] = {}
    for one in decided:
        for topic_partition in sorted({*before, *one.owners}):
            owner = one.owners.get(topic_partition)
            if owner != before.get(topic_partition):
                yield {
                    "date": date(1970, 1, 1) + timedelta(microseconds=one.at), "topic": topic_partition[0],
                    "partition": topic_partition[1], "type": one.protocol, "consumer": owner or before[topic_partition],
                    "event": "owner" if owner else "withdrawn", "at": one.at, "generation": one.generation,
                    "assignor": one.assignor,
                }  # fmt: skip
        before = one.owners
