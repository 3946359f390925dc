"""Infer limits and hangs from polled statistics: unacknowledged messages, permits, blocks and the look-ahead.

A broker blocks a consumer or a subscription that reaches its limit of unacknowledged messages, and unblocks it at half
of the limit (``Consumer.java``, ``PersistentDispatcherMultipleConsumers.java``, 4.0.8). The limit is therefore above
the count in every poll without a block, and close to the highest count in polls with a block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from subreplay.adapters.pulsar_stats.polled_membership import PolledSession
    from subreplay.adapters.pulsar_stats.stats_answers import PolledConsumer, PolledSubscription

MIN_SILENCE: Final = 30_000_000_000
"""The shortest silence (ns) that is reported; the default of ``liveness.stuck_after``."""
_SHOWN: Final = 10
_KEYS: Final = (
    ("max_unacked_per_consumer", "blockedConsumerOnUnackedMsgs"),
    ("max_unacked_per_subscription", "blockedSubscriptionOnUnackedMsgs"),
)


class UnackedPeaks(NamedTuple):
    """The highest counts of unacknowledged messages in polls with a block, and in polls without one."""

    blocked: int = 0
    free: int = 0

    def add_poll(self, blocked: bool | None, unacked: int | None) -> UnackedPeaks:
        """Include one more poll."""
        count = unacked or 0
        return (
            UnackedPeaks(max(self.blocked, count), self.free)
            if blocked
            else UnackedPeaks(self.blocked, max(self.free, count))
        )


class Silence(NamedTuple):
    """A series of polls, from ``first`` to ``last`` (ns), in which a consumer neither received nor acknowledged.

    ``backlog`` and ``in_replay`` are values of its subscription in the last poll. ``unserved``: no consumer received a
    message. ``active``: the broker dispatches to this consumer. ``counted``: the broker counts its unacknowledged
    messages, which it does not do under Failover and Exclusive.
    """

    first: int
    last: int
    permits: int | None
    unacked: int | None
    acked: int | None
    blocked: bool
    subscription_blocked: bool
    active: bool
    counted: bool
    dispatched: int | None
    unserved: bool = True
    waiting: int = 0
    in_replay: int = 0

    @classmethod
    def from_poll(cls, at: int, shown: PolledSubscription, seen: PolledConsumer) -> Silence:
        """Start a series with one poll of a consumer."""
        active = shown.type != "Failover" or shown.active is None or shown.active == seen.name
        waiting = max(0, (shown.backlog or 0) - (shown.unacked or 0))
        counted = shown.type not in ("Failover", "Exclusive")
        return cls(at, at, seen.permits, seen.unacked, seen.acked, bool(seen.blocked), bool(shown.blocked), active,
                   counted, shown.dispatched, True, waiting, shown.in_replay or 0)  # fmt: skip

    def extend(self, before: Silence | None) -> Silence:
        """Extend the series ``before`` by this poll if nothing changed."""
        same = slice(2, 9)
        if before is None or self[same] != before[same]:
            return self
        unserved = before.unserved and self.dispatched is not None and self.dispatched == before.dispatched
        return self._replace(first=before.first, unserved=unserved)

    @property
    def reason(self) -> str | None:
        """The reason why the consumer receives nothing; None where no message waits for it."""
        if not self.active or self.permits is None or self.acked is None or self.last - self.first < MIN_SILENCE:
            return None
        if self.blocked:
            return "the broker blocks it at the limit of unacknowledged messages, and it acknowledges none of them"
        if self.permits <= 0 and (self.unacked or not self.counted):
            full = (
                f"its receiver queue is full (availablePermits {self.permits:,}) and the application takes no message"
            )
            return full if self.waiting or self.unacked else None
        if self.permits <= 0:
            return (f"it has no message and the broker has no permits from it (availablePermits {self.permits:,}), so "
                    "its application is paused, or permits were lost" if self.waiting else None)  # fmt: skip
        if self.subscription_blocked:
            return ("the broker blocks the subscription at its limit of unacknowledged messages, and this consumer "
                    "acknowledges none" if self.unacked else None)  # fmt: skip
        if not self.unserved or not self.waiting:
            return None
        replay = f", and msgInReplay is {self.in_replay:,}. Compare that with the look-ahead limit"
        return (f"no consumer received a message although this one had {self.permits:,} permits"
                f"{replay if self.in_replay else ''}")  # fmt: skip


def infer_limits(
    found: Iterable[PolledSession], subscription: str, topic: str, known: Collection[str] = ()
) -> tuple[dict[str, int], list[str]]:
    """Infer the keys of ``liveness`` that are not ``known`` from the polls of a subscription, with notes about them."""
    matching = [each for each in found if (each.subscription, each.topic) == (subscription, topic)]
    keys: dict[str, int] = {}
    notes = []
    for i, (key, field) in enumerate(_KEYS):
        reached = [each.reached[i] for each in matching]
        blocked = [each.blocked for each in reached if each.blocked]
        if not blocked or key in known:
            continue
        keys[key] = max(min(blocked), 1 + max(each.free for each in reached))
        notes.append(f"liveness.{key} is {keys[key]:,}, inferred from polls in which {field} is true. The limit may "
                     f"be a little higher, so write the setting of the broker or topic if you know it")  # fmt: skip
    return keys, notes


def describe_silent_consumers(found: Iterable[PolledSession]) -> tuple[str, ...]:
    """Describe the consumers that received and acknowledged nothing for long, the longest silence first."""
    sentences_by_length = []
    for session in found:
        silence = session.silence
        if silence is None or (reason := silence.reason) is None:
            continue
        where = f"{session.topic}{'' if session.partition < 0 else f', partition {session.partition}'}"
        unacked = f"{silence.unacked or 0:,} unacknowledged messages" if silence.counted else ""
        facts = [unacked, f"last acknowledgement at {_format_time(silence.acked * 1_000_000)}" if silence.acked else "",
                 f"{silence.waiting:,} messages waited in the subscription" if silence.waiting else ""]  # fmt: skip
        sentences_by_length.append(
            (
                silence.first - silence.last,
                (
                    f"subscription {session.subscription} of {where}: polls from {_format_time(silence.first)} to "
                    f"{_format_time(silence.last)} UTC show no change at consumer {session.seen.name} "
                    f"({session.seen.address}): "
                    f"{reason} ({'; '.join(filter(None, facts))})"
                ),
            )
        )
    sentences = [text for _, text in sorted(sentences_by_length)]
    more = len(sentences) - _SHOWN
    return (*sentences[:_SHOWN], *([f"{more:,} more consumers received nothing for long"] if more > 0 else []))


def restore_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Restore the fields of a session that are types of this module, after JSON."""
    silences = {name: None if fields[name] is None else Silence(*fields[name]) for name in ("silence", "latest")}
    return silences | {"reached": tuple(UnackedPeaks(*each) for each in fields["reached"])}


def _format_time(at: int) -> str:
    return f"{datetime.fromtimestamp(at // 1_000_000_000, timezone.utc):%Y-%m-%d %H:%M:%S}"
