"""What a replay of a consumer group supposes: the clients' settings, and how long their applications work.

Defaults are those of the consumer and the group coordinator of 4.0. Times are in ns.
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
"""The releases whose coordinator and clients a replay knows."""
HEARTBEAT, SERVER_HEARTBEAT = 3 * SECOND, 5 * SECOND
"""``heartbeat.interval.ms``, and under KIP-848 ``group.consumer.heartbeat.interval.ms``."""


@dataclass(frozen=True)
class Stall:
    """With its first batch of ``least`` records or more that comes ``at`` or later, an application hangs for ``time``
    before it works on the first of them."""

    at: int
    time: int
    least: int = 1


@dataclass(frozen=True)
class Rewind:
    """A consumer's application seeks back by so many records in each of its partitions."""

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
    """One member's application, which works on one record at a time.

    ``service`` times ``factor`` is the time for a record. Between ``stuck_from`` and ``stuck_until`` (since the Unix
    epoch; None: never, and for ever) it finishes none: what would end then ends when the time is over. ``stalls`` come
    in order of time.

    ``commit``: *auto* commits out of a poll, when ``commit_interval`` (None: the group's) has passed, and before
    partitions are given up and at the end. *sync* is the application's own commit after a batch, when the interval has
    passed; before partitions are given up it commits only where it ``commits_on_revoke``, at the end only where it
    ``commits_on_close``: otherwise what it did since comes again.

    ``poll_time`` is the timeout of its polls: what an application does besides (it closes, seeks, subscribes; and under
    KIP-848 gives up and takes partitions) it does between two of them. 0: at once.
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
    """A group: ``member`` is every member, but for those in ``others`` (by name).

    * ``max_poll_records``: at most so many records come with a poll.
    * ``max_partition_fetch_bytes``: about so much of one partition is handed out before the next one's turn.
    * ``max_poll_interval``: a member that does not poll for so long is out of the group.
    * ``commit_interval``: offsets are committed with the first poll after so long; 0: with every poll. They are also
      committed before partitions are given up and when a member closes.
    * ``heartbeat_interval``: how often members hear of the group (None: as the protocol has it).
    * ``rebalance_time``: from the last member's rejoining until the members have their new assignment;
      ``first_rebalance_time``: the same for the first generation, for which clients load their code (None: no longer).
    * ``reset``: where a member begins to read a partition of which no offset was ever committed
      (``auto.offset.reset``).
    * ``metadata_max_age``: how often clients look for partitions that are new.
    * ``interval`` is the width of the backlog's steps.

    Raises ConfigError naming the key of an illegal value.
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
                raise ConfigError(f"{key} must be at least {value}, got {getattr(self, key)}")
        if self.heartbeat_interval is not None and self.heartbeat_interval < 1:
            raise ConfigError(f"heartbeat_interval must be at least 1, got {self.heartbeat_interval}")

    def of(self, name: str) -> MemberModel:
        """The model of the member of that name."""
        return self.others.get(name, self.member)

    def heartbeat(self, rebalance: str) -> int:
        """How often members hear of the group under that kind of rebalance."""
        usual = SERVER_HEARTBEAT if rebalance == "server" else HEARTBEAT
        return usual if self.heartbeat_interval is None else self.heartbeat_interval
