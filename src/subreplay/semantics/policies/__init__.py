"""The registry of policies: the name in the code is the name in the configuration and in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from subreplay.errors import ConfigError
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.cooperative_sticky import CooperativeStickyAssignor
from subreplay.semantics.policies.kafka.range import RangeAssignor
from subreplay.semantics.policies.kafka.roundrobin import RoundRobinAssignor
from subreplay.semantics.policies.kafka.server_range import ServerRangeAssignor
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy
from subreplay.semantics.policies.kafka.sticky import StickyAssignor as StickyAssignor
from subreplay.semantics.policies.kafka.uniform import UniformAssignor
from subreplay.semantics.policies.pulsar.exclusive import ExclusivePolicy
from subreplay.semantics.policies.pulsar.failover import FailoverPolicy
from subreplay.semantics.policies.pulsar.key_auto_split import AutoSplitPolicy
from subreplay.semantics.policies.pulsar.key_consistent_hash import ConsistentHashPolicy
from subreplay.semantics.policies.pulsar.key_failover import KeyFailoverPolicy
from subreplay.semantics.policies.pulsar.key_hash_range import KeyHashRangePolicy
from subreplay.semantics.policies.pulsar.key_sticky import StickyPolicy
from subreplay.semantics.policies.pulsar.scalable_checkpoint import CheckpointPolicy
from subreplay.semantics.policies.pulsar.scalable_queue import QueuePolicy
from subreplay.semantics.policies.pulsar.scalable_stream import StreamPolicy
from subreplay.semantics.policies.pulsar.shared import SharedPolicy

POLICIES: tuple[type[Policy], ...] = (
    ExclusivePolicy,
    FailoverPolicy,
    SharedPolicy,
    AutoSplitPolicy,
    ConsistentHashPolicy,
    StickyPolicy,
    KeyFailoverPolicy,
    KeyHashRangePolicy,
)
SCALABLE_POLICIES: tuple[type[Policy], ...] = (StreamPolicy, QueuePolicy, CheckpointPolicy)
"""The policies of scalable topics, whose partitions are segments."""
ASSIGNORS: tuple[type[Any], ...] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
    UniformAssignor,
    ServerRangeAssignor,
)
"""A ``GroupTimeline`` folds these policies because a group decides about all its partitions at once."""
SHARE_GROUPS: tuple[type[Policy], ...] = (ShareGroupPolicy,)
"""A ``Timeline`` folds the members of a share group. Nothing belongs to one of them before it acquires it."""
CENTURY_US = 36_525 * 86_400_000_000  # µs
MAX_OPTION_VALUES: Mapping[str, int] = {
    "points": 10_000,
    "range_size": 2**20,
    "buckets": 2**16,
    "segments": 2**16,
    "window_us": CENTURY_US,
    "session_timeout_us": CENTURY_US,
    "initial_rebalance_delay_us": CENTURY_US,
    "assignment_interval_us": CENTURY_US,
    "lock_duration_us": CENTURY_US,
}
"""The largest value of an option. The policy itself checks the smallest value, which is otherwise 0."""
REGISTRY: Mapping[str, type[Any]] = {
    policy.name: policy for policy in (*POLICIES, *SCALABLE_POLICIES, *ASSIGNORS, *SHARE_GROUPS)
}


def make_policy(name: str, profile: str, **options: object) -> Policy:
    """Create a policy; raises ConfigError on an unknown name, profile or option, and lists the valid ones.

    >>> make_policy("pulsar.key_shared.consistent_hash", "pulsar-4.0", points=20).space
    (1, 65535)
    """
    if name not in REGISTRY:
        nearest = get_close_matches(name, REGISTRY, n=3, cutoff=0.4) or list(REGISTRY)
        raise ConfigError(f"unknown policy {name!r}. Use one of the nearest names: {', '.join(nearest)}.")
    _check_options(name, options)
    policy: Policy = REGISTRY[name](profile, **options)
    return policy


def list_option_names(name: str) -> tuple[str, ...]:
    """Return the options of a registered policy, in order: its fields with a default value."""
    return tuple(field.name for field in fields(REGISTRY[name]) if field.init and field.default is not MISSING)


def _check_options(name: str, options: Mapping[str, object]) -> None:
    defaults = {field.name: field.default for field in fields(REGISTRY[name]) if field.name in list_option_names(name)}
    for option, value in options.items():
        if option not in defaults:
            raise ConfigError(f"{name} has no option {option!r}. Valid options: {', '.join(defaults) or 'none'}.")
        if type(value) is not type(defaults[option]):
            expected_type = type(defaults[option]).__name__
            raise ConfigError(f"{name}: {option} must be of type {expected_type}, got {value!r}")
        if isinstance(value, int) and value > MAX_OPTION_VALUES.get(option, value):
            raise ConfigError(f"{name}: {option} must be at most {MAX_OPTION_VALUES[option]}, got {str(value)[:30]}")
        if isinstance(value, int) and value < 0 and name.startswith("kafka."):
            raise ConfigError(f"{name}: {option} must be at least 0, got {str(value)[:30]}")
