"""A dispatcher's log as plain objects for the definitions of rules (``deliveries``): every message with its delivery
attempts, and the values that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from subreplay.audit.passes.keys import find_message_keys
from subreplay.audit.passes.owners import find_owners_at
from subreplay.audit.rules.shared_records import LOCK_MARGIN
from subreplay.rows.model.columns import NEVER, UNKNOWN
from subreplay.rows.model.entry_keys import own_keys
from subreplay.rows.model.tables import LOG

if TYPE_CHECKING:
    from subreplay.audit.context import Dispatcher, RecordLocks
from subreplay.audit.judge import Judge

Position = tuple[int, int, int]


@dataclass(eq=False)
class Message:
    """A position of the log and its known facts. ``key`` is the identity within which order is promised."""

    position: Position
    ordinal: int
    known: bool = False
    judged: bool = False
    key: int = -1
    slot: int = -1
    hash: int = 0
    published: int = UNKNOWN
    due: int = UNKNOWN
    mixed: bool = False
    stream: tuple[object, ...] = ()
    sequence_id: int = -1
    chunk: tuple[int, int] = (-1, 0)
    content: object = None  # its key and size
    locks: RecordLocks | None = None  # of a share group
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def deliveries(self) -> list[Attempt]:
        return [a for a in self.attempts if a.at != UNKNOWN]

    @property
    def first_ack(self) -> int:
        counting = (a for a in self.attempts if self.locks is None or not a.is_ignored)
        return min((a.ack for a in counting), default=NEVER)

    @property
    def part_of_chunks(self) -> bool:
        return 0 <= self.chunk[0] < self.chunk[1] - 1


@dataclass(eq=False)
class Attempt:
    """A delivery, or an acknowledgement without one (``at`` is ``UNKNOWN``)."""

    message: Message
    at: int
    seq: int
    acked: int
    nacked: int
    received: int
    count: int
    cumulative: bool
    ignored: bool = False  # acknowledged, but the broker ignores it
    rejected: bool = False  # its consumer gave it up
    nth: int = 0
    epoch: int = 0
    changing: bool = False
    session: int = -1
    left: int = NEVER
    wrong: bool = False

    @property
    def ack(self) -> int:
        """The instant at which its acknowledgement counts."""
        return NEVER if self.acked == UNKNOWN else max(self.acked, self.at)

    @property
    def owned(self) -> bool:
        """Whether it went to a connected consumer that owns its message."""
        return self.message.known and self.session >= 0 and not self.wrong

    @property
    def holds(self) -> bool:
        """Whether it blocks its key and slot."""
        return self.owned and not self.again

    @property
    def first(self) -> bool:
        """Whether it is a first delivery, also before the data begin."""
        return self.nth == 0 and self.count == 0

    @property
    def earlier(self) -> list[Attempt]:
        """The earlier attempts to deliver the same message."""
        return self.message.attempts[: self.message.attempts.index(self)]

    @property
    def again(self) -> bool:
        """Whether its message was acknowledged already."""
        before = self.nth > 0 or self.renewed
        return before and any(a.ack <= self.at for a in self.earlier if not a.is_ignored)

    @property
    def renewed(self) -> bool:
        """Whether it goes on with the delivery before it, under a renewed lock."""
        before = [a for a in self.earlier if a.at != UNKNOWN][-1:]
        same = any(a.session == self.session >= 0 and a.count == self.count for a in before)
        return self.message.locks is not None and same

    @property
    def late(self) -> bool:
        """Whether its acknowledgement came after its lock had timed out, as far as that is known."""
        locks = self.message.locks
        if locks is None or self.at == UNKNOWN or self.acked < self.at:
            return False
        after = self.message.attempts[self.message.attempts.index(self) + 1 :][:1]
        again = any(a.at <= self.acked and not a.renewed for a in after)
        last = self.count + 1 >= locks.limit and self.acked > self.at + locks.duration + LOCK_MARGIN
        return self.ignored or again or last

    @property
    def is_ignored(self) -> bool:
        """Whether its acknowledgement has no effect."""
        return self.ignored or self.late

    @property
    def until(self) -> int:
        """The instant at which it ended."""
        if self.again or UNKNOWN < self.acked < self.at:
            return self.at
        if (locks := self.message.locks) is not None:
            acked = UNKNOWN if self.is_ignored else self.acked
            return min(self.left, self.at + locks.duration, *(t for t in (acked, self.nacked, NEVER) if t >= self.at))
        strays = [a.acked for a in self.message.attempts if a.at == UNKNOWN]
        return min(self.left, *(t for t in (self.acked, self.nacked, NEVER, *strays) if t >= self.at))

    @property
    def unacked(self) -> bool:
        """Whether it is the last delivery of a message that was never acknowledged."""
        return self.message.first_ack == NEVER and self is self.message.attempts[-1] and not self.archived

    @property
    def archived(self) -> bool:
        """Whether it was the last attempt that a share group allows, and ended without an acknowledgement."""
        locks, m = self.message.locks, self.message
        last = locks is not None and self is m.attempts[-1] and self.count + 1 >= locks.limit
        return locks is not None and last and m.first_ack == NEVER and self.until <= locks.end

    @property
    def waited_for(self) -> int:
        """The instant until which newer messages of its slot wait for it."""
        return NEVER if self.unacked else self.until


@dataclass
class History:
    """One dispatcher's log: messages by position, deliveries in order of time."""

    judge: Judge
    dispatcher: Dispatcher
    messages: list[Message]

    @classmethod
    def of(cls, judge: Judge, dispatcher: Dispatcher, log: pa.Table) -> History:
        """Build the history from ``LOG`` rows of one dispatcher, sorted by position, kind and time."""
        messages: dict[Position, Message] = {}
        names: list[tuple[str | None, str | None]] = []
        for row in log.to_pylist():
            position = row["ledger"], row["entry"], row["batch_index"]
            message = messages.setdefault(position, Message(position, len(messages)))
            if row["kind"] == 0 and not message.known:
                _fill_message(judge, message, row)
            elif row["kind"] == 1:
                nth = len(message.deliveries)
                message.attempts.append(_make_attempt(judge, message, row, nth if row["at"] != UNKNOWN else 0))
                names.append((row["consumer"], row["instance"]))
        history = cls(judge, dispatcher, list(messages.values()))
        history._assign_owners(names)
        for message in history.messages if judge.record_locks else ():
            message.locks = judge.record_locks
            for attempt in message.deliveries:  # a renewed lock is no other delivery
                attempt.nth -= sum(a.renewed for a in message.deliveries[: attempt.nth + 1])
        return history

    def _assign_owners(self, names: list[tuple[str | None, str | None]]) -> None:
        """Set the epoch and the session of each delivery, and whether it went to a wrong consumer. ``names`` are the
        consumers' names and instances."""
        attempts = [a for m in self.messages for a in m.attempts]
        slots, at, seq = (
            np.array(values, np.int64)
            for values in ([a.message.slot for a in attempts], [a.at for a in attempts], [a.seq for a in attempts])
        )
        hashes = np.array([a.message.hash for a in attempts], np.uint32)
        served = (pa.array([words[i] for words in names], pa.string()) for i in range(2))
        owners = find_owners_at(self.judge.policy, self.dispatcher, slots, hashes, at, seq, *served)
        for i, attempt in enumerate(attempts):
            attempt.epoch, attempt.changing = int(owners.epoch[i]), bool(owners.in_transition[i])
            attempt.session, attempt.left = int(owners.session[i]), int(owners.left[i])
            attempt.wrong = bool(owners.wrong[i])

    @cached_property
    def deliveries(self) -> list[Attempt]:
        """All deliveries in order of time."""
        every = [a for m in self.messages for a in m.deliveries]
        return sorted(every, key=lambda a: (a.at, a.seq, a.message.position, a.nth))

    def list_deliveries_before(self, d: Attempt) -> list[Attempt]:
        """Return the deliveries before one, in order of time."""
        return self.deliveries[: self.deliveries.index(d)]

    @property
    def end(self) -> int:
        """The last known instant of the audited day."""
        known = [t for d in self.deliveries for t in (d.at, d.received, d.acked)]
        known += [self.dispatcher.timeline.epochs[-1].start.at, self.judge.horizon]
        return max(min(t, self.judge.horizon) for t in known if t != NEVER)

    @property
    def active(self) -> bool:
        """Whether only one consumer is active."""
        return self.judge.policy.routing == "partition"

    def get_join_time(self, session: int) -> int:
        """Return when a consumer's join was complete."""
        return int(self.dispatcher.sessions.joined[session])

    def find_read_at_join(self, session: int) -> int:
        """Return the highest ordinal delivered for the first time before a consumer joined."""
        before = [e.message.ordinal for e in self.deliveries if e.first and e.at < self.get_join_time(session)]
        return max(before, default=-1)


