"""The group coordinator: how members come, go, fall silent and are evicted; what both protocols have in common.

As ``GroupMetadataManager`` and ``ConsumerCoordinator`` (4.0.2), see ``Detection`` and ``Static members`` in their
documentation. A consumer that leaves processes its batch and closes. One that crashes is missed when the session times
out. One that does not poll for ``max.poll.interval.ms`` leaves by itself and joins again with its next poll; a static
one only stops its heartbeats.
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
from subreplay.simulation.kafka.coordinator_timers import Action, Agenda
from subreplay.simulation.kafka.group_members import Members, Owners, Process
from subreplay.simulation.pulsar.broker.broker_records import NEVER
from subreplay.simulation.pulsar.clients.client_state import Outcome


class Generation(NamedTuple):
    """A generation, or the target of an epoch: its number, when all had joined (ns; of an epoch, when the target was
    computed), the members and the owner of each partition by the ordinals of their joins."""

    number: int
    at: int
    members: tuple[int, ...]
    owners: Owners


class Coordinator(ABC):
    """Who is in the group, and what was decided so far: ``story``, one round a decision, and ``generations``."""

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        self.policy, self.members, self.agenda = policy, members, agenda
        self.fold = GroupFold(policy, partitions)
        self.present: dict[int, Process] = {}
        self.story: list[GroupRebalance] = []
        self.generations: list[Generation] = []
        self.heartbeat_interval = members.parameters.heartbeat(policy.rebalance)
        self.session_timeout = policy.session_timeout_us * 1_000
        self.evicts = False  # a session has timed out in this instant
        self.resubscribed: dict[int, tuple[str, ...]] = {}  # what members subscribe to, and the assignor does not know

    @property
    def now(self) -> int:
        return self.members.now

    def came(self, event: MembershipEvent, origin: int) -> None:
        """A process starts and joins; a static one may take the place of another."""
        process = self.members.start(event, origin)
        same = (p for p in self.present.values() if p.static and p.event.instance_id == event.instance_id)
        old = next(same, None)
        self.present[process.index] = process
        if old is None:
            self.joined(process)
        else:
            del self.present[old.index]
            if self.members.runs(old.index):  # there are two of them: the older one is fenced
                self._die(old)
            self.replaced(old, process)

    def leaves(self, process: Process) -> None:
        """A process is asked to close: it does so between two polls."""
        process.closing_at = self.now
        if self.members.runs(process.index):
            self.members.action(process.index, self.now)

    def does(self, process: Process, action: Action) -> None:
        """The application of a process does something between two polls."""
        if self.members.runs(process.index):
            process.actions.append((self.now, action))
            self.members.action(process.index, self.now)

    def crashes(self, process: Process) -> None:
        """A process is no more, and nobody knows."""
        if self.members.runs(process.index):
            last = self.sign_of_life(process)
            self._die(process)
            if process.index in self.present:
                self._silent(process, last)

    def polled(self, process: Process) -> None:
        """A process polls, or is between two polls, and was to turn to the coordinator."""
        process.evict_at = NEVER  # it is heard of again
        if self.members.between_polls:
            if process.closing_at <= self.now:
                self._close(process)
                return
            due = [action for at, action in process.actions if at <= self.now]
            process.actions = process.actions[len(due) :]
            for action in due:
                action()
        if process.index not in self.present:
            self.members.end(process.index)
            self.came(process.event, process.origin)
            self.members.carry_on(process, self.members.processes[-1])
        else:
            self.heard(process)

    def overdue(self, process: Process) -> None:
        """A process did not poll for too long."""
        if process.index not in self.present:
            return
        if process.static:
            self._silent(process, self.now)
            self.members.call(process.index, self.now)
        else:
            self.out_of_time(process)

    def subscribes(self, process: Process, topics: tuple[str, ...]) -> None:
        """A member subscribes to other topics from now on."""
        process.topics = topics
        process.event = replace(process.event, topics=topics)
        if process.index in self.present:
            self.resubscribed[process.index] = topics
            self.resubscribes(process)

    @abstractmethod
    def finish(self) -> None:
        """Nothing more will happen: what is not over is told as it is."""

    @abstractmethod
    def joined(self, process: Process) -> None:
        """A process that takes nobody's place joins the group."""

    @abstractmethod
    def replaced(self, old: Process, process: Process) -> None:
        """A static member comes back as another process."""

    @abstractmethod
    def heard(self, process: Process) -> None:
        """A member polls, and turns to the coordinator."""

    @abstractmethod
    def departed(self, process: Process, detected: DetectedEvent) -> None:
        """A process is not ``present`` any more."""

    @abstractmethod
    def resubscribes(self, process: Process) -> None:
        """A member's subscription is another one."""

    @abstractmethod
    def grows(self, topic: str, count: int) -> None:
        """A topic has so many partitions from now on."""

    @abstractmethod
    def out_of_time(self, process: Process) -> None:
        """A dynamic member did not poll for ``max.poll.interval.ms``."""

    def sign_of_life(self, process: Process) -> int:
        """When the session of a process began anew for the last time."""
        return self.heartbeat_before(process)

    def heartbeat(self, process: Process) -> int:
        """When the process sends its next heartbeat: now or later. A session that times out does so a little later than
        a heartbeat that is due in that instant."""
        passed = self.now + self.evicts - process.beat
        return process.beat + max(-(-passed // self.heartbeat_interval), 1) * self.heartbeat_interval

    def heartbeat_before(self, process: Process) -> int:
        """When it sent its last one."""
        return process.beat + (self.now - process.beat) // self.heartbeat_interval * self.heartbeat_interval

    def detected(self, process: Process, kind: Literal["join", "leave", "crash"], since: int) -> DetectedEvent:
        """An event of a process, asked for at ``since`` and detected now."""
        event = replace(process.event, event=kind, since=Instant(since), at=Instant(self.now), scope=Scope(""))
        return DetectedEvent(Instant(self.now), process.index, event)

    def owners(self) -> Owners:
        """Who owns each partition by the latest decision."""
        return np.array(self.fold.owners, np.int32)

    def decided(self, number: int, at: int, members: Iterable[int]) -> None:
        """A generation is there."""
        if self.members.remembers:
            self.generations.append(Generation(number, at, tuple(members), self.owners()))

    def depart(self, process: Process, kind: Literal["leave", "crash"], since: int) -> None:
        """A process is not in the group any more."""
        del self.present[process.index]
        self.resubscribed.pop(process.index, None)
        self.departed(process, self.detected(process, kind, since))

    def _close(self, process: Process) -> None:
        if process.index not in self.present:
            self.members.end(process.index)
            return
        self.members.close(process.index)
        if process.static:  # it does not say so: it may come back
            self._silent(process, self.sign_of_life(process))
        else:
            self.depart(process, "leave", process.closing_at)

    def _die(self, process: Process) -> None:
        self.members.give_back(process.index, Outcome.RETURNED, self.now)
        self.members.end(process.index)

    def _silent(self, process: Process, since: int) -> None:
        process.silent_at = self.now
        process.evict_at = max(since + self.session_timeout, self.now)
        self.agenda.enter(process.evict_at, partial(self._miss, process))

    def _miss(self, process: Process) -> None:
        """The session of a process has timed out, if it was not heard of meanwhile."""
        if process.evict_at != self.now or process.index not in self.present:
            return
        if self.members.runs(process.index):
            self.members.evict(process.index)
        self.evicts = True
        self.depart(process, "crash", process.silent_at)
        self.evicts = False
