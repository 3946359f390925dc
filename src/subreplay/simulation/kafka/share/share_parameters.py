"""The assumptions of a share group's replay: the clients' settings, and what their applications do.

Defaults are those of the share consumer and the broker of 4.4. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from subreplay.errors import ConfigError
from subreplay.simulation.kafka.share.share_coordinator import ASSIGNMENT_INTERVAL
from subreplay.simulation.kafka.share.share_window import MS, ShareSettings
from subreplay.simulation.kafka.simulation_parameters import Stall
from subreplay.simulation.pulsar.service_model import Fixed, Service

HEARTBEAT = 5_000 * MS
"""``group.share.heartbeat.interval.ms``."""
MAX_WAIT = 500 * MS
"""How long a fetch waits for records (``fetch.max.wait.ms``)."""


@dataclass(frozen=True)
class OffsetRule:
    """How an application acknowledges by offset modulo ``mod``; it accepts all else.

    It ``reject``s these remainders. The first n deliveries of a remainder in ``release`` are released, and a remainder
    in ``renew`` is renewed n times before it is accepted.
    """

    mod: int
    reject: frozenset[int] = frozenset()
    release: Mapping[int, int] = field(default_factory=dict)
    renew: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClosingInHand:
    """The application closes from ``at`` on in its first batch of ``least`` records, when ``done`` of them are done."""

    at: int
    done: float
    least: int = 1


@dataclass(frozen=True)
class ShareMemberModel:
    """The application of one member, which processes one record at a time.

    ``service`` times ``factor`` is the time for a record. Between ``stuck_from`` and ``stuck_until`` it finishes no
    record. ``stalls`` are in order of time; one that has not begun when the next one is due is left out.

    With ``explicit`` acknowledgement it acknowledges each record: it releases the fraction ``release_rate``, rejects
    ``reject_rate`` and renews ``renew_rate`` of the deliveries, or follows ``rule``, and accepts the others. Implicit
    acknowledgement accepts all records with the next poll, and nothing if the consumer closes first. ``commits``: it
    calls commitSync after every batch, which is a request of its own. A renewed record comes before new ones; without
    commits the client fetches those meanwhile, and their locks run. ``renew_works``: it takes as long as before.
    ``overhead`` is the time between the end of a batch and the next fetch.
    """

    service: Service = Fixed()
    factor: float = 1.0
    stuck_from: int | None = None
    stuck_until: int | None = None
    stalls: tuple[Stall, ...] = ()
    explicit: bool = False
    commits: bool = False
    release_rate: float = 0.0
    reject_rate: float = 0.0
    renew_rate: float = 0.0
    rule: OffsetRule | None = None
    renew_works: bool = True
    overhead: int = 0
    closing: ClosingInHand | None = None

    def __post_init__(self) -> None:
        rates = self.release_rate, self.reject_rate, self.renew_rate
        if min(rates) < 0 or sum(rates) > 1:
            raise ConfigError("release_rate, reject_rate and renew_rate must be at least 0, and at most 1 together.")


@dataclass(frozen=True)
class ShareParameters:
    """A share group: ``member`` is the model of every member, except for those in ``others`` (by name).

    * ``settings``: those of its share partitions.
    * ``max_poll_records``: how many records a fetch asks for, and the batch size of its acquisitions.
    * ``max_wait``: how long a fetch waits.
    * ``heartbeat_interval``, ``assignment_interval``: of the group.
    * ``break_time``: from a crash until the broker notices the broken connection.
    * ``initialise_time``: how long the coordinator takes to create the share state of partitions; None: it exists.
    * ``growth_time``: the same for partitions that a topic gets later.
    * ``second_beat``: from a member's first heartbeat to the second one, from which the later ones are timed.
    * ``answer_time``: from a heartbeat that gets partitions until the member fetches them and sends the next one.
    * ``committed``: whether the group reads committed records only; the end of a transaction then serves the fetches of
      its partitions in their order.
    * ``reset``: where the group begins to read a partition (``share.auto.offset.reset``).
    * ``interval``: the width of the backlog's steps.

    Raises ConfigError with the key of an illegal value.
    """

    member: ShareMemberModel = ShareMemberModel()
    others: Mapping[str, ShareMemberModel] = field(default_factory=dict)
    settings: ShareSettings = ShareSettings()
    max_poll_records: int = 500
    max_wait: int = MAX_WAIT
    heartbeat_interval: int = HEARTBEAT
    assignment_interval: int = ASSIGNMENT_INTERVAL
    break_time: int = 15 * MS
    initialise_time: int | None = None
    growth_time: int = 3 * MS
    second_beat: int = 0
    answer_time: int = 0
    committed: bool = False
    reset: Literal["earliest", "latest"] = "earliest"
    seed: int = 0
    interval: int = 1_000 * MS

    def __post_init__(self) -> None:
        least = {"max_poll_records": 1, "max_wait": 1, "heartbeat_interval": 1, "interval": 1, "seed": 0}
        for key, value in least.items():
            if getattr(self, key) < value:
                raise ConfigError(f"{key} must be at least {value}, but is {getattr(self, key)}.")

    def find_model(self, name: str) -> ShareMemberModel:
        """Return the model of the member with that name."""
        return self.others.get(name, self.member)
