"""The classic protocol: a join round waits for every member, then one new generation begins for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from subreplay.hashing.java_map import compute_copy_capacity, compute_map_order, compute_string_hash_codes
from subreplay.rows.model.rows import Instant
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import REBALANCE_TIMEOUT_NS, DetectedEvent, GroupRebalance
from subreplay.simulation.kafka.coordinator import Coordinator
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.group_members import NO_REBALANCE, GroupMembers, MemberProcess
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.partition_growth import PartitionGrowth
from subreplay.simulation.pulsar.broker.broker_records import NEVER


class MemberStage(IntEnum):
    """The stage of a member on its way to a generation, as in ``AbstractCoordinator``."""

    STABLE = 0
    JOINED = 1  # its JoinGroup waits for those of the others
    ANSWERED = 2  # it knows the generation, and requests its assignment with its next poll
    SYNCED = 3  # its SyncGroup waits for that of the leader
    ASSIGNED = 4  # its callbacks run with its next poll


class ClassicProtocol(Coordinator):
    """Join rounds of eager and cooperative assignors.

    A change starts a round. Members learn about it with a heartbeat and rejoin with their next poll, after their batch.
    When all have rejoined, the new generation begins, and the heartbeats of each member start again. Each member
    requests its assignment with its next poll, the leader sends it, and each member takes it with the poll after that.
    *Eager*: a member that rejoins gives up everything and waits for the slowest one. *Cooperative*: members continue
    with their partitions but cannot commit until their SyncGroup is answered. A member that must give up partitions
    does so with its assignment and rejoins at once; this begins the round that assigns them to others.

    If the leader leaves, the first member in the coordinator's map of ids is the next leader. An empty group first
    waits for more members. A static member that comes back in time, while no round runs, gets its former assignment
    without a round. The leader looks for new partitions and rejoins for them.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: GroupMembers, timers: TimerQueue) -> None:
        super().__init__(policy, partitions, members, timers)
        self.eager = policy.rebalance == "eager"
        self.delay = policy.initial_rebalance_delay_us * 1_000
        self.growth = PartitionGrowth(partitions)
        self.number = 0  # number of the generation
        self.stages: dict[int, MemberStage] = {}
        self.rejoin_at: dict[int, int] = {}  # when a member learns that it must rejoin
        self.leader = NONE
        self.most_members = 0  # so far: the coordinator's map does not shrink
        self.since = NONE  # when the round began; -1: no round is running
        self.awaited: set[int] = set()
        self.slowest = NONE
        self.pending: list[DetectedEvent] = []
        self.forced = self.ending = False
        self.rounds = 0
        self.completing: GroupRebalance | None = None  # all have joined; the leader has not sent the assignment
        self.distributed_at = NEVER
        self.joined_at = NONE
        self.delayed_until = self.delayed_since = NEVER
        self.more_joined = False

    def finish(self) -> None:
        """Finish the simulation. A round that has not ended has no effect."""

    # joins and departures

    def handle_join(self, process: MemberProcess) -> None:
        if len(self.present) == 1 and self.delay and self.since == NONE:
            self.delayed_since = self.now
            self._delay_round(self.now + self.delay)
        elif self.number == 0:
            self.more_joined = True
        self.stages[process.index] = MemberStage.JOINED
        self.most_members = max(self.most_members, len(self.present))
        if self.leader == NONE:
            self.leader = process.index
        self._add_to_round(self.detect_event(process, "join", self.now))

    def handle_replacement(self, old: MemberProcess, process: MemberProcess) -> None:
        join_event = self.detect_event(process, "join", self.now)
        del self.stages[old.index]
        self.rejoin_at.pop(old.index, None)
        if self.leader == old.index:
            self.leader = process.index
        if self.since == NONE and self.completing is None and old.topics == process.topics:
            self.stages[process.index] = MemberStage.STABLE
            rebalance = GroupRebalance(self.now, self.now, (join_event,))
            self.fold.apply(Instant(self.now, len(self.rebalances)), rebalance.detected)
            self.rebalances.append(rebalance)
            self.members.assign(self.copy_owners(), NO_REBALANCE, [process.index])
            return
        self.stages[process.index] = MemberStage.JOINED
        self.forced = True
        self.awaited.discard(old.index)
        self._add_to_round(join_event)

    def handle_departure(self, process: MemberProcess, detected: DetectedEvent) -> None:
        self.awaited.discard(process.index)
        self.stages.pop(process.index, None)
        self.rejoin_at.pop(process.index, None)
        if self.leader == process.index:
            self.leader = next(self._iterate_map(), NONE)
        self._add_to_round(detected)

    def _iterate_map(self) -> Iterator[int]:
        """Yield the members in the order of the coordinator's ``HashMap`` of member ids (``ClassicGroup.remove``)."""
        indexes = list(self.present)
        codes = compute_string_hash_codes([self.present[index].event.label for index in indexes])
        for position in compute_map_order(codes, compute_copy_capacity(self.most_members - 1)).tolist():
            yield indexes[position]

    def handle_poll_timeout(self, process: MemberProcess) -> None:
        self.members.evict(process.index)
        self.remove_process(process, "leave", self.now)

    def find_last_heartbeat(self, process: MemberProcess) -> int:
        """Return the time of the last heartbeat, or of a later commit."""
        return max(self.find_previous_heartbeat(process), self.members.find_last_commit(process.index))

    # polls of members

    def handle_member_poll(self, process: MemberProcess) -> None:
        index = process.index
        stage = self.stages[index]
        if stage is MemberStage.ANSWERED:
            self.sync([index])
        elif stage is MemberStage.ASSIGNED:
            self.receive([index])
        elif self.rejoin_at.get(index, NEVER) <= self.now:
            self.rejoin(index)
            return
        if self.rejoin_at.get(index, NEVER) < NEVER:
            self.members.request_turn(index, max(self.rejoin_at[index], self.now))

    def handle_subscription(self, process: MemberProcess) -> None:
        self._request_rejoin(process.index)

    def grow_topic(self, topic: str, count: int) -> None:
        self.growth.grow(topic, count)
        self._schedule_metadata_refresh()

    def _schedule_metadata_refresh(self) -> None:
        """Let the leader look for new partitions with its next metadata refresh."""
        if self.leader != NONE:
            leader = self.present[self.leader]
            age = self.members.parameters.metadata_max_age
            at = leader.joined_at + -((leader.joined_at - self.now) // age) * age
            self.timers.add(at, partial(self._refresh_metadata, leader))

    def _refresh_metadata(self, leader: MemberProcess) -> None:
        if leader.index != self.leader:
            self._schedule_metadata_refresh()
        elif self.members.is_running(leader.index) and self.growth.has_unknown():
            self.growth.mark_seen()
            self._request_rejoin(leader.index)

    def _request_rejoin(self, index: int) -> None:
        """Let a member rejoin with its next poll, because its own subscription or metadata changed."""
        self.rejoin_at[index] = self.now
        self.members.request_turn(index, self.now)

    # join rounds

    def _add_to_round(self, detected: DetectedEvent) -> None:
        self.pending.append(detected)
        if self.since == NONE:
            self._begin_round()
        self._check_round()

    def _begin_round(self) -> None:
        """Begin a round, of which members learn later."""
        self.since, self.slowest = self.now, NONE
        if self.completing is not None:  # this generation will not be distributed
            self.pending = [*self.completing.detected, *self.pending]
            self.completing = None
        self.rounds += 1
        timeout = self.members.parameters.max_poll_interval  # clients send it as ``rebalanceTimeoutMs``
        self.timers.add(self.now + timeout, partial(self._time_out_round, self.rounds))
        self.awaited = {index for index in self.present if self.stages[index] is not MemberStage.JOINED}
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        for index in sorted(self.awaited):
            if not self.members.is_running(index):
                continue
            if self.stages[index] in (
                MemberStage.ANSWERED,
                MemberStage.SYNCED,
            ):  # the answer to its SyncGroup reports the round
                self.stages[index] = MemberStage.STABLE
                self.rejoin_at[index] = self.now
            else:
                self.rejoin_at[index] = min(
                    self.rejoin_at.get(index, NEVER), self.find_next_heartbeat(self.present[index])
                )
            self.members.request_turn(index, self.rejoin_at[index])

    def _time_out_round(self, rebalance: int) -> None:
        """End the wait of a round: remove dynamic members that have not rejoined. Static members may stay away."""
        if self.since == NONE or self.rounds != rebalance:
            return
        for index in sorted(self.awaited):
            process = self.present[index]
            if process.static:
                self.awaited.discard(index)
                continue
            if self.members.is_running(index):
                self.members.evict(index)
            self.remove_process(process, "crash", min(process.silent_at, self.now))
        self._check_round()

    def rejoin(self, index: int) -> None:
        """Send a member's JoinGroup. If no round runs, this begins one."""
        if self.stages[index] is MemberStage.JOINED:
            return
        process = self.present[index]
        owned = np.flatnonzero(self.members.owners == index)
        if self.eager:
            self.members.pause(index)
            self.members.revoke(index, owned, NONE)
        else:
            unsubscribed = owned[~self._find_subscribed(process, owned)]
            if len(unsubscribed) or self.members.find_model(index).commit == "auto":
                self.members.revoke(index, unsubscribed, index)
            self.members.set_commits_blocked(index, True)
        self.rejoin_at.pop(index, None)
        self.stages[index] = MemberStage.JOINED
        if self.since == NONE:
            self._begin_round()
        self.awaited.discard(index)
        self.slowest = index
        self._check_round()

    def _find_subscribed(self, process: MemberProcess, numbers: Any) -> Any:
        if process.topics is None:
            return np.ones(len(numbers), np.bool_)
        wanted = np.array([topic in process.topics for topic in self.fold.partitions.topics], np.bool_)
        return wanted[self.fold.partitions.find_topics(numbers)]

    def _check_round(self) -> None:
        """Once all members have joined, answer them after everything else that happens at this instant."""
        if self._is_complete and not self.ending:
            self.ending = True
            self.timers.add(self.now, self._end_round)

    @property
    def _is_complete(self) -> bool:
        return not self.awaited and self.delayed_until == NEVER and self.since != NONE

    def _end_round(self) -> None:
        self.ending = False
        if not self._is_complete:
            return
        rebalance = GroupRebalance(self.since, self.now, tuple(self.pending), self.forced)
        self.pending, self.since, self.forced = [], NONE, False
        self.number += 1
        self.members.set_blocker(self.slowest)
        self.completing, self.joined_at, self.distributed_at = rebalance, self.now, NEVER
        if not self.present:
            self._distribute(rebalance)
            return
        if self.stages[self.leader] is not MemberStage.JOINED:  # ``ClassicGroup.maybeElectNewJoinedLeader``
            joined = (index for index in self._iterate_map() if self.stages[index] is MemberStage.JOINED)
            self.leader = next(joined, self.leader)
        for index in self.present:
            self.stages[index] = MemberStage.ANSWERED
        idle = [index for index in self.present if self.members.is_running(index) and not self.members.is_busy(index)]
        for index in set(self.present) - set(idle):
            if self.members.is_running(index):
                self.members.request_turn(index, self.now)
        self.sync(idle)

    def sync(self, members: Sequence[int]) -> None:
        """Let members request their assignment. The leader's request contains the assignment of all."""
        for index in members:
            self.present[index].beat = self.now
            self.stages[index] = MemberStage.SYNCED
        if self.leader in members and self.completing is not None:
            self.distributed_at = self.now + self._find_rebalance_time()
            self._run_at(self.distributed_at, partial(self._distribute, self.completing))
        elif self.completing is None:  # the assignment exists already
            self._deliver_assignments(members)

    def _find_rebalance_time(self) -> int:
        parameters = self.members.parameters
        return (
            parameters.first_rebalance_time
            if self.number == 1 and parameters.first_rebalance_time is not None
            else parameters.rebalance_time
        )

    def _run_at(self, at: int, action: Any) -> None:
        if at == self.now:
            action()
        else:
            self.timers.add(at, action)

    def _distribute(self, rebalance: GroupRebalance) -> None:
        """Handle the arrival of the leader's assignment."""
        if self.completing is not rebalance:
            return
        self.completing = None
        at = Instant(self.now, len(self.rebalances))
        rebalance = rebalance._replace(at=self.now)
        new_partitions = self.growth.take_new()
        if rebalance.detected or self.resubscribed or new_partitions is not None:
            self.fold.apply(at, rebalance.detected, rebalance.forced, self.resubscribed, new_partitions)
        else:
            self.fold.follow_up(at, Instant(rebalance.since))
        self.resubscribed = {}
        self.rebalances.append(rebalance)
        self.record_generation(self.number, self.joined_at, self.present)
        self._deliver_assignments([index for index, stage in self.stages.items() if stage is MemberStage.SYNCED])

    def _deliver_assignments(self, members: Sequence[int]) -> None:
        """Let idle members take their assignment at once, and the others with their next poll."""
        for index in members:
            self.stages[index] = MemberStage.ASSIGNED
            self.members.set_commits_blocked(index, False)
        runs = [index for index in members if self.members.is_running(index)]
        for index in runs:
            if self.members.is_busy(index):
                self.members.request_turn(index, self.now)
        self.receive([index for index in runs if not self.members.is_busy(index)])

    def receive(self, members: Sequence[int]) -> None:
        """Run the callbacks of members: they give up the partitions that they lost, and begin to read the new ones."""
        owners = self.copy_owners()
        rejoining = []
        for index in members:
            self.stages[index] = MemberStage.STABLE
            if self.eager:
                continue
            lost_partitions = np.flatnonzero((self.members.owners == index) & (owners != index))
            if len(lost_partitions):
                self.members.revoke(index, lost_partitions, index)
                rejoining.append(index)
        self.members.assign(owners, self.fold.group.generation, members)
        for index in rejoining:
            self.rejoin(index)

    # the delay of an empty group

    def _delay_round(self, until: int) -> None:
        self.delayed_until, self.more_joined = until, False
        self.timers.add(until, self._end_delay)

    def _end_delay(self) -> None:
        """End the delay of an empty group, or extend it if more members joined meanwhile."""
        most = self.delayed_since + REBALANCE_TIMEOUT_NS
        if self.more_joined and self.now < most:
            self._delay_round(min(self.now + self.delay, most))
        else:
            self.delayed_until = NEVER
            self._check_round()
