"""The coordinators of both protocols, driven by the requests that clients sent: they decide, and ask nobody."""

from __future__ import annotations

from subreplay.simulation.kafka.classic_protocol import ClassicProtocol, Stage
from subreplay.simulation.kafka.coordinator import Coordinator
from subreplay.simulation.kafka.group_members import Process
from subreplay.simulation.kafka.server_protocol import ServerProtocol


class RequestDrivenCoordinator(Coordinator):
    """What is alike in both: a session runs from the last request, or commit, that counts for it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.last: dict[int, int] = {}

    def sign_of_life(self, process: Process) -> int:
        """Its last request that counts."""
        return self.last.get(process.index, process.joined_at)

    def goes_silent(self, process: Process) -> None:
        """A static member closes, and says nothing, or that it is away for a while."""
        self._silent(process, self.sign_of_life(process))
        self.members.end(process.index)


class RequestDrivenClassic(RequestDrivenCoordinator, ClassicProtocol):
    """Members rejoin, ask for their assignment and take it when they did."""

    def rejoin(self, index: int) -> None:
        """Nobody rejoins but by a request of its own (``handle_join_request``); who is about to cannot commit any
        more."""
        self.members.block(index, True)

    def handle_join_request(self, process: Process, metadata_changed: bool) -> None:
        """A member's JoinGroup; a leader may have seen new partitions."""
        if metadata_changed:
            self.growth.see()
        super().rejoin(process.index)

    def handle_sync_request(self, process: Process) -> None:
        """A member's SyncGroup."""
        if self.stages.get(process.index) is Stage.ANSWERED:
            self.sync([process.index])

    def run_callbacks(self, process: Process) -> None:
        """A member's callbacks run."""
        if self.stages.get(process.index) is Stage.GIVEN:
            self.receive([process.index])

    def _look(self) -> None:
        """The leader looks when it did."""


class RequestDrivenServer(RequestDrivenCoordinator, ServerProtocol):
    """Members send heartbeats, give up and take when they did."""

    def handle_heartbeat(self, process: Process, owned: bool) -> None:
        """A member's heartbeat; ``owned``: it tells which partitions it has."""
        process.beat = self.now
        if owned and process.index not in self.told:
            self.acknowledges(process)
        else:
            self.responds(process)

    def run_callbacks(self, process: Process) -> None:
        """A member's callbacks run."""
        if process.index in self.told:
            self.gives_up(process)
            self.takes(process)

    def _expect(self, process: Process) -> None:
        """Heartbeats come when they did."""
