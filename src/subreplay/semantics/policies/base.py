"""The interface of a policy: a pure fold over joins and leaves, and the slots of its keys.

A policy is a frozen dataclass whose fields are its options. Its state is immutable: ``join`` and ``leave`` return the
next state. So a timeline is a plain fold, and a policy can be tested alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from subreplay.rows.model.range_table import RangeTable
from subreplay.rows.model.rows import Consumer, Instant, MembershipEvent, Scope

Routing = Literal["slot", "partition", "any"]
Serving = Literal[
    "exclusive",
    "failover",
    "filtered",
    "shared",
    "key shared",
    "key shared sticky",
    "key failover",
    "entry buckets",
    "polled",
    "acquired",
]
"""The dispatcher that hands out the messages. Pulsar's dispatcher with a single active consumer serves ``exclusive``,
``failover`` and ``filtered`` (with a slot filter that skips the other messages). ``shared`` has its own dispatcher, and
``key shared`` has that of the profile. With consumer-chosen ranges (``key shared sticky``), no hash waits for its
former consumer. ``entry buckets`` is ``key shared``, but a consumer alone may acknowledge cumulatively. ``key
failover`` is served like a Key_Shared of 4.0 or later without waiting hashes. Members of a group poll (``polled``), so
there is no dispatcher. Members of a share group acquire single records (``acquired``)."""


class PolicyState(Protocol):
    """An immutable state between two membership events."""

    @property
    def members(self) -> tuple[Consumer, ...]:
        """Connected consumers in the order in which the broker lists them."""

    @property
    def table(self) -> RangeTable:
        """The owner of each slot; empty if no consumer owns a slot."""


class Policy(Protocol):
    """A subscription type with its selector, under one profile.

    ``routing`` is what decides the owner: the message's ``slot``, its topic ``partition`` alone (one active consumer,
    whose table is one range over the whole space), or ``any`` (any consumer may get it, and the table is empty). The
    state of a ``slot`` or ``any`` policy does not depend on the scope, unless the policy measures traffic or serves
    ``entry buckets``. ``ordered`` is whether first deliveries of a key are guaranteed to be in log order. ``serving``
    is the dispatcher, and ``measures_load`` is whether owners also depend on recent traffic.
    """

    name: ClassVar[str]
    routing: ClassVar[Routing]
    serving: ClassVar[Serving]
    measures_load: ClassVar[bool]

    @property
    def profile(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    @property
    def space(self) -> tuple[int, int]:
        """First and last slot, inclusive."""

    def compute_slots(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return the slot of each unsigned 32-bit Murmur3 hash (seed 0, not masked)."""

    def start(self, scope: Scope) -> Any:
        """Return the state of a dispatcher without consumers."""

    def join(self, state: Any, consumer: Consumer) -> Any:
        """Return the state after a join; raises ``ConsumerRejected`` if the broker rejects the consumer."""

    def leave(self, state: Any, consumer: Consumer) -> Any:
        """Return the state after a consumer left or crashed (matched by ``Consumer.index``)."""


class LoadMeasuringPolicy(Policy, Protocol):
    """A policy that depends on the recent traffic of slots, which is counted before its timelines are folded."""

    def list_windows(self, events: Iterable[MembershipEvent]) -> Any:
        """Return the windows in which the traffic of a dispatcher with these events must be counted."""

    def with_traffic(self, traffic: Mapping[Scope, Any]) -> LoadMeasuringPolicy:
        """Return this policy with the traffic of each dispatcher in its windows."""

    def advance_to(self, state: Any, at: Instant) -> Any:
        """Return the state at ``at``, just before the next event. A timeline calls it before every join and leave."""


def is_load_measuring(policy: Policy) -> TypeGuard[LoadMeasuringPolicy]:
    """Check whether the policy depends on recent traffic."""
    return policy.measures_load
