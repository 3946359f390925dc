"""The golden generations of Kafka's real assignor classes, as input and expected output of ``assign``."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from subreplay.semantics.policies.kafka.assignor import (
    UNASSIGNED,
    GroupMember,
    MemberClaim,
    Owners,
    Partitions,
    TopicPartition,
)

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "kafka" / "4.0.2"


def generations(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], Partitions, tuple[GroupMember, ...]]]:
    """(case, generation, partitions, members) of every generation in ``<name>.jsonl.gz``.

    Partitions and members are built from the generation's ``topics``, ``partition_racks`` and ``members`` and the
    case's ``topic_ids`` alone.
    """
    with gzip.open(GOLDEN / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            for generation in case["generations"]:
                partitions = _partitions(case, generation)
                yield case, generation, partitions, tuple(_member(entry, partitions) for entry in generation["members"])


def expected_owners(generation: dict[str, Any], partitions: Partitions, members: tuple[GroupMember, ...]) -> Owners:
    """The generation's ``assignment`` as ``assign`` returns it."""
    owners = np.full(len(partitions), UNASSIGNED, np.int32)
    for position, member in enumerate(members):
        owners[partitions.find_numbers(map(_parsed, generation["assignment"][member.member_id]))] = position
    return owners


def _partitions(case: dict[str, Any], generation: dict[str, Any]) -> Partitions:
    claimed = (partition for entry in generation["members"] for partition in _claimed(entry))
    racks = {
        topic: tuple(frozenset(replicas) for replicas in of_topic)
        for topic, of_topic in generation.get("partition_racks", {}).items()
    }
    ids = {
        topic: UUID(bytes=base64.urlsafe_b64decode(f"{text}==")) for topic, text in case.get("topic_ids", {}).items()
    }
    return Partitions.from_counts(generation["topics"], claimed, racks, ids)


def _member(entry: dict[str, Any], partitions: Partitions) -> GroupMember:
    generation = entry.get("generation", -1)
    since = (entry["user_data"] or {}).get("generation", -1) if "user_data" in entry else generation
    claim = MemberClaim(np.sort(partitions.find_numbers(_claimed(entry))), since)
    return GroupMember(
        entry["member_id"], frozenset(entry["topics"]), entry["instance_id"], entry.get("rack"), generation, claim
    )


def _claimed(entry: dict[str, Any]) -> list[TopicPartition]:
    """What a member claims: by its user data (sticky), as owned (cooperative) or by its target (server)."""
    names = (entry.get("user_data") or {}).get("owned") or entry.get("owned") or entry.get("target") or []
    return [_parsed(name) for name in names]


def _parsed(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))
