"""Golden vectors of Kafka's assignors and its partitioner.

Each generation is judged twice: assigned from the ``members`` and ``topics`` in the file, and reached by a group that
only receives the ``events`` of the case. The generations of share groups are judged from their members only.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import numpy as np

from subreplay.conformance.golden.golden_cases import Case, find_difference, find_first
from subreplay.hashing.murmur2 import choose_kafka_partition, murmur2_32
from subreplay.hashing.profiles import KAFKA_4_0, KAFKA_4_4
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import (
    NO_GENERATION,
    GroupMember,
    Ints,
    MemberClaim,
    Partitions,
    TopicPartition,
)
from subreplay.semantics.policies.kafka.group import ConsumerGroup

PROFILE_OF = {"4.0.2": KAFKA_4_0, "4.4.0": KAFKA_4_4, "kafka-4.4": KAFKA_4_4}


def judge_partitioner_case(case: Case, profile: str) -> str | None:
    """Judge the default partitioner: Murmur2 of a key, and its partition for each number of partitions."""
    key = bytes.fromhex(case["key_hex"])
    unsigned = murmur2_32(key)
    actual = {
        "murmur2": unsigned - (1 << 32) if unsigned >> 31 else unsigned,
        "partition": {count: choose_kafka_partition(key, int(count)) for count in case["partition"]},
    }
    return find_difference("", case, actual)


def judge_assignor_case(case: Case, profile: str) -> str | None:
    """Judge the generations of a group under one assignor."""
    return find_first(_judge_generations(case, profile))


def _judge_generations(case: Case, profile: str) -> Iterator[str | None]:
    assignor: Any = make_policy(f"kafka.{case['assignor']}", profile)
    group = ConsumerGroup(assignor, trusts_stale_claims=True)
    ids = _parse_topic_ids(case)
    topics: dict[str, int] = {}
    for number, generation in enumerate(case["generations"], 1):
        partitions = _build_partitions(generation, ids)
        members = tuple(_build_member(entry, partitions) for entry in generation["members"])
        expected = generation | {name: _sort_assignment(generation.get(name, {})) for name in ("assignment", "revoked")}
        owners = assignor.assign(partitions, members)
        owned = [np.flatnonzero(owners == m) for m in range(len(members))]
        actual = {"assignment": _group_by_member(partitions, members, owned)}
        yield find_difference(f"generation {number} from its members, ", expected, actual)

        topics = _apply_topic_events(topics, generation["events"])
        group = group.with_partitions(_build_partitions(generation | {"topics": topics, "members": []}, ids))
        group = _apply_events(group, generation["events"], _build_attributes(generation))
        where = f"generation {number} from its events, "
        expected_claims = _list_claims(assignor, partitions, members)
        yield find_difference(where, expected_claims, _list_claims(assignor, group.partitions, group.members))
        group = group.rebalance({e.get("member") for e in generation["events"] if e["type"] == "missed_sync"})
        yield find_difference(where, expected, _describe_outcome(group))


def judge_share_case(case: Case, profile: str) -> str | None:
    """Judge the generations of a share group, each from its members."""
    return find_first(_judge_share_generations(case, profile))


def _judge_share_generations(case: Case, profile: str) -> Iterator[str | None]:
    policy: Any = make_policy("kafka.share", profile)
    ids = _parse_topic_ids(case)
    for number, generation in enumerate(case["generations"], 1):
        counts = dict.fromkeys(ids, 0) | generation["topics"]  # a topic without partitions is a deleted one
        partitions = _build_partitions(generation | {"topics": counts}, ids)
        members = tuple(_build_member(entry, partitions) for entry in generation["members"])
        refused = (TopicPartition(t, p) for t, found in generation.get("not_assignable", {}).items() for p in found)
        is_assignable = partitions.exists & ~np.isin(np.arange(len(partitions)), partitions.find_numbers(refused))
        actual = {
            "assignment": _group_by_member(partitions, members, policy.assign(partitions, members, is_assignable))
        }
        expected = generation | {"assignment": _sort_assignment(generation["assignment"])}
        yield find_difference(f"generation {number} from its members, ", expected, actual)


def _parse_topic_ids(case: Case) -> dict[str, UUID]:
    return {
        topic: UUID(bytes=base64.urlsafe_b64decode(f"{text}==")) for topic, text in case.get("topic_ids", {}).items()
    }


def _build_partitions(generation: Case, ids: Mapping[str, UUID]) -> Partitions:
    claimed = (named for entry in generation["members"] for named in _list_claimed(entry))
    racks = {
        topic: tuple(frozenset(replicas) for replicas in by_partition)
        for topic, by_partition in generation.get("partition_racks", {}).items()
    }
    return Partitions.from_counts(generation["topics"], claimed, racks, ids)


def _build_member(entry: Case, partitions: Partitions) -> GroupMember:
    """Build a member with its claim; on the server that is its previous target."""
    user_data = entry.get("user_data") or {}
    generation: int = entry.get("generation", -1)
    claimed_since = user_data.get("generation", NO_GENERATION) if "user_data" in entry else generation
    claim = MemberClaim(_find_numbers(partitions, _list_claimed(entry)), claimed_since)
    topics = frozenset(entry["topics"])
    return GroupMember(entry["member_id"], topics, entry["instance_id"], entry.get("rack"), generation, claim)


def _list_claimed(entry: Case) -> list[TopicPartition]:
    user_data = entry.get("user_data") or {}
    return [
        _parse_topic_partition(name) for name in entry.get("owned") or entry.get("target") or user_data.get("owned", [])
    ]


def _parse_topic_partition(name: str) -> TopicPartition:
    topic, _, partition = name.rpartition("-")
    return TopicPartition(topic, int(partition))


def _find_numbers(partitions: Partitions, named: Iterable[TopicPartition]) -> Ints:
    numbers = partitions.find_numbers(named)
    numbers.sort()
    return numbers


def _build_attributes(generation: Case) -> dict[str, GroupMember]:
    """Build the members without their partitions, because events only contain their names."""
    return {
        entry["member_id"]: GroupMember(
            entry["member_id"], frozenset(entry["topics"]), entry["instance_id"], entry.get("rack")
        )
        for entry in generation["members"]
    }


def _apply_topic_events(before: Mapping[str, int], events: list[Case]) -> dict[str, int]:
    """Return the partitions by topic after the events."""
    topics = dict(before)
    for event in events:
        if event["type"] == "topic_deleted":
            del topics[event["topic"]]
        elif event["type"] in ("topic_added", "partitions_grown"):
            topics[event["topic"]] = event["partitions"]
    return topics


def _apply_events(group: ConsumerGroup, events: list[Case], members_by_id: Mapping[str, GroupMember]) -> ConsumerGroup:
    """Return the group after the events of one generation."""
    for event in events:
        group = GROUP_CHANGES[event["type"]](group, event, members_by_id)
    return group


def _keep_group(group: ConsumerGroup, event: Case, members_by_id: Mapping[str, GroupMember]) -> ConsumerGroup:
    return group


def _change_subscriptions(group: ConsumerGroup, event: Case, members_by_id: Mapping[str, GroupMember]) -> ConsumerGroup:
    return group.subscribe(event.get("subscriptions", {}))


GROUP_CHANGES: Mapping[str, Callable[[ConsumerGroup, Case, Mapping[str, GroupMember]], ConsumerGroup]] = {
    "join": lambda group, event, members_by_id: group.join(_find_member(members_by_id, event)),
    "leave": lambda group, event, members_by_id: group.leave(event["member"]),
    "evict": lambda group, event, members_by_id: group.evict(event["member"]),
    "return_stale": lambda group, event, members_by_id: group.rejoin(_find_member(members_by_id, event)),
    "dynamic_restart": lambda group, event, members_by_id: group.leave(event["old_member"]).join(
        _find_member(members_by_id, event)
    ),
    "static_restart_quiet": lambda group, event, members_by_id: group.restart(
        event["old_member"], _find_member(members_by_id, event), True
    ),
    "static_restart_forced": lambda group, event, members_by_id: group.restart(
        event["old_member"], _find_member(members_by_id, event), False
    ),
    "topic_added": _change_subscriptions,
    "subscription_changed": _change_subscriptions,
    "partitions_grown": _keep_group,
    "topic_deleted": _keep_group,
    "missed_sync": _keep_group,
    "noop": _keep_group,
    "cooperative_followup": _keep_group,
}
"""The effect of each event of a golden file on a group."""


def _find_member(members_by_id: Mapping[str, GroupMember], event: Case) -> GroupMember:
    """Return the member of an event. A member that leaves before the rebalance is in no list and takes no part in
    it."""
    return members_by_id.get(event["member"], GroupMember(event["member"], frozenset()))


def _list_claims(assignor: Any, partitions: Partitions, members: Iterable[GroupMember]) -> dict[str, Any]:
    """Return each member's claims at a rebalance, as far as its assignor reads them and the files contain them."""
    claims_by_member: dict[str, Any] = {}
    for m in members:
        claimed = _format_names(partitions, m.claim.partitions)
        if assignor.rebalance == "server":
            claims_by_member[m.member_id] = claimed
        elif assignor.name == "kafka.sticky":
            claims_by_member[m.member_id] = m.generation, m.claim.generation if claimed else None, claimed
        else:
            claims_by_member[m.member_id] = m.generation, claimed if assignor.rebalance == "cooperative" else None
    return {"members": list(claims_by_member), "claims": claims_by_member}


