"""The assumptions of a consumer group's replay: the clients' settings, and how long their applications work.

Defaults are those of the consumer and the group coordinator of 4.0 and later. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from subreplay.errors import ConfigError
from subreplay.hashing.profiles import KAFKA_4_0, ProfileTable
from subreplay.simulation.pulsar.consumer_model import SECOND
from subreplay.simulation.pulsar.service_model import Fixed, Service

SIMULATED: Final = ProfileTable({KAFKA_4_0: True})
"""The releases whose coordinator and clients can be simulated."""
HEARTBEAT, SERVER_HEARTBEAT = 3 * SECOND, 5 * SECOND
"""``heartbeat.interval.ms``, and ``group.consumer.heartbeat.interval.ms`` under KIP-848."""


@dataclass(frozen=True)
class Stall:
    """A stall: the application hangs for ``time`` with its first batch of ``least`` or more records from ``at`` on.

    It hangs before it processes the first of them.
    """

    at: int
    time: int
    least: int = 1


@dataclass(frozen=True)
class Rewind:
    """A consumer's application seeks back by ``records`` records in each of its partitions."""

    at: int
    consumer: str
    records: int


@dataclass(frozen=True)
class Resubscription:
    """A consumer subscribes to these topics from now on."""

    at: int
    consumer: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Enlargement:
    """A topic has ``count`` partitions from now on."""

    at: int
    topic: str
    count: int


@dataclass(frozen=True)
class MemberModel:
    """The application of one member, which processes one record at a time.

    ``service`` times ``factor`` is the time for a record. Between ``stuck_from`` and ``stuck_until`` (since the Unix
    epoch; None: never, and for ever) it finishes no record; records that would end then end when that time is over.
    ``stalls`` are in order of time.

    ``commit``: *auto* commits from a poll when ``commit_interval`` (None: that of the group) has passed, and before
    partitions are revoked and at the end. *sync* is the application's own commit after a batch, when the interval has
    passed. Before partitions are revoked it then commits only if it ``commits_on_revoke``, and at the end only if it
    ``commits_on_close``. Otherwise what it did since is redelivered.

    ``poll_time`` is the timeout of its polls. Other actions of the application happen between two polls: it closes,
    seeks, subscribes, and under KIP-848 revokes and takes partitions. 0: at once.
    """

    service: Service = Fixed()
    factor: float = 1.0
    stuck_from: int | None = None
    stuck_until: int | None = None
    stalls: tuple[Stall, ...] = ()
    commit: Literal["auto", "sync"] = "auto"
    commit_interval: int | None = None
    commits_on_revoke: bool = True
    commits_on_close: bool = True
    poll_time: int = 0
    warm_up: int = 0


@dataclass(frozen=True)
class SimulationParameters:
    """A group: ``member`` is the model of every member, except for those in ``others`` (by name).

    * ``max_poll_records``: the largest number of records in a poll.
    * ``max_partition_fetch_bytes``: about this much of one partition is returned before the next partition's turn.
    * ``max_poll_interval``: a member that does not poll for so long leaves the group.
    * ``commit_interval``: offsets are committed with the first poll after this time; 0: with every poll. They are also
      committed before partitions are revoked and when a member closes.
    * ``heartbeat_interval``: how often members contact the group (None: the default of the protocol).
    * ``rebalance_time``: from the last member's rejoin until the members have their new assignment.
    * ``first_rebalance_time``: the same for the first generation, for which clients load their code (None: no longer).
    * ``reset``: where a member begins to read a partition without any committed offset (``auto.offset.reset``).
    * ``metadata_max_age``: how often clients look for new partitions.
    * ``interval``: the width of the backlog's steps.

    Raises ConfigError with the key of an illegal value.
    """

    member: MemberModel = MemberModel()
    others: Mapping[str, MemberModel] = field(default_factory=dict)
    max_poll_records: int = 500
    max_partition_fetch_bytes: int = 1 << 20
    max_poll_interval: int = 300 * SECOND
    commit_interval: int = 5 * SECOND
    heartbeat_interval: int | None = None
    rebalance_time: int = 0
    first_rebalance_time: int | None = None
    reset: Literal["earliest", "latest"] = "earliest"
    metadata_max_age: int = 300 * SECOND
    seed: int = 0
    interval: int = SECOND

    def __post_init__(self) -> None:
        least = {"max_poll_records": 1, "max_partition_fetch_bytes": 1, "max_poll_interval": 1, "interval": 1,
                 "metadata_max_age": 1, "commit_interval": 0, "rebalance_time": 0, "seed": 0}  # fmt: skip
        for key, value in least.items():
            if getattr(self, key) < value:
                raise ConfigError(f"{key} must be at least {value}, but is {getattr(self, key)}.")
        if self.heartbeat_interval is not None and self.heartbeat_interval < 1:
            raise ConfigError(f"heartbeat_interval must be at least 1, but is {self.heartbeat_interval}.")

    def find_model(self, name: str) -> MemberModel:
        """Return the model of the member with that name."""
        return self.others.get(name, self.member)

    def find_heartbeat_interval(self, rebalance: str) -> int:
        """Return how often members contact the group under that kind of rebalance."""
        default = SERVER_HEARTBEAT if rebalance == "server" else HEARTBEAT
        return default if self.heartbeat_interval is None else self.heartbeat_interval
