"""What every policy is: a pure fold over joins and leaves, and the slots it speaks of.

A policy is a frozen dataclass whose fields are its options. Its state is immutable: ``join`` and ``leave`` return the
next one, so a timeline is a plain fold and a policy can be tested without anything around it.
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
    "exclusive", "failover", "filtered", "shared", "key shared", "key shared sticky", "key failover", "polled"
]
"""Who hands out the messages. Pulsar's dispatcher of a single active consumer serves ``exclusive``, ``failover`` and
``filtered`` (behind a filter of slots, so that it skips the others). ``shared`` has its own, and ``key shared`` the one
of the profile; where consumers choose their ranges (``key shared sticky``), no hash waits for its former consumer.
``key failover`` is served as by a Key_Shared of 4.0 or later in which no hash waits either. Members of a group have
``polled``: nobody hands out."""


class PolicyState(Protocol):
    """An immutable state between two membership events."""

    @property
    def members(self) -> tuple[Consumer, ...]:
        """Connected consumers in the order the broker lists them."""

    @property
    def table(self) -> RangeTable:
        """Who owns which slots; empty when nobody is connected (or nobody owns anything)."""


class Policy(Protocol):
    """A subscription type with its selector, under one profile.

    ``routing`` says what decides the owner: the message's ``slot``, its topic ``partition`` alone (one active consumer,
    its table is one range over the whole space), or ``any`` consumer may get it (its table is empty). Of a ``slot`` or
    ``any`` policy that measures no traffic the state does not depend on the scope. ``ordered`` says
    whether first deliveries of a key are promised in log order. ``serving`` says who hands out its messages, and
    ``is_load_measuring`` whether owners follow from recent traffic, too.
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
        """The slot of each unsigned 32-bit Murmur3 hash (seed 0, not masked)."""

    def start(self, scope: Scope) -> Any:
        """The state of a dispatcher nobody has joined yet."""

    def join(self, state: Any, consumer: Consumer) -> Any:
        """The state after a join; raises ``ConsumerRejected`` where the broker refuses the consumer."""

    def leave(self, state: Any, consumer: Consumer) -> Any:
        """The state after a consumer left or crashed (matched by ``Consumer.index``)."""


class LoadMeasuringPolicy(Policy, Protocol):
    """A policy that decides by the recent traffic of slots, which is measured before its timelines are folded."""

    def list_windows(self, events: Iterable[MembershipEvent]) -> Any:
        """The windows in which the traffic of a dispatcher with these events has to be counted."""

    def with_traffic(self, traffic: Mapping[Scope, Any]) -> LoadMeasuringPolicy:
        """This policy, with the traffic of each dispatcher in its ``windows``."""

    def advance_to(self, state: Any, at: Instant) -> Any:
        """The state at ``at``, just before the next event: a timeline asks for it ahead of every join and leave."""


def is_load_measuring(policy: Policy) -> TypeGuard[LoadMeasuringPolicy]:
    """Whether the policy decides by recent traffic."""
    return policy.measures_load
