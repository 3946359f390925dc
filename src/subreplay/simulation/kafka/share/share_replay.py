"""Predict what a share group does with its log, from its membership events and a model of its members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subreplay.hashing.java_map import compute_string_hash_codes, compute_uuid_hash_code
from subreplay.rows.model.rows import MembershipEvent
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.simulation.kafka.coordinator_timers import TimerQueue
from subreplay.simulation.kafka.group_state import LOGGED
from subreplay.simulation.kafka.share import share_loop
from subreplay.simulation.kafka.share.share_client import end_session
from subreplay.simulation.kafka.share.share_coordinator import NO_PARTITIONS, ShareCoordinator, ShareTarget
from subreplay.simulation.kafka.share.share_loop import ShareLoopStop
from subreplay.simulation.kafka.share.share_parameters import ShareParameters
from subreplay.simulation.kafka.share.share_state import ShareState, create_share_state, write_model
from subreplay.simulation.kafka.simulation_parameters import Enlargement, Resubscription
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records

Ints = NDArray[np.int64]
APPENDED_BUCKETS = 16
"""The buckets of the map in which the broker has the partitions of a produce request."""


def rank_partitions(partitions: Partitions) -> Ints:
    """Rank partitions by when their waiting fetches are served, if one request appends to several of them.

    It is the order of Scala's ``mutable.HashMap`` of ``TopicIdPartition`` (``ReplicaManager.appendRecords``), as far as
    a request has at most 12 partitions.
    """
    names = compute_string_hash_codes(partitions.topics)[partitions.topic]
    ids = np.array([compute_uuid_hash_code(partitions.get_topic_id(topic)) for topic in partitions.topics], np.int64)
    of_name = 31 * (31 + partitions.in_topic) + names
    codes = 31 * (31 + ids[partitions.topic]) + of_name & 0xFFFFFFFF
    return (codes ^ codes >> 16) % APPENDED_BUCKETS


@dataclass
class ShareProcess:
    """A member's process: ``beats_from`` is a heartbeat from which the others are timed."""

    index: int
    event: MembershipEvent
    member_id: str
    topics: frozenset[str] | None
    beats_from: int
    runs: bool = True
    beat_at: int = NEVER  # the next heartbeat that matters


