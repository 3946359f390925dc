"""Compare a group coordinator's decisions with those that its assignor must make, by folding the membership again.

The classic protocol's leader computes a generation, and the coordinator writes it into ``__consumer_offsets`` with its
members. Under the consumer protocol the coordinator computes the target of an epoch itself. Both are folded here from
the members. The fold computes the claims itself and never uses recorded ones.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from subreplay.hashing.timeline_map import TimelineMapOrder
from subreplay.semantics.policies.kafka.assignor import Assignor, GroupMember, Partitions, TopicPartition
from subreplay.semantics.policies.kafka.group import ConsumerGroup

OwnedPartitions = Mapping[str, frozenset[TopicPartition]]
"""The partitions of each member, by its id."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class CoordinatorDecision:
    """A classic generation, or the target of an epoch: as the coordinator ``decided`` it, and as it is ``due``.

    ``at`` is the time (µs) of its record, ``offset`` the record's position. ``rebalanced`` is whether members got new
    partitions; a static member that returns without a rebalance only takes over those of its former process.
    """

    generation: int
    at: int
    offset: int
    decided: OwnedPartitions
    due: OwnedPartitions
    rebalanced: bool = True

    @property
    def differences(self) -> tuple[DecisionDifference, ...]:
        """The partitions that the coordinator assigned to another member than it must; None is no member."""
        decided, due = _invert_owners(self.decided), _invert_owners(self.due)
        return tuple(
            DecisionDifference(self.generation, topic_partition, decided.get(topic_partition), due.get(topic_partition))
            for topic_partition in sorted({*decided, *due})
            if decided.get(topic_partition) != due.get(topic_partition)
        )


class DecisionDifference(NamedTuple):
    """A partition of a generation, its owner by the coordinator's record, and its correct owner."""

    generation: int
    topic_partition: TopicPartition
    decided: str | None
    due: str | None


def list_differences(
    decoded: Mapping[str, pa.Table],
    group: str,
    assignors: Mapping[str, Assignor],
    counts: Mapping[str, Sequence[int]],
    topic_ids: Mapping[str, str] = MappingProxyType({}),
) -> list[DecisionDifference]:
    """List where the coordinator's decisions differ from the assignor's; arguments as for ``list_decisions``."""
    return [
        topic_partition
        for decision in list_decisions(decoded, group, assignors, counts, topic_ids)
        for topic_partition in decision.differences
    ]


