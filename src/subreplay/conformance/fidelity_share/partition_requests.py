"""The requests of a recorded share group, sorted by the share partition whose state they change.

The recording contains when a request arrived and when it was answered; the broker acted somewhere between.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from subreplay.adapters.kafka_recording.share_recording import ShareRecording
from subreplay.adapters.kafka_recording.share_rows import ShareEvent, ShareRequest
from subreplay.semantics.policies.kafka.assignor import TopicPartition
from subreplay.simulation.kafka.share.share_window import MS

MAX_WRITE_TIME: Final = 5 * MS
"""How long acknowledgements take to have an effect: a fetch that carries some is answered much later."""
MAX_BREAK_TIME: Final = 100 * MS
"""How long the broker takes to notice a broken connection (15 and 16 ms were measured)."""
RECORD_LIMIT: Final = 1
"""``AcquireMode`` of a request: record_limit."""
FINAL_EPOCH: Final = -1
"""The epoch of the last request of a share session."""
AcquiredRange: TypeAlias = tuple[int, int, int]
"""First and last offset, and delivery count."""


@dataclass(frozen=True)
class BrokerAction:
    """Something that the broker did between two times (ns), for a member (by its number)."""

    earliest: int
    latest: int
    member: int


@dataclass(frozen=True)
class FetchAnswer(BrokerAction):
    """A fetch that acquired records of the partition.

    ``limits`` are how many it could still acquire: in the rotated order of its partitions, and then in other orders. A
    broker visits partitions later whose place in the log it has to look up first, which no request shows.
    ``record_limit`` is whether its mode is *record_limit*.
    """

    limits: tuple[int, ...]
    record_limit: bool
    batch_size: int
    acquired: tuple[AcquiredRange, ...]


@dataclass(frozen=True)
class Acknowledgements(BrokerAction):
    """Acknowledged ranges with the types of their records (one type: of all), and whether the broker accepted them."""

    ranges: tuple[tuple[int, int, tuple[int, ...]], ...]
    accepted: bool


@dataclass(frozen=True)
class SessionEnd(BrokerAction):
    """The end of a share session, which releases the member's records."""


@dataclass(frozen=True)
class PartitionActions:
    """The actions on one partition, and when a member first fetched it: the request, and its answer (ns)."""

    actions: Sequence[BrokerAction]
    first_fetch: tuple[int, int] | None


@dataclass
class _Session:
    partitions: dict[TopicPartition, None] = field(default_factory=dict)  # in the order of their addition

    def update(self, row: ShareRequest) -> None:
        if row.request["epoch"] == 0:
            self.partitions.clear()
        for topic, partition, _ in row.request["partitions"]:
            self.partitions.setdefault(TopicPartition(topic, partition))
        for topic, partitions in row.request["forgotten"]:
            for partition in partitions:
                self.partitions.pop(TopicPartition(topic, partition), None)

    def rotate(self, epoch: int) -> Sequence[TopicPartition]:
        """Return the partitions in the order in which a fetch of that session epoch visits them."""
        names = list(self.partitions)
        begin = epoch % len(names) if names else 0
        return names[begin:] + names[:begin]


def number_members(recording: ShareRecording) -> Mapping[str, int]:
    """Number the members by their ids, in the order of their first request."""
    ids = dict.fromkeys(row.member_id for row in sorted(recording.requests, key=lambda row: row.received_at))
    return {member_id: number for number, member_id in enumerate(ids)}


def sort_actions(recording: ShareRecording) -> Mapping[TopicPartition, PartitionActions]:
    """Return the actions on each partition."""
    actions: dict[TopicPartition, list[BrokerAction]] = defaultdict(list)
    first_fetches: dict[TopicPartition, tuple[int, int]] = {}
    members = number_members(recording)
    sessions: dict[int, _Session] = defaultdict(_Session)
    kills = deque(sorted((one for one in recording.events if one.event == "killed"), key=lambda one: one.at))
    latest: dict[str, int] = {}  # of each consumer
    known: set[TopicPartition] = set()
    for row in sorted(recording.requests, key=lambda row: row.received_at):
        while kills and kills[0].at < row.received_at:
            _add_kill(actions, kills.popleft(), latest, known)
        member = latest[row.consumer] = members[row.member_id]
        if row.api == "share_group_heartbeat":
            continue
        for name, acknowledged in _list_acknowledgements(row, member):
            actions[name].append(acknowledged)
        if row.api == "share_fetch":
            sessions[member].update(row)
            for name in sessions[member].partitions:
                first_fetches.setdefault(name, (row.received_at, row.answered_at))
            for name, answer in _list_acquisitions(row, member, sessions[member]):
                actions[name].append(answer)
        known.update(sessions[member].partitions)
        if row.request["epoch"] == FINAL_EPOCH:
            end = SessionEnd(row.received_at, row.answered_at, member)
            for name in known:
                actions[name].append(end)
    for kill in kills:
        _add_kill(actions, kill, latest, known)
    return {name: PartitionActions(actions[name], first_fetches.get(name)) for name in sorted(actions)}


def _add_kill(
    actions: Mapping[TopicPartition, list[BrokerAction]],
    kill: ShareEvent,
    latest: Mapping[str, int],
    known: Iterable[TopicPartition],
) -> None:
    """Add the end of a killed consumer's session, which the broker notices when the connection breaks."""
    if kill.consumer is not None and kill.consumer in latest:
        end = SessionEnd(kill.at, kill.at + MAX_BREAK_TIME, latest[kill.consumer])
        for name in known:
            actions[name].append(end)


def _list_acknowledgements(row: ShareRequest, member: int) -> Iterator[tuple[TopicPartition, Acknowledgements]]:
    at = 3 if row.api == "share_fetch" else 2  # the place of the error in the answer
    errors = {TopicPartition(one[0], one[1]): one[at] for one in row.response["partitions"]}
    for topic, partition, ranges in row.request["partitions"]:
        if ranges:
            name = TopicPartition(topic, partition)
            accepted = not errors.get(name) and not row.response["errorCode"]
            latest = min(row.answered_at, row.received_at + MAX_WRITE_TIME)
            spans = tuple((first, last, tuple(types)) for first, last, types in ranges)
            yield name, Acknowledgements(row.received_at, latest, member, spans, accepted)


def _list_acquisitions(
    row: ShareRequest, member: int, session: _Session
) -> Iterator[tuple[TopicPartition, FetchAnswer]]:
    acquired = {TopicPartition(one[0], one[1]): tuple(map(tuple, one[4])) for one in row.response["partitions"]}
    most = row.request["maxRecords"]
    counts = {name: sum(last - first + 1 for first, last, _ in ranges) for name, ranges in acquired.items()}
    before = 0
    for name in session.rotate(row.request["epoch"]):
        if ranges := acquired.get(name):
            sums = {0}
            for other in counts.keys() - {name}:
                sums |= {one + counts[other] for one in sums}
            limits = dict.fromkeys(most - one for one in (before, *sorted(sums)) if one < most)
            of_request = (
                row.received_at,
                row.answered_at,
                member,
                tuple(limits),
                row.request["acquireMode"] == RECORD_LIMIT,
            )
            yield name, FetchAnswer(*of_request, row.request["batchSize"], ranges)
            before += counts[name]
