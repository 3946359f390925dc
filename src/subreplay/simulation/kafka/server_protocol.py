"""The new protocol (KIP-848): the coordinator decides at once, and members get there one by one."""

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
from subreplay.simulation.kafka.coordinator_timers import Agenda
from subreplay.simulation.kafka.group_members import NO_REBALANCE, Members, Process
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.partition_growth import Growth


class Change(NamedTuple):
    """A decision, and the partitions that have to change hands for it."""

    since: int
    detected: tuple[DetectedEvent, ...]
    moved: NDArray[np.int64]


class ServerProtocol(Coordinator):
    """Reconciliation without a barrier, heartbeat by heartbeat.

    Every change bumps the epoch. A join, and a heartbeat that brings another subscription, has a target at once; after
    a departure, or when a topic grew, the next heartbeat of any member computes it. With its own next heartbeat a
    member hears what it has to give up, does so between two polls, and says so with a heartbeat of its own, from which
    the next ones are counted. What is free goes to its new owner with that one's next heartbeat; it takes it between
    two polls, and acknowledges that, too. A change is over when everything it moved has arrived, or was moved again by
    a later one.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        super().__init__(policy, partitions, members, agenda)
        self.holders = np.full(len(partitions), NONE, np.int32)  # as the coordinator knows it
        self.targets = self.holders.copy()
        self.growth = Growth(partitions)
        self.epoch = 0
        self.undecided: list[DetectedEvent] = []
        self.outdated = False  # the target is of an earlier epoch
        self.told: set[int] = set()  # members with an answer that their application has not acted upon
        self.revoking: dict[int, NDArray[np.int64]] = {}  # what members are to give up, and have not acknowledged
        self.due: dict[int, int] = {}  # the next heartbeat of members for whom it matters
        self.out: dict[int, int] = {}  # when members that did not poll in time say so
        self.open: deque[Change] = deque()

    # who comes and goes

    def joined(self, process: Process) -> None:
        self.undecided.append(self.detected(process, "join", self.now))
        self.epoch += 1
        self._decide()
        self.responds(process)
        self._tell(process, self.now)

    def replaced(self, old: Process, process: Process) -> None:
        self.holders[self.holders == old.index] = process.index
        self.targets[self.targets == old.index] = process.index
        self._forget(old)
        came = self.detected(process, "join", self.now)
        if old.topics == process.topics and not self.outdated:
            self.fold.apply(Instant(self.now, len(self.story) + len(self.open)), [came])
            self.targets = self.owners()
            self.story.append(GroupRebalance(self.now, self.now, (came,)))
        else:
            self.undecided.append(came)
            self.epoch += 1
            self._decide()
        self.members.assign(self.holders, NO_REBALANCE, [process.index])
        self._plan(process)

    def departed(self, process: Process, detected: DetectedEvent) -> None:
        self.holders[self.holders == process.index] = NONE
        self._forget(process)
        self.undecided.append(detected)
        self.epoch += 1
        self._outdate()

    def out_of_time(self, process: Process) -> None:
        """It says so with its next heartbeat."""
        self.members.call(process.index, self.now)  # if it polls first, nobody is told
        at = self.out[process.index] = self.heartbeat(process)
        self.agenda.enter(at, partial(self._says_so, process))

    def _says_so(self, process: Process) -> None:
        if self.out.pop(process.index, None) == self.now and process.index in self.present:
            self.members.evict(process.index)
            self.depart(process, "leave", self.now)

    def _forget(self, process: Process) -> None:
        self.told.discard(process.index)
        self.revoking.pop(process.index, None)
        self.due.pop(process.index, None)
        self.out.pop(process.index, None)

    def resubscribes(self, process: Process) -> None:
        """It says so with its next heartbeat."""
        self._expect(process)

    def grows(self, topic: str, count: int) -> None:
        self.growth.grow(topic, count)
        self.growth.see()
        self.epoch += 1
        self._outdate()

    # heartbeats

    def _outdate(self) -> None:
        """The next heartbeat of any member computes a target."""
        self.outdated = True
        first = min((self.heartbeat(p) for p in self._beating()), default=None)
        for process in self._beating():
            if self.heartbeat(process) == first:
                self._expect(process)
                break

    def _beating(self) -> list[Process]:
        return [process for process in self.present.values() if self.members.runs(process.index)]

    def _expect(self, process: Process) -> None:
        """The process's next heartbeat matters."""
        at = self.heartbeat(process)
        if self.due.get(process.index) != at:
            self.due[process.index] = at
            self.agenda.enter(at, partial(self._beats, process))

    def _beats(self, process: Process) -> None:
        """A regular heartbeat, if no other one came meanwhile."""
        if self.due.get(process.index) != self.now:
            return
        if not self.members.runs(process.index):
            self._forget(process)
            if self.outdated:
                self._outdate()
            return
        process.beat = self.now
        self.responds(process)

    def responds(self, process: Process) -> None:
        """What the answer to a heartbeat tells its member."""
        index = process.index
        self.due.pop(index, None)
        if index in self.resubscribed and not self.outdated:
            self.epoch += 1
        if self.outdated or index in self.resubscribed:
            self._decide()
        if index in self.revoking:
            return
        wrong = (self.holders == index) & (self.targets != index)
        free = (self.holders == NONE) & (self.targets == index)
        if wrong.any():
            self.revoking[index] = np.flatnonzero(wrong)
        else:
            self.holders[free] = index
        if wrong.any() or free.any():
            self._tell(process, self._after_a_poll(process))
        self._settle()

    def _tell(self, process: Process, at: int) -> None:
        """The member has an answer to act upon, between two polls from ``at`` on."""
        self.told.add(process.index)
        self.members.action(process.index, at)

    def _after_a_poll(self, process: Process) -> int:
        """From when on whatever a member does comes after another poll than the one that ends now."""
        return self.now + (self.members.model(process.index).poll_time > 0)

    def heard(self, process: Process) -> None:
        """The member does what it was told: what it has to give up with one poll; what is new it begins with, and
        acknowledges all, with the next one."""
        index = process.index
        self.out.pop(index, None)
        if index not in self.told:
            return
        if not self.members.between_polls:
            self.members.action(index, self.now)
        elif self.gives_up(process) and self._after_a_poll(process) > self.now:
            self.members.action(index, self._after_a_poll(process))
        else:
            self.takes(process)
            self.acknowledges(process)

    def gives_up(self, process: Process) -> bool:
        """A member's callbacks for what it loses run, if there is anything."""
        lost = np.flatnonzero((self.members.owners == process.index) & (self._due_to(process) != process.index))
        if len(lost):
            self.members.give_up(process.index, lost, process.index)
        return bool(len(lost))

    def takes(self, process: Process) -> None:
        """A member begins with what is new to it."""
        self.told.discard(process.index)
        self.members.assign(self._due_to(process), self.epoch, [process.index])

    def _due_to(self, process: Process) -> NDArray[np.int32]:
        """The member at each partition that it is told to have."""
        mine = np.where(self.holders == process.index, np.int32(process.index), np.int32(NONE))
        mine[self.revoking.get(process.index, [])] = NONE
        return mine

    def acknowledges(self, process: Process) -> None:
        """A heartbeat says that a member has done what it was told; others may have what it gave up."""
        index = process.index
        process.beat = self.now
        freed = self.revoking.pop(index, np.zeros(0, np.int64))
        self.holders[freed] = NONE
        self.responds(process)
        for other in np.unique(self.targets[freed]).tolist():
            if other != NONE and other != index:
                self._plan(self.present[other])

    def _plan(self, process: Process) -> None:
        """The process's next heartbeat matters if it then hears of something."""
        index = process.index
        waits = (self.holders == NONE) & (self.targets == index)
        wrong = (self.holders == index) & (self.targets != index)
        if index not in self.revoking and self.members.runs(index) and (waits.any() or wrong.any()):
            self._expect(process)

    # targets

    def _decide(self) -> None:
        """The target of the latest epoch."""
        before, detected = self.targets, tuple(self.undecided)
        at = Instant(self.now, len(self.story) + len(self.open))
        self.fold.apply(at, detected, subscribed=self.resubscribed, partitions=self.growth.taken())
        self.undecided, self.resubscribed, self.outdated = [], {}, False
        self.targets = self.owners()
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        since = min((n.at.at for n in detected), default=self.now)
        self.open.append(Change(since, detected, np.flatnonzero(self.targets != before)))
        self.decided(self.epoch, self.now, self.present)
        concerned = np.union1d(self.targets[self.holders != self.targets], self.holders[self.holders != self.targets])
        for index in concerned[concerned != NONE].tolist():
            if index in self.present:
                self._plan(self.present[index])
        self._settle()

    def finish(self) -> None:
        while self.open:
            self._over(self.open.popleft())

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
        self.story.append(GroupRebalance(change.since, self.now, change.detected))
