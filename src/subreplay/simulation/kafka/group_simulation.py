"""Predict what a consumer group does with its log: the membership is given, and a model of the members.

The log comes as a stream and is read no further than it is needed, so that memory holds the records that are not
committed, and nothing else that grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.rows import MembershipEvent
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import GroupRebalance
from subreplay.simulation.kafka.classic_protocol import ClassicProtocol
from subreplay.simulation.kafka.coordinator import Coordinator, Generation
from subreplay.simulation.kafka.coordinator_timers import Agenda
from subreplay.simulation.kafka.event_loop import Need, play, tell_pending
from subreplay.simulation.kafka.group_members import PAUSE, Members, Process
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.server_protocol import ServerProtocol
from subreplay.simulation.kafka.simulation_parameters import Enlargement, Resubscription, Rewind, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import Records, empty_records
from subreplay.simulation.pulsar.service_model import Empirical, LogNormal

LUCK = 100
"""Where work takes as long as is drawn, a member may be evicted so often before it is in time."""


class GroupReplay:
    """One group under an assignor. ``events`` are its members' joins, leaves and crashes, in order; ``further`` is what
    happens besides; ``log`` are arrays of ``LOGGED``, in order. ``partitions`` have room for those that topics get.

    ``remembers``: every generation and every change of a fetcher is kept, for ``generations`` and ``fetchers``.

    Draw ``deliveries`` first: what else is asked for is complete when they are. A group that only evicts the members
    that would have work to do, again and again, never gets further: the replay ends when the log has.
    """

    def __init__(
        self,
        policy: Any,
        partitions: Partitions,
        events: Sequence[MembershipEvent],
        log: Iterable[Records],
        parameters: SimulationParameters = SimulationParameters(),
        further: Sequence[Rewind | Resubscription | Enlargement] = (),
        remembers: bool = False,
    ) -> None:
        self.members = Members(len(partitions), parameters, remembers)
        self.agenda = Agenda()
        protocol = ServerProtocol if policy.rebalance == "server" else ClassicProtocol
        self.coordinator: Coordinator = protocol(policy, partitions, self.members, self.agenda)
        self._read_before: list[Records] | None = [] if any(isinstance(one, Rewind) for one in further) else None
        self._log = iter(log)
        self._rows = empty_records(0, LOGGED)
        self._cursor = np.zeros(2, np.int64)  # the next row; whether there are no others
        self._here: dict[str, list[Process]] = {}  # by label, the oldest first
        self._vain = self._settled = 0
        drawn = any(
            isinstance(m.service, LogNormal | Empirical) for m in (parameters.member, *parameters.others.values())
        )
        self._patience = LUCK if drawn else 2
        for origin, event in enumerate(events):
            self.agenda.enter(event.at.at, partial(self._happens, event, origin))
        for one in further:
            self.agenda.enter(one.at, partial(self._further, one))

    def deliveries(self) -> Iterator[Records]:
        """Arrays of ``CONSUMED``, each row when its delivery is over, and in the end what is pending."""
        members = self.members
        while not self._stalls:
            need = play(members.state, self._rows, self._cursor, self.agenda.next_at)
            who = int(members.state.totals[0].who)
            if need == Need.RECORDS:
                self._read()
            elif need == Need.ROOM:
                members.make_room()
            elif need == Need.POLLED:
                self.coordinator.polled(members.processes[who])
            elif need == Need.OVERDUE:
                self._count_overdue()
                self.coordinator.overdue(members.processes[who])
            elif not self.agenda:
                break
            else:
                members.state.totals[0].now, action = self.agenda.pop()
                action()
            yield from self._told()
        yield from self._end()

    def lags(self) -> Iterator[Records]:
        """Arrays of ``LAG``, as far as intervals are over; each is handed out once."""
        while self.members.lags:
            yield self.members.lags.popleft()

    def pauses(self) -> Records:
        """``PAUSE`` rows: which partitions waited for a rebalance, and for whom."""
        return np.concatenate([np.zeros(0, PAUSE), *self.members.pauses]).view(np.recarray)

    def generations(self) -> Sequence[Generation]:
        """Every generation, or target of an epoch, that the group had, if it remembers them."""
        return self.coordinator.generations

    def fetchers(self) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int32]]]:
        """When (ns) which partitions got whom to fetch them (ordinals of joins, -1 for nobody), in order, if it
        remembers them."""
        yield from self.members.moves

    def believed(self) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
        """From when to when (ns) which evicted member (its ordinal) took which partitions for its own: until it polls
        again, nobody tells it. As far as it remembers them."""
        for at, index, which in self.members.kept:
            yield at, self.members.processes[index].ended_at, index, which

    def story(self) -> Sequence[GroupRebalance]:
        """The decisions about the group, each with the time that it took."""
        return self.coordinator.story

    def process(self, index: int) -> Process:
        """The member of that ordinal."""
        return self.members.processes[index]

    def _happens(self, event: MembershipEvent, origin: int) -> None:
        of_name = self._here.setdefault(event.label, [])
        if event.event == "join":
            self.coordinator.came(event, origin)
            of_name.append(self.members.processes[-1])
        elif of_name:
            process = self._newest_of(of_name.pop(0))
            if event.event == "crash":
                self.coordinator.crashes(process)
            else:
                self.coordinator.leaves(process)

    def _further(self, one: Rewind | Resubscription | Enlargement) -> None:
        """Something happens that is no coming or going."""
        if isinstance(one, Enlargement):
            self.coordinator.grows(one.topic, one.count)
            return
        for process in map(self._newest_of, self._here.get(one.consumer, ())):
            if isinstance(one, Rewind):
                self.coordinator.does(process, partial(self._rewind, process, one.records))
            else:
                self.coordinator.does(process, partial(self._subscribe, process, one.topics))

    def _subscribe(self, process: Process, topics: tuple[str, ...]) -> None:
        self.coordinator.subscribes(self._newest_of(process), topics)

    def _rewind(self, process: Process, records: int) -> None:
        """The member seeks back in each partition that it fetches."""
        mine = np.flatnonzero(self.members.owners == self._newest_of(process).index)
        rows = np.concatenate([*(self._read_before or ()), self._rows[: self._cursor[0]]]).view(np.recarray)
        again = []
        for partition in mine.tolist():
            read = rows[rows["partition"] == partition]
            done = len(read) - int(self.members.state.partitions[partition].waiting)
            again.append(read[max(done - records, 0) : done])
        if again:
            self.members.seek_back(process.index, np.concatenate(again).view(np.recarray))

    def _newest_of(self, process: Process) -> Process:
        """The member that a process is by now: it may have been evicted and have joined again."""
        return [p for p in self.members.processes if p.origin == process.origin][-1]

    @property
    def _stalls(self) -> bool:
        over = self._cursor[1] == 1 and self._cursor[0] == len(self._rows)
        return bool(over) and self._vain > self._patience * (len(self.coordinator.present) + 1)

    def _count_overdue(self) -> None:
        """How often in a row a member was overdue, and nothing was committed meanwhile."""
        settled = int(self.members.state.totals[0].settled)
        self._vain = self._vain + 1 if settled == self._settled else 0
        self._settled = settled

    def _read(self) -> None:
        if self._read_before is not None:  # what an application seeks back to
            self._read_before.append(self._rows)
        rows = next(self._log, None)
        self._cursor[0], self._cursor[1] = 0, rows is None
        self._rows = empty_records(0, LOGGED) if rows is None else rows.view(np.recarray)

    def _told(self) -> Iterator[Records]:
        while self.members.told:
            yield self.members.told.popleft()

    def _end(self) -> Iterator[Records]:
        self.coordinator.finish()
        self.members.still_paused(self.coordinator.fold.group.generation)
        done = np.zeros(2, np.int64)
        while not tell_pending(self.members.state, done):
            self.members.make_room()
            yield from self._told()
        self.members.hand_out()
        yield from self._told()
