"""The generations of a Kafka consumer group, and the timeline of each of its partitions.

One decision assigns all partitions of a group, so the group is folded once. A step is one decision: a rebalance, or the
return of a static member without one. Steps are stored as changes, from which each partition's ``Timeline`` is built.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.timeline_map import TimelineMapOrder
from subreplay.rows.model.columns import NEVER
from subreplay.rows.model.range_table import NOBODY, Move
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import GroupMember, Partitions
from subreplay.semantics.policies.kafka.group import ConsumerGroup
from subreplay.semantics.policies.kafka.roster import Roster
from subreplay.semantics.timelines.consumer_aliases import find_leaving_member
from subreplay.semantics.timelines.timeline import (
    BEGINNING,
    Epoch,
    Ints,
    OwnerIndex,
    SortedInstants,
    Timeline,
    compute_epoch_bounds,
    make_consumer,
)

REBALANCE_TIMEOUT_NS = 300_000_000_000
"""The rebalance timeout (the default of ``max.poll.interval.ms``). An empty group does not wait longer for members, and
a member has no longer to give up a partition that was assigned to another one."""


def drop_unused_rebalance_delay(policy: Any, joins: Iterable[int], served: Iterable[int]) -> Any:
    """Return the policy of a group without the initial rebalance delay if members received records within that delay.

    The delay was not in force then. ``joins`` and ``served`` are the times (ns) of joins and of first deliveries.
    """
    joined, first = min(joins, default=NEVER), min(served, default=NEVER)
    delay = getattr(policy, "initial_rebalance_delay_us", 0) * 1_000
    return replace(policy, initial_rebalance_delay_us=0) if delay and joined <= first < joined + delay else policy


class OwnerChange(NamedTuple):
    """The partitions (bit n of ``which``, packed) that got another owner, and the new owners in the same order."""

    which: NDArray[np.uint8]
    owners: NDArray[np.int16] | NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class GroupStep:
    """A decision about a group: its instant, generation, events and changed owners.

    Owners are ``Consumer.index``: the ordinal of a join among all joins of the group.
    """

    at: Instant
    generation: int
    events: tuple[MembershipEvent, ...]
    change: OwnerChange


@dataclass(frozen=True, eq=False)
class GroupTimeline:
    """All steps of one group over ``partitions``."""

    policy: Any
    partitions: Partitions
    steps: tuple[GroupStep, ...]

    @classmethod
    def fold(cls, policy: Any, partitions: Partitions, events: Iterable[MembershipEvent]) -> GroupTimeline:
        """Build the timeline of a group from the joins, leaves and crashes in ``events``, which are in order.

        One rebalance answers all events of one instant. Under the classic protocol, an empty group waits for more
        members first. A crash, or the leave of a static member, is detected when the session times out. A static member
        that returns by then takes its old place without a rebalance. A cooperative assignor runs again while members
        still have to give up partitions. Rebalances take no time in this model.
        """
        fold = GroupFold(policy, partitions)
        waiting = deque(_list_detected_events(policy, events))
        while waiting:
            end = fold.waits_until(waiting)
            rebalance = [waiting.popleft()]
            while waiting and waiting[0].at.at <= end:
                rebalance.append(waiting.popleft())
            at = max(rebalance[0].at, Instant(end, 0))
            fold.apply(at, [one._replace(waited=one.at.at < at.at) for one in rebalance])
            while fold.group.needs_rebalance:
                at = Instant(at.at, at.seq + len(fold.steps[-1].events))
                fold.follow_up(at, at)
        return fold.timeline()

    @classmethod
    def from_rebalances(cls, policy: Any, partitions: Partitions, rounds: Iterable[GroupRebalance]) -> GroupTimeline:
        """Build the timeline of a group from known rebalances, with the duration of each."""
        fold = GroupFold(policy, partitions)
        seq = 0
        for one in rounds:
            at = Instant(one.at, seq)
            if one.detected:
                fold.apply(at, one.detected, one.forced)
            else:
                fold.follow_up(at, Instant(one.since, seq))
            seq += 2 * len(one.detected) + 1
        return fold.timeline()

    def owners(self, numbers: Sequence[int]) -> NDArray[np.int32]:
        """Return the owners of these partitions after each step: one row per step, one column per partition."""
        wanted = np.asarray(numbers, np.int64)
        rows = np.full((len(self.steps), len(wanted)), NOBODY, np.int32)
        for row, step in enumerate(self.steps):
            rows[row] = rows[row - 1] if row else NOBODY
            bits = np.unpackbits(step.change.which, count=len(self.partitions)).view(bool)
            index = np.cumsum(bits)[wanted] - 1
            changed = bits[wanted]
            rows[row, changed] = step.change.owners[index[changed]]
        return rows

    def timelines(self, scopes: Iterable[Scope]) -> dict[Scope, Timeline]:
        """Return the timeline of each topic partition; a partition of an unknown topic never has an owner."""
        requested, shared = list(scopes), _SharedEpochs.from_steps(self.steps)
        first = dict(zip(self.partitions.topics, self.partitions.bounds.tolist(), strict=False))
        known = [scope for scope in requested if scope.topic in first]
        columns = self.owners([first[scope.topic] + max(scope.partition, 0) for scope in known])
        owned = dict(zip(known, columns.T, strict=True))
        nobody = np.full(len(self.steps), NOBODY, np.int32)
        return {scope: shared.timeline(self.policy, scope, owned.get(scope, nobody)) for scope in requested}


@dataclass(frozen=True, eq=False)
class _SharedEpochs:
    """The data that all partitions of a group share: everything except their owners.

    ``epochs`` have no moves. For the epochs after the first one, ``step`` is the step of each, and ``closes`` is
    whether it is the last epoch of that step. ``passing`` is whether another step follows in the same instant.
    """

    epochs: tuple[Epoch, ...]
    consumers: tuple[Consumer, ...]
    starts: SortedInstants
    candidates: SortedInstants
    step: Ints
    closes: NDArray[np.bool_]
    passing: NDArray[np.bool_]

    @classmethod
    def from_steps(cls, steps: Sequence[GroupStep]) -> _SharedEpochs:
        connected: dict[str, list[Consumer]] = {}
        consumers: list[Consumer] = []
        epochs = [Epoch(0, BEGINNING, BEGINNING, None)]
        closings: list[tuple[int, bool]] = []
        for number, step in enumerate(steps):
            for seq, event in enumerate(step.events):
                at = Instant(step.at.at, step.at.seq + seq)
                event = replace(event, at=at, since=min(event.since, at))
                joined: Consumer | None = None
                left: tuple[Consumer, ...] = ()
                if event.event == "join":
                    joined = make_consumer(len(consumers), event)
                    consumers.append(joined)
                    connected.setdefault(event.consumer, []).append(joined)
                elif gone := find_leaving_member(event.instance, connected.get(event.consumer, ())):
                    connected[event.consumer].remove(gone)
                    left = (gone,)
                epochs[-1] = replace(epochs[-1], end=at)
                epochs.append(Epoch(len(epochs), at, event.since, None, event, joined, left))
                closings.append((number, seq == len(step.events) - 1))
        step_of, closes = np.array(closings, np.int64).reshape(-1, 2).T
        when = np.array([step.at.at for step in steps], np.int64)
        passing = np.zeros(len(steps), np.bool_)
        passing[:-1] = when[1:] == when[:-1]
        return cls(
            tuple(epochs), tuple(consumers), *compute_epoch_bounds(epochs), step_of, closes == 1,
            passing,
        )  # fmt: skip

    def timeline(self, policy: Any, scope: Scope, owners: NDArray[np.int32]) -> Timeline:
        """Build the timeline of a partition with these owners after each step."""
        # given up and handed on in the same instant: nobody saw it free
        last_owned = np.where((owners == NOBODY) & self.passing, 0, np.arange(1, len(owners) + 1))
        after = np.append(NOBODY, owners)[np.maximum.accumulate(last_owned)].astype(np.int64)
        # whoever joins is there before, and whoever leaves until, the partition changes hands
        before = np.append(NOBODY, after)[: len(after)]
        owner = np.append(NOBODY, np.where(self.closes, after[self.step], before[self.step]))
        changed = np.flatnonzero(owner[1:] != owner[:-1]) + 1
        epochs, (low, high) = list(self.epochs), policy.space
        for epoch in changed.tolist():
            move = Move(low, high, int(owner[epoch - 1]), int(owner[epoch]))
            epochs[epoch] = replace(epochs[epoch], moves=(move,))
        everywhere = np.full(len(changed), low), np.full(len(changed), high)
        index = OwnerIndex.from_changes(self.starts, self.candidates, (changed, *everywhere, owner[changed]))
        return Timeline(policy, scope, tuple(epochs), self.consumers, (), index)


class DetectedEvent(NamedTuple):
    """A membership event at the instant when the coordinator detects it. ``join`` is the ordinal of the join that it is
    or ends. ``waited``: the coordinator decided about it only later."""

    at: Instant
    join: int
    event: MembershipEvent
    waited: bool = False


class GroupRebalance(NamedTuple):
    """A rebalance that was requested at ``since`` and took effect ``at`` (both ns).

    ``detected`` is empty for the rebalance that follows one in which partitions were given up. ``forced`` means that a
    returning static member found a running rebalance and takes part in it.
    """

    since: int
    at: int
    detected: tuple[DetectedEvent, ...] = ()
    forced: bool = False


def _list_detected_events(policy: Any, events: Iterable[MembershipEvent]) -> list[DetectedEvent]:
    """List joins and departures in the order of detection, without departures of members that never joined."""
    detected: list[DetectedEvent] = []
    connected: dict[str, deque[tuple[int, bool]]] = {}  # joins of each name, and whether the member is static
    joins = count()
    for event in events:
        if event.event == "join":
            join = next(joins)
            connected.setdefault(event.label, deque()).append((join, event.instance_id is not None))
            detected.append(DetectedEvent(event.at, join, event))
        elif connected.get(event.label):
            join, static = connected[event.label].popleft()
            silent = static or event.event == "crash"
            late = policy.session_timeout_us * 1_000 if silent else 0
            detected.append(DetectedEvent(Instant(event.at.at + late, event.at.seq), join, event))
    return sorted(detected, key=lambda n: n.at)


class GroupFold:
    """The builder of a group's timeline. A member's id is its name, or another id if that name is taken.

    ``owners`` are the joins (by ordinal) that own each partition now.
    """

    def __init__(self, policy: Any, partitions: Partitions) -> None:
        self.policy, self.partitions = policy, partitions
        self.group = ConsumerGroup(policy).with_partitions(partitions)
        self.every_topic = frozenset(partitions.topics)
        self.steps: list[GroupStep] = []
        self.here: dict[str, tuple[int, str]] = {}  # join and consumer name by member id
        self.ids: dict[int, str] = {}  # the member id of each join that is here
        self.owners = np.full(len(partitions), NOBODY, np.int32)
        self.order = TimelineMapOrder()
        self.next_target_at = 0  # under the consumer protocol

    def waits_until(self, waiting: Sequence[DetectedEvent]) -> int:
        """Return when the next rebalance happens (ns): at once, for an empty group when no more members join, or an
        assignment interval after the last target."""
        first = waiting[0].at.at
        if self.policy.rebalance == "server":
            return max(first, self.next_target_at)
        delay: int = self.policy.initial_rebalance_delay_us * 1_000
        if self.here or not delay:
            return first
        joins = [n.at.at for n in waiting if n.event.event == "join" and n.at.at <= first + REBALANCE_TIMEOUT_NS]
        end = first + delay
        while any(end - delay < at <= end for at in joins[1:]) and end < first + REBALANCE_TIMEOUT_NS:
            end = min(end + delay, first + REBALANCE_TIMEOUT_NS)
        return end

    def apply(
        self,
        at: Instant,
        detected: Iterable[DetectedEvent],
        forced: bool = False,
        subscribed: Mapping[int, Iterable[str]] = MappingProxyType({}),
        partitions: Partitions | None = None,
    ) -> None:
        """Make one decision about everything detected until ``at``: joins first, then leaves.

        ``subscribed`` maps joins to the topics that these members subscribe to from now on. ``partitions`` are the
        partitions that exist now, numbered as before.
        """
        happened: list[MembershipEvent] = []
        rebalances = bool(subscribed) or partitions is not None
        fresh: set[str] = set()
        for one in sorted(detected, key=lambda n: n.event.event != "join"):
            events, disturbing = self._join(one, forced) if one.event.event == "join" else self._leave(one)
            happened += events
            rebalances |= disturbing
            if disturbing and one.join in self.ids and not one.waited:
                fresh.add(self.ids[one.join])
        if partitions is not None:
            self.group = self.group.with_partitions(partitions)
        if subscribed:
            self.group = self.group.subscribe(
                {self.ids[join]: frozenset(topics) for join, topics in subscribed.items() if join in self.ids}
            )
        if not happened and not rebalances:
            return
        if rebalances:
            self.group = self._in_map_order(fresh).rebalance()
            if self.policy.rebalance == "server":
                self.next_target_at = at.at + self.policy.assignment_interval if self.here else 0
        self._step(at, happened or [MembershipEvent(Scope(""), "rebalance", "", at, at)])

    def _in_map_order(self, fresh: Collection[str]) -> ConsumerGroup:
        """Sort members for a server-side assignor: existing members in the order of the coordinator's map, then those
        whose join caused this decision."""
        if self.policy.rebalance != "server":
            return self.group
        roster = Roster.from_members(self.group.members)
        position = {member_id: number for number, member_id in enumerate(roster.ids)}
        ordered = sorted(self.order, key=lambda member_id: member_id in fresh)
        return replace(self.group, members=roster.select([position[member_id] for member_id in ordered]))

    def follow_up(self, at: Instant, since: Instant) -> None:
        """Rebalance once more to assign the partitions that were given up."""
        self.group = self.group.rebalance()
        self._step(at, [MembershipEvent(Scope(""), "rebalance", "", at, since)])

    def timeline(self) -> GroupTimeline:
        """Return the timeline of all steps so far."""
        return GroupTimeline(self.policy, self.partitions, tuple(self.steps))

    def _join(self, one: DetectedEvent, forced: bool) -> tuple[list[MembershipEvent], bool]:
        """Apply a join; return its events and whether it needs a rebalance."""
        event, taken = one.event, one.event.label in self.here
        member_id = f"{event.label}-{one.join}" if taken else event.label
        topics = self.every_topic if event.topics is None else frozenset(event.topics)
        member = GroupMember(member_id, topics, event.instance_id, event.rack)
        old = self._find_former(event.instance_id)
        self.order.add(member_id)
        self.ids[one.join] = member_id
        if old is None:
            self.here[member_id] = one.join, event.consumer
            self.group = self.group.join(member)
            return [event], True
        join, name = self.here.pop(old.member_id)
        del self.ids[join]
        self.order.remove(old.member_id)
        self.here[member_id] = one.join, event.consumer
        quietly = old.topics == topics and not forced
        self.group = self.group.restart(old.member_id, member, quietly)
        return [event, replace(event, event="leave", consumer=name)], not quietly

    def _find_former(self, instance: str | None) -> GroupMember | None:
        """Return the connected static member with that instance id, if there is one."""
        instances = Roster.from_members(self.group.members).instances
        if instance is None or instance not in instances:
            return None
        return self.group.members[instances.index(instance)]

    def _leave(self, one: DetectedEvent) -> tuple[list[MembershipEvent], bool]:
        member_id = self.ids.pop(one.join, None)
        if member_id is None:  # a static member that is back already
            return [], False
        del self.here[member_id]
        self.order.remove(member_id)
        self.group = self.group.leave(member_id)
        return [one.event], True

    def _step(self, at: Instant, events: Sequence[MembershipEvent]) -> None:
        joins = [join for join, _ in map(self.here.__getitem__, Roster.from_members(self.group.assigned).ids)]
        owners = np.array([*joins, NOBODY], np.int32)[self.group.owners]  # UNASSIGNED is the last of them
        changed = owners != self.owners
        smallest = np.int16 if max(joins, default=0) < 2**15 else np.int32  # a group's steps are many
        change = OwnerChange(np.packbits(changed), owners[changed].astype(smallest))
        self.steps.append(GroupStep(at, self.group.generation, tuple(events), change))
        self.owners = owners
