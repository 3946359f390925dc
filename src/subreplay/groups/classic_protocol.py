"""The classic protocol: a join round that waits for every member, then one new generation for all."""

from __future__ import annotations

from typing import Any

import numpy as np

from subreplay.dispatch.broker.records import NEVER
from subreplay.groups.agenda import Agenda
from subreplay.groups.coordinator import Coordinator
from subreplay.groups.members import NO_REBALANCE, Members, Process
from subreplay.groups.state import NONE
from subreplay.model.rows import Instant
from subreplay.policies.kafka.assignor import Partitions
from subreplay.timelines.group_timeline import MAX_INITIAL_DELAY_NS, DetectedEvent, Rebalance


class ClassicProtocol(Coordinator):
    """Join rounds of eager and cooperative assignors.

    A change starts a round. Members hear of it with a heartbeat, and rejoin with their next poll, when they are done
    with their batch and have committed it. *Eager*: whoever rejoins gives up everything, and waits for the slowest.
    *Cooperative*: members go on with what they have; what moves is given up when the round ends, and handed on by the
    round that follows. An empty group waits for more members first. A static member that is back in time, while no
    round runs, gets the assignment of its former self without one.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        super().__init__(policy, partitions, members, agenda)
        self.eager = policy.rebalance == "eager"
        self.delay = policy.initial_rebalance_delay_us * 1_000
        self.since = NONE  # when the round began; -1: none runs
        self.awaited: set[int] = set()
        self.slowest = NONE
        self.pending: list[DetectedEvent] = []
        self.forced = self.ending = False
        self.delayed_until = self.delayed_since = NEVER
        self.more_came = False

    def finish(self) -> None:
        """A round that has not ended has decided nothing."""

    def joined(self, process: Process) -> None:
        if len(self.present) == 1 and self.delay and self.since == NONE:
            self.delayed_since = self.now
            self._delay(self.now + self.delay)
        else:
            self.more_came = True
        self._answer(self.detected(process, "join", self.now))

    def replaced(self, old: Process, process: Process) -> None:
        came = self.detected(process, "join", self.now)
        if self.since == NONE and old.event.topics == process.event.topics:
            self._decide(Rebalance(self.now, self.now, (came,)))
            self.members.assign(self.owners(), NO_REBALANCE)
            return
        self.forced = True
        self.awaited.discard(old.index)
        self._answer(came)

    def departed(self, process: Process, detected: DetectedEvent) -> None:
        self.awaited.discard(process.index)
        self._answer(detected)

    def heard(self, process: Process) -> None:
        """The member rejoins."""
        if process.index not in self.awaited:
            return
        self.members.commit(process.index)
        if self.eager:
            self.members.pause(process.index)
            self.members.release(np.flatnonzero(self.members.owners == process.index), NONE)
        self.awaited.discard(process.index)
        self.slowest = process.index
        self._check()

    def _answer(self, detected: DetectedEvent) -> None:
        self.pending.append(detected)
        if self.since == NONE:
            self._begin(set())
        self._check()

    def _begin(self, revoking: set[int]) -> None:
        """A round begins; ``revoking`` members know that they have to give up something."""
        self.since, self.slowest = self.now, NONE
        joining = {n.join for n in self.pending if n.event.event == "join"}
        self.awaited = set(self.present) - joining
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        for index in sorted(self.awaited):
            if self.members.runs(index):
                at = self.now if index in revoking else self.heartbeat(self.present[index])
                self.members.call(index, at)

    def _check(self) -> None:
        """Once nobody is waited for any more the round ends."""
        if not self.awaited and not self.ending and self.delayed_until == NEVER:
            self.ending = True
            self.agenda.enter(self.now + self.members.parameters.rebalance_time, self._end)

    def _end(self) -> None:
        rebalance = Rebalance(self.since, self.now, tuple(self.pending), self.forced)
        self.pending, self.since, self.forced, self.ending = [], NONE, False, False
        self.members.blame(self.slowest)
        self._decide(rebalance)
        owners, held = self.owners(), self.members.owners.copy()
        lost = np.flatnonzero((held != NONE) & (held != owners))
        for index in np.unique(held[lost]).tolist():
            self.members.release(lost[held[lost] == index], index)
        self.members.assign(owners, self.fold.group.generation)
        if self.fold.group.unsettled:
            self._begin({self.fold.here[member_id][0] for member_id in self.fold.group.revoked})
            self._check()

    def _decide(self, rebalance: Rebalance) -> None:
        at = Instant(self.now, len(self.story))
        if rebalance.detected:
            self.fold.apply(at, rebalance.detected, rebalance.forced)
        else:
            self.fold.follow_up(at, Instant(rebalance.since))
        self.story.append(rebalance)

    def _delay(self, until: int) -> None:
        self.delayed_until, self.more_came = until, False
        self.agenda.enter(until, self._delayed)

    def _delayed(self) -> None:
        """An empty group has waited: for more, if some came meanwhile."""
        most = self.delayed_since + MAX_INITIAL_DELAY_NS
        if self.more_came and self.now < most:
            self._delay(min(self.now + self.delay, most))
        else:
            self.delayed_until = NEVER
            self._check()
