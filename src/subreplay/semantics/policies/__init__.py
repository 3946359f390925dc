"""The registry of policies: the name in code is the name in the configuration and the label in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from subreplay.errors import ConfigError
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.cooperative_sticky import CooperativeSticky
from subreplay.semantics.policies.kafka.range import Range
from subreplay.semantics.policies.kafka.roundrobin import RoundRobin
from subreplay.semantics.policies.kafka.server_range import ServerRange
from subreplay.semantics.policies.kafka.sticky import Sticky as StickyAssignor
from subreplay.semantics.policies.kafka.uniform import Uniform
from subreplay.semantics.policies.pulsar.exclusive import Exclusive
from subreplay.semantics.policies.pulsar.failover import Failover
from subreplay.semantics.policies.pulsar.key_auto_split import AutoSplit
from subreplay.semantics.policies.pulsar.key_consistent_hash import ConsistentHash
from subreplay.semantics.policies.pulsar.key_failover import KeyFailover
from subreplay.semantics.policies.pulsar.key_hash_range import KeyHashRange
from subreplay.semantics.policies.pulsar.key_sticky import Sticky
from subreplay.semantics.policies.pulsar.shared import Shared

POLICIES: tuple[type[Policy], ...] = (
    Exclusive,
    Failover,
    Shared,
    AutoSplit,
    ConsistentHash,
    Sticky,
    KeyFailover,
    KeyHashRange,
)
ASSIGNORS: tuple[type[Any], ...] = (Range, RoundRobin, StickyAssignor, CooperativeSticky, Uniform, ServerRange)
"""They are folded by a ``GroupTimeline``, as a group decides about all its partitions at once."""
CENTURY = 36_525 * 86_400_000_000  # µs
MOST: Mapping[str, int] = {
    "points": 10_000,
    "range_size": 2**20,
    "window_us": CENTURY,
    "session_timeout_us": CENTURY,
    "initial_rebalance_delay_us": CENTURY,
}
"""The most that an option may be; the least is the policy's own rule, in the words of its model, or 0."""
REGISTRY: Mapping[str, type[Any]] = {policy.name: policy for policy in (*POLICIES, *ASSIGNORS)}


def make(name: str, profile: str, **options: object) -> Policy:
    """The policy of that name; raises ConfigError on an unknown name, profile or option, saying what is legal.

    >>> make("pulsar.key_shared.consistent_hash", "pulsar-4.0", points=20).space
    (1, 65535)
    """
    if name not in REGISTRY:
        near = get_close_matches(name, REGISTRY, n=3, cutoff=0.4) or list(REGISTRY)
        raise ConfigError(f"unknown policy {name!r}; nearest: {', '.join(near)}")
    _check_options(name, options)
    made: Policy = REGISTRY[name](profile, **options)
    return made


def option_names(name: str) -> tuple[str, ...]:
    """The legal options of a registered policy, in order: its fields with a default value."""
    return tuple(field.name for field in fields(REGISTRY[name]) if field.default is not MISSING)


def _check_options(name: str, options: Mapping[str, object]) -> None:
    defaults = {field.name: field.default for field in fields(REGISTRY[name]) if field.name in option_names(name)}
    for option, value in options.items():
        if option not in defaults:
            raise ConfigError(f"{name} has no option {option!r}; its options: {', '.join(defaults) or 'none'}")
        if type(value) is not type(defaults[option]):
            wanted = type(defaults[option]).__name__
            raise ConfigError(f"{name}: {option} must be of type {wanted}, got {value!r}")
        if isinstance(value, int) and value > MOST.get(option, value):
            raise ConfigError(f"{name}: {option} must be at most {MOST[option]}, got {str(value)[:30]}")
        if isinstance(value, int) and value < 0 and name.startswith("kafka."):
            raise ConfigError(f"{name}: {option} must be at least 0, got {str(value)[:30]}")
