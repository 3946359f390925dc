"""The assumptions of a prediction: the settings of consumer clients, and the behaviour of their applications.

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


def _check_minimum(key: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"{key} must be at least {least}, but is {value}.")


class OnFailure(IntEnum):
    """What an application does with a message that it cannot process."""

    NACK = 0  # a negative acknowledgement: the message is redelivered after a delay
    RETRY = 1  # it is sent to the retry letter topic and acknowledged (row D-RETRY-1)
    NOTHING = 2  # only an acknowledgement timeout, or the end of the consumer, redelivers it


class ClientLibrary(IntEnum):
    """Whose client a consumer has. They differ in when they request a redelivery after a negative acknowledgement."""

    JAVA = 0  # as ``NACKS`` has it, by profile
    CPP = 1  # C++ and its wrappers (Python, Node.js): ``CPP_NACKS``


MAX_RETRIES = 16
"""``RetryMessageUtil.MAX_RECONSUMETIMES``: the number of retries if no dead letter policy sets it."""


@dataclass(frozen=True)
class ConsumerModel:
    """One consumer: the settings of its client, and how its application processes messages, one at a time.

    * ``service`` times ``factor`` is the time for a message; with probability ``failure_rate`` it then fails.
    * ``receiver_queue_size``: permits at the start (row D-FLOW-1). When half of them were used by taking messages, that
      number is requested again. With 0 the client requests one message whenever the application is idle.
    * ``nack_delay``: time until a message is redelivered (see ``NACKS``), at least 100 ms for real brokers.
    * ``client``: the client library.
    * ``redelivery_multiplier``: every redelivery of a message multiplies its ``nack_delay`` and ``ack_timeout``, up to
      ``longest_redelivery`` (``MultiplierRedeliveryBackoff``).
    * ``ack_timeout`` (0: none): counted from when the application took a message; checked every ``ack_timeout_tick``.
    * ``max_redeliver``: number of redeliveries or retries before a message becomes a dead letter (row D-DLQ-1); None:
      never, but 16 for retries (``RetryMessageUtil.MAX_RECONSUMETIMES``).
    * ``retry_delay``: time until a message comes back from the retry letter topic (row D-RETRY-1).
    * ``cumulative``: acknowledges everything up to a message (row D-ACK-1; Exclusive and Failover only).
    * ``stuck_from``, ``stuck_until``: between these times (since the Unix epoch; None: never, and for ever) the
      application takes messages but acknowledges none. It acknowledges the kept ones at the end.
    * ``hangs_from``, ``hangs_until``: between these times it also takes no messages and finishes none, so that its
      receiver queue fills and its permits run out. Then it continues.
    * ``max_pending_chunked``, ``chunk_expiry``: the number of incomplete messages that the client keeps (0: any), and
      for how long. ``acks_oldest_chunked``: excess or old ones are acknowledged instead of left (row L-CHUNK-2).

    Raises ConfigError with the key of an illegal value.
    """

    service: Service = Fixed()
    factor: float = 1.0
    receiver_queue_size: int = 1000
    failure_rate: float = 0.0
    on_failure: OnFailure = OnFailure.NACK
    nack_delay: int = 60 * SECOND
    client: ClientLibrary = ClientLibrary.JAVA
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
    def redelivery_limit(self) -> int | None:
        """The number of redeliveries after which a message becomes a dead letter; None: never."""
        if self.max_redeliver is None and self.on_failure == OnFailure.RETRY:
            return MAX_RETRIES
        return self.max_redeliver

    def __post_init__(self) -> None:
        _check_minimum("factor", self.factor, 0)
        for key in ("receiver_queue_size", "nack_delay", "ack_timeout", "retry_delay", "max_pending_chunked"):
            _check_minimum(key, getattr(self, key), 0)
        _check_minimum("redelivery_multiplier", self.redelivery_multiplier, 1)
        _check_minimum("ack_timeout_tick", self.ack_timeout_tick, 1)
        _check_minimum("chunk_expiry", self.chunk_expiry, 1)
        if not 0 <= self.failure_rate <= 1:
            raise ConfigError(f"failure_rate must be between 0 and 1, but is {self.failure_rate}.")
        if self.max_redeliver is not None:
            _check_minimum("max_redeliver", self.max_redeliver, 1)
        for what in ("stuck", "hangs"):
            since, until = getattr(self, f"{what}_from"), getattr(self, f"{what}_until")
            if until is not None and (since is None or until < since):
                raise ConfigError(f"{what}_until must be later than {what}_from, but they are {until} and {since}.")


@dataclass(frozen=True)
class Prediction:
    """A scenario: ``consumer`` is the model of every consumer, except for those in ``others`` (by name).

    ``ttl`` (0: none) counts from publication and is checked every ``ttl_check`` (row L-TTL-1). ``deduplicates``:
    messages that a producer sends again are not stored (row L-DEDUP-1). A topic that is not ``persistent`` drops
    messages that no consumer can receive at once (row L-NONPERS-1). ``batch_index_acks``: messages of a batch are
    acknowledged one by one (row L-BATCH-2); None: the default of the profile's broker. ``interval`` is the width of the
    backlog's steps.
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
        _check_minimum("ttl", self.ttl, 0)
        _check_minimum("ttl_check", self.ttl_check, 1)
        _check_minimum("interval", self.interval, 1)
        _check_minimum("seed", self.seed, 0)
        if not self.persistent and any(m.on_failure == OnFailure.RETRY for m in (self.consumer, *self.others.values())):
            raise ConfigError(
                "on_failure: retry needs a persistent topic, because a non-persistent topic has no retry letter topic. "
                "Use nack or nothing, or set persistent: true."
            )
        if self.deduplicates and not self.persistent:
            raise ConfigError(
                "deduplicates: a non-persistent topic stores no messages, so it cannot detect duplicates. "
                "Remove deduplicates, or set persistent: true."
            )

    def find_model(self, name: str) -> ConsumerModel:
        """Return the model of the consumer with that name."""
        return self.others.get(name, self.consumer)


