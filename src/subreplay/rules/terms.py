"""What an audit is told besides the log and the membership: limits, settings of the topic, how producers route."""

from __future__ import annotations

from dataclasses import dataclass

from subreplay.rules.codes import Code
from subreplay.rules.routing import Routing

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Terms:
    """Settings that rules depend on. Times in ns; None: not known, or not set.

    ``tick`` is ``delayedDeliveryTickTimeMillis``; ``stuck_after`` how long a consumer may hold others back before it
    counts as stuck; ``ttl`` the topic's time to live; ``compacted`` whether the subscription reads compacted;
    ``deduplication`` whether the topic deduplicates; ``max_redeliveries`` the dead letter policy's
    ``maxRedeliverCount``.
    """

    tick: int = SECOND
    stuck_after: int | None = 60 * SECOND
    ttl: int | None = None
    compacted: bool = False
    deduplication: bool | None = None
    routing: Routing | None = None
    max_redeliveries: int | None = None

    def lacking(self, receipts: bool) -> dict[Code, str]:
        """The rules that cannot be looked at, and what they lack."""
        reasons = {
            Code.OVER_PERMITS: None if receipts else "not every application recorded what it received",
            Code.ROUTING_MISMATCH: None if self.routing else "the run does not say how producers choose a partition",
            Code.STUCK: None if self.stuck_after else "no threshold is set",
            **dict.fromkeys(
                (Code.DLQ_ORDER, Code.DLQ_INCOMPLETE),
                None if self.max_redeliveries is not None else "the run names no dead letter policy",
            ),
        }
        return {code: reason for code, reason in reasons.items() if reason is not None}
