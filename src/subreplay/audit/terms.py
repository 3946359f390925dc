"""The settings of an audit besides the log and the membership: limits, topic settings, and the routing of producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subreplay.audit.acts import Reset
from subreplay.audit.needs import Need
from subreplay.audit.routing import Routing
from subreplay.rows.model.segments import Segment
from subreplay.rows.model.subscription import InitialPosition

Isolation = Literal["read_committed", "read_uncommitted"]
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Terms:
    """Settings that rules depend on. Times in ns; None: not known, or not set.

    ``tick`` is ``delayedDeliveryTickTimeMillis``; ``stuck_after`` how long a consumer may block others before it counts
    as stuck; ``starved_after`` how long messages may wait for an idle consumer while others are served;
    ``stalled_after`` how long nothing may be delivered while messages are due; ``late_after`` how long after it is due
    a message may come to a free consumer; ``max_unacked_per_consumer`` and ``max_unacked_per_subscription`` the
    broker's limits of unacknowledged messages; ``clock_skew`` by how much the clocks of producers, consumers and
    brokers may differ; ``ttl`` the topic's time to live; ``compacted`` whether the subscription reads compacted;
    ``deduplication`` whether the topic deduplicates; ``max_redeliveries`` the dead letter policy's
    ``maxRedeliverCount``; ``initial_position`` where the subscription, or the group, began
    (``subscriptionInitialPosition``, ``auto.offset.reset``); ``resets`` acts of operators and clients that are known;
    ``segments`` those of a scalable topic;
    ``batch_index_acks`` whether messages of a batch are acknowledged one by one; ``persistent`` False: what nobody can
    take at once is dropped; ``isolation`` the isolation level of a Kafka group.
    """

    tick: int = SECOND_NS
    stuck_after: int | None = 60 * SECOND_NS
    starved_after: int | None = 2 * SECOND_NS
    stalled_after: int | None = None
    late_after: int | None = None
    max_unacked_per_consumer: int | None = None
    max_unacked_per_subscription: int | None = None
    clock_skew: int = SECOND_NS
    ttl: int | None = None
    compacted: bool = False
    deduplication: bool | None = None
    routing: Routing | None = None
    max_redeliveries: int | None = None
    initial_position: InitialPosition | None = None
    resets: tuple[Reset, ...] = ()
    segments: tuple[Segment, ...] = ()
    batch_index_acks: bool | None = None
    persistent: bool | None = None
    isolation: Isolation | None = None

    def count_buckets(self, segment: int) -> int:
        """Return the number of entry buckets of a segment; 1 if it is not known."""
        return next((each.buckets for each in self.segments if each.id == segment), 1)

    @property
    def lacking(self) -> frozenset[Need]:
        """What rules need and these settings do not contain."""
        known_needs = {
            Need.ROUTING: self.routing is not None,
            Need.STUCK_AFTER: bool(self.stuck_after),
            Need.STARVED_AFTER: bool(self.starved_after),
            Need.STALLED_AFTER: bool(self.stalled_after),
            Need.LATE_AFTER: bool(self.late_after),
            Need.DEAD_LETTER_POLICY: self.max_redeliveries is not None,
        }
        return frozenset(need for need, known in known_needs.items() if not known)
