"""The rows of the domain: frozen objects with units.

Times are nanoseconds since the Unix epoch (UTC). Tables store microseconds, and the remainder in another column.
``seq`` is the position of an event in its source's own order (a broker's event counter). It orders events of the same
instant, and is 0 if the source has no order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Literal, NamedTuple


class Verdict(IntEnum):
    """The lattice ``valid < unknown < invalid``; ``max`` of several verdicts is the worst, which wins."""

    VALID = 0
    UNKNOWN = 1
    INVALID = 2

    def __str__(self) -> str:
        return self.name.lower()


class RuleStatus(str, Enum):
    """The status of a rule under a subscription's policy."""

    PROMISED = "promised"  # a finding makes the run invalid
    ALLOWED = "allowed"  # a finding is shown and does not fail
    NOT_APPLICABLE = "not applicable"  # the rule has no meaning here, or nothing that it needs is recorded
    UNDECIDED = "undecided"  # the data have a hole where the rule would have to look

    @property
    def is_evaluated(self) -> bool:
        """Whether the rule is evaluated."""
        return self in (RuleStatus.PROMISED, RuleStatus.ALLOWED)


class Instant(NamedTuple):
    """A point in the total order of events: time in ns, then the source's own order."""

    at: int
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """The responsibility of one dispatcher: a topic (``persistent://tenant/namespace/topic``) or one partition of it.

    ``partition`` is -1 for a topic without partitions. Documented row L-PART-1: a partition behaves as a plain topic.
    """

    topic: str
    partition: int = -1

    @property
    def full_name(self) -> str:
        """The name of the internal topic, with its ``-partition-N`` suffix for a partition."""
        return self.topic if self.partition < 0 else f"{self.topic}-partition-{self.partition}"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A connected consumer as a policy sees it.

    ``index`` is unique in a timeline (the ordinal of its join, so a returning consumer is a new one). ``ranges`` are
    the inclusive slot ranges that a sticky consumer requests. ``alive`` is what a broker's check of its connection
    would return. ``instance`` and ``alias`` are as in ``MembershipEvent``.
    """

    index: int
    name: str
    priority: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    alive: bool = True
    instance: str | None = None
    alias: str | None = None

    @property
    def label(self) -> str:
        """Its name in results."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """A consumer joined, left or crashed, as seen by one dispatcher; or its group was rebalanced.

    In a Kafka group, an event may also be a callback about a partition: it is ``assigned``, ``revoked`` (``closing``:
    because the consumer closes) or ``lost``. Or it is a decision of the coordinator: the consumer is the ``owner`` from
    then on, or the partition is ``withdrawn`` from the consumer and has no owner.

    ``at`` is when the change was complete, ``since`` when it was first requested (subscribe, close). Between the two,
    only the broker knows whether the change has taken effect. ``since == at`` if only one of them is recorded.

    ``receiver_queue_size`` is in messages; None: not recorded. ``instance`` distinguishes consumers with one name that
    are connected at once (None: not recorded). ``alias`` is the name of each of them in results (None: its own name).

    ``instance_id`` (``group.instance.id``), ``topics`` (subscribed ones; None: all of the group), ``rack`` and
    ``client_id`` are those of Kafka members. ``generation`` is the one in which the change takes effect (None: not
    recorded).
    """

    scope: Scope
    event: Literal["join", "leave", "crash", "rebalance", "assigned", "revoked", "lost", "owner", "withdrawn"]
    consumer: str
    at: Instant
    since: Instant
    priority: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    receiver_queue_size: int | None = None
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    rack: str | None = None
    instance: str | None = None
    alias: str | None = None
    client_id: str | None = None
    generation: int | None = None
    closing: bool = False

    @property
    def label(self) -> str:
        """The name of its consumer in results."""
        return self.alias or self.consumer
