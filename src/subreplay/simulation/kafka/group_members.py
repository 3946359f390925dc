"""The members of a group as the coordinator handles them: running processes, partition owners, and pauses.

All of this happens between two runs of the event loop, at ``now``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.rows import MembershipEvent
from subreplay.simulation.kafka import delivered_records, polling
from subreplay.simulation.kafka.coordinator_timers import Action
from subreplay.simulation.kafka.group_state import (
    NONE,
    State,
    add_member,
    count_blocks,
    create_state,
    grow_blocks,
    grow_records,
    grow_rows,
)
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import DeliveryOutcome

PARTITION_PAUSE = np.dtype(
    [
        ("start", "i8"),
        ("end", "i8"),
        ("partition", "i8"),
        ("member", "i8"),
        ("blocker", "i8"),
        ("records", "i8"),
        ("generation", "i8"),
    ]
)
"""A pause: between two times (ns) ``records`` of a partition waited for its next owner ``member`` (-1: none).

The reason was that ``blocker`` (-1: no member) had not rejoined or had left. ``generation`` ended the pause, or
``NO_REBALANCE``.
"""
NO_REBALANCE = 0
"""A static member came back, without a rebalance."""

Owners = NDArray[np.int32]


@dataclass
class MemberProcess:
    """A member from its join to its end.

    ``index`` is the ordinal of its join.

    ``origin`` is the membership event that caused it: an evicted process that continues joins as a new member.
    """

    index: int
    event: MembershipEvent
    origin: int
    joined_at: int
    beat: int  # a heartbeat from which the next ones are timed
    topics: tuple[str, ...] | None  # subscribed topics; None: all topics of the group
    closing_at: int = NEVER
    ended_at: int = NEVER
    silent_at: int = NEVER  # no heartbeats from then on
    evict_at: int = NEVER
    actions: list[tuple[int, Action]] = field(default_factory=list)  # actions of its application, and their times

    @property
    def static(self) -> bool:
        return self.event.instance_id is not None


class GroupMembers:
    """All processes that ever joined, and the state of the event loop."""

    def __init__(self, partitions: int, parameters: SimulationParameters, keeps_history: bool = False) -> None:
        self.parameters = parameters
        self.keeps_history = keeps_history
        self.state: State = create_state(partitions, parameters)
        self.processes: list[MemberProcess] = []
        self.paused_at = np.full(partitions, NEVER, np.int64)
        self.blocker = np.full(partitions, NONE, np.int64)
        self.pauses: list[Records] = []
        self.moves: list[tuple[int, NDArray[np.int64], Owners]] = []  # only if history is kept
        self.stale_assignments: list[
            tuple[int, int, NDArray[np.int64]]
        ] = []  # only if history is kept: partitions that evicted members still read, and since when
        self.finished_rows: deque[Records] = deque()
        self.lags: deque[Records] = deque()

    @property
    def now(self) -> int:
        return int(self.state.totals[0].now)

    @property
    def owners(self) -> Owners:
        """The member that fetches each partition."""
        owners: Owners = self.state.partitions.owner
        return owners

    def start(self, event: MembershipEvent, origin: int) -> MemberProcess:
        """Start a new process, which waits for its assignment."""
        process = MemberProcess(len(self.processes), event, origin, self.now, self.now, event.topics)
        self.processes.append(process)
        self.state = add_member(
            self.state, process.index, self.parameters.find_model(event.consumer), self.parameters.commit_interval
        )
        return process

    def continue_as(self, old: MemberProcess, new: MemberProcess) -> None:
        """Let a process continue as a new member with the same application."""
        before, member_row = self.state.members[old.index], self.state.members[new.index]
        member_row.stall = member_row.stalls_end - (before.stalls_end - before.stall)
        member_row.polls_from, member_row.commit_at = before.polls_from, before.commit_at
        self.state.services[new.index].turn = self.state.services[old.index].turn
        new.actions, new.closing_at = old.actions, old.closing_at
        for at in (*(at for at, _ in new.actions), new.closing_at):
            self.request_action(new.index, at)

    def find_model(self, index: int) -> MemberModel:
        """Return the assumed behaviour of a member."""
        return self.parameters.find_model(self.processes[index].event.consumer)

    def end_process(self, index: int) -> None:
        """End a process. The partitions that it fetched are paused."""
        self.state.members[index].runs = False
        self.processes[index].ended_at = self.now
        self.release(np.flatnonzero(self.owners == index), index)
        polling.reschedule(self.state, index)

    def is_running(self, index: int) -> bool:
        """Return whether the process is running."""
        return bool(self.state.members[index].runs)

    def is_busy(self, index: int) -> bool:
        """Return whether the process is processing a batch."""
        return bool(self.state.members[index].busy)

    def request_turn(self, index: int, at: int) -> None:
        """Let the member contact the coordinator with its first poll from ``at`` on."""
        member_row = self.state.members[index]
        member_row.call_at = min(int(member_row.call_at), at)
        polling.reschedule(self.state, index)

    def request_action(self, index: int, at: int) -> None:
        """Let the member's application do something between two polls from ``at`` on."""
        member_row = self.state.members[index]
        member_row.action_at = min(int(member_row.action_at), at)
        polling.reschedule(self.state, index)

    @property
    def between_polls(self) -> bool:
        """Whether the member that contacts the coordinator is between two polls."""
        return bool(self.state.totals[0].between)

    def set_commits_blocked(self, index: int, blocked: bool) -> None:
        """Set whether the member's commits fail."""
        self.state.members[index].blocked = blocked
        polling.reschedule(self.state, index)

    def find_last_commit(self, index: int) -> int:
        """Return the time of the member's latest commit; -1 if there is none."""
        return int(self.state.members[index].committed_at)

    def revoke(self, index: int, which: NDArray[np.int64], blocker: int) -> None:
        """Revoke partitions of a member; ``blocker`` is as for ``release``.

        The member first commits what it did since its last commit, or the records are returned.
        """
        model = self.find_model(index)
        if model.commit == "auto" or model.commits_on_revoke:
            self.commit(index)
        elif len(which) and self.state.members[index].uncommitted:
            mask = np.zeros(len(self.paused_at), np.bool_)
            mask[which] = True
            self._ensure_row_space(index)
            self._ensure_records(int(self.state.members[index].uncommitted))
            delivered_records.return_partitions(self.state, index, mask)
        self.release(which, blocker)

    def close_process(self, index: int) -> None:
        """Close a process. Records that it has not committed then are redelivered."""
        model, member_row = self.find_model(index), self.state.members[index]
        if not member_row.blocked and (model.commit == "auto" or model.commits_on_close):
            self.commit(index)
        else:
            self.return_uncommitted(index, DeliveryOutcome.RETURNED, NEVER)
        self.end_process(index)

    def seek_back(self, index: int, rows: Records) -> None:
        """Let the member read these records, in order, once more. Its uncommitted records are committed first."""
        self.commit(index)
        self._ensure_records(len(rows))
        delivered_records.seek_back(self.state, rows)
        polling.offer_all(self.state)

    def commit(self, index: int) -> None:
        """Commit what the member has processed."""
        self._ensure_row_space(index)
        delivered_records.commit(self.state, index)

    def return_uncommitted(self, index: int, outcome: DeliveryOutcome, end: int) -> None:
        """Return the member's uncommitted records, which are redelivered. Rows report what it did until ``end``."""
        self._ensure_row_space(index)
        self._ensure_records(int(self.state.members[index].uncommitted))
        delivered_records.return_records(self.state, index, outcome, end)

    def evict(self, index: int) -> None:
        """Evict a running process: its records are redelivered to others, although it continues to process them."""
        self.return_uncommitted(index, DeliveryOutcome.TIMED_OUT, NEVER)
        self.state.members[index].evicted = True
        owned = np.flatnonzero(self.owners == index)
        if self.keeps_history:
            self.stale_assignments.append((self.now, index, owned))
        self.release(owned, index)
        self.request_turn(index, self.now)

    def pause(self, index: int) -> None:
        """Stop the polls of a member until it has its assignment."""
        self.state.members[index].paused = True
        polling.reschedule(self.state, index)

    def release(self, which: NDArray[np.int64], blocker: int) -> None:
        """Remove the fetcher of partitions. ``blocker`` is the member they wait for (-1: the last one to rejoin)."""
        former = np.unique(self.owners[which])
        self.owners[which] = NONE
        self._record_move(which, np.full(len(which), NONE, np.int32))
        self.suspend(which, blocker)
        for index in former[former != NONE].tolist():
            polling.take_back_queue(self.state, index)

    def suspend(self, which: NDArray[np.int64], blocker: int) -> None:
        """Begin the pause of these partitions, if they are not paused already."""
        newly_paused = which[self.paused_at[which] == NEVER]
        self.paused_at[newly_paused] = self.now
        self.blocker[newly_paused] = blocker

    def set_blocker(self, index: int) -> None:
        """Set the member that rejoined last as the one that paused partitions waited for."""
        self.blocker[(self.paused_at != NEVER) & (self.blocker == NONE)] = index

    def assign(self, owners: Owners, generation: int, among: Sequence[int] | None = None) -> None:
        """Assign partitions without a fetcher to their owners, if these are active and ``among`` the members."""
        is_active = np.append(np.array(self.state.members.runs & ~self.state.members.evicted, np.bool_), False)
        if among is not None:
            is_candidate = np.zeros(len(is_active), np.bool_)
            is_candidate[list(among)] = True
            is_active &= is_candidate
        which = np.flatnonzero((self.owners == NONE) & is_active[owners])
        self.pauses.append(self._build_pauses(which, owners[which], generation))
        self.paused_at[which] = NEVER
        self.owners[which] = owners[which]
        self._record_move(which, owners[which])
        if self.parameters.reset == "latest":
            self._skip_uncommitted(which)
        for index in np.flatnonzero(is_active[:-1] & self.state.members.paused).tolist():
            polling.resume(self.state, index)
        for index in among or ():
            self.start_committing(index)
        polling.offer_all(self.state)

    def start_committing(self, index: int) -> None:
        """Start the commit interval of a member whose callbacks have run."""
        member_row = self.state.members[index]
        if not member_row.after_batches:
            member_row.commit_at = self.now + int(member_row.commit_interval)
            polling.reschedule(self.state, index)

    def _skip_uncommitted(self, which: NDArray[np.int64]) -> None:
        """Skip to the end of newly assigned partitions without any committed offset."""
        parts = self.state.partitions
        for partition in which[~parts.committed[which] & (parts.first[which] != NONE)].tolist():
            while parts[partition].first != NONE:
                if self.state.totals[0].rows == len(self.state.rows):
                    self.grow_arrays()
                delivered_records.skip_waiting(self.state, partition)

    def add_open_pauses(self, generation: int) -> None:
        """Add the pauses that have not ended at the end of the simulation."""
        which = np.flatnonzero(self.paused_at != NEVER)
        self.pauses.append(self._build_pauses(which, np.full(len(which), NONE), generation))

    def grow_arrays(self) -> None:
        """Collect finished rows and enlarge the arrays that are too small."""
        t, most = self.state.totals[0], self.parameters.max_poll_records
        self.collect_rows()
        if t.free_records == 0:
            self.state = grow_records(self.state, 1)
        if t.free_blocks < count_blocks(most):
            self.state = grow_blocks(self.state, count_blocks(most))
        self.state = grow_rows(self.state, int(self.state.members.uncommitted.max(initial=0)))

    def collect_rows(self) -> None:
        """Move finished rows to ``finished_rows`` and ``lags``."""
        t, s = self.state.totals[0], self.state
        if t.rows:
            self.finished_rows.append(s.rows[: t.rows].copy())
        if t.lags:
            self.lags.append(s.lags[: t.lags].copy())
        t.rows = t.lags = 0

    def _ensure_row_space(self, index: int) -> None:
        t, uncommitted = self.state.totals[0], int(self.state.members[index].uncommitted)
        if t.rows + uncommitted > len(self.state.rows) or t.lags + uncommitted > len(self.state.lags):
            self.grow_arrays()

    def _record_move(self, which: NDArray[np.int64], owners: Owners) -> None:
        """Record new fetchers of partitions."""
        if self.keeps_history:
            self.moves.append((self.now, which, owners))

    def _ensure_records(self, more: int) -> None:
        if self.state.totals[0].free_records < more:
            self.state = grow_records(self.state, more)

    def _build_pauses(self, which: NDArray[np.int64], owners: Owners, generation: int) -> Records:
        parts, records = self.state.partitions[which], self.state.records
        waiting = (self.paused_at[which] != NEVER) & (parts.waiting > 0)
        which, owners, parts = which[waiting], owners[waiting], parts[waiting]
        rows = np.zeros(len(which), PARTITION_PAUSE)
        rows["start"] = np.maximum(self.paused_at[which], records.at[parts.first])
        rows["end"], rows["partition"], rows["member"] = self.now, which, owners
        rows["blocker"] = np.where(self.blocker[which] == owners, NONE, self.blocker[which])
        rows["records"], rows["generation"] = parts.waiting, generation
        return rows[rows["end"] > rows["start"]].view(np.recarray)
