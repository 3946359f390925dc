"""Choose the dispatcher that serves a policy: for predictions, for comparisons with recorded brokers, and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from subreplay.errors import ConfigError
from subreplay.semantics.policies.base import Policy, Serving
from subreplay.simulation.pulsar.broker.broker_state import DispatcherOptions
from subreplay.simulation.pulsar.broker.dispatch_rules import (
    DispatcherKind,
    DispatchSettings,
    find_default_settings,
    find_dispatch_rule,
)

_KINDS: Final[Mapping[Serving, DispatcherKind]] = {
    "exclusive": DispatcherKind.SINGLE_ACTIVE,
    "failover": DispatcherKind.SINGLE_ACTIVE,
    "filtered": DispatcherKind.SINGLE_ACTIVE,
    "shared": DispatcherKind.SHARED,
    "key failover": DispatcherKind.KEY_SHARED_DRAINING,
}
"""Dispatchers by the policy's serving. All other policies have the Key_Shared dispatcher of their profile."""

KAFKA_SERVINGS: Final[tuple[Serving, ...]] = ("polled", "acquired")
"""Kafka's consumers and share consumers fetch; no dispatcher serves them."""
_MOST_SLOTS: Final = 2**24
"""The largest number of slots: a dispatcher of 4.x stores a number for every slot."""


def choose_dispatcher(policy: Policy) -> DispatcherKind:
    """Return the dispatcher that serves a policy under its profile. Raises ConfigError if no Pulsar dispatcher does."""
    if policy.serving in KAFKA_SERVINGS:
        raise ConfigError(f"{policy.name} has no dispatcher, because Kafka consumers fetch. Use a Pulsar policy here.")
    return _KINDS.get(policy.serving, find_dispatch_rule(policy.profile).key_shared)


def ignores_delays(policy: Policy) -> bool:
    """Return whether the policy delivers delayed messages at once (row L-DELAY-1)."""
    return policy.serving not in KAFKA_SERVINGS and choose_dispatcher(policy) == DispatcherKind.SINGLE_ACTIVE


def build_options(
    policy: Policy, settings: DispatchSettings | None = None, *, batch_index_acks: bool | None = None
) -> DispatcherOptions:
    """Return the options of a dispatcher that serves ``policy``.

    Raises ConfigError if it has too many slots.

    ``settings`` and ``batch_index_acks`` None: the defaults of the profile's broker.
    """
    kind, rule = choose_dispatcher(policy), find_dispatch_rule(policy.profile)
    if kind == DispatcherKind.KEY_SHARED_DRAINING and policy.space[1] >= _MOST_SLOTS:
        raise ConfigError(
            f"{policy.name}: range_size must be at most {_MOST_SLOTS:,} for a dispatch replay, "
            f"but is {policy.space[1] + 1:,}."
        )
    return DispatcherOptions(
        kind,
        rule if batch_index_acks is None else replace(rule, batch_index_acks=batch_index_acks),
        settings or find_default_settings(policy.profile),
        ordered=policy.ordered,
        drains=policy.serving in ("key shared", "entry buckets"),
        takes_cumulative_acks=policy.serving == "entry buckets",
        failover=policy.serving == "failover",
        last_slot=policy.space[1],
    )
