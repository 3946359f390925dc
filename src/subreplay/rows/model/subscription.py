"""The life of a subscription: where it starts, its type, and which messages it keeps (documented row L-SUB-1).

This specifies that row. No command uses it, because a replay starts with given members and cursors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from subreplay.errors import ConsumerRejected
from subreplay.rows.model.rows import MembershipEvent

InitialPosition = Literal["earliest", "latest"]


@dataclass(frozen=True)
class SubscriptionState:
    """A subscription between two events; every method returns the next state.

    Positions are ordinals in the log of one topic or partition. ``cursor`` is the first message that is not yet
    acknowledged, None before the first consumer. A subscription that is not ``durable`` (a reader's) forgets its cursor
    when its last consumer leaves; a durable one keeps it.

    Its type is that of the first connected consumer. Follows ``PersistentSubscription.addConsumer`` and
    ``AbstractSubscription.checkForConsumerCompatibilityErrorWithDispatcher`` (3.2.3, 4.x).

    >>> first = SubscriptionState("latest").join("A", "Shared", end=7)
    >>> first.cursor, first.leave("A").join("B", "Failover", end=20).cursor
    (7, 7)
    >>> first.join("B", "Failover", end=20)
    Traceback (most recent call last):
    subreplay.errors.ConsumerRejected: Subscription is of different type
    """

    start: InitialPosition = "latest"
    durable: bool = True
    cursor: int | None = None
    type: str | None = None
    consumers: tuple[str, ...] = ()

    def join(self, consumer: str, type_: str, end: int) -> SubscriptionState:
        """Connect a consumer of a type when the log contains ``end`` messages. Raises ConsumerRejected if the broker
        rejects it."""
        if self.consumers and type_ != self.type:
            raise ConsumerRejected("SubscriptionBusyException", "Subscription is of different type")
        first = {"earliest": 0, "latest": end}[self.start]
        cursor = first if self.cursor is None else self.cursor
        return replace(self, cursor=cursor, type=type_, consumers=(*self.consumers, consumer))

    def leave(self, consumer: str) -> SubscriptionState:
        """Disconnect a consumer. Raises ValueError if it is not connected. Without consumers, the type is undefined."""
        at = self.consumers.index(consumer)
        left = self.consumers[:at] + self.consumers[at + 1 :]
        kept = self.cursor if left or self.durable else None
        return replace(self, consumers=left, cursor=kept, type=self.type if left else None)

    def acknowledge_until(self, until: int) -> SubscriptionState:
        """Acknowledge everything before message number ``until``. The cursor never moves back."""
        return replace(self, cursor=max(self.cursor or 0, until))


def find_type_conflicts(changes: Iterable[tuple[MembershipEvent, str]]) -> list[MembershipEvent]:
    """Return the joins that the broker rejects because consumers of another type are connected.

    ``changes`` are events in order, each with its consumer's type.
    """
    subscription, refused = SubscriptionState(), []
    for event, type_ in changes:
        if event.event == "join":
            try:
                subscription = subscription.join(event.consumer, type_, end=0)
            except ConsumerRejected:
                refused.append(event)
        elif event.consumer in subscription.consumers:
            subscription = subscription.leave(event.consumer)
    return refused


def find_first_kept(subscriptions: Iterable[SubscriptionState], end: int) -> int:
    """Return the first of ``end`` messages that some subscription has not acknowledged. From there on, all are kept.

    >>> fast, slow = (SubscriptionState().join("A", "Shared", end=0).acknowledge_until(n) for n in (9, 4))
    >>> find_first_kept([fast, slow], end=10)
    4
    """
    return min((s.cursor for s in subscriptions if s.cursor is not None), default=end)