@dataclass(frozen=True)
class NackRule:
    """When the client requests a redelivery, after its delay.

    ``ticks``: how often within a delay it checks what is due (0: each message has a timer). ``precision`` (0: exact):
    due times are rounded down to multiples of it. The first check comes when the delay of the first message is over,
    each further one at the next due time. A message that is rejected alone therefore waits for the whole delay; one
    that is rejected while others wait may come earlier, together with them. ``least`` is the shortest delay.

    ``restarts``: every rejection starts the interval between two checks anew. So an application that rejects messages
    more often than that is redelivered none of them.
    """

    ticks: int = 0
    precision: int = 0
    least: int = 0
    restarts: bool = False


NACKS: Mapping[str, NackRule] = ProfileTable(
    {
        DOCUMENTED: NackRule(least=MILLISECOND),
        PULSAR_3_2: NackRule(ticks=3, least=100 * MILLISECOND),
        PULSAR_4_0: NackRule(precision=256 * MILLISECOND, least=100 * MILLISECOND),
    }
)
"""Rules of the Java client by profile: ``NegativeAcksTracker`` (3.2.3; 4.0.8 and 4.2.4 with
``negativeAckPrecisionBitCnt`` 8)."""
CPP_NACKS = NackRule(ticks=3, least=100 * MILLISECOND, restarts=True)
"""The rule of the C++ client, whatever the broker: ``NegativeAcksTracker::add`` calls ``scheduleTimer``, which sets the
timer anew (3.2.0 to 4.2.0). Of 1,436 recorded redeliveries 68 % come within 5 ms of it, 85 % within 20 ms."""


def find_nack_rule(profile: str) -> NackRule:
    """Return the rule of a profile. Raises ConfigError if there is none."""
    return get_rule("negative acknowledgement", NACKS, profile)
