"""The context of the rules besides the log: plain values, fixed before the first row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from subreplay.audit.acts import Act, find_acts
from subreplay.audit.checkpoint import Arrays
from subreplay.audit.codes import KEYED, MANY, Exemption, classify_policy
from subreplay.audit.dead_letters import DeadLetters
from subreplay.audit.needs import Need
from subreplay.audit.rejects import RejectedRows
from subreplay.audit.sessions import Sessions
from subreplay.audit.terms import Terms
from subreplay.errors import InputError
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_2_10, PULSAR_3_2, PULSAR_4_0, PULSAR_4_2, ProfileTable
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.key_masking import IN_THE_CLEAR, KeyMasking
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.share import is_share_group
from subreplay.semantics.timelines.timeline import Timeline

UNKNOWN_SIZE = -1
"""The size of a receiver queue that is not recorded."""

# Whether a newcomer waits until all that was read before it joined is acknowledged, and may itself get what was
# (`PersistentStickyKeyDispatcherMultipleConsumers.recentlyJoinedConsumers`); elsewhere hashes wait one by one.
JOIN_WAITS_FOR_ALL = ProfileTable({DOCUMENTED: True, PULSAR_3_2: True, PULSAR_4_0: False})


# Whether the messages of a batch are acknowledged one by one by default: both sides enable it since 4.1 (PIP-391), and
# many clusters of 4.0 had enabled it before
BATCH_INDEX_ACKS: Final[ProfileTable[bool | None]] = ProfileTable(
    {DOCUMENTED: False, PULSAR_2_10: False, PULSAR_3_2: False, PULSAR_4_0: None, PULSAR_4_2: True}
)


class RecordLocks(NamedTuple):
    """How a share group locks records: for how long (ns), how often it delivers one, how many of a partition it locks
    at once, the end of the data (ns), and whether deliveries are recorded with the time of their acquisition (else of
    their receipt)."""

    duration: int
    limit: int
    window: int
    end: int
    timed: bool


NO_LOCKS: Final = RecordLocks(0, 0, 0, UNKNOWN, False)
"""Those of a policy without locks."""


@dataclass(frozen=True)
class Dispatcher:
    """The dispatcher of one topic partition: which consumers were connected, and what each of them owned.

    ``receiver_queues``: receiver queue sizes by consumer label, if they are not those of the membership, because the
    deliveries are predicted. ``other``: the possible state if the membership lacks a consumer (see
    ``sessions.add_unknown_consumers``). ``abandoned``: see ``semantics.timelines.recorded_ownership.abandoned``.
    """

    timeline: Timeline
    sessions: Sessions
    receiver_queues: Mapping[str, int] | None = None
    other: Dispatcher | None = None
    abandoned: int = NEVER

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        receiver_queues: Mapping[str, int] | None = None,
        other: Dispatcher | None = None,
        abandoned: int = NEVER,
    ) -> Dispatcher:
        sessions = Sessions.of(timeline, by_label=receiver_queues is not None)
        return cls(timeline, sessions, receiver_queues, other, abandoned)

    @cached_property
    def starts(self) -> Ints:
        """The start of each epoch, ns."""
        return np.array([epoch.start.at for epoch in self.timeline.epochs], np.int64)

    @cached_property
    def occupied(self) -> Ints:
        """The epochs with a connected consumer."""
        joined, left = self.timeline.presence_epochs
        epochs = len(self.timeline.epochs)
        change = np.bincount(joined, minlength=epochs + 1) - np.bincount(left, minlength=epochs + 1)
        return np.flatnonzero(np.cumsum(change)[:epochs] > 0)

    def list_join_times(self, checkpoint: Arrays) -> Ints:
        """Return when each session joined, and check it against the checkpoint of the day before.

        Raises ``InputError`` if the membership of earlier days has changed since.
        """
        joined = self.sessions.joined
        seen = checkpoint["joined"][:, 0] if checkpoint else joined[:0]
        if len(seen) > len(joined) or (seen != joined[: len(seen)]).any():
            raise InputError(
                f"membership: the joins of {self.timeline.scope.topic} before this day are not those that the audit of "
                "an earlier day saw; run the audits again from the day that changed"
            )
        return joined

    @property
    def queue_sizes(self) -> Ints:
        """The receiver queue size of each consumer, ``UNKNOWN_SIZE`` if it is not recorded. On a partition it is
        doubled, because the client of the whole topic has a second queue."""
        if self.receiver_queues is not None:
            return np.array(
                [self.receiver_queues.get(c.label, UNKNOWN_SIZE) for c in self.timeline.consumers], np.int64
            )
        sizes = np.full(len(self.timeline.consumers), UNKNOWN_SIZE)
        queues = 1 if self.timeline.scope.partition < 0 else 2
        for epoch in self.timeline.epochs:
            size = None if epoch.cause is None else epoch.cause.receiver_queue_size
            if epoch.joined is not None and size is not None:
                sizes[epoch.joined.index] = queues * size
        return sizes


@dataclass(frozen=True)
class Context:
    """The context of rules and passes.

    ``lacking``: what rules need and the data do not contain. ``horizon``: the end (ns) of the audited day, at which the
    next daily run takes over; ``NEVER`` if one run audits all data. ``last``: the last delivery (ns) on any topic
    partition. ``end``: the last known instant (ns): a publication, a delivery or a membership event. ``uncovered``: the
    topic partitions whose membership begins after their deliveries. ``rejects``: quarantined rows, which may explain
    findings. ``dead_letters``: the messages on the dead letter topic. ``words``: the masking of keys, which also
    encrypts the state between daily runs.
    """

    policy: Policy
    dispatchers: Mapping[Scope, Dispatcher]
    lacking: frozenset[Need] = frozenset()
    terms: Terms = field(default_factory=Terms)
    horizon: int = NEVER
    last: int = UNKNOWN
    uncovered: frozenset[Scope] = frozenset()
    rejects: RejectedRows = field(default_factory=RejectedRows)
    dead_letters: DeadLetters = field(default_factory=DeadLetters)
    words: KeyMasking = IN_THE_CLEAR
    end: int = UNKNOWN

    def list_acts(self, timeline: Timeline) -> tuple[Act, ...]:
        """Return the acts of operators and clients at a dispatcher; only the declared ones if its membership is not
        that of the broker."""
        known = not self.lacking & {Need.MEMBERSHIP, Need.EXACT_MEMBERSHIP}
        return find_acts(timeline, self.terms.resets, known)

    @property
    def batch_redelivery_bit(self) -> int:
        """The bit of the exemption for a batch that is redelivered as a whole; 0 for none."""
        known = self.terms.batch_index_acks
        known = BATCH_INDEX_ACKS.get(self.policy.profile) if known is None else known
        return (
            0
            if known
            else Exemption.BATCH_INDEX_ACKS_UNKNOWN.bit
            if known is None
            else Exemption.WHOLE_BATCH_REDELIVERED.bit
        )

    def drops_messages(self, topic: str) -> bool:
        """Return whether a topic drops messages that no consumer can receive at once (row L-NONPERS-1)."""
        persistent = self.terms.persistent
        return topic.startswith("non-persistent://") if persistent is None else not persistent

    @property
    def has_receipts(self) -> bool:
        """Whether all applications that acknowledged messages recorded their receipts, so that a missing receipt is
        significant."""
        return Need.RECEIPTS not in self.lacking

    @property
    def lacks_priorities(self) -> bool:
        """Whether priority levels decide the active consumer and the membership does not record them (row P-FO-1)."""
        return Need.PRIORITIES in self.lacking and self.policy.routing == "partition"

    @property
    def has_delays(self) -> bool:
        """Whether delayed messages wait for their time. A single active consumer receives them at once (row
        L-DELAY-1)."""
        return classify_policy(self.policy) in MANY

    @property
    def acks_individually(self) -> bool:
        """Whether messages are acknowledged one by one, so that cumulative acknowledgements are ignored (row
        D-ACK-1)."""
        return classify_policy(self.policy) in MANY

    @property
    def filters_slots(self) -> bool:
        """Whether a reader skips the messages of other slots."""
        return classify_policy(self.policy) == "filtered"

    @property
    def is_group(self) -> bool:
        """Whether the consumers are members of a Kafka group."""
        return classify_policy(self.policy) == "group"

    @property
    def has_commits(self) -> bool:
        """Whether offsets are committed: by the members of a Kafka group, or by a share group as its start offsets."""
        return self.is_group or self.record_locks is not None

    @property
    def skips_aborted(self) -> bool:
        """Whether records of aborted transactions are never delivered: to a Kafka group unless it reads uncommitted
        ones, to a share group only if it reads committed ones (their defaults)."""
        isolation = self.terms.isolation
        return isolation == "read_committed" if self.record_locks else self.is_group and isolation != "read_uncommitted"

    @cached_property
    def record_locks(self) -> RecordLocks | None:
        """The locks of a share group; None for other policies."""
        if not is_share_group(self.policy):
            return None
        end = min(max(self.end, self.last), self.horizon)
        timed = Need.DISPATCH_TIMES not in self.lacking
        policy = self.policy
        return RecordLocks(1_000 * policy.lock_duration_us, policy.delivery_limit, policy.max_locks, end, timed)

    @property
    def waits_by_slot(self) -> bool:
        """Whether a slot waits for its own messages only, not for all messages that were read before a join."""
        return not JOIN_WAITS_FOR_ALL.get(self.policy.profile, False)

    @property
    def stuck_after(self) -> int:
        """How long (ns) a consumer may block others."""
        return NEVER if self.terms.stuck_after is None else self.terms.stuck_after

    @property
    def slot_stuck_after(self) -> int:
        """How long (ns) another consumer than its owner may block a slot. It blocks no message under policies without
        order."""
        return self.stuck_after if classify_policy(self.policy) in KEYED else NEVER

    @property
    def starved_after(self) -> int:
        """How long (ns) messages may wait for an idle consumer."""
        return NEVER if self.terms.starved_after is None else self.terms.starved_after

    @property
    def has_next_day(self) -> bool:
        """Whether a next daily run continues from this one."""
        return self.horizon != NEVER


def group_alike_dispatchers(dispatchers: Sequence[Dispatcher], number: Ints) -> list[tuple[Dispatcher, Ints]]:
    """Group rows by dispatchers with the same sessions and timeline; ``number`` is the dispatcher of each row.

    Returns at least one group: one of its dispatchers, and the indices of its rows.
    """
    known: dict[tuple[int, int], int] = {}
    first = [known.setdefault((id(each.sessions), id(each.timeline.index)), i) for i, each in enumerate(dispatchers)]
    if len(known) == 1:
        return [(dispatchers[0], np.arange(len(number)))]
    of = np.array(first)[number]
    order = np.argsort(of, kind="stable")
    kinds, starts = np.unique(of[order], return_index=True)
    if not len(kinds):
        return [(dispatchers[0], order)]
    return [(dispatchers[kind], rows) for kind, rows in zip(kinds.tolist(), np.split(order, starts[1:]), strict=True)]
