"""The classic protocol: a join round that waits for every member, then one new generation for all."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np

from subreplay.rows.model.rows import Instant
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import REBALANCE_TIMEOUT_NS, DetectedEvent, GroupRebalance
from subreplay.simulation.kafka.coordinator import Coordinator
from subreplay.simulation.kafka.coordinator_timers import Agenda
from subreplay.simulation.kafka.group_members import NO_REBALANCE, Members, Process
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.partition_growth import Growth
from subreplay.simulation.pulsar.broker.broker_records import NEVER


class Stage(IntEnum):
    """Where a member is on its way to a generation, as ``AbstractCoordinator`` goes it."""

    STABLE = 0
    JOINED = 1  # its JoinGroup waits for the others'
    ANSWERED = 2  # it knows the generation, and asks for its assignment with its next poll
    SYNCED = 3  # its SyncGroup waits for the leader's
    GIVEN = 4  # its callbacks run with its next poll


class ClassicProtocol(Coordinator):
    """Join rounds of eager and cooperative assignors.

    A change starts a round. Members hear of it with a heartbeat, and rejoin with their next poll, when they are done
    with their batch. When all have, the generation is there, and each member's heartbeats begin anew; each asks for its
    assignment with its next poll, the leader gives it to all, and each takes it with its next poll again. *Eager*:
    whoever rejoins gives up everything, and waits for the slowest. *Cooperative*: members go on with what they have,
    but cannot commit; whoever has to give up something does so with its assignment, and rejoins at once, which begins
    the round that hands it on.

    An empty group waits for more members first. A static member that is back in time, while no round runs, gets the
    assignment of its former self without one. The leader looks after new partitions and rejoins for them.
    """

    def __init__(self, policy: Any, partitions: Partitions, members: Members, agenda: Agenda) -> None:
        super().__init__(policy, partitions, members, agenda)
        self.eager = policy.rebalance == "eager"
        self.delay = policy.initial_rebalance_delay_us * 1_000
        self.growth = Growth(partitions)
        self.number = 0  # of the generation
        self.stages: dict[int, Stage] = {}
        self.told_at: dict[int, int] = {}  # when a member hears that it has to rejoin
        self.leader = NONE
        self.since = NONE  # when the round began; -1: none runs
        self.awaited: set[int] = set()
        self.slowest = NONE
        self.pending: list[DetectedEvent] = []
        self.forced = self.ending = False
        self.rounds = 0
        self.completing: GroupRebalance | None = None  # all have joined; the leader has not given out the assignment
        self.given_at = NEVER
        self.joined_at = NONE
        self.delayed_until = self.delayed_since = NEVER
        self.more_came = False

    def finish(self) -> None:
        """A round that has not ended has decided nothing."""

    # who comes and goes

    def joined(self, process: Process) -> None:
        if len(self.present) == 1 and self.delay and self.since == NONE:
            self.delayed_since = self.now
            self._delay(self.now + self.delay)
        elif self.number == 0:
            self.more_came = True
        self.stages[process.index] = Stage.JOINED
        self._answer(self.detected(process, "join", self.now))

    def replaced(self, old: Process, process: Process) -> None:
        came = self.detected(process, "join", self.now)
        del self.stages[old.index]
        self.told_at.pop(old.index, None)
        if self.leader == old.index:
            self.leader = process.index
        if self.since == NONE and self.completing is None and old.topics == process.topics:
            self.stages[process.index] = Stage.STABLE
            rebalance = GroupRebalance(self.now, self.now, (came,))
            self.fold.apply(Instant(self.now, len(self.story)), rebalance.detected)
            self.story.append(rebalance)
            self.members.assign(self.owners(), NO_REBALANCE, [process.index])
            return
        self.stages[process.index] = Stage.JOINED
        self.forced = True
        self.awaited.discard(old.index)
        self._answer(came)

    def departed(self, process: Process, detected: DetectedEvent) -> None:
        self.awaited.discard(process.index)
        self.stages.pop(process.index, None)
        self.told_at.pop(process.index, None)
        if self.leader == process.index:
            self.leader = next(iter(self.present), NONE)
        self._answer(detected)

    def out_of_time(self, process: Process) -> None:
        self.members.evict(process.index)
        self.depart(process, "leave", self.now)

    def sign_of_life(self, process: Process) -> int:
        """Its last heartbeat, or a later commit."""
        return max(self.heartbeat_before(process), self.members.committed_at(process.index))

    # what members do with a poll

    def heard(self, process: Process) -> None:
        index = process.index
        stage = self.stages[index]
        if stage is Stage.ANSWERED:
            self.sync([index])
        elif stage is Stage.GIVEN:
            self.receive([index])
        elif self.told_at.get(index, NEVER) <= self.now:
            self.rejoin(index)
            return
        if self.told_at.get(index, NEVER) < NEVER:
            self.members.call(index, max(self.told_at[index], self.now))

    def resubscribes(self, process: Process) -> None:
        self._ask(process.index)

    def grows(self, topic: str, count: int) -> None:
        self.growth.grow(topic, count)
        self._look()

    def _look(self) -> None:
        """The leader looks after partitions with the next refresh of what it knows of the topics."""
        if self.leader != NONE:
            leader = self.present[self.leader]
            age = self.members.parameters.metadata_max_age
            at = leader.joined_at + -((leader.joined_at - self.now) // age) * age
            self.agenda.enter(at, partial(self._sees, leader))

    def _sees(self, leader: Process) -> None:
        if leader.index != self.leader:
            self._look()
        elif self.members.runs(leader.index) and self.growth.unknown():
            self.growth.see()
            self._ask(leader.index)

    def _ask(self, index: int) -> None:
        """A member rejoins with its next poll, because something is different on its side."""
        self.told_at[index] = self.now
        self.members.call(index, self.now)

    # a round

    def _answer(self, detected: DetectedEvent) -> None:
        self.pending.append(detected)
        if self.since == NONE:
            self._begin()
        self._check()

    def _begin(self) -> None:
        """A round begins, and members hear of it."""
        self.since, self.slowest = self.now, NONE
        if self.completing is not None:  # nobody will get what this generation was to give
            self.pending = [*self.completing.detected, *self.pending]
            self.completing = None
        self.rounds += 1
        timeout = self.members.parameters.max_poll_interval  # as ``rebalanceTimeoutMs``, the clients send it
        self.agenda.enter(self.now + timeout, partial(self._time_out, self.rounds))
        self.awaited = {index for index in self.present if self.stages[index] is not Stage.JOINED}
        self.members.suspend(np.flatnonzero(self.members.owners == NONE), NONE)
        for index in sorted(self.awaited):
            if not self.members.runs(index):
                continue
            if self.stages[index] in (Stage.ANSWERED, Stage.SYNCED):  # its SyncGroup says so
                self.stages[index] = Stage.STABLE
                self.told_at[index] = self.now
            else:
                self.told_at[index] = min(self.told_at.get(index, NEVER), self.heartbeat(self.present[index]))
            self.members.call(index, self.told_at[index])

    def _time_out(self, rebalance: int) -> None:
        """A round waits no longer: dynamic members that have not rejoined are out, static ones need not."""
        if self.since == NONE or self.rounds != rebalance:
            return
        for index in sorted(self.awaited):
            process = self.present[index]
            if process.static:
                self.awaited.discard(index)
                continue
            if self.members.runs(index):
                self.members.evict(index)
            self.depart(process, "crash", min(process.silent_at, self.now))
        self._check()

    def rejoin(self, index: int) -> None:
        """A member sends its JoinGroup; whoever does so while no round runs begins one."""
        if self.stages[index] is Stage.JOINED:
            return
        process = self.present[index]
        held = np.flatnonzero(self.members.owners == index)
        if self.eager:
            self.members.pause(index)
            self.members.give_up(index, held, NONE)
        else:
            dropped = held[~self._subscribed(process, held)]
            if len(dropped) or self.members.model(index).commit == "auto":
                self.members.give_up(index, dropped, index)
            self.members.block(index, True)
        self.told_at.pop(index, None)
        self.stages[index] = Stage.JOINED
        if self.since == NONE:
            self._begin()
        self.awaited.discard(index)
        self.slowest = index
        self._check()

    def _subscribed(self, process: Process, numbers: Any) -> Any:
        if process.topics is None:
            return np.ones(len(numbers), np.bool_)
        wanted = np.array([topic in process.topics for topic in self.fold.partitions.topics], np.bool_)
        return wanted[self.fold.partitions.find_topics(numbers)]

    def _check(self) -> None:
        """Once nobody is waited for any more all are answered, after whatever else happens in that instant."""
        if self._complete and not self.ending:
            self.ending = True
            self.agenda.enter(self.now, self._end)

    @property
    def _complete(self) -> bool:
        return not self.awaited and self.delayed_until == NEVER and self.since != NONE

    def _end(self) -> None:
        self.ending = False
        if not self._complete:
            return
        rebalance = GroupRebalance(self.since, self.now, tuple(self.pending), self.forced)
        self.pending, self.since, self.forced = [], NONE, False
        self.number += 1
        self.members.blame(self.slowest)
        self.completing, self.joined_at, self.given_at = rebalance, self.now, NEVER
        if not self.present:
            self._give(rebalance)
            return
        if self.leader == NONE:
            self.leader = next(iter(self.present))
        for index in self.present:
            self.stages[index] = Stage.ANSWERED
        idle = [index for index in self.present if self.members.runs(index) and not self.members.busy(index)]
        for index in set(self.present) - set(idle):
            if self.members.runs(index):
                self.members.call(index, self.now)
        self.sync(idle)

    def sync(self, which: Sequence[int]) -> None:
        """Members ask for their assignment; the leader's request brings what all are given."""
        for index in which:
            self.present[index].beat = self.now
            self.stages[index] = Stage.SYNCED
        if self.leader in which and self.completing is not None:
            self.given_at = self.now + self._time_to_give()
            self._at(self.given_at, partial(self._give, self.completing))
        elif self.completing is None:  # it is there already
            self._take(which)

    def _time_to_give(self) -> int:
        it = self.members.parameters
        return (
            it.first_rebalance_time if self.number == 1 and it.first_rebalance_time is not None else it.rebalance_time
        )

    def _at(self, at: int, action: Any) -> None:
        if at == self.now:
            action()
        else:
            self.agenda.enter(at, action)

    def _give(self, rebalance: GroupRebalance) -> None:
        """The leader's assignment is there."""
        if self.completing is not rebalance:
            return
        self.completing = None
        at = Instant(self.now, len(self.story))
        rebalance = rebalance._replace(at=self.now)
        known = self.growth.taken()
        if rebalance.detected or self.resubscribed or known is not None:
            self.fold.apply(at, rebalance.detected, rebalance.forced, self.resubscribed, known)
        else:
            self.fold.follow_up(at, Instant(rebalance.since))
        self.resubscribed = {}
        self.story.append(rebalance)
        self.decided(self.number, self.joined_at, self.present)
        self._take([index for index, stage in self.stages.items() if stage is Stage.SYNCED])

    def _take(self, which: Sequence[int]) -> None:
        """Members that are not busy take their assignment at once, the others with their next poll."""
        for index in which:
            self.stages[index] = Stage.GIVEN
        runs = [index for index in which if self.members.runs(index)]
        for index in runs:
            if self.members.busy(index):
                self.members.call(index, self.now)
        self.receive([index for index in runs if not self.members.busy(index)])

    def receive(self, which: Sequence[int]) -> None:
        """Members' callbacks run: they give up what is not theirs any more, and begin with what is new."""
        owners = self.owners()
        rejoining = []
        for index in which:
            self.stages[index] = Stage.STABLE
            if self.eager:
                continue
            lost = np.flatnonzero((self.members.owners == index) & (owners != index))
            if len(lost):
                self.members.give_up(index, lost, index)
                rejoining.append(index)
            self.members.block(index, False)
        self.members.assign(owners, self.fold.group.generation, which)
        for index in rejoining:
            self.rejoin(index)

    # an empty group

    def _delay(self, until: int) -> None:
        self.delayed_until, self.more_came = until, False
        self.agenda.enter(until, self._delayed)

    def _delayed(self) -> None:
        """An empty group has waited: for more, if some came meanwhile."""
        most = self.delayed_since + REBALANCE_TIMEOUT_NS
        if self.more_came and self.now < most:
            self._delay(min(self.now + self.delay, most))
        else:
            self.delayed_until = NEVER
            self._check()
