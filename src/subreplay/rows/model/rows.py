"""The words of the domain: frozen rows, units stated once.

Times are nanoseconds since the Unix epoch (UTC): tables hold microseconds, and what is finer in a column beside them.
``seq`` is the position of an event in its source's own order (a broker's event counter): it orders events of the same
instant and is 0 where the source has none.
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
    """What a subscription's policy says of a rule."""

    PROMISED = "promised"  # a finding makes the run invalid
    ALLOWED = "allowed"  # a finding is shown and does not fail
    NOT_APPLICABLE = "not applicable"  # the rule has no meaning here, or nothing that it needs is recorded
    UNDECIDED = "undecided"  # the data have a hole where the rule would have to look

    @property
    def is_evaluated(self) -> bool:
        """Whether anything is looked for."""
        return self in (RuleStatus.PROMISED, RuleStatus.ALLOWED)


class Instant(NamedTuple):
    """A point in the total order of events: time in ns, then the source's own order."""

    at: int
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Scope:
    """What one dispatcher serves: a topic (``persistent://tenant/namespace/topic``) or one partition of it.

    ``partition`` is -1 for a topic without partitions. Documented row L-PART-1: a partition behaves as a plain topic.
    """

    topic: str
    partition: int = -1

    @property
    def full_name(self) -> str:
        """The internal topic's name, with its ``-partition-N`` suffix where there is one."""
        return self.topic if self.partition < 0 else f"{self.topic}-partition-{self.partition}"


@dataclass(frozen=True, slots=True)
class Consumer:
    """A connected consumer as a policy sees it.

    ``index`` is unique in a timeline (the ordinal of its join, so a consumer that comes back is a new one);
    ``ranges`` are the inclusive slot ranges that a sticky consumer asks for; ``alive`` is what a broker's check of
    its connection would answer. ``instance`` and ``alias`` are as in ``MembershipEvent``.
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
        """What it is called in results."""
        return self.alias or self.name


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    """A consumer joined, left or crashed, seen by one dispatcher; or its group was rebalanced once more.

    In a Kafka group a consumer may be told of a partition, too: it is ``assigned``, ``revoked`` (``closing``: because
    the consumer closes) or ``lost``; or the coordinator decided that the consumer is its ``owner`` from then on, or
    that it is ``withdrawn`` from the consumer and nobody's.

    ``at`` is when the change was complete; ``since`` when it was first asked for (subscribe, close). Between the two
    nobody outside the broker can tell whether the change has taken effect. ``since == at`` where only one is known.

    ``receiver_queue_size`` is in messages; None: not known. ``instance`` tells consumers apart that bear one name at
    once (None: not known), ``alias`` what each of those is called in results (None: its name tells it).

    ``instance_id`` (``group.instance.id``), ``topics`` (subscribed ones; None: all of the group), ``rack`` and
    ``client_id`` are of Kafka's members; ``generation`` is the one in which the change is in force (None: not known).
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
        """What its consumer is called in results."""
        return self.alias or self.consumer
