"""The members of a group as the coordinator handles them: who runs, who has which partition, what is paused since when.

Everything here happens between two runs of the event loop, at ``now``.
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
    blocks_for,
    new_state,
    with_blocks,
    with_member,
    with_records,
    with_rows,
)
from subreplay.simulation.kafka.simulation_parameters import MemberModel, SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER, Records
from subreplay.simulation.pulsar.clients.client_state import Outcome

PAUSE = np.dtype(
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
"""Between two times (ns) ``records`` of a partition waited for its next owner ``member`` (-1: there was none by the
end), because ``blocker`` (-1: nobody) had not rejoined or had left; ``generation`` ended it, or ``NO_REBALANCE``."""
NO_REBALANCE = 0
"""A static member came back instead."""

Owners = NDArray[np.int32]


@dataclass
class Process:
    """A member from its joining to its end; ``index`` is the ordinal of its join.

    ``origin`` is the membership event it stems from: a process that was evicted and lives on joins anew.
    """

    index: int
    event: MembershipEvent
    origin: int
    joined_at: int
    beat: int  # a heartbeat, from which the next ones are counted
    topics: tuple[str, ...] | None  # subscribed to; None: all of the group
    closing_at: int = NEVER
    ended_at: int = NEVER
    silent_at: int = NEVER  # no heartbeats from then on
    evict_at: int = NEVER
    actions: list[tuple[int, Action]] = field(default_factory=list)  # of its application, and when it is to do them

    @property
    def static(self) -> bool:
        return self.event.instance_id is not None


class Members:
    """All processes that ever joined, and the state that the event loop runs on."""

    def __init__(self, partitions: int, parameters: SimulationParameters, remembers: bool = False) -> None:
        self.parameters = parameters
        self.remembers = remembers
        self.state: State = new_state(partitions, parameters)
        self.processes: list[Process] = []
        self.paused_at = np.full(partitions, NEVER, np.int64)
        self.blocker = np.full(partitions, NONE, np.int64)
        self.pauses: list[Records] = []
        self.moves: list[tuple[int, NDArray[np.int64], Owners]] = []  # as far as it remembers
        self.kept: list[
            tuple[int, int, NDArray[np.int64]]
        ] = []  # the same: what evicted ones believe to have, since when
        self.told: deque[Records] = deque()
        self.lags: deque[Records] = deque()

    @property
    def now(self) -> int:
        return int(self.state.totals[0].now)

    @property
    def owners(self) -> Owners:
        """Who fetches each partition."""
        owners: Owners = self.state.partitions.owner
        return owners

    def start(self, event: MembershipEvent, origin: int) -> Process:
        """A new process; it waits for its assignment."""
        process = Process(len(self.processes), event, origin, self.now, self.now, event.topics)
        self.processes.append(process)
        self.state = with_member(
            self.state, process.index, self.parameters.of(event.consumer), self.parameters.commit_interval
        )
        return process

    def carry_on(self, old: Process, new: Process) -> None:
        """A process is a new member; its application is the same."""
        before, it = self.state.members[old.index], self.state.members[new.index]
        it.stall = it.stalls_end - (before.stalls_end - before.stall)
        it.polls_from, it.commit_at = before.polls_from, before.commit_at
        self.state.services[new.index].turn = self.state.services[old.index].turn
        new.actions, new.closing_at = old.actions, old.closing_at
        for at in (*(at for at, _ in new.actions), new.closing_at):
            self.action(new.index, at)

    def model(self, index: int) -> MemberModel:
        """What is assumed of a member."""
        return self.parameters.of(self.processes[index].event.consumer)

    def end(self, index: int) -> None:
        """The process is over; what it fetched is paused."""
        self.state.members[index].runs = False
        self.processes[index].ended_at = self.now
        self.release(np.flatnonzero(self.owners == index), index)
        polling.reschedule(self.state, index)

    def runs(self, index: int) -> bool:
        """Whether the process lives."""
        return bool(self.state.members[index].runs)

    def busy(self, index: int) -> bool:
        """Whether it processes a batch."""
        return bool(self.state.members[index].busy)

    def call(self, index: int, at: int) -> None:
        """With its first poll from ``at`` on the member turns to the coordinator."""
        it = self.state.members[index]
        it.call_at = min(int(it.call_at), at)
        polling.reschedule(self.state, index)

    def action(self, index: int, at: int) -> None:
        """Between two polls from ``at`` on the member's application has something to do."""
        it = self.state.members[index]
        it.action_at = min(int(it.action_at), at)
        polling.reschedule(self.state, index)

    @property
    def between_polls(self) -> bool:
        """Whether the member that turns to the coordinator is between two polls."""
        return bool(self.state.totals[0].between)

    def block(self, index: int, blocked: bool) -> None:
        """Whether the member's commits fail from now on."""
        self.state.members[index].blocked = blocked
        polling.reschedule(self.state, index)

    def committed_at(self, index: int) -> int:
        """The member's latest commit; -1 for none."""
        return int(self.state.members[index].committed_at)

    def give_up(self, index: int, which: NDArray[np.int64], blocker: int) -> None:
        """The member gives these partitions up; ``blocker`` is as for ``release``. What it did since its last commit it
        commits first, or forgets."""
        model = self.model(index)
        if model.commit == "auto" or model.commits_on_revoke:
            self.commit(index)
        elif len(which) and self.state.members[index].held:
            mask = np.zeros(len(self.paused_at), np.bool_)
            mask[which] = True
            self._have_room(index)
            self._have_records(int(self.state.members[index].held))
            delivered_records.give_back_some(self.state, index, mask)
        self.release(which, blocker)

    def close(self, index: int) -> None:
        """The process ends; what it has not committed then comes again."""
        model, it = self.model(index), self.state.members[index]
        if not it.blocked and (model.commit == "auto" or model.commits_on_close):
            self.commit(index)
        else:
            self.give_back(index, Outcome.RETURNED, NEVER)
        self.end(index)

    def seek_back(self, index: int, rows: Records) -> None:
        """The member reads these records, in order, once more; what it holds is committed first."""
        self.commit(index)
        self._have_records(len(rows))
        delivered_records.seek_back(self.state, rows)
        polling.offer_all(self.state)

    def commit(self, index: int) -> None:
        """What the member has processed is committed."""
        self._have_room(index)
        delivered_records.commit(self.state, index)

    def give_back(self, index: int, outcome: Outcome, end: int) -> None:
        """What the member holds comes again; it is told what it did until ``end``."""
        self._have_room(index)
        self._have_records(int(self.state.members[index].held))
        delivered_records.give_back(self.state, index, outcome, end)

    def evict(self, index: int) -> None:
        """A process that lives on loses its place: what it holds comes again elsewhere, though it goes on with it."""
        self.give_back(index, Outcome.TIMED_OUT, NEVER)
        self.state.members[index].evicted = True
        held = np.flatnonzero(self.owners == index)
        if self.remembers:
            self.kept.append((self.now, index, held))
        self.release(held, index)
        self.call(index, self.now)

    def pause(self, index: int) -> None:
        """The member does not poll until it has its assignment."""
        self.state.members[index].paused = True
        polling.reschedule(self.state, index)

    def release(self, which: NDArray[np.int64], blocker: int) -> None:
        """Nobody fetches these partitions any more; ``blocker`` is who is waited for (-1: whoever rejoins last)."""
        former = np.unique(self.owners[which])
        self.owners[which] = NONE
        self._remember(which, np.full(len(which), NONE, np.int32))
        self.suspend(which, blocker)
        for index in former[former != NONE].tolist():
            polling.take_back_queue(self.state, index)

    def suspend(self, which: NDArray[np.int64], blocker: int) -> None:
        """These partitions wait from now on, if they did not before."""
        fresh = which[self.paused_at[which] == NEVER]
        self.paused_at[fresh] = self.now
        self.blocker[fresh] = blocker

    def blame(self, index: int) -> None:
        """Who rejoined last is who partitions waited for."""
        self.blocker[(self.paused_at != NEVER) & (self.blocker == NONE)] = index

    def assign(self, owners: Owners, generation: int, among: Sequence[int] | None = None) -> None:
        """Partitions without a fetcher go to their owners, as far as these live, and are ``among`` these members."""
        here = np.append(np.array(self.state.members.runs & ~self.state.members.evicted, np.bool_), False)
        if among is not None:
            meant = np.zeros(len(here), np.bool_)
            meant[list(among)] = True
            here &= meant
        which = np.flatnonzero((self.owners == NONE) & here[owners])
        self.pauses.append(self._pauses(which, owners[which], generation))
        self.paused_at[which] = NEVER
        self.owners[which] = owners[which]
        self._remember(which, owners[which])
        if self.parameters.reset == "latest":
            self._skip(which)
        for index in np.flatnonzero(here[:-1] & self.state.members.paused).tolist():
            polling.resume(self.state, index)
        for index in among or ():
            self.took(index)
        polling.offer_all(self.state)

    def took(self, index: int) -> None:
        """The member's callbacks have run: out of its polls it commits one interval from now."""
        it = self.state.members[index]
        if not it.after_batches:
            it.commit_at = self.now + int(it.commit_interval)
            polling.reschedule(self.state, index)

    def _skip(self, which: NDArray[np.int64]) -> None:
        """Who begins with a partition of which no offset was committed begins at its end."""
        parts = self.state.partitions
        for partition in which[~parts.committed[which] & (parts.first[which] != NONE)].tolist():
            while parts[partition].first != NONE:
                if self.state.totals[0].rows == len(self.state.rows):
                    self.make_room()
                delivered_records.skip_waiting(self.state, partition)

    def still_paused(self, generation: int) -> None:
        """In the end, what waits is told too."""
        which = np.flatnonzero(self.paused_at != NEVER)
        self.pauses.append(self._pauses(which, np.full(len(which), NONE), generation))

    def make_room(self) -> None:
        """Hand out what is there, and let grow what is too small."""
        t, most = self.state.totals[0], self.parameters.max_poll_records
        self.hand_out()
        if t.free_records == 0:
            self.state = with_records(self.state, 1)
        if t.free_blocks < blocks_for(most):
            self.state = with_blocks(self.state, blocks_for(most))
        self.state = with_rows(self.state, int(self.state.members.held.max(initial=0)))

    def hand_out(self) -> None:
        """Rows become readable in ``told`` and ``lags``."""
        t, s = self.state.totals[0], self.state
        if t.rows:
            self.told.append(s.rows[: t.rows].copy())
        if t.lags:
            self.lags.append(s.lags[: t.lags].copy())
        t.rows = t.lags = 0

    def _have_room(self, index: int) -> None:
        t, held = self.state.totals[0], int(self.state.members[index].held)
        if t.rows + held > len(self.state.rows) or t.lags + held > len(self.state.lags):
            self.make_room()

    def _remember(self, which: NDArray[np.int64], owners: Owners) -> None:
        """Partitions get other fetchers."""
        if self.remembers:
            self.moves.append((self.now, which, owners))

    def _have_records(self, more: int) -> None:
        if self.state.totals[0].free_records < more:
            self.state = with_records(self.state, more)

    def _pauses(self, which: NDArray[np.int64], owners: Owners, generation: int) -> Records:
        parts, records = self.state.partitions[which], self.state.records
        some = (self.paused_at[which] != NEVER) & (parts.waiting > 0)
        which, owners, parts = which[some], owners[some], parts[some]
        rows = np.zeros(len(which), PAUSE)
        rows["start"] = np.maximum(self.paused_at[which], records.at[parts.first])
        rows["end"], rows["partition"], rows["member"] = self.now, which, owners
        rows["blocker"] = np.where(self.blocker[which] == owners, NONE, self.blocker[which])
        rows["records"], rows["generation"] = parts.waiting, generation
        return rows[rows["end"] > rows["start"]].view(np.recarray)
