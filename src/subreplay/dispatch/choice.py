"""Which dispatcher serves a policy, and the log as that dispatcher sees it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from subreplay.dispatch.broker.records import NO_CHUNK, Records, empty_records
from subreplay.dispatch.broker.rules import Dispatcher, Settings, dispatch_rule
from subreplay.dispatch.broker.state import Subscription
from subreplay.dispatch.clients.intake import PUBLISHED
from subreplay.errors import ConfigError
from subreplay.hashing.murmur3 import MASK_31
from subreplay.policies.base import Policy, Serving
from subreplay.policies.pulsar.failover import Failover
from subreplay.policies.pulsar.key_failover import KeyFailover
from subreplay.policies.pulsar.key_sticky import Sticky

_DISPATCHERS: Mapping[Serving, Dispatcher] = {
    "single active": Dispatcher.SINGLE_ACTIVE,
    "filtered": Dispatcher.SINGLE_ACTIVE,
    "shared": Dispatcher.SHARED,
    "draining": Dispatcher.KEY_SHARED_DRAINING,
}

_MOST_SLOTS = 2**24
"""A dispatcher of 4.x notes something of every slot."""


def dispatcher_of(policy: Policy) -> Dispatcher:
    """The dispatcher that serves a policy under its profile; raises ConfigError if Pulsar's do not."""
    if policy.serving == "polled":
        raise ConfigError(f"{policy.name} is not served by a dispatcher")
    return _DISPATCHERS.get(policy.serving, dispatch_rule(policy.profile).key_shared)


def subscription_of(policy: Policy, settings: Settings = Settings()) -> Subscription:
    """What a dispatcher is told that serves ``policy``; raises ConfigError if it has too many slots."""
    dispatcher = dispatcher_of(policy)
    if dispatcher == Dispatcher.KEY_SHARED_DRAINING and policy.space[1] >= _MOST_SLOTS:
        raise ConfigError(
            f"{policy.name}: a dispatch replay needs range_size to be at most {_MOST_SLOTS:,}, "
            f"got {policy.space[1] + 1:,}"
        )
    return Subscription(
        dispatcher,
        dispatch_rule(policy.profile),
        settings,
        ordered=policy.ordered,
        sticky=isinstance(policy, (Sticky, KeyFailover)),
        failover=isinstance(policy, Failover),
        last_slot=policy.space[1],
    )


def log_of(policy: Policy, at: NDArray[np.int64], hashes: NDArray[np.uint32]) -> Records:
    """``PUBLISHED`` rows of single messages, at once due, of 0 bytes and unknown producers; all of that may be changed.

    ``at`` (ns) must not fall; ``hashes`` are the unsigned 32-bit Murmur3 hashes of the sticky keys.
    """
    rows = empty_records(len(at), PUBLISHED)
    rows.at, rows.messages, rows.chunked, rows.producer = at, 1, NO_CHUNK, -1
    rows.slot = policy.slots(hashes)
    of_slots = dispatcher_of(policy) == Dispatcher.KEY_SHARED_DRAINING
    rows.hash = rows.slot if of_slots else hashes & np.uint32(MASK_31)
    return rows
