"""The members of a group as the coordinator handles them: who runs, who has which partition, what is paused since when.

Everything here happens between two runs of the event loop, at ``now``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subreplay.dispatch.broker.records import NEVER, Records
from subreplay.dispatch.clients.state import Outcome
from subreplay.groups import held_records, polling
from subreplay.groups.simulation_parameters import SimulationParameters
from subreplay.groups.state import NONE, State, blocks_for, new_state, with_blocks, with_member, with_records, with_rows
from subreplay.model.rows import MembershipEvent

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
    closing_at: int = NEVER
    silent_at: int = NEVER  # no heartbeats from then on
    evict_at: int = NEVER

    @property
    def static(self) -> bool:
        return self.event.instance_id is not None


class Members:
    """All processes that ever joined, and the state that the event loop runs on."""

    def __init__(self, partitions: int, parameters: SimulationParameters) -> None:
        self.parameters = parameters
        self.state: State = new_state(partitions, parameters)
        self.processes: list[Process] = []
        self.paused_at = np.full(partitions, NEVER, np.int64)
        self.blocker = np.full(partitions, NONE, np.int64)
        self.pauses: list[Records] = []
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
        process = Process(len(self.processes), event, origin, self.now)
        self.processes.append(process)
        self.state = with_member(self.state, process.index, self.parameters.of(event.consumer))
        return process

    def end(self, index: int) -> None:
        """The process is over; what it fetched is paused."""
        self.state.members[index].runs = False
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

    def commit(self, index: int) -> None:
        """What the member has processed is committed."""
        self._have_room(index)
        held_records.commit(self.state, index)

    def give_back(self, index: int, outcome: Outcome, end: int) -> None:
        """What the member holds comes again; it is told what it did until ``end``."""
        self._have_room(index)
        held = int(self.state.members[index].held)
        if self.state.totals[0].free_records < held:
            self.state = with_records(self.state, held)
        held_records.give_back(self.state, index, outcome, end)

    def evict(self, index: int) -> None:
        """A process that lives on loses its place: what it holds comes again elsewhere, though it goes on with it."""
        self.give_back(index, Outcome.TIMED_OUT, NEVER)
        self.state.members[index].evicted = True
        self.release(np.flatnonzero(self.owners == index), index)
        self.call(index, self.now)

    def pause(self, index: int) -> None:
        """The member does not poll until it has its assignment."""
        self.state.members[index].paused = True
        polling.reschedule(self.state, index)

    def release(self, which: NDArray[np.int64], blocker: int) -> None:
        """Nobody fetches these partitions any more; ``blocker`` is who is waited for (-1: whoever rejoins last)."""
        former = np.unique(self.owners[which])
        self.owners[which] = NONE
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

    def assign(self, owners: Owners, generation: int) -> None:
        """Partitions without a fetcher go to their owners, as far as these live."""
        here = np.append(np.array(self.state.members.runs & ~self.state.members.evicted, np.bool_), False)
        which = np.flatnonzero((self.owners == NONE) & here[owners])
        self.pauses.append(self._pauses(which, owners[which], generation))
        self.paused_at[which] = NEVER
        self.owners[which] = owners[which]
        for index in np.flatnonzero(here[:-1] & self.state.members.paused).tolist():
            polling.resume(self.state, index)
        polling.offer_all(self.state)

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
