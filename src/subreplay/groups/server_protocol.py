"""The new protocol (KIP-848): the coordinator decides at once, and members get there one by one."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.groups.agenda import Agenda
from subreplay.groups.coordinator import Coordinator
from subreplay.groups.members import NO_REBALANCE, Members, Process
from subreplay.groups.state import NONE
from subreplay.model.rows import Instant
from subreplay.policies.kafka.assignor import Partitions
from subreplay.timelines.group_timeline import DetectedEvent, Rebalance


class Change(NamedTuple):
    """A decision, and the partitions that have to change hands for it."""

    since: int
    detected: DetectedEvent
    moved: NDArray[np.int64]


class ServerProtocol(Coordinator):
    """Reconciliation without a barrier.

    Every change has a new target assignment at once. A member hears of it with its next heartbeat; it commits and
    gives up what is another's now with its next poll. What is free goes to its new owner with that one's next
    heartbeat, which for a newcomer is its joining. A change is over when everything it moved has arrived, or was moved
    again by a later one.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        super().__init__(policy, partitions, members, agenda)
        self.holders = np.full(len(partitions), NONE, np.int32)
        self.targets = self.holders.copy()
        self.open: deque[Change] = deque()

    def joined(self, process: Process) -> None:
        self._decide(self.detected(process, "join", self.now))

    def replaced(self, old: Process, process: Process) -> None:
        self.holders[self.holders == old.index] = process.index
        self.members.assign(self.holders, NO_REBALANCE)
        self._decide(self.detected(process, "join", self.now))

    def departed(self, process: Process, detected: DetectedEvent) -> None:
        self.holders[self.holders == process.index] = NONE
        self._decide(detected)

    def heard(self, process: Process) -> None:
        """The member gives up what is another's."""
        self.members.commit(process.index)
        others = np.flatnonzero((self.holders == process.index) & (self.targets != process.index))
        self.members.release(others, process.index)
        self.holders[others] = NONE
        self._reconcile()

    def finish(self) -> None:
        while self.open:
            self._over(self.open.popleft())

    def _decide(self, detected: DetectedEvent) -> None:
        before = self.targets
        self.fold.apply(Instant(self.now, len(self.story) + len(self.open)), [detected])
        self.targets = self.owners()
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        self.open.append(Change(self.now, detected, np.flatnonzero(self.targets != before)))
        self._reconcile()
        self.members.assign(self.holders, self.fold.group.generation)

    def _reconcile(self) -> None:
        wrong = (self.holders != NONE) & (self.holders != self.targets)
        for index in np.unique(self.holders[wrong]).tolist():
            if self.members.runs(index):
                self.members.call(index, self.heartbeat(self.present[index]))
        free = (self.holders == NONE) & (self.targets != NONE)
        for index in np.unique(self.targets[free]).tolist():
            if self.members.runs(index):
                self.agenda.enter(self.heartbeat(self.present[index]), partial(self._grant, index))
        self._settle()

    def _grant(self, index: int) -> None:
        if index in self.present and self.members.runs(index):
            free = (self.holders == NONE) & (self.targets == index)
            self.holders[free] = index
            self.members.assign(self.holders, self.fold.group.generation)
            self._settle()

    def _settle(self) -> None:
        """Changes that are over are told, in their order."""
        while self.open:
            moved = self.open[0].moved
            missing = moved[self.holders[moved] != self.targets[moved]]
            later = [change.moved for change in self.open][1:]
            if len(np.setdiff1d(missing, np.concatenate(later) if later else missing[:0])):
                break
            self._over(self.open.popleft())

    def _over(self, change: Change) -> None:
        self.story.append(Rebalance(change.since, self.now, (change.detected,)))
