"""The group coordinator: how members join, leave, fall silent and are evicted, for both protocols.

It follows ``GroupMetadataManager`` and ``ConsumerCoordinator`` (4.0.2); see ``Detection`` and ``Static members`` in
their documentation. A consumer that leaves first finishes its batch and closes. A consumer that crashes is removed when
its session times out. A consumer that does not poll for ``max.poll.interval.ms`` leaves by itself and joins again with
its next poll; a static one only stops its heartbeats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import DetectedEvent, GroupFold, GroupRebalance
from subreplay.simulation.kafka.coordinator_timers import Action, TimerQueue
from subreplay.simulation.kafka.group_members import GroupMembers, MemberProcess, Owners
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome


class GroupGeneration(NamedTuple):
    """A generation, or the target assignment of an epoch.

    ``at`` is when all had joined (ns), or when the target was computed. ``members`` and ``owners`` (of each partition)
    are ordinals of joins.
    """

    number: int
    at: int
    members: tuple[int, ...]
    owners: Owners


class Coordinator(ABC):
    """The members of the group and the decisions so far: ``rebalances``, one for each decision, and ``generations``."""

    def __init__(self, policy: Any, partitions: Partitions, members: GroupMembers, timers: TimerQueue) -> None:
        self.policy, self.members, self.timers = policy, members, timers
        self.fold = GroupFold(policy, partitions)
        self.present: dict[int, MemberProcess] = {}
        self.rebalances: list[GroupRebalance] = []
        self.generations: list[GroupGeneration] = []
        self.heartbeat_interval = members.parameters.find_heartbeat_interval(policy.rebalance)
        self.session_timeout = policy.session_timeout_us * 1_000
        self.is_evicting = False  # a session times out at this instant
        self.resubscribed: dict[int, tuple[str, ...]] = {}  # new subscriptions that the assignor does not know yet

    @property
    def now(self) -> int:
        return self.members.now

    def start_process(self, event: MembershipEvent, origin: int) -> None:
        """Start a process, which joins. A static one may take the place of another."""
        process = self.members.start(event, origin)
        same = (p for p in self.present.values() if p.static and p.event.instance_id == event.instance_id)
        old = next(same, None)
        self.present[process.index] = process
        if old is None:
            self.handle_join(process)
        else:
            del self.present[old.index]
            if self.members.is_running(old.index):  # two processes have the same id: fence the older one
                self._end_process(old)
            self.handle_replacement(old, process)

    def request_close(self, process: MemberProcess) -> None:
        """Request a process to close, which it does between two polls."""
        process.closing_at = self.now
        if self.members.is_running(process.index):
            self.members.request_action(process.index, self.now)

    def schedule_action(self, process: MemberProcess, action: Action) -> None:
        """Let the application of a process do something between two polls."""
        if self.members.is_running(process.index):
            process.actions.append((self.now, action))
            self.members.request_action(process.index, self.now)

    def crash(self, process: MemberProcess) -> None:
        """End a process without telling the group."""
        if self.members.is_running(process.index):
            last = self.find_last_heartbeat(process)
            self._end_process(process)
            if process.index in self.present:
                self._start_silence(process, last)

    def handle_turn(self, process: MemberProcess) -> None:
        """Handle a process that polls, or is between two polls, and needs the coordinator."""
        process.evict_at = NEVER  # the member has contacted the coordinator again
        if self.members.between_polls:
            if process.closing_at <= self.now:
                self._close_process(process)
                return
            due = [action for at, action in process.actions if at <= self.now]
            process.actions = process.actions[len(due) :]
            for action in due:
                action()
        if process.index not in self.present:
            self.members.end_process(process.index)
            self.start_process(process.event, process.origin)
            self.members.continue_as(process, self.members.processes[-1])
        else:
            self.handle_member_poll(process)

    def handle_overdue(self, process: MemberProcess) -> None:
        """Handle a process that did not poll in time."""
        if process.index not in self.present:
            return
        if process.static:
            self._start_silence(process, self.now)
            self.members.request_turn(process.index, self.now)
        else:
            self.handle_poll_timeout(process)

    def change_subscription(self, process: MemberProcess, topics: tuple[str, ...]) -> None:
        """Change the topics that a member subscribes to."""
        process.topics = topics
        process.event = replace(process.event, topics=topics)
        if process.index in self.present:
            self.resubscribed[process.index] = topics
            self.handle_subscription(process)

    @abstractmethod
    def finish(self) -> None:
        """End the simulation: record what is not finished as it is."""

    @abstractmethod
    def handle_join(self, process: MemberProcess) -> None:
        """Handle the join of a process that does not replace another one."""

    @abstractmethod
    def handle_replacement(self, old: MemberProcess, process: MemberProcess) -> None:
        """Handle a static member that comes back as another process."""

    @abstractmethod
    def handle_member_poll(self, process: MemberProcess) -> None:
        """Handle a member that polls and needs the coordinator."""

    @abstractmethod
    def handle_departure(self, process: MemberProcess, detected: DetectedEvent) -> None:
        """Handle a process that is no longer in ``present``."""

    @abstractmethod
    def handle_subscription(self, process: MemberProcess) -> None:
        """Handle a changed subscription of a member."""

    @abstractmethod
    def grow_topic(self, topic: str, count: int) -> None:
        """Set a larger number of partitions of a topic."""

    @abstractmethod
    def handle_poll_timeout(self, process: MemberProcess) -> None:
        """Handle a dynamic member that did not poll for ``max.poll.interval.ms``."""

    def find_last_heartbeat(self, process: MemberProcess) -> int:
        """Return when the session of a process was last renewed."""
        return self.find_previous_heartbeat(process)

    def find_next_heartbeat(self, process: MemberProcess) -> int:
        """Return when the process sends its next heartbeat: now or later.

        A session that times out does so slightly after a heartbeat that is due at the same instant.
        """
        elapsed = self.now + self.is_evicting - process.beat
        return process.beat + max(-(-elapsed // self.heartbeat_interval), 1) * self.heartbeat_interval

    def find_previous_heartbeat(self, process: MemberProcess) -> int:
        """Return when the process sent its last heartbeat."""
        return process.beat + (self.now - process.beat) // self.heartbeat_interval * self.heartbeat_interval

    def detect_event(
        self, process: MemberProcess, kind: Literal["join", "leave", "crash"], since: int
    ) -> DetectedEvent:
        """Build an event of a process that was requested at ``since`` and is detected now."""
        event = replace(process.event, event=kind, since=Instant(since), at=Instant(self.now), scope=Scope(""))
        return DetectedEvent(Instant(self.now), process.index, event)

    def copy_owners(self) -> Owners:
        """Return the owner of each partition by the latest decision."""
        return np.array(self.fold.owners, np.int32)

    def record_generation(self, number: int, at: int, members: Iterable[int]) -> None:
        """Record a new generation."""
        if self.members.keeps_history:
            self.generations.append(GroupGeneration(number, at, tuple(members), self.copy_owners()))

    def remove_process(self, process: MemberProcess, kind: Literal["leave", "crash"], since: int) -> None:
        """Remove a process from the group."""
        del self.present[process.index]
        self.resubscribed.pop(process.index, None)
        self.handle_departure(process, self.detect_event(process, kind, since))

    def _close_process(self, process: MemberProcess) -> None:
        if process.index not in self.present:
            self.members.end_process(process.index)
            return
        self.members.close_process(process.index)
        if process.static:  # it leaves silently, because it may come back
            self._start_silence(process, self.find_last_heartbeat(process))
        else:
            self.remove_process(process, "leave", process.closing_at)

    def _end_process(self, process: MemberProcess) -> None:
        self.members.return_uncommitted(process.index, DeliveryOutcome.RETURNED, self.now)
        self.members.end_process(process.index)

    def _start_silence(self, process: MemberProcess, since: int) -> None:
        process.silent_at = self.now
        process.evict_at = max(since + self.session_timeout, self.now)
        self.timers.add(process.evict_at, partial(self._evict_if_silent, process))

    def _evict_if_silent(self, process: MemberProcess) -> None:
        """Evict a process whose session has timed out, unless it has contacted the coordinator meanwhile."""
        if process.evict_at != self.now or process.index not in self.present:
            return
        if self.members.is_running(process.index):
            self.members.evict(process.index)
        self.is_evicting = True
        self.remove_process(process, "crash", process.silent_at)
        self.is_evicting = False
