"""Predict what a consumer group does with its log, from its membership events and a model of its members.

The log is a stream that is read only as far as needed, so that memory holds the records that are not committed.
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
from subreplay.simulation.kafka.coordinator import Coordinator, GroupGeneration
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.event_loop import GroupLoopStop, run_until, write_pending
from subreplay.simulation.kafka.group_members import PARTITION_PAUSE, GroupMembers, MemberProcess
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.server_protocol import ServerProtocol
from subreplay.simulation.kafka.simulation_parameters import Enlargement, Resubscription, Rewind, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import Records, create_records
from subreplay.simulation.pulsar.service_model import Empirical, LogNormal

MAX_DRAWN_EVICTIONS = 100
"""If work times are random, a member may be evicted this often in a row before the replay gives up."""


class GroupReplay:
    """The replay of one group under an assignor.

    ``events`` are its members' joins, leaves and crashes, in order; ``client_actions`` are other actions of clients.
    ``log`` are arrays of ``LOGGED``, in order. ``partitions`` have space for those that topics get later.
    ``keeps_history``: keep every generation and every change of a fetcher, for ``list_generations`` and
    ``iterate_fetchers``.

    Draw ``predict_deliveries`` first; all other results are complete after it. If a group only evicts the members that
    have work to do, it never makes progress. The replay then ends when the log has ended.
    """

    def __init__(
        self,
        policy: Any,
        partitions: Partitions,
        events: Sequence[MembershipEvent],
        log: Iterable[Records],
        parameters: SimulationParameters = SimulationParameters(),
        client_actions: Sequence[Rewind | Resubscription | Enlargement] = (),
        keeps_history: bool = False,
    ) -> None:
        self.members = GroupMembers(len(partitions), parameters, keeps_history)
        self.timers = TimerQueue()
        protocol = ServerProtocol if policy.rebalance == "server" else ClassicProtocol
        self.coordinator: Coordinator = protocol(policy, partitions, self.members, self.timers)
        self._read_before: list[Records] | None = [] if any(isinstance(one, Rewind) for one in client_actions) else None
        self._log = iter(log)
        self._rows = create_records(0, LOGGED)
        self._cursor = np.zeros(2, np.int64)  # the next row; whether there are no more
        self._processes_by_label: dict[str, list[MemberProcess]] = {}  # by label, oldest first
        self._vain_evictions = self._last_settled = 0
        is_drawn = any(
            isinstance(m.service, LogNormal | Empirical) for m in (parameters.member, *parameters.others.values())
        )
        self._max_vain_evictions = MAX_DRAWN_EVICTIONS if is_drawn else 2
        for origin, event in enumerate(events):
            self.timers.add(event.at.at, partial(self._apply_event, event, origin))
        for one in client_actions:
            self.timers.add(one.at, partial(self._apply_client_action, one))

    @property
    def processes(self) -> Sequence[MemberProcess]:
        """All members that ever joined, by ordinal."""
        return self.members.processes

    def predict_deliveries(self) -> Iterator[Records]:
        """Yield arrays of ``CONSUMED``: each row when its delivery has ended, and pending ones at the end."""
        members = self.members
        while not self._makes_no_progress:
            need = run_until(members.state, self._rows, self._cursor, self.timers.next_at)
            turning = int(members.state.totals[0].turning)
            if need == GroupLoopStop.RECORDS:
                self._read_next()
            elif need == GroupLoopStop.SPACE:
                members.grow_arrays()
            elif need == GroupLoopStop.POLLED:
                self.coordinator.handle_turn(members.processes[turning])
            elif need == GroupLoopStop.OVERDUE:
                self._count_overdue()
                self.coordinator.handle_overdue(members.processes[turning])
            elif not self.timers:
                break
            else:
                members.state.totals[0].now, action = self.timers.pop()
                action()
            yield from self._take_rows()
        yield from self._finish()

    def take_lags(self) -> Iterator[Records]:
        """Yield arrays of ``LAG`` of intervals that have ended, each once."""
        while self.members.lags:
            yield self.members.lags.popleft()

    def collect_pauses(self) -> Records:
        """Return ``PARTITION_PAUSE`` rows: partitions that waited for a rebalance, and the member they waited for."""
        return np.concatenate([np.zeros(0, PARTITION_PAUSE), *self.members.pauses]).view(np.recarray)

    def list_generations(self) -> Sequence[GroupGeneration]:
        """Return every generation, or target of an epoch, if history is kept."""
        return self.coordinator.generations

    def iterate_fetchers(self) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int32]]]:
        """Yield when (ns) which partitions got which fetchers (ordinals of joins, -1: none), if history is kept."""
        yield from self.members.moves

    def iterate_stale_assignments(self) -> Iterator[tuple[int, int, int, NDArray[np.int64]]]:
        """Yield from when to when (ns) which evicted member (ordinal) still read which partitions, if history is kept.

        An evicted member learns about it with its next poll.
        """
        for at, index, which in self.members.stale_assignments:
            yield at, self.members.processes[index].ended_at, index, which

    def list_rebalances(self) -> Sequence[GroupRebalance]:
        """Return the decisions about the group, each with its duration."""
        return self.coordinator.rebalances

    def find_process(self, index: int) -> MemberProcess:
        """Return the member of that ordinal."""
        return self.members.processes[index]

    def _apply_event(self, event: MembershipEvent, origin: int) -> None:
        of_name = self._processes_by_label.setdefault(event.label, [])
        if event.event == "join":
            self.coordinator.start_process(event, origin)
            of_name.append(self.members.processes[-1])
        elif of_name:
            process = self._find_current(of_name.pop(0))
            if event.event == "crash":
                self.coordinator.crash(process)
            else:
                self.coordinator.request_close(process)

    def _apply_client_action(self, one: Rewind | Resubscription | Enlargement) -> None:
        """Apply a client action that is not a join or a departure."""
        if isinstance(one, Enlargement):
            self.coordinator.grow_topic(one.topic, one.count)
            return
        of_every_label = (process for processes in self._processes_by_label.values() for process in processes)
        for process in [self._find_current(each) for each in of_every_label if each.event.consumer == one.consumer]:
            if isinstance(one, Rewind):
                self.coordinator.schedule_action(process, partial(self._rewind, process, one.records))
            else:
                self.coordinator.schedule_action(process, partial(self._subscribe, process, one.topics))

    def _subscribe(self, process: MemberProcess, topics: tuple[str, ...]) -> None:
        self.coordinator.change_subscription(self._find_current(process), topics)

    def _rewind(self, process: MemberProcess, records: int) -> None:
        """Let the member seek back in each partition that it fetches."""
        fetched = np.flatnonzero(self.members.owners == self._find_current(process).index)
        rows = np.concatenate([*(self._read_before or ()), self._rows[: self._cursor[0]]]).view(np.recarray)
        again = []
        for partition in fetched.tolist():
            read = rows[rows["partition"] == partition]
            done = len(read) - int(self.members.state.partitions[partition].waiting)
            again.append(read[max(done - records, 0) : done])
        if again:
            self.members.seek_back(process.index, np.concatenate(again).view(np.recarray))

    def _find_current(self, process: MemberProcess) -> MemberProcess:
        """Return the current member of a process, which may have been evicted and have joined again."""
        return [p for p in self.members.processes if p.origin == process.origin][-1]

    @property
    def _makes_no_progress(self) -> bool:
        at_end = self._cursor[1] == 1 and self._cursor[0] == len(self._rows)
        return bool(at_end) and self._vain_evictions > self._max_vain_evictions * (len(self.coordinator.present) + 1)

    def _count_overdue(self) -> None:
        """Count how often in a row a member was overdue without a commit in between."""
        settled = int(self.members.state.totals[0].settled)
        self._vain_evictions = self._vain_evictions + 1 if settled == self._last_settled else 0
        self._last_settled = settled

    def _read_next(self) -> None:
        if self._read_before is not None:  # applications may seek back to these rows
            self._read_before.append(self._rows)
        rows = next(self._log, None)
        self._cursor[0], self._cursor[1] = 0, rows is None
        self._rows = create_records(0, LOGGED) if rows is None else rows.view(np.recarray)

    def _take_rows(self) -> Iterator[Records]:
        while self.members.finished_rows:
            yield self.members.finished_rows.popleft()

    def _finish(self) -> Iterator[Records]:
        self.coordinator.finish()
        self.members.add_open_pauses(self.coordinator.fold.group.generation)
        done = np.zeros(2, np.int64)
        while not write_pending(self.members.state, done):
            self.members.grow_arrays()
            yield from self._take_rows()
        self.members.collect_rows()
        yield from self._take_rows()
