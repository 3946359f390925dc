"""The group coordinator: how members come, go, fall silent and are evicted; what both protocols have in common.

As ``GroupMetadataManager`` and ``ConsumerCoordinator`` (4.0.2), see ``Detection`` and ``Static members`` in their
documentation. A consumer that leaves processes its batch, commits and closes. One that crashes is missed when the
session times out, counted from its last heartbeat. One that does not poll for ``max.poll.interval.ms`` leaves by
itself and joins again with its next poll; a static one only stops its heartbeats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from subreplay.dispatch.broker.records import NEVER
from subreplay.dispatch.clients.state import Outcome
from subreplay.groups.agenda import Agenda
from subreplay.groups.members import Members, Process
from subreplay.groups.state import NONE
from subreplay.model.rows import Instant, MembershipEvent, Scope
from subreplay.policies.kafka.assignor import Partitions
from subreplay.timelines.group_timeline import DetectedEvent, GroupFold, Rebalance


class Coordinator(ABC):
    """Who is in the group, and what was decided so far: ``story``, one round a decision."""

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        self.policy, self.members, self.agenda = policy, members, agenda
        self.fold = GroupFold(policy, partitions)
        self.present: dict[int, Process] = {}
        self.story: list[Rebalance] = []
        self.heartbeat_interval = members.parameters.heartbeat(policy.rebalance)
        self.session_timeout = policy.session_timeout_us * 1_000

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
        """A process is asked to close: it does so when its batch is done."""
        process.closing_at = self.now
        if self.members.busy(process.index):
            self.members.call(process.index, self.now)
        elif self.members.runs(process.index):
            self._close(process)

    def crashes(self, process: Process) -> None:
        """A process is no more, and nobody knows."""
        if self.members.runs(process.index):
            self._die(process)
            if process.index in self.present:
                self._silent(process, self._heartbeat_before(process))

    def polled(self, process: Process) -> None:
        """A process polls, and was to turn to the coordinator."""
        process.evict_at = NEVER  # it is heard of again
        if process.closing_at <= self.now:
            self._close(process)
        elif process.index not in self.present:
            self.members.end(process.index)
            self.came(process.event, process.origin)
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
            self.members.evict(process.index)
            self._depart(process, "leave", self.now)

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
        """A member polls, and knows that the group changes."""

    @abstractmethod
    def departed(self, process: Process, detected: DetectedEvent) -> None:
        """A process is not ``present`` any more."""

    def heartbeat(self, process: Process) -> int:
        """When the process hears of the group next: now or later."""
        since = self.now - process.joined_at
        return process.joined_at + -(-since // self.heartbeat_interval) * self.heartbeat_interval

    def detected(self, process: Process, kind: Literal["join", "leave", "crash"], since: int) -> DetectedEvent:
        """An event of a process, asked for at ``since`` and detected now."""
        event = replace(process.event, event=kind, since=Instant(since), at=Instant(self.now), scope=Scope(""))
        return DetectedEvent(Instant(self.now), process.index, event)

    def _heartbeat_before(self, process: Process) -> int:
        since = self.now - process.joined_at
        return process.joined_at + since // self.heartbeat_interval * self.heartbeat_interval

    def _close(self, process: Process) -> None:
        here = process.index in self.present
        if here:
            self.members.commit(process.index)
        self.members.end(process.index)
        if here and process.static:  # it does not say so: it may come back
            self._silent(process, self._heartbeat_before(process))
        elif here:
            self._depart(process, "leave", process.closing_at)

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
        self._depart(process, "crash", process.silent_at)

    def _depart(self, process: Process, kind: Literal["leave", "crash"], since: int) -> None:
        del self.present[process.index]
        self.departed(process, self.detected(process, kind, since))

    def owners(self) -> Any:
        """The owner of each partition as it was decided last: the ordinal of a join, or -1."""
        return np.where(self.fold.owners < 0, NONE, self.fold.owners).astype(np.int32)
