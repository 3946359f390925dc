"""The timeline of an audit: traffic, waiting messages and connected consumers over time. All instants are in µs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LaneEventKind = Literal["join", "leave", "crash", "rebalance", "rejected"]


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """The traffic of one window. ``waiting`` messages are published and not yet delivered at its end."""

    start_us: int
    end_us: int
    published: int
    delivered: int  # first deliveries
    redelivered: int
    waiting: int


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """A membership event of a consumer."""

    at_us: int
    kind: LaneEventKind
    text: str  # such as "joined" or "left: max.poll.interval.ms"


@dataclass(frozen=True, slots=True)
class LaneStretch:
    """A stretch in which an incident concerns a consumer: it ``blocks`` others, or it is ``concerned``."""

    start_us: int
    end_us: int
    incident: int  # number of the incident
    blocks: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """The connected time of one consumer, or of ``consumers`` ones together if there are too many to draw."""

    name: str
    consumers: int
    connected: tuple[tuple[int, int], ...]
    events: tuple[LaneEvent, ...]
    events_left_out: int
    stretches: tuple[LaneStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """The timeline of an audit; without ``points`` nothing was published or delivered."""

    points: tuple[TimelinePoint, ...]
    lanes: tuple[Lane, ...]
    consumers: int  # of all lanes
