"""What polled statistics prove of limits and hangs: unacknowledged messages, permits, blocks and the look-ahead.

A broker blocks a consumer, or a subscription, when it has as many unacknowledged messages as the limit, and unblocks it
at half of that (``Consumer.java``, ``PersistentDispatcherMultipleConsumers.java``, 4.0.8). So the limit is more than
any poll without a block shows, and about the most that polls of one block show.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from subreplay.adapters.pulsar_stats.membership import Session
    from subreplay.adapters.pulsar_stats.polls import Seen, Shown

SHORTEST: Final = 30_000_000_000
"""The shortest silence (ns) that is reported: the default of ``liveness.stuck_after``."""
_SHOWN: Final = 10
_KEYS: Final = (
    ("max_unacked_per_consumer", "blockedConsumerOnUnackedMsgs"),
    ("max_unacked_per_subscription", "blockedSubscriptionOnUnackedMsgs"),
)


class Reached(NamedTuple):
    """The most unacknowledged messages in polls that show a block, and in those that show none."""

    blocked: int = 0
    free: int = 0

    def after(self, blocked: bool | None, unacked: int | None) -> Reached:
        """With one more poll."""
        count = unacked or 0
        return Reached(max(self.blocked, count), self.free) if blocked else Reached(self.blocked, max(self.free, count))


class Silence(NamedTuple):
    """Polls in a row from ``first`` to ``last`` (ns) in which nothing changed at a consumer: it acknowledged nothing
    and received nothing. ``backlog`` and ``in_replay`` are of its subscription at the end; ``whole``: nobody received
    anything; ``active``: the subscription's messages go to it; ``counted``: the broker counts what it has not
    acknowledged, which under Failover and Exclusive it does not."""

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
    whole: bool = True
    waiting: int = 0
    in_replay: int = 0

    @classmethod
    def of(cls, at: int, shown: Shown, seen: Seen) -> Silence:
        """One poll of a consumer."""
        active = shown.type != "Failover" or shown.active is None or shown.active == seen.name
        waiting = max(0, (shown.backlog or 0) - (shown.unacked or 0))
        counted = shown.type not in ("Failover", "Exclusive")
        return cls(at, at, seen.permits, seen.unacked, seen.acked, bool(seen.blocked), bool(shown.blocked), active,
                   counted, shown.dispatched, True, waiting, shown.in_replay or 0)  # fmt: skip

    def after(self, before: Silence | None) -> Silence:
        """This poll, with those ``before`` that show the same."""
        same = slice(2, 9)
        if before is None or self[same] != before[same]:
            return self
        whole = before.whole and self.dispatched is not None and self.dispatched == before.dispatched
        return self._replace(first=before.first, whole=whole)

    @property
    def reason(self) -> str | None:
        """Why the consumer receives nothing; None where the polls do not show that anything waits for it."""
        if not self.active or self.permits is None or self.acked is None or self.last - self.first < SHORTEST:
            return None
        if self.blocked:
            return "the broker blocks it at the limit of unacknowledged messages, and it acknowledges none"
        if self.permits <= 0 and (self.unacked or not self.counted):
            full = f"its receiver queue is full (availablePermits {self.permits:,}): the application takes nothing more"
            return full if self.waiting or self.unacked else None
        if self.permits <= 0:
            return (f"it holds no message and gave the broker no permits (availablePermits {self.permits:,}): its "
                    "application is paused, or permits were lost" if self.waiting else None)  # fmt: skip
        if self.subscription_blocked:
            return ("the broker blocks the subscription at its limit of unacknowledged messages, and this consumer "
                    "acknowledges none" if self.unacked else None)  # fmt: skip
        if not self.whole or not self.waiting:
            return None
        replay = f", with msgInReplay at {self.in_replay:,}: compare it with the look-ahead limit"
        return (f"nobody received anything although this consumer had {self.permits:,} permits"
                f"{replay if self.in_replay else ''}")  # fmt: skip


def concluded_limits(
    found: Iterable[Session], subscription: str, topic: str, known: Collection[str] = ()
) -> tuple[dict[str, int], list[str]]:
    """The keys of ``liveness`` that are not ``known`` and whose limits the polls of a subscription show, and sentences
    about them."""
    mine = [each for each in found if (each.subscription, each.topic) == (subscription, topic)]
    keys: dict[str, int] = {}
    notes = []
    for i, (key, field) in enumerate(_KEYS):
        reached = [each.reached[i] for each in mine]
        blocked = [each.blocked for each in reached if each.blocked]
        if not blocked or key in known:
            continue
        keys[key] = max(min(blocked), 1 + max(each.free for each in reached))
        notes.append(f"liveness.{key} is concluded from polls in which {field} is true: write the broker's or the "
                     f"topic's setting where you know it, as it may be a little more than {keys[key]:,}")  # fmt: skip
    return keys, notes


def silent(found: Iterable[Session]) -> tuple[str, ...]:
    """Sentences about the consumers that received and acknowledged nothing for long, the longest first."""
    told = []
    for session in found:
        silence = session.silence
        if silence is None or (reason := silence.reason) is None:
            continue
        where = f"{session.topic}{'' if session.partition < 0 else f', partition {session.partition}'}"
        held = f"{silence.unacked or 0:,} unacknowledged" if silence.counted else ""
        facts = [held, f"last acknowledgement {_time(silence.acked * 1_000_000)}" if silence.acked else "",
                 f"{silence.waiting:,} messages waited in the subscription" if silence.waiting else ""]  # fmt: skip
        told.append((silence.first - silence.last, (
            f"subscription {session.subscription} of {where}: polls from {_time(silence.first)} to "
            f"{_time(silence.last)} UTC show no change at consumer {session.seen.name} ({session.seen.address}): "
            f"{reason} ({'; '.join(filter(None, facts))})"
        )))  # fmt: skip
    sentences = [text for _, text in sorted(told)]
    more = len(sentences) - _SHOWN
    return (*sentences[:_SHOWN], *([f"{more:,} more consumers received nothing for long"] if more > 0 else []))


def restored(told: dict[str, Any]) -> dict[str, Any]:
    """What of a session is from here, after it was text."""
    silences = {name: None if told[name] is None else Silence(*told[name]) for name in ("silence", "latest")}
    return silences | {"reached": tuple(Reached(*each) for each in told["reached"])}


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at // 1_000_000_000, timezone.utc):%Y-%m-%d %H:%M:%S}"
