"""The dispatch replay of one scenario in a report: latency, backlog and blocked consumers.

All figures are predictions for modelled consumers. Durations are ns, and instants are ISO 8601 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subreplay.reports.finding_data import CodeSummary, FindingPoint, Source


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from when a message is due to an event, such as its acknowledgement.

    A message is due at its publication, or at the time it is delayed to. A message without the event counts as later
    than all others. All figures are zero if there are no messages.
    """

    count: int
    p50_ns: int | None  # None: never
    p99_ns: int | None
    max_ns: int | None
    never: int = 0  # messages without the event


@dataclass(frozen=True, slots=True)
class Early:
    """The messages that were delivered before the time they are delayed to."""

    count: int
    delayed: int  # all delayed messages
    least_ns: int  # how much too early
    most_ns: int


@dataclass(frozen=True, slots=True)
class BacklogPoint:
    """The backlog at one instant; a chart draws it until the next point."""

    at: str
    waiting: int  # messages to be delivered or redelivered
    unacked: int  # messages at a consumer


@dataclass(frozen=True, slots=True)
class Bound:
    """The remaining messages that must be processed one after the other: those of a consumer, hash or partition."""

    kind: Literal["consumer", "hash", "partition"]
    name: str
    messages: int
    busy_ns: int  # work after the last publication: no schedule drains faster


@dataclass(frozen=True, slots=True)
class Drain:
    """The backlog just after the last publication, and the time to drain it (see ``assemble.drain_limits``)."""

    left: int
    took_ns: int | None  # None: it never ends
    bounds: tuple[Bound, ...]  # the hottest consumer, the hottest hash or partition
    limit: str  # a sentence that names the limiting bound


@dataclass(frozen=True, slots=True)
class Blocked:
    """The due messages that waited for one cause, summed over all waits."""

    consumer: str  # the consumer that should have received them
    place: str  # "hash 1,234" or "partition 3"; empty: all messages of the consumer
    holder: str  # the blocking consumer; empty: no other consumer, for example no permits
    why: str  # "the hash drains", "it joined recently", "no permits", "a rebalance"
    since: str  # start of the first wait
    blocked_ns: int  # time in which at least one message waited
    stretches: int
    messages: int  # messages that waited
    ongoing: bool  # the wait lasted until the end of the replay


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The final state of every message; ``published`` is the sum of the others."""

    published: int
    acked: int
    dead_lettered: int
    expired: int
    dropped: int  # non-persistent topic, and no consumer had a permit
    deduplicated: int
    skipped: int  # outside the ranges of a reader
    pending: int


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """The number of redeliveries with one cause."""

    cause: str  # "nack", "ack timeout", "disconnect", "failover switch", …
    count: int


@dataclass(frozen=True, slots=True)
class DispatchView:
    """The dispatch replay of one scenario."""

    name: str
    policy: str
    profile: str
    service: str  # the service model, for example "lognormal, median 3 ms, sigma 0.5"
    seed: int | None  # None: the model draws no random numbers
    settings: tuple[tuple[str, str], ...]  # other assumptions, for example ("receiver queue", "1,000 messages")
    to_delivered: Latency  # until an application receives it
    to_acked: Latency
    backlog: tuple[BacklogPoint, ...]  # in order of time, at most one per report window
    backlog_max: int  # largest backlog at the end of a window or the last publication
    backlog_max_at: str
    drain: Drain
    blocked_ns: int  # time in which at least one consumer waited
    blocked_consumers: tuple[Blocked, ...]  # the longest (`drain_limits.select_longest`)
    blocked_consumers_count: int  # all blocked consumers
    blocked_hashes: tuple[Blocked, ...]  # or partitions, as `places` says
    blocked_hashes_count: int
    outcomes: Outcomes
    redeliveries: int
    retries: int  # passes of messages through the retry letter topic
    duplicates: tuple[DuplicateCause, ...]
    codes: tuple[CodeSummary, ...] = ()  # findings in the predicted deliveries
    findings_over_time: tuple[FindingPoint, ...] = ()
    note: str = ""
    places: Literal["hash", "partition"] = "hash"  # Pulsar blocks hashes, a Kafka group partitions
    source: Source = "predicted"
    early: Early | None = None  # None: no message was too early