class ShareReplay:
    """The replay of one share group.

    ``events`` are its members' joins, leaves and crashes, in order; ``client_actions`` are other actions of clients and
    on topics. ``log`` are arrays of ``LOGGED``, in order; ``hidden`` records of it are never delivered. ``partitions``
    have space for those that topics get later. All records are kept in memory.

    Draw ``predict_deliveries`` first; all other results are complete after it.
    """

    def __init__(
        self,
        policy: Any,
        partitions: Partitions,
        events: Sequence[MembershipEvent],
        log: Iterable[Records],
        parameters: ShareParameters = ShareParameters(),
        client_actions: Sequence[Resubscription | Enlargement] = (),
        hidden: NDArray[np.bool_] | None = None,
    ) -> None:
        self.parameters, self.timers = parameters, TimerQueue()
        self.session_timeout = policy.session_timeout_us * 1_000
        self.coordinator = ShareCoordinator(policy, partitions, self._initialise, parameters.assignment_interval)
        self._first_counts = partitions.counts
        self._has_state = False  # whether the coordinator has created the share state of any partition
        if parameters.initialise_time is None:
            self.coordinator.mark_initialised(np.flatnonzero(partitions.exists))
        records = np.concatenate([*log, np.zeros(0, LOGGED)]).view(np.recarray)
        by_partition = np.argsort(records["partition"], kind="stable")
        records = records[by_partition].view(np.recarray)
        ranks = np.arange(len(partitions)) if parameters.committed else rank_partitions(partitions)
        self._arrivals = np.lexsort((ranks[records["partition"]], records.ready)).astype(np.int64)
        joins = sum(event.event == "join" for event in events) + sum(
            isinstance(one, Resubscription) for one in client_actions
        )
        self.state: ShareState = create_share_state(records, len(partitions), max(joins, 1), parameters)
        if hidden is not None:
            self.state.windows.slots.hidden = hidden[by_partition]
        self.processes: list[ShareProcess] = []
        self._lags: list[Records] = []
        self._cursor = np.zeros(1, np.int64)
        for event in events:
            self.timers.add(event.at.at, partial(self._apply_event, event))
        for one in client_actions:
            self.timers.add(one.at, partial(self._apply_client_action, one))

    @property
    def targets(self) -> Sequence[ShareTarget]:
        """All targets, in order."""
        return self.coordinator.targets

    @property
    def now(self) -> int:
        return int(self.state.totals[0].now)

    def predict_deliveries(self) -> Iterator[Records]:
        """Yield arrays of ``CONSUMED``: each row when its delivery has ended, and pending ones at the end."""
        while True:
            need = share_loop.run_until(self.state, self._arrivals, self._cursor, self.timers.next_at)
            if need == ShareLoopStop.CLOSED:
                self._close(self.processes[int(self.state.totals[0].turning)])
            elif need == ShareLoopStop.NOTHING:
                if not self.timers:
                    break
                self.state.totals[0].now, action = self.timers.pop()
                action()
            yield from self._take_rows()
        done = np.zeros(2, np.int64)
        while not share_loop.write_pending(self.state, done):
            yield from self._take_rows()
        yield from self._take_rows()

    def take_lags(self) -> Iterator[Records]:
        """Yield arrays of ``LAG`` of intervals that have ended, each once."""
        while self._lags:
            yield self._lags.pop(0)

    def _take_rows(self) -> Iterator[Records]:
        t = self.state.totals[0]
        if t.lags:
            self._lags.append(self.state.lags[: t.lags].copy())
            t.lags = 0
        if t.rows:
            yield self.state.rows[: t.rows].copy()
            t.rows = 0

    # members

    def _apply_event(self, event: MembershipEvent) -> None:
        if event.event == "join":
            self._start(event, None if event.topics is None else frozenset(event.topics))
            return
        process = next((one for one in self.processes if one.runs and one.event.label == event.label), None)
        if process is not None and event.event == "crash":
            share_loop.stop(self.state, process.index)
            self.timers.add(self.now + self.parameters.break_time, partial(end_session, self.state, process.index))
            process.runs = False
            since = self._find_previous_beat(process)
            self.timers.add(since + self.session_timeout, partial(self._evict, process))
        elif process is not None and share_loop.request_close(self.state, process.index):
            self._close(process)

    def _apply_client_action(self, one: Resubscription | Enlargement) -> None:
        if isinstance(one, Enlargement):
            self.coordinator.grow_topic(one.topic, one.count)
            self._expect_heartbeats()
            return
        process = next((p for p in self.processes if p.event.consumer == one.consumer and p.runs), None)
        if process is None:  # it unsubscribed before, and comes back under its old id
            former = next((p for p in reversed(self.processes) if p.event.consumer == one.consumer), None)
            if former is not None and one.topics:
                self._start(former.event, frozenset(one.topics), former.member_id)
        elif not one.topics:
            if share_loop.request_close(self.state, process.index):
                self._close(process)
        else:
            process.topics = frozenset(one.topics)
            self._plan_heartbeat(process, self.now)

    def _start(self, event: MembershipEvent, topics: frozenset[str] | None, member_id: str | None = None) -> None:
        index = len(self.processes)
        name = member_id or event.alias or event.label
        if member_id is None and any(one.member_id == name for one in self.processes):
            name = f"{name}#{index}"
        process = ShareProcess(index, event, name, topics, self.now)
        self.processes.append(process)
        self.state = write_model(self.state, index, self.parameters.find_model(event.consumer))
        share_loop.start(self.state, index)
        self._heartbeat(process)

    def _close(self, process: ShareProcess) -> None:
        end_session(self.state, process.index)
        process.runs = False
        if process.member_id in self.coordinator.members:
            self.coordinator.remove(process.member_id, self.now)
        self._expect_heartbeats()

    def _evict(self, process: ShareProcess) -> None:
        if process.member_id in self.coordinator.members:
            self.coordinator.remove(process.member_id, self.now)
        self._expect_heartbeats()

    # the coordinator

    def _initialise(self, numbers: Ints) -> None:
        """Create the share state of partitions."""
        time = self.parameters.growth_time if self._has_state else self.parameters.initialise_time
        self._has_state = True
        self.timers.add(self.now + (time or 0), partial(self._mark_initialised, numbers))

    def _mark_initialised(self, numbers: Ints) -> None:
        self.coordinator.mark_initialised(numbers)
        known = self.coordinator.partitions
        is_grown = known.in_topic[numbers] >= self._first_counts[known.topic[numbers]]
        self.state.counted.opened[numbers[is_grown]] = True  # it begins at offset 0 in spite of reset *latest*
        self._expect_heartbeats()

    def _find_previous_beat(self, process: ShareProcess) -> int:
        interval = self.parameters.heartbeat_interval
        return process.beats_from + (self.now - process.beats_from) // interval * interval

    def _expect_heartbeats(self) -> None:
        """Schedule the next heartbeat of every running member, because it may get an answer that matters."""
        for process in self.processes:
            if process.runs:
                self._plan_heartbeat(process, self._find_previous_beat(process) + self.parameters.heartbeat_interval)

    def _plan_heartbeat(self, process: ShareProcess, at: int) -> None:
        if process.beat_at > at:
            process.beat_at = at
            self.timers.add(at, partial(self._handle_beat, process, at))

    def _handle_beat(self, process: ShareProcess, at: int) -> None:
        if process.beat_at == at and process.runs:
            self._heartbeat(process)

    def _heartbeat(self, process: ShareProcess) -> None:
        """Send a heartbeat, and plan the next one if something is still open."""
        process.beat_at = NEVER
        process.beats_from = self.now
        coordinator = self.coordinator
        before = coordinator.members.get(process.member_id)
        known = NO_PARTITIONS if before is None else before.assigned
        topics = process.topics if process.topics is not None else frozenset(coordinator.partitions.topics)
        epochs = coordinator.epoch, coordinator.target_epoch
        member = coordinator.handle_heartbeat(process.member_id, self.now, topics)
        if before is None:
            process.beats_from = self.now + self.parameters.second_beat
        if not np.array_equal(known, member.assigned):
            process.beats_from = self.now + self.parameters.answer_time
            self.timers.add(self.now + self.parameters.answer_time, partial(self._assign, process, member.assigned))
        if epochs != (coordinator.epoch, coordinator.target_epoch) or self._is_open():
            self._expect_heartbeats()

    def _is_open(self) -> bool:
        """Check whether heartbeats still matter: a target is due, or a member has not heard of its own."""
        coordinator = self.coordinator
        return coordinator.epoch != coordinator.target_epoch or any(
            one.assigned is not one.target for one in coordinator.members.values()
        )

    def _assign(self, process: ShareProcess, numbers: Ints) -> None:
        if process.runs:
            share_loop.assign(self.state, process.index, numbers)
