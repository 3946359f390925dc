"""The new protocol (KIP-848): the coordinator decides at once, and members follow one by one."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.rows import Instant
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import DetectedEvent, GroupRebalance
from subreplay.simulation.kafka.coordinator import Coordinator
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.group_members import NO_REBALANCE, GroupMembers, MemberProcess
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.partition_growth import PartitionGrowth
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND


class TargetChange(NamedTuple):
    """A decision, and the partitions that must move because of it."""

    since: int
    detected: tuple[DetectedEvent, ...]
    moved: NDArray[np.int64]


class ServerProtocol(Coordinator):
    """Reconciliation without a barrier, heartbeat by heartbeat.

    Every change increments the epoch. A join, and a heartbeat with another subscription, gets a target at once, unless
    the last target is younger than the assignment interval. Otherwise, after a departure, or when a topic grew, the
    next heartbeat of any member computes the target, once that interval is over. With its next heartbeat a member
    learns what it must give up. It does so between two polls and acknowledges it with a heartbeat, from which the next
    ones are timed. A free partition goes to its new owner with that member's next heartbeat. The member takes it
    between two polls, and acknowledges this too. A change has ended when everything that it moved has arrived, or was
    moved again by a later change.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: GroupMembers, timers: TimerQueue) -> None:
        super().__init__(policy, partitions, members, timers)
        self.holders = np.full(len(partitions), NONE, np.int32)  # as the coordinator knows them
        self.targets = self.holders.copy()
        self.growth = PartitionGrowth(partitions)
        self.epoch = policy.first_epoch - 1
        self.target_epoch = self.epoch
        self.target_at: int | None = None  # when it was computed; None: a group that was empty does not wait
        self.undecided: list[DetectedEvent] = []
        self.announced: dict[int, tuple[str, ...]] = {}  # changed subscriptions that the coordinator knows
        self.answered: set[int] = set()  # members whose application has not acted on the latest answer
        self.revoking: dict[
            int, NDArray[np.int64]
        ] = {}  # partitions that members must give up and have not acknowledged
        self.next_heartbeats: dict[int, int] = {}  # next heartbeats that matter, by member
        self.timeout_announcements: dict[int, int] = {}  # when members that did not poll in time announce it
        self.open_changes: deque[TargetChange] = deque()

    # joins and departures

    def handle_join(self, process: MemberProcess) -> None:
        self.undecided.append(self.detect_event(process, "join", self.now))
        self.epoch += 1
        self.respond(process)
        self._send_answer(process, self.now)

    def handle_replacement(self, old: MemberProcess, process: MemberProcess) -> None:
        self.holders[self.holders == old.index] = process.index
        self.targets[self.targets == old.index] = process.index
        self._forget_process(old)
        join_event = self.detect_event(process, "join", self.now)
        if old.topics == process.topics:
            self.fold.apply(Instant(self.now, len(self.rebalances) + len(self.open_changes)), [join_event])
            self.targets = self.copy_owners()
            self.rebalances.append(GroupRebalance(self.now, self.now, (join_event,)))
        else:
            self.undecided.append(join_event)
            self.epoch += 1
        self._update_target()
        self.members.assign(self.holders, NO_REBALANCE, [process.index])
        self._plan_heartbeat(process)

    def handle_departure(self, process: MemberProcess, detected: DetectedEvent) -> None:
        self.holders[self.holders == process.index] = NONE
        self._forget_process(process)
        self.undecided.append(detected)
        self.epoch += 1
        if not self.present and self.policy.assignment_interval:  # the target of an empty group has no time
            self._compute_target()
            self.target_at = None
        self._await_target()

    def handle_poll_timeout(self, process: MemberProcess) -> None:
        """Announce the timeout with the next heartbeat."""
        self.members.request_turn(process.index, self.now)  # if it polls first, the timeout is not announced
        at = self.timeout_announcements[process.index] = self.find_next_heartbeat(process)
        self.timers.add(at, partial(self._announce_timeout, process))

    def _announce_timeout(self, process: MemberProcess) -> None:
        if self.timeout_announcements.pop(process.index, None) == self.now and process.index in self.present:
            self.members.evict(process.index)
            self.remove_process(process, "leave", self.now)

    def _forget_process(self, process: MemberProcess) -> None:
        self.answered.discard(process.index)
        self.revoking.pop(process.index, None)
        self.next_heartbeats.pop(process.index, None)
        self.timeout_announcements.pop(process.index, None)

    def handle_subscription(self, process: MemberProcess) -> None:
        """Send the new subscription with the next heartbeat."""
        self._expect_heartbeat(process)

    def grow_topic(self, topic: str, count: int) -> None:
        self.growth.grow(topic, count)
        self.growth.mark_seen()
        self.epoch += 1
        self._await_target()

    # heartbeats

    def _await_target(self) -> None:
        """Let the next heartbeat of any member that may compute a target do so."""
        if self.is_outdated:
            due = {process.index: self._find_target_heartbeat(process) for process in self._list_beating()}
            for index in sorted(due, key=due.__getitem__)[:1]:
                self._expect_heartbeat(self.present[index], due[index])

    def _find_target_heartbeat(self, process: MemberProcess) -> int:
        """Return when the process sends its first heartbeat that may compute a target."""
        at = self.find_next_heartbeat(process)
        while not self._may_compute(at):
            at += self.heartbeat_interval
        return at

    @property
    def is_outdated(self) -> bool:
        """Whether the target belongs to an earlier epoch."""
        return self.target_epoch < self.epoch

    def _may_compute(self, at: int) -> bool:
        """Whether the last target is old enough; the coordinator compares milliseconds."""
        interval = self.policy.assignment_interval // MILLISECOND
        return self.target_at is None or at // MILLISECOND - self.target_at // MILLISECOND >= interval

    def _list_beating(self) -> list[MemberProcess]:
        return [process for process in self.present.values() if self.members.is_running(process.index)]

    def _expect_heartbeat(self, process: MemberProcess, at: int | None = None) -> None:
        """Schedule a heartbeat of the process that matters, by default the next one."""
        at = self.find_next_heartbeat(process) if at is None else at
        before = self.next_heartbeats.get(process.index, NEVER)
        if not self.now <= before <= at:
            self.next_heartbeats[process.index] = at
            self.timers.add(at, partial(self._handle_heartbeat, process))

    def _handle_heartbeat(self, process: MemberProcess) -> None:
        """Handle a regular heartbeat, unless another one came meanwhile."""
        if self.next_heartbeats.get(process.index) != self.now:
            return
        if not self.members.is_running(process.index):
            self._forget_process(process)
            self._await_target()
            return
        process.beat = self.now
        self.respond(process)

    def respond(self, process: MemberProcess) -> None:
        """Answer a heartbeat: compute a target if needed, and tell the member what to give up or to take."""
        index = process.index
        self.next_heartbeats.pop(index, None)
        if index in self.resubscribed:
            self.announced[index] = self.resubscribed.pop(index)
            self.epoch += 1
        self._update_target()
        if index in self.revoking:
            return
        is_lost = (self.holders == index) & (self.targets != index)
        is_new = (self.holders == NONE) & (self.targets == index)
        if is_lost.any():
            self.revoking[index] = np.flatnonzero(is_lost)
        else:
            self.holders[is_new] = index
        if is_lost.any() or is_new.any():
            self._send_answer(process, self._find_time_after_poll(process))
        self._close_changes()

    def _send_answer(self, process: MemberProcess, at: int) -> None:
        """Send an answer that the member acts on between two polls, from ``at`` on."""
        self.answered.add(process.index)
        self.members.request_action(process.index, at)

    def _find_time_after_poll(self, process: MemberProcess) -> int:
        """Return the earliest time of actions after another poll than the one that ends now."""
        return self.now + (self.members.find_model(process.index).poll_time > 0)

    def handle_member_poll(self, process: MemberProcess) -> None:
        """Let the member follow its answer: it gives up partitions with one poll, and takes and acknowledges with the
        next."""
        index = process.index
        self.timeout_announcements.pop(index, None)
        if index not in self.answered:
            return
        if not self.members.between_polls:
            self.members.request_action(index, self.now)
        elif self.revoke_lost(process) and self._find_time_after_poll(process) > self.now:
            self.members.request_action(index, self._find_time_after_poll(process))
        else:
            self.take_new_partitions(process)
            self.acknowledge_assignment(process)

    def revoke_lost(self, process: MemberProcess) -> bool:
        """Run the callbacks of a member for what it loses; return whether there was anything."""
        lost_partitions = np.flatnonzero(
            (self.members.owners == process.index) & (self._find_assigned(process) != process.index)
        )
        if len(lost_partitions):
            self.members.revoke(process.index, lost_partitions, process.index)
        return bool(len(lost_partitions))

    def take_new_partitions(self, process: MemberProcess) -> None:
        """Let a member begin to read its new partitions."""
        self.answered.discard(process.index)
        self.members.assign(self._find_assigned(process), self.target_epoch, [process.index])

    def _find_assigned(self, process: MemberProcess) -> NDArray[np.int32]:
        """Return the partitions that the member was assigned, as an array with its ordinal at each."""
        assigned = np.where(self.holders == process.index, np.int32(process.index), np.int32(NONE))
        assigned[self.revoking.get(process.index, [])] = NONE
        return assigned

    def acknowledge_assignment(self, process: MemberProcess) -> None:
        """Acknowledge with a heartbeat that a member followed its answer; others may take what it gave up."""
        index = process.index
        process.beat = self.now
        freed_partitions = self.revoking.pop(index, np.zeros(0, np.int64))
        self.holders[freed_partitions] = NONE
        self.respond(process)
        for other in np.unique(self.targets[freed_partitions]).tolist():
            if other != NONE and other != index:
                self._plan_heartbeat(self.present[other])

    def _plan_heartbeat(self, process: MemberProcess) -> None:
        """Schedule the process's next heartbeat if it then receives a change."""
        index = process.index
        is_free = (self.holders == NONE) & (self.targets == index)
        is_lost = (self.holders == index) & (self.targets != index)
        if index not in self.revoking and self.members.is_running(index) and (is_free.any() or is_lost.any()):
            self._expect_heartbeat(process)

    # targets

    def _update_target(self) -> None:
        """Compute a target if it is outdated, now or with a later heartbeat."""
        if self.is_outdated and self._may_compute(self.now):
            self._compute_target()
        else:
            self._await_target()

    def _compute_target(self) -> None:
        """Compute the target of the latest epoch."""
        before = self.targets
        detected = tuple(one._replace(waited=one.at.at < self.now) for one in self.undecided)
        at = Instant(self.now, len(self.rebalances) + len(self.open_changes))
        self.fold.apply(at, detected, subscribed=self.announced, partitions=self.growth.take_new())
        self.undecided, self.announced = [], {}
        self.target_epoch, self.target_at = self.epoch, self.now
        self.targets = self.copy_owners()
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        since = min((n.at.at for n in detected), default=self.now)
        self.open_changes.append(TargetChange(since, detected, np.flatnonzero(self.targets != before)))
        self.record_generation(self.epoch, self.now, self.present)
        affected = np.union1d(self.targets[self.holders != self.targets], self.holders[self.holders != self.targets])
        for index in affected[affected != NONE].tolist():
            if index in self.present:
                self._plan_heartbeat(self.present[index])
        self._close_changes()

    def finish(self) -> None:
        while self.open_changes:
            self._record_change(self.open_changes.popleft())

    def _close_changes(self) -> None:
        """Record the changes that have ended, in order."""
        while self.open_changes:
            moved = self.open_changes[0].moved
            missing = moved[self.holders[moved] != self.targets[moved]]
            later = [change.moved for change in self.open_changes][1:]
            if len(np.setdiff1d(missing, np.concatenate(later) if later else missing[:0])):
                break
            self._record_change(self.open_changes.popleft())

    def _record_change(self, change: TargetChange) -> None:
        self.rebalances.append(GroupRebalance(change.since, self.now, change.detected))