def _describe_outcome(group: ConsumerGroup) -> Case:
    owned = [member.claim.partitions for member in group.assigned]
    actual: Case = {"assignment": _group_by_member(group.partitions, group.assigned, owned)}
    if group.assignor.rebalance == "cooperative":
        revoked = {i: sorted(f"{topic}-{p}" for topic, p in named) for i, named in group.revoked.items()}
        actual |= {"revoked": revoked, "followup_required": group.needs_rebalance}
    return actual


def _group_by_member(
    partitions: Partitions, members: Iterable[GroupMember], owned: Iterable[Ints]
) -> dict[str, list[str]]:
    return {m.member_id: _format_names(partitions, numbers) for m, numbers in zip(members, owned, strict=True)}


def _format_names(partitions: Partitions, numbers: Ints) -> list[str]:
    return sorted(f"{topic}-{partition}" for topic, partition in partitions.list_names(numbers))


def _sort_assignment(assignment: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {member: sorted(owned) for member, owned in assignment.items()}


CASES: Mapping[str, Callable[[Case, str], str | None]] = {
    "partitioner": judge_partitioner_case,
    "simple": judge_share_case,
    **dict.fromkeys(
        ("range", "roundrobin", "sticky", "cooperative_sticky", "uniform", "server_range", "quirks"),
        judge_assignor_case,
    ),
}
"""The function for each golden file, by the file's name."""
