"""The differences between the brokers' dispatchers, as data, and the settings of an operator.

The dispatchers are ``PersistentDispatcherMultipleConsumers``, ``PersistentStickyKeyDispatcherMultipleConsumers`` and
``PersistentDispatcherSingleActiveConsumer`` (Pulsar 2.10.4, 3.2.3, 4.0.8, 4.2.4, 5.0.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from subreplay.errors import ConfigError
from subreplay.hashing.profiles import (
    DOCUMENTED,
    PULSAR_2_10,
    PULSAR_3_2,
    PULSAR_4_0,
    PULSAR_4_2,
    PULSAR_5_0,
    ProfileTable,
    get_rule,
)

MILLISECOND = 1_000_000
"""A millisecond in ns, the kernels' unit of time."""


class DispatcherKind(IntEnum):
    """How a subscription sends entries."""

    SINGLE_ACTIVE = 0  # Exclusive, Failover
    SHARED = 1
    KEY_SHARED_JOINED = 2  # a new consumer waits for its position
    KEY_SHARED_DRAINING = 3  # a hash waits for its previous consumer


class Purge(IntEnum):
    """When waiting and pending entries at or below mark-delete are forgotten."""

    NEVER = 0  # a replay read finds them acknowledged
    ON_READ = 1
    ON_MARK_DELETE = 2  # and the consumers' unacknowledged counts shrink with them


@dataclass(frozen=True)
class DispatchRule:
    """The dispatcher of one profile.

    * ``merges_reads``: requests for a read are queued, one at a time. Otherwise each is served, and those of a leaving
      consumer and of a redelivery at once.
    * ``retries``: a read that sent nothing is retried after a growing pause; otherwise at once.
    * ``turn_in_entries``: the turn of a Shared consumer is counted in entries, rounded up; otherwise in messages,
      rounded down.
    * ``unblocks_late``: a blocked consumer is checked before its acknowledged messages are subtracted, so it continues
      one acknowledgement later.
    * ``look_ahead_at_end``: a blocked Key_Shared read looks ahead even if no entry is left, and then waits there
      although others could be replayed.
    * ``loses_chunk_permits``: chunks that go to the consumer of their message are charged to the permits of another
      one.
    * ``loses_entries``: a read with chunks that finds no consumer is forgotten until the subscription is read anew.
    * ``exact_delays``: delayed entries are delivered when they are due; otherwise when the broker's timer turns, or up
      to a tick early.
    * ``delay_buckets``: delayed entries are due by bucket.
    * ``delays_last``: due entries are replayed when nothing else waits; otherwise in log order.
    * ``binds_chunks``: all chunks of a message go to one Shared consumer.
    * ``counts_leavers``: entries of a leaving consumer count as redelivered. So does each further delivery of an entry
      that was negatively acknowledged once, and a request for everything counts nothing else.
    * ``always_flows``: a redelivery requests a read even if the consumer has no parked permits.
    * ``batch_index_acks``: messages of a batch can be acknowledged one by one. This is a broker setting with its
      default here; change it with ``dataclasses.replace``.
    """

    key_shared: DispatcherKind
    purge: Purge
    merges_reads: bool
    retries: bool
    turn_in_entries: bool
    unblocks_late: bool
    look_ahead_at_end: bool
    loses_chunk_permits: bool
    loses_entries: bool
    exact_delays: bool
    delay_buckets: bool
    delays_last: bool
    binds_chunks: bool
    counts_leavers: bool
    always_flows: bool
    batch_index_acks: bool


_3_2 = DispatchRule(
    key_shared=DispatcherKind.KEY_SHARED_JOINED,
    purge=Purge.NEVER,
    merges_reads=False,
    retries=False,
    turn_in_entries=False,
    unblocks_late=True,
    look_ahead_at_end=True,
    loses_chunk_permits=True,
    loses_entries=True,
    exact_delays=False,
    delay_buckets=False,
    delays_last=False,
    binds_chunks=True,
    counts_leavers=False,
    always_flows=False,
    batch_index_acks=False,
)
_2_10 = replace(_3_2, unblocks_late=False, delays_last=True, binds_chunks=False, counts_leavers=True)
"""2.10.4. Chunks are bound to a consumer since 2.11 (apache/pulsar#16202).

Not modelled: until 3.2.3 a Key_Shared replay read also reads blocked entries (apache/pulsar#22245), and then requests
another read, after 100 ms in 2.10.
"""
_4_0 = DispatchRule(
    key_shared=DispatcherKind.KEY_SHARED_DRAINING,
    purge=Purge.ON_READ,
    merges_reads=True,
    retries=True,
    turn_in_entries=True,
    unblocks_late=False,
    look_ahead_at_end=True,
    loses_chunk_permits=True,
    loses_entries=True,
    exact_delays=False,
    delay_buckets=False,
    delays_last=False,
    binds_chunks=True,
    counts_leavers=False,
    always_flows=False,
    batch_index_acks=False,
)
_4_2 = DispatchRule(
    key_shared=DispatcherKind.KEY_SHARED_DRAINING,
    purge=Purge.ON_MARK_DELETE,
    merges_reads=True,
    retries=True,
    turn_in_entries=True,
    unblocks_late=False,
    look_ahead_at_end=False,
    loses_chunk_permits=False,
    loses_entries=False,
    exact_delays=False,
    delay_buckets=True,
    delays_last=False,
    binds_chunks=True,
    counts_leavers=False,
    always_flows=True,
    batch_index_acks=True,
)

