"""The members of a recorded group as the re-enacted coordinator sees them: their clients repeat recorded actions.

A member polls at its recorded times, as many records of each partition as its fetches returned, and commits its
recorded offsets. The partitions, the start offsets and so the records are decided anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from subreplay.adapters.kafka_recording.recording_rows import ClientCommit, PolledRecord, ProducedRecord
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.kafka.assignor import Partitions, TopicPartition
from subreplay.simulation.kafka.group_members import GroupMembers, Owners
from subreplay.simulation.kafka.group_state import NONE
from subreplay.simulation.kafka.simulation_parameters import SimulationParameters
from subreplay.simulation.pulsar.broker.broker_records import NEVER

RedeliveryCause = Literal["killed", "lost", "revoked", "closed", "rewind"]
"""Why a record was redelivered: what ended its consumer's ownership, or the rewind of its application."""


class DeliveredRecord(NamedTuple):
    """A record delivered to an application; ``redelivered`` is the cause if it was delivered before."""

    at: int
    consumer: str
    topic_partition: TopicPartition
    offset: int
    redelivered: RedeliveryCause | None


@dataclass
class PartitionReader:
    """The read position of a partition: ``position`` is the next offset, ``highest`` the first one that was never
    delivered."""

    end: NDArray[np.int64]  # when (ns) each record was there, ascending
    polled: list[tuple[int, int]] = field(default_factory=list)  # when which offsets were
    position: int = 0
    committed: int = NONE
    highest: int = 0
    ended: RedeliveryCause = "revoked"  # the time of its last owner
    redelivered: RedeliveryCause = "revoked"


class RecordedMembers(GroupMembers):
    """Members over a recorded log; they never act by themselves."""

    def __init__(
        self,
        partitions: Partitions,
        parameters: SimulationParameters,
        records: Iterable[ProducedRecord],
        polls: Iterable[PolledRecord],
    ) -> None:
        super().__init__(len(partitions), parameters, keeps_history=True)
        self.partitions = partitions
        times: dict[int, list[tuple[int, int]]] = {}
        for row in records:
            number = partitions.find_number(Scope(row.topic, row.partition))
            times.setdefault(number, []).append((row.offset, row.produced_at))
        self.readers = [
            PartitionReader(np.maximum.accumulate(np.array([at for _, at in sorted(times.get(number, ()))], np.int64)))
            for number in range(len(partitions))
        ]
        for poll in polls:
            self.readers[partitions.find_number(Scope(poll.topic, poll.partition))].polled.append(
                (poll.polled_at, poll.offset)
            )
        self.delivered: list[DeliveredRecord] = []
        self.release_cause: RedeliveryCause = "revoked"  # whatever is released now
        self.blocked: set[int] = set()

    def at(self, now: int) -> None:
        """Set the clock."""
        self.state.totals[0].now = now

    def is_busy(self, index: int) -> bool:
        """Whoever is to turn to the coordinator does so when it did."""
        return True

    def request_turn(self, index: int, at: int) -> None:
        """Do nothing: the recording contains the member's calls."""

    def request_action(self, index: int, at: int) -> None:
        """Do nothing: the recording contains the member's actions."""

    def set_commits_blocked(self, index: int, blocked: bool) -> None:
        """Set whether the member's commits fail from now on."""
        (self.blocked.add if blocked else self.blocked.discard)(index)

    def polls(self, consumer: str, topic_partition: TopicPartition, count: int) -> None:
        """Poll that many records of a partition, if the consumer owns it."""
        number = self.partitions.find_number(Scope(*topic_partition))
        reader = self.readers[number]
        if self._find_fetcher(number) != consumer:
            return
        for offset in range(reader.position, min(reader.position + count, len(reader.end))):
            again = reader.redelivered if offset < reader.highest else None
            self.delivered.append(DeliveredRecord(self.now, consumer, topic_partition, offset, again))
            reader.position = offset + 1
        reader.highest = max(reader.highest, reader.position)

    def rewind_position(self, consumer: str, topic_partition: TopicPartition, to: int) -> None:
        """Rewind a partition as the application did."""
        number = self.partitions.find_number(Scope(*topic_partition))
        if self._find_fetcher(number) == consumer:
            self.readers[number].position, self.readers[number].redelivered = to, "rewind"

    def is_commit_accepted(self, index: int, kind: str) -> bool:
        """Check whether a member's commit counts: between its JoinGroup and its assignment only commits of its
        callbacks do."""
        return index not in self.blocked or kind not in ("sync", "async")

    def commits(self, row: ClientCommit) -> None:
        """Apply a recorded commit."""
        self.readers[self.partitions.find_number(Scope(row.topic, row.partition))].committed = row.offset

    @property
    def undelivered(self) -> set[tuple[TopicPartition, int]]:
        """The records that were never delivered."""
        given = {(row.topic_partition, row.offset) for row in self.delivered}
        named = self.partitions.list_names(np.arange(len(self.partitions)))
        every = {(one, n) for one, reader in zip(named, self.readers, strict=True) for n in range(len(reader.end))}
        return every - given

    def _find_fetcher(self, number: int) -> str | None:
        owner = int(self.owners[number])
        return None if owner == NONE else self.processes[owner].event.consumer

    def _record_move(self, which: NDArray[np.int64], owners: Owners) -> None:
        """Let the new owners of partitions fetch from the committed offsets."""
        super()._record_move(which, owners)
        for number, owner in zip(which.tolist(), owners.tolist(), strict=True):
            reader = self.readers[number]
            if owner == NONE:
                reader.ended = self.release_cause
                continue
            reader.position = reader.committed if reader.committed != NONE else self._find_reset_position(reader)
            if reader.position < reader.highest:
                reader.redelivered = reader.ended

    def _find_reset_position(self, reader: PartitionReader) -> int:
        """Return the start position of a partition without a committed offset.

        The time at which a client reads the end of the log is not recorded. It is between its callbacks and its first
        poll, as late as the records of that poll allow.
        """
        if self.parameters.reset == "earliest":
            return 0
        at, first = next((one for one in sorted(reader.polled) if one[0] >= self.now), (NEVER, len(reader.end)))
        before = int(reader.end[first]) if first < len(reader.end) else NEVER
        return int(np.searchsorted(reader.end, min(max(before, self.now), at)))

    def _skip_uncommitted(self, which: NDArray[np.int64]) -> None:
        """Do nothing: the recorded position already skips uncommitted records."""
