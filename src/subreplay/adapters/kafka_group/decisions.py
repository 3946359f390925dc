"""What the coordinator of a Kafka group decided: the owner of each partition, generation by generation.

A classic generation's record has the assignment of every member. Under the consumer protocol it is the target of an
epoch, which the coordinator computes itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, NamedTuple

from subreplay.adapters.kafka_group.members import Row

TopicPartition = tuple[str, int]


class Decision(NamedTuple):
    """Who owns what in a generation (a target epoch), decided at ``at`` (µs)."""

    protocol: str
    generation: int
    at: int
    owners: Mapping[TopicPartition, str]
    assignor: str | None


def decisions(records: Iterable[tuple[str, Row]], topic_names: Mapping[str, str]) -> Iterator[Decision]:
    """The decisions about one group, in the order of its records.

    ``topic_names`` are those of ids that no record tells; partitions of a topic without a name are left out."""
    names, targets = dict(topic_names), dict[str, list[TopicPartition]]()
    epoch, open_ = -1, False  # open_: a target was written of which no new epoch tells yet
    for table, row in records:
        if table == "classic_groups" and not row["tombstone"]:
            owners = {
                (one["topic"], one["partition"]): member["member_id"]
                for member in row["members"] or ()
                for one in member["assignment"] or ()
            }
            yield Decision("classic", row["generation"], row["record_time"], owners, row["protocol"])
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
            # a static member that comes back takes over its target within the epoch
            epoch, open_ = row["epoch"] if table == "target_epochs" else epoch, False
            owners = {one: member for member, owned in targets.items() for one in owned}
            yield Decision("consumer", epoch, row["record_time"], owners, None)


def decision_rows(decided: Iterable[Decision]) -> Iterator[dict[str, Any]]:
    """Rows of table ``membership``, without the group's name and ``seq``: of each decision what it changes."""
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