def list_decisions(
    decoded: Mapping[str, pa.Table],
    group: str,
    assignors: Mapping[str, Assignor],
    counts: Mapping[str, Sequence[int]],
    topic_ids: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[CoordinatorDecision]:
    """Yield every decision about a group, in order.

    ``decoded`` are the tables of ``kafka_group``. ``assignors`` are policies by the names that Kafka uses in records
    (``range``, ``cooperative-sticky`` …, ``uniform``). ``counts`` are the numbers of partitions that a topic ever had,
    ascending. Records do not contain the number that the assignor knew (those of the consumer protocol only up to Kafka
    4.0), so it is the smallest that includes all assigned partitions. ``topic_ids`` are the ids of topics that no
    record about groups contains. Decisions of other assignors, and about topics without a name, are skipped.
    """
    classic = _select_rows(decoded, "classic_groups", group)
    if any(row["members"] for row in classic):
        yield from _decide_classic(classic, assignors, counts)
    yield from _decide_server(decoded, group, _ServerDecisions(assignors, counts, topic_ids))


def _select_rows(decoded: Mapping[str, pa.Table], table: str, group: str) -> list[Row]:
    rows = decoded[table].to_pylist()
    return sorted((row for row in rows if row["group"] == group), key=lambda row: int(row["record_offset"]))


def _invert_owners(owned: OwnedPartitions) -> dict[TopicPartition, str]:
    return {topic_partition: member for member, own in owned.items() for topic_partition in own}


def _list_owned(group: ConsumerGroup) -> OwnedPartitions:
    """Return the members' partitions after the last rebalance."""
    return {m.member_id: frozenset(group.partitions.list_names(m.claim.partitions)) for m in group.assigned}


# the classic protocol


def _decide_classic(
    rows: Iterable[Row], assignors: Mapping[str, Assignor], counts: Mapping[str, Sequence[int]]
) -> Iterator[CoordinatorDecision]:
    group: ConsumerGroup | None = None
    for row in rows:
        members = row["members"] or ()
        if row["protocol"] not in assignors or row["tombstone"] or not members:
            group = None  # empty: whoever comes next claims nothing
            continue
        decided_owners = {m["member_id"]: frozenset(_list_topic_partitions(m["assignment"])) for m in members}
        partitions = Partitions.from_counts(
            _find_partition_counts(counts, {p for own in decided_owners.values() for p in own})
        )
        keep_assignment = group is not None and row["generation"] == group.generation
        before = (group or ConsumerGroup(assignors[row["protocol"]])).with_partitions(partitions)
        group = _apply_members(before, members, keep_assignment)
        if not keep_assignment:  # a generation that nobody heard of leaves no record
            group = replace(group, generation=row["generation"] - 1).rebalance()
        yield CoordinatorDecision(
            row["generation"],
            _get_record_time(row),
            row["record_offset"],
            decided_owners,
            _list_owned(group),
            rebalanced=not keep_assignment,
        )


def _list_topic_partitions(assignment: Iterable[Row] | None) -> Iterator[TopicPartition]:
    return (
        TopicPartition(topic_partition["topic"], topic_partition["partition"]) for topic_partition in assignment or ()
    )


def _find_partition_counts(
    counts: Mapping[str, Sequence[int]], decided_owners: Iterable[TopicPartition]
) -> dict[str, int]:
    min_counts: dict[str, int] = {}
    for topic, partition in decided_owners:
        min_counts[topic] = max(min_counts.get(topic, 0), partition + 1)
    return {
        topic: next(
            (count for count in sizes if count >= min_counts.get(topic, 0)), max(*sizes, min_counts.get(topic, 0))
        )
        for topic, sizes in counts.items()
    }


def _apply_members(group: ConsumerGroup, members: Sequence[Row], keep_assignment: bool) -> ConsumerGroup:
    """Return the group with these members in their order, which is the order of the leader's map."""
    now = {row["member_id"]: _build_member(row) for row in members}
    gone = {m.member_id: m for m in group.members if m.member_id not in now}
    known = {m.member_id for m in group.members}
    for row in members:
        new = now[row["member_id"]]
        if new.member_id in known:
            continue
        old = next((m for m in gone.values() if m.instance_id is not None and m.instance_id == new.instance_id), None)
        if old is not None:
            del gone[old.member_id]
            group = group.restart(old.member_id, new, keep_assignment)
        elif row["user_data"] and group.away:  # a process that was evicted comes back, and remembers what it had
            group = group.rejoin(new)
        else:
            group = group.join(new)
    for member_id in gone:
        group = group.evict(member_id)
    group = group.subscribe({m.member_id: now[m.member_id].topics for m in group.members if _is_changed(m, now)})
    order = {member_id: index for index, member_id in enumerate(now)}
    return replace(group, members=tuple(sorted(group.members, key=lambda m: order[m.member_id])))


def _is_changed(member: GroupMember, now: Mapping[str, GroupMember]) -> bool:
    return member.topics != now[member.member_id].topics


def _build_member(row: Row) -> GroupMember:
    return GroupMember(row["member_id"], frozenset(row["topics"] or ()), row["instance_id"], row["rack"])


def _get_record_time(row: Row) -> int:
    return int(row["record_time"].timestamp() * 1_000_000)


# the consumer protocol


def _decide_server(
    decoded: Mapping[str, pa.Table], name: str, server_decisions: _ServerDecisions
) -> Iterator[CoordinatorDecision]:
    records_in_order = sorted(
        (
            (row["record_offset"], table, row)
            for table in ("topic_metadata", "members", "targets", "target_epochs", "regexes", "current_assignments")
            for row in _select_rows(decoded, table, name)
        ),
        key=lambda topic_partition: int(topic_partition[0]),
    )
    for _, table, row in records_in_order:
        if (decision := server_decisions.apply(table, row)) is not None:
            yield decision


class _ServerDecisions:
    """Processes the records of a group under the consumer protocol."""

    def __init__(
        self, assignors: Mapping[str, Assignor], counts: Mapping[str, Sequence[int]], topic_ids: Mapping[str, str]
    ) -> None:
        self.assignors, self.counts = assignors, counts
        self.members: dict[str, Row] = {}
        self.targets: dict[str, frozenset[tuple[str, int]]] = {}
        self.names = {topic_id: topic for topic, topic_id in topic_ids.items()}  # of topics, by id
        self.recorded_counts: dict[str, int] | None = None  # by topic, if there are records about topics
        self.regexes: dict[str, tuple[str, ...]] = {}
        self.group: ConsumerGroup | None = None
        self.order = TimelineMapOrder()
        self.fresh: set[str] = set()  # members that came with the decision which is being written

    def apply(self, table: str, row: Row) -> CoordinatorDecision | None:
        """Apply the next record; return the decision that it completes."""
        if table == "topic_metadata":
            self.names |= {t["topic_id"]: t["topic"] for t in row["topics"] or ()}
            self.recorded_counts = {t["topic"]: t["partitions"] for t in row["topics"] or ()}
        elif table == "members" and row["tombstone"]:
            self.members.pop(row["member_id"], None)
            self.targets.pop(row["member_id"], None)
            self.order.remove(row["member_id"])
        elif table == "members":
            if row["member_id"] not in self.members:
                self.fresh.add(row["member_id"])
            self.members[row["member_id"]] = row
            self.order.add(row["member_id"])
        elif table == "regexes":
            self.regexes[row["regex"]] = tuple(row["topics"] or ())
        elif table == "targets":
            topic_partitions = ((p["topic_id"], p["partition"]) for p in row["assignment"] or ())
            self.targets[row["member_id"]] = frozenset(topic_partitions)
        elif table == "current_assignments":
            self.fresh.clear()  # the last record that a heartbeat writes
        elif table == "target_epochs" and not row["tombstone"]:
            return self._decide(row)
        return None

    def _decide(self, row: Row) -> CoordinatorDecision | None:
        assignor = self.assignors.get(self._choose_assignor())
        is_named = all(topic_id in self.names for owned in self.targets.values() for topic_id, _ in owned)
        if assignor is None or not is_named or not self.members:  # from 4.3 on, an empty group has a target, too
            self.group = None
            return None
        decided = {
            member: frozenset(TopicPartition(self.names[t], p) for t, p in self.targets.get(member, ()))
            for member in self.members
        }
        counts = self.recorded_counts
        if counts is None:
            counts = _find_partition_counts(self.counts, [p for own in decided.values() for p in own])
        ids = {topic: decode_topic_id(topic_id) for topic_id, topic in self.names.items() if topic in counts}
        group = (self.group or ConsumerGroup(assignor)).with_partitions(Partitions.from_counts(counts, topic_ids=ids))
        group = self._apply_members(replace(group, assignor=assignor))
        self.group = replace(group, generation=row["epoch"] - 1).rebalance()
        return CoordinatorDecision(
            row["epoch"], _get_record_time(row), row["record_offset"], decided, _list_owned(self.group)
        )

    def _choose_assignor(self) -> str:
        """Return the choice of most members, or the server's default if they made none."""
        chosen = [row["server_assignor"] for row in self.members.values() if row["server_assignor"]]
        return max(sorted(set(chosen)), key=chosen.count) if chosen else "uniform"

    def _apply_members(self, group: ConsumerGroup) -> ConsumerGroup:
        now = {member_id: self._build_member(row) for member_id, row in self.members.items()}
        gone = {m.member_id: m for m in group.members if m.member_id not in now}
        known = {m.member_id for m in group.members}
        for new in now.values():
            if new.member_id in known:
                continue
            old = next(
                (m for m in gone.values() if m.instance_id is not None and m.instance_id == new.instance_id), None
            )
            if old is None:
                group = group.join(new)
            else:
                del gone[old.member_id]
                group = group.restart(old.member_id, new, keep_assignment=True)
        for member_id in gone:
            group = group.leave(member_id)
        group = group.subscribe({m.member_id: now[m.member_id].topics for m in group.members if _is_changed(m, now)})
        # the assignor's map gets existing members in the order of the coordinator's map, then joining ones
        order = {member_id: index for index, member_id in enumerate(self.order)}
        fresh, self.fresh = self.fresh, set()
        return replace(
            group, members=tuple(sorted(group.members, key=lambda m: (m.member_id in fresh, order[m.member_id])))
        )

    def _build_member(self, row: Row) -> GroupMember:
        topics = frozenset([*row["topics"], *self.regexes.get(row["regex"] or "", ())])
        return GroupMember(row["member_id"], topics, row["instance_id"], row["rack"])


def find_topic_ids(
    decoded: Mapping[str, pa.Table], group: str, topic_ids: Mapping[str, str] = MappingProxyType({})
) -> dict[str, UUID]:
    """Return the ids of a group's topics: ``topic_ids``, and those that its records contain (consumer protocol, up to
    Kafka 4.0)."""
    rows = _select_rows(decoded, "topic_metadata", group)
    every = {**topic_ids, **{t["topic"]: t["topic_id"] for row in rows for t in row["topics"] or ()}}
    return {topic: decode_topic_id(topic_id) for topic, topic_id in every.items()}


def decode_topic_id(topic_id: str) -> UUID:
    """Decode a topic id as Kafka writes it: 22 characters of base64."""
    return UUID(bytes=urlsafe_b64decode(topic_id + "=="))
