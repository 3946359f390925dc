"""Which dispatcher serves a policy: for a prediction, for what is compared with recorded brokers, and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from subreplay.errors import ConfigError
from subreplay.semantics.policies.base import Policy, Serving
from subreplay.simulation.pulsar.broker.broker_state import DispatcherOptions
from subreplay.simulation.pulsar.broker.dispatch_rules import DEFAULTS, DispatcherKind, Settings, dispatch_rule

_KINDS: Final[Mapping[Serving, DispatcherKind]] = {
    "exclusive": DispatcherKind.SINGLE_ACTIVE,
    "failover": DispatcherKind.SINGLE_ACTIVE,
    "filtered": DispatcherKind.SINGLE_ACTIVE,
    "shared": DispatcherKind.SHARED,
    "key failover": DispatcherKind.KEY_SHARED_DRAINING,
}
"""By who hands out the messages; the others have the Key_Shared of their profile."""

_MOST_SLOTS: Final = 2**24
"""A dispatcher of 4.x notes something of every slot."""


def dispatcher_of(policy: Policy) -> DispatcherKind:
    """The dispatcher that serves a policy under its profile; raises ConfigError if Pulsar's do not."""
    if policy.serving == "polled":
        raise ConfigError(f"{policy.name} is not served by a dispatcher")
    return _KINDS.get(policy.serving, dispatch_rule(policy.profile).key_shared)


def ignores_delays(policy: Policy) -> bool:
    """Whether it delivers delayed messages at once (row L-DELAY-1)."""
    return policy.serving != "polled" and dispatcher_of(policy) == DispatcherKind.SINGLE_ACTIVE


def options_of(
    policy: Policy, settings: Settings = DEFAULTS, *, batch_index_acks: bool | None = None
) -> DispatcherOptions:
    """What a dispatcher is told that serves ``policy``; raises ConfigError if it has too many slots.

    ``batch_index_acks`` None: as the profile's broker has it by default.
    """
    kind, rule = dispatcher_of(policy), dispatch_rule(policy.profile)
    if kind == DispatcherKind.KEY_SHARED_DRAINING and policy.space[1] >= _MOST_SLOTS:
        raise ConfigError(
            f"{policy.name}: a dispatch replay needs range_size to be at most {_MOST_SLOTS:,}, "
            f"got {policy.space[1] + 1:,}"
        )
    return DispatcherOptions(
        kind,
        rule if batch_index_acks is None else replace(rule, batch_index_acks=batch_index_acks),
        settings,
        ordered=policy.ordered,
        drains=policy.serving == "key shared",
        failover=policy.serving == "failover",
        last_slot=policy.space[1],
    )