RULES: Mapping[str, DispatchRule] = ProfileTable(
    {
        DOCUMENTED: replace(_3_2, exact_delays=True),
        PULSAR_2_10: _2_10,
        PULSAR_3_2: _3_2,
        PULSAR_4_0: _4_0,
        PULSAR_4_2: _4_2,
    }
)
"""Rules by profile.

The documents describe the Key_Shared of joined positions (row P-KS-ORD-1).

They therefore follow 3.2, except for delays (row L-DELAY-1).
"""


@dataclass(frozen=True)
class DispatchSettings:
    """The settings of an operator. The defaults are those of brokers up to 4.2 (``ServiceConfiguration``; for others
    see ``DEFAULTS``). Times are in ns."""

    max_read: int = 100
    max_turn: int = 20
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000
    look_ahead_per_consumer: int = 2_000
    look_ahead_per_subscription: int = 20_000
    unblocking_interval: int = 10 * MILLISECOND
    retry_initial: int = 1 * MILLISECOND
    retry_max: int = 10 * MILLISECOND
    delay_tick: int = 1_000 * MILLISECOND
    delay_strict: bool = False
    fixed_delay_look_ahead: int = 50_000
    failover_delay: int = 1_000 * MILLISECOND

    def __post_init__(self) -> None:
        for name in ("max_read", "max_turn", "delay_tick"):
            if getattr(self, name) < 1:
                raise ConfigError(f"dispatch: {name} must be at least 1, but is {getattr(self, name)}.")


DEFAULTS: Mapping[str, DispatchSettings] = ProfileTable(
    {
        DOCUMENTED: DispatchSettings(),
        PULSAR_3_2: DispatchSettings(),
        PULSAR_5_0: DispatchSettings(
            max_read=500, look_ahead_per_consumer=4_000, look_ahead_per_subscription=40_000
        ),  # the runtime configuration of a broker of 5.0.1
    }
)
"""The settings of brokers whose operator changes nothing, by profile."""
_SETTINGS_BY_BROKER_NAME: Mapping[str, tuple[str, int]] = {
    "dispatcherMaxReadBatchSize": ("max_read", 1),
    "dispatcherMaxRoundRobinBatchSize": ("max_turn", 1),
    "maxUnackedMessagesPerConsumer": ("max_unacked_per_consumer", 1),
    "maxUnackedMessagesPerSubscription": ("max_unacked_per_subscription", 1),
    "keySharedLookAheadMsgInReplayThresholdPerConsumer": ("look_ahead_per_consumer", 1),
    "keySharedLookAheadMsgInReplayThresholdPerSubscription": ("look_ahead_per_subscription", 1),
    "keySharedUnblockingIntervalMs": ("unblocking_interval", MILLISECOND),
    "dispatcherRetryBackoffInitialTimeInMs": ("retry_initial", MILLISECOND),
    "dispatcherRetryBackoffMaxTimeInMs": ("retry_max", MILLISECOND),
    "delayedDeliveryTickTimeMillis": ("delay_tick", MILLISECOND),
    "isDelayedDeliveryDeliverAtTimeStrict": ("delay_strict", 1),
    "delayedDeliveryFixedDelayDetectionLookahead": ("fixed_delay_look_ahead", 1),
    "activeConsumerFailoverDelayTimeMillis": ("failover_delay", MILLISECOND),
}
"""The broker's names of settings (``broker.conf``) and their units, in ns for times."""


def parse_settings(broker: Mapping[str, object], profile: str) -> DispatchSettings:
    """Read the settings of a broker of ``profile`` by its own names.

    Settings that no dispatcher uses are ignored.

    Raises ConfigError if a value is not a whole number of at least 0, or not true or false.
    """
    changed: dict[str, Any] = {}
    defaults = find_default_settings(profile)
    for name, (field, unit) in _SETTINGS_BY_BROKER_NAME.items():
        value = broker.get(name)
        if value is None:
            continue
        is_flag = isinstance(getattr(defaults, field), bool)
        if not isinstance(value, int) or isinstance(value, bool) is not is_flag or value < 0:
            wanted = "true or false" if is_flag else "a whole number of at least 0"
            raise ConfigError(f"{name} must be {wanted}, but is {value!r}.")
        changed[field] = value if is_flag else value * unit
    return replace(defaults, **changed)


def find_default_settings(profile: str) -> DispatchSettings:
    """Return the broker's defaults under a profile. Raises ConfigError if there is none."""
    return get_rule("dispatch", DEFAULTS, profile)


def find_dispatch_rule(profile: str) -> DispatchRule:
    """Return the rule of a profile. Raises ConfigError if there is none."""
    return get_rule("dispatch", RULES, profile)