def _fill_message(judge: Judge, message: Message, row: Mapping[str, Any]) -> None:
    one = pa.Table.from_pylist([row], schema=LOG)
    keys = find_message_keys(judge.policy, one, judge.terms.count_buckets(row["partition"]))
    message.known, message.judged = True, row["judged"]
    message.key, message.slot, message.hash = int(keys.key_id[0]), int(keys.slots[0]), int(keys.hashes[0])
    message.published, message.due = (
        row["at"],
        max(row["at"], _get_time(row, "deliver_at") if judge.has_delays else UNKNOWN),
    )
    message.mixed = bool(keys.mixed[0])
    key = own_keys(one)[0].as_py() if row["batch_index"] >= 0 else None
    producer = row["producer"], row["replicated_from"]
    message.stream = (producer,) if key is None else (producer, key)
    message.content = row["key"] or b"", row["size"] or 0
    message.chunk = (-1 if row["chunk_id"] is None else row["chunk_id"], row["chunk_count"] or 0)
    message.sequence_id = -1 if message.chunk[0] > 0 else row["own_sequence_id"]


def _make_attempt(judge: Judge, message: Message, row: Mapping[str, Any], nth: int) -> Attempt:
    acked, nacked, received = (_get_time(row, name) for name in ("acked_at", "nacked_at", "received_at"))
    count, cumulative = row["redelivery_count"] or 0, bool(row["cumulative"])
    ignored = (cumulative and judge.acks_individually) or bool(row["ack_refused"])
    given_up = bool(row["rejected"])
    return Attempt(message, row["at"], row["seq"], acked, nacked, received, count, cumulative, ignored, given_up, nth)


def _get_time(row: Mapping[str, Any], name: str) -> int:
    return UNKNOWN if row[name] is None else int(row[name])
