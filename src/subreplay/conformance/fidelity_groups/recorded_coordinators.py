"""The coordinators of both protocols, driven by the recorded requests of clients."""

from __future__ import annotations

from subreplay.simulation.kafka.classic_protocol import ClassicProtocol, MemberStage
from subreplay.simulation.kafka.coordinator import Coordinator
from subreplay.simulation.kafka.group_members import MemberProcess
from subreplay.simulation.kafka.server_protocol import ServerProtocol
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND


class RequestDrivenCoordinator(Coordinator):
    """The common part: a session starts again with each request, or commit, that counts."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.last: dict[int, int] = {}

    def find_last_heartbeat(self, process: MemberProcess) -> int:
        """Return its last request that counts as a heartbeat."""
        return self.last.get(process.index, process.joined_at)

    def goes_silent(self, process: MemberProcess) -> None:
        """Handle a static member that closes without a message, or reports that it is away for a while."""
        self._start_silence(process, self.find_last_heartbeat(process))
        self.members.end_process(process.index)


class RequestDrivenClassic(RequestDrivenCoordinator, ClassicProtocol):
    """The classic protocol: members rejoin, request their assignment and take it at their recorded times."""

    def rejoin(self, index: int) -> None:
        """Block commits of a member that will rejoin; it rejoins by its own recorded request."""
        self.members.set_commits_blocked(index, True)

    def handle_join_request(self, process: MemberProcess, metadata_changed: bool) -> None:
        """Handle a member's JoinGroup; a leader may have seen new partitions."""
        if metadata_changed:
            self.growth.mark_seen()
        super().rejoin(process.index)

    def handle_sync_request(self, process: MemberProcess) -> None:
        """Handle a member's SyncGroup."""
        if self.stages.get(process.index) is MemberStage.ANSWERED:
            self.sync([process.index])

    def run_callbacks(self, process: MemberProcess) -> None:
        """Run a member's callbacks."""
        if self.stages.get(process.index) is MemberStage.ASSIGNED:
            self.receive([process.index])

    def _schedule_metadata_refresh(self) -> None:
        """Do nothing: the recording contains when the leader refreshed its metadata."""


class RequestDrivenServer(RequestDrivenCoordinator, ServerProtocol):
    """The consumer protocol: members send heartbeats, give up and take partitions at their recorded times.

    The coordinator handles a request between its arrival and its answer. Where the last target may be old enough or
    not, the answer decides.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.answered_at = self.target_answered_at = self.highest_epoch = 0
        self.shows_target = False

    def begin_request(self, answered_at: int, epoch: int, is_assigned: bool) -> None:
        """Begin to handle a request whose answer has this member epoch. ``is_assigned``: a member's assignment changes
        by it."""
        self.answered_at, self.shows_target = answered_at, is_assigned or epoch > self.highest_epoch
        self.highest_epoch = max(self.highest_epoch, epoch)

    def _may_compute(self, at: int) -> bool:
        if self.target_at is None:
            return True
        interval = self.policy.assignment_interval
        least, most = at - self.target_answered_at, max(self.answered_at, at) - self.target_at
        return least >= interval or (most >= interval - MILLISECOND and self.shows_target)

    def _compute_target(self) -> None:
        super()._compute_target()
        self.target_answered_at = max(self.answered_at, self.now)

    def handle_heartbeat(self, process: MemberProcess, owned: bool) -> None:
        """Handle a member's heartbeat; with ``owned``, it contains the member's partitions."""
        process.beat = self.now
        if owned and process.index not in self.answered:
            self.acknowledge_assignment(process)
        else:
            self.respond(process)

    def run_callbacks(self, process: MemberProcess) -> None:
        """Run a member's callbacks."""
        if process.index in self.answered:
            self.revoke_lost(process)
            self.take_new_partitions(process)

    def _expect_heartbeat(self, process: MemberProcess, at: int | None = None) -> None:
        """Do nothing: the recording contains the heartbeats."""
