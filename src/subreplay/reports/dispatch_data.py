"""The dispatch replay of one scenario, as the report shows it: how late, how much waits, who waits for whom.

All of it is predicted: deliveries of modelled consumers, not recorded ones. Durations are ns, instants ISO 8601 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subreplay.reports.finding_data import CodeSummary, FindingPoint, Source


@dataclass(frozen=True, slots=True)
class Latency:
    """From when a message is due (its publication, or the time it is delayed to) to an event in its life; zeros where
    there are no messages. A message to which that never happens is later than all others."""

    count: int
    p50_ns: int | None  # None: never
    p99_ns: int | None
    max_ns: int | None
    never: int = 0  # messages to which it never happens


@dataclass(frozen=True, slots=True)
class Early:
    """Messages that came before the time they are delayed to."""

    count: int
    delayed: int  # of how many
    least_ns: int  # by how much
    most_ns: int


@dataclass(frozen=True, slots=True)
class BacklogPoint:
    """The backlog at one instant; a chart draws it to the next one."""

    at: str
    waiting: int  # messages at no consumer: not delivered yet, or to be delivered again
    unacked: int  # messages at a consumer


@dataclass(frozen=True, slots=True)
class Bound:
    """Messages left that can only be served one after the other: those of one consumer, hash or partition."""

    kind: Literal["consumer", "hash", "partition"]
    name: str
    messages: int
    busy_ns: int  # the work on them after the last publication: no schedule drains faster


@dataclass(frozen=True, slots=True)
class Drain:
    """What was left just after the last message was published, and how long it takes. Made by ``drain.drain``."""

    left: int
    took_ns: int | None  # None: it never came to an end
    bounds: tuple[Bound, ...]  # the hottest consumer, the hottest hash or partition
    limit: str  # which of them limits, in a sentence


@dataclass(frozen=True, slots=True)
class Blocked:
    """Messages that waited although they were due, because somebody held on; all stretches of it together."""

    consumer: str  # who should have got them
    place: str  # "hash 1,234" or "partition 3"; empty: everything that the consumer waits for
    holder: str  # the consumer that was waited for; empty: nobody else, as when its own permits are used up
    why: str  # "the hash drains", "it joined recently", "no permits", "a rebalance"
    since: str  # start of the first stretch
    blocked_ns: int  # how long anything of it waited: what waits at the same time counts once
    stretches: int
    messages: int  # that waited
    ongoing: bool  # it still waited when the replay ended


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Where every message ended: ``published`` is the sum of the others."""

    published: int
    acked: int
    dead_lettered: int
    expired: int
    dropped: int  # non-persistent, and no consumer had room
    deduplicated: int
    skipped: int  # outside the ranges of a reader
    pending: int


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """Deliveries of messages that had been delivered before, by what brought them back."""

    cause: str  # "nack", "ack timeout", "disconnect", "failover switch", …
    count: int


@dataclass(frozen=True, slots=True)
class DispatchView:
    """One scenario's dispatch replay."""

    name: str
    policy: str
    profile: str
    service: str  # the service model in words: "lognormal, median 3 ms, sigma 0.5"
    seed: int | None  # None: nothing is drawn
    settings: tuple[tuple[str, str], ...]  # what else was assumed, e.g. ("receiver queue", "1,000 messages")
    to_delivered: Latency  # until an application takes it
    to_acked: Latency
    backlog: tuple[BacklogPoint, ...]  # in order of time, at most one a report window
    backlog_max: int  # the most messages published and not done with, at the end of a window or the last publication
    backlog_max_at: str
    drain: Drain
    blocked_ns: int  # how long anybody waited
    blocked_consumers: tuple[Blocked, ...]  # the longest, by `drain.longest`
    blocked_consumers_count: int  # of how many
    blocked_hashes: tuple[Blocked, ...]  # or partitions, see `places`
    blocked_hashes_count: int
    outcomes: Outcomes
    redeliveries: int
    retries: int  # messages that went through the retry letter topic, each time
    duplicates: tuple[DuplicateCause, ...]
    codes: tuple[CodeSummary, ...] = ()  # rules over the predicted deliveries
    findings_over_time: tuple[FindingPoint, ...] = ()
    note: str = ""
    places: Literal["hash", "partition"] = "hash"  # what waits: a hash of a dispatcher, or a partition of a group
    source: Source = "predicted"
    early: Early | None = None  # None: no message
