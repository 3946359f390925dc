"""What a prediction supposes: how the consumers' clients are set up and how their applications behave.

Defaults are those of Pulsar's Java client and broker. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from subreplay.errors import ConfigError
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0, ProfileTable, get_rule
from subreplay.simulation.pulsar.broker.dispatch_rules import MILLISECOND
from subreplay.simulation.pulsar.service_model import Fixed, Service

SECOND = 1_000 * MILLISECOND


def _at_least(key: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"{key} must be at least {least}, got {value}")


class OnFailure(IntEnum):
    """What an application does with a message that it cannot process."""

    NACK = 0  # a negative acknowledgement: the message comes again after a delay
    RETRY = 1  # to the retry letter topic, and acknowledged (row D-RETRY-1)
    NOTHING = 2  # only an acknowledgement timeout, or the consumer's end, brings it back


MAX_RETRIES = 16
"""``RetryMessageUtil.MAX_RECONSUMETIMES``: retries where no dead letter policy says how many."""


@dataclass(frozen=True)
class ConsumerModel:
    """One consumer: its client's settings, and what its application does with messages, one at a time.

    * ``service`` times ``factor`` is the time for a message; with probability ``failure_rate`` it fails then.
    * ``receiver_queue_size``: permits at the start (row D-FLOW-1). When half of them were used up by taking messages,
      as many are asked for. With 0 the client asks for one message whenever the application is idle.
    * ``nack_delay``: until a message comes again (see ``NACKS``), at least 100 ms where there are brokers.
    * ``redelivery_multiplier``: every redelivery of a message multiplies its ``nack_delay`` and ``ack_timeout``, up to
      ``longest_redelivery`` (``MultiplierRedeliveryBackoff``).
    * ``ack_timeout`` (0: none) from when the application took a message; looked after every ``ack_timeout_tick``.
    * ``max_redeliver``: dead letters after so many redeliveries, or retries (row D-DLQ-1); None: never, but after 16
      retries (``RetryMessageUtil.MAX_RECONSUMETIMES``).
    * ``retry_delay``: until a message comes back from the retry letter topic (row D-RETRY-1).
    * ``cumulative``: acknowledges everything up to a message (row D-ACK-1; Exclusive and Failover only).
    * ``stuck_from``, ``stuck_until``: between these times (since the Unix epoch) the application takes messages but
      acknowledges none; what it held it acknowledges at the end of that time. None: never, and for ever.
    * ``hangs_from``, ``hangs_until``: between these times it takes none either, nor ends the work on one, so that its
      receiver queue fills and its permits are used up; then it goes on.
    * ``max_pending_chunked``, ``chunk_expiry``: incomplete messages that the client keeps (0: any number), and for how
      long; ``acks_oldest_chunked``: what is too much, or too old, is acknowledged rather than left (row L-CHUNK-2).

    Raises ConfigError naming the key of an illegal value.
    """

    service: Service = Fixed()
    factor: float = 1.0
    receiver_queue_size: int = 1000
    failure_rate: float = 0.0
    on_failure: OnFailure = OnFailure.NACK
    nack_delay: int = 60 * SECOND
    redelivery_multiplier: float = 1.0
    longest_redelivery: int = 600 * SECOND
    ack_timeout: int = 0
    ack_timeout_tick: int = SECOND
    max_redeliver: int | None = None
    retry_delay: int = SECOND
    cumulative: bool = False
    stuck_from: int | None = None
    stuck_until: int | None = None
    hangs_from: int | None = None
    hangs_until: int | None = None
    max_pending_chunked: int = 10
    chunk_expiry: int = 3600 * SECOND
    acks_oldest_chunked: bool = False

    @property
    def most_redeliveries(self) -> int | None:
        """After so many a message is a dead letter; None: never."""
        if self.max_redeliver is None and self.on_failure == OnFailure.RETRY:
            return MAX_RETRIES
        return self.max_redeliver

    def __post_init__(self) -> None:
        _at_least("factor", self.factor, 0)
        for key in ("receiver_queue_size", "nack_delay", "ack_timeout", "retry_delay", "max_pending_chunked"):
            _at_least(key, getattr(self, key), 0)
        _at_least("redelivery_multiplier", self.redelivery_multiplier, 1)
        _at_least("ack_timeout_tick", self.ack_timeout_tick, 1)
        _at_least("chunk_expiry", self.chunk_expiry, 1)
        if not 0 <= self.failure_rate <= 1:
            raise ConfigError(f"failure_rate must be between 0 and 1, got {self.failure_rate}")
        if self.max_redeliver is not None:
            _at_least("max_redeliver", self.max_redeliver, 1)
        for what in ("stuck", "hangs"):
            since, until = getattr(self, f"{what}_from"), getattr(self, f"{what}_until")
            if until is not None and (since is None or until < since):
                raise ConfigError(f"{what}_until must come after {what}_from, got {since} and {until}")


@dataclass(frozen=True)
class Prediction:
    """A scenario: ``consumer`` is every consumer, but for those in ``others`` (by name).

    ``ttl`` (0: none) counts from publication and is looked after every ``ttl_check`` (row L-TTL-1). ``deduplicates``:
    what a producer sends again is not stored (row L-DEDUP-1). A topic that is not ``persistent`` drops what nobody can
    take at once (row L-NONPERS-1). ``batch_index_acks``: whether messages of a batch are acknowledged one by one (row
    L-BATCH-2); None: as the profile's broker does. ``interval`` is the width of the backlog's steps.
    """

    consumer: ConsumerModel = ConsumerModel()
    others: Mapping[str, ConsumerModel] = field(default_factory=dict)
    ttl: int = 0
    ttl_check: int = 300 * SECOND
    deduplicates: bool = False
    persistent: bool = True
    batch_index_acks: bool | None = None
    seed: int = 0
    interval: int = SECOND

    def __post_init__(self) -> None:
        _at_least("ttl", self.ttl, 0)
        _at_least("ttl_check", self.ttl_check, 1)
        _at_least("interval", self.interval, 1)
        _at_least("seed", self.seed, 0)
        if not self.persistent and any(m.on_failure == OnFailure.RETRY for m in (self.consumer, *self.others.values())):
            raise ConfigError("on_failure: a topic that is not persistent has no retry letters")
        if self.deduplicates and not self.persistent:
            raise ConfigError("deduplicates: a topic that is not persistent knows of no earlier message")

    def of(self, name: str) -> ConsumerModel:
        """The model of the consumer of that name."""
        return self.others.get(name, self.consumer)


@dataclass(frozen=True)
class NackRule:
    """When the client asks for a message again, after its delay.

    ``ticks``: how often in a delay it looks what is due (0: it has a timer for each). ``precision`` (0: exact): due
    times are cut down to multiples of it. The first look comes when the delay of the first message is over, each other
    one at the next due time: a message that is rejected alone waits for the whole delay, one that is rejected while
    others wait may come earlier, with them. ``least`` is the shortest delay.
    """

    ticks: int = 0
    precision: int = 0
    least: int = 0


NACKS: Mapping[str, NackRule] = ProfileTable(
    {
        DOCUMENTED: NackRule(least=MILLISECOND),
        PULSAR_3_2: NackRule(ticks=3, least=100 * MILLISECOND),
        PULSAR_4_0: NackRule(precision=256 * MILLISECOND, least=100 * MILLISECOND),
    }
)
"""``NegativeAcksTracker`` (3.2.3; 4.0.8 and 4.2.4 with ``negativeAckPrecisionBitCnt`` 8), by profile."""


def nack_rule(profile: str) -> NackRule:
    """The rule of a profile; raises ConfigError if there is none."""
    return get_rule("negative acknowledgement", NACKS, profile)
