"""The life of a message or a key: what happened to it, in order of time, and the findings about it.

Few rows are told at a time; whoever selects them from many bounds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import kind_of
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.passes.keys import message_keys
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import clock, instant, position
from subreplay.semantics.timelines.event_text import describe_event

Row = Mapping[str, Any]


class Happening(NamedTuple):
    """One line of a life. ``step`` orders what happened at one instant (ns); ``position``: a message's, or empty."""

    at: int
    step: int
    position: str
    words: str


CHANGED, PUBLISHED, WAITED, DELIVERED, TAKEN, ENDED = range(6)


@dataclass(frozen=True)
class Trace:
    """Some messages and what became of them.

    ``log`` are their ``LOG`` rows; ``judged`` their ``JUDGED`` rows, keys in words; ``waits`` what held them back:
    their position, that of the holder, its ``consumer``, ``since``, ``until`` (ns), and ``of`` how many it ended last.
    """

    judge: Judge
    log: pa.Table
    judged: pa.Table
    waits: tuple[Row, ...] = ()

    def lines(self) -> Iterator[str]:
        """What happened, in order of time."""
        told = sorted(self.happenings())
        days = {instant(h.at)[:10] for h in told}
        wide = max((len(h.position) for h in told), default=0)
        for at, _, where, words in told:
            yield f"  {clock(at) if len(days) == 1 else instant(at)}  {where:<{wide}}  {words}"
        for row in self.judged.to_pylist():
            if not row["delivered"]:
                yield f"  {'':15}  {_position_of(row):<{wide}}  not delivered by the end"

    def happenings(self) -> Iterator[Happening]:
        attempts = (row for row in self.log.to_pylist() if row["kind"] == 1)
        ends = {(_position_of(row), row["at"], row["seq"], row["consumer"]): row for row in attempts}
        yield from self._published()
        for wait in self.waits:
            yield Happening(wait["since"], WAITED, _position_of(wait), _wait(wait, self.judge.dates))
        for row in self.judged.to_pylist():
            if row["delivered"]:
                yield from self._delivered(row, ends.get((_position_of(row), row["at"], row["seq"], self._name(row))))
        for row in ends.values():
            if row["at"] == UNKNOWN:
                said = f"acknowledged by {row['consumer']}, though no delivery of it is recorded"
                yield Happening(row["acked_at"], ENDED, _position_of(row), said)

    def waiting(self) -> Iterator[Row]:
        """First deliveries, and messages still waiting, where others may hold them back (see rule STUCK): the session
        that got or owns them, from when on it could have (ns), and until when. What holds them back are deliveries
        elsewhere of their ``slot``, or (3.x, null) of any, that were made ``before`` a time."""
        if kind_of(self.judge.policy) != "keyed":
            return
        by_slot = self.judge.waits_by_slot
        hashed = {
            _position_of(row): (slot, hash32) for row, slot, hash32 in self._messages()
        }  # judged rows may not show slots
        for row in self.judged.to_pylist():
            dispatcher = self.judge.dispatcher(Scope(row["topic"], row["partition"]))
            last = np.array([len(dispatcher.timeline.epochs) - 1], np.int32)
            slot, hash32 = hashed.get(_position_of(row), (row["slot"], 0))
            owner = int(dispatcher.timeline.find_owners(np.array([slot]), np.array([hash32], np.uint32), last)[0])
            session = row["session"] if row["delivered"] else owner
            if row["nth"] or session < 0 or row["due"] == UNKNOWN:
                continue
            joined = int(dispatcher.sessions.joined[session])
            message = {name: row[name] for name in ("topic", "partition", "ledger", "entry", "batch_index")}
            yield message | {
                "slot": row["slot"] if by_slot else None,
                "session": session,
                "before": row["at"] if by_slot else min(row["at"], joined),
                "since": row["due"] if by_slot else max(row["due"], joined),
                "until": row["at"],
            }

    def findings(self, subscription: str) -> Iterator[str]:
        """Every finding about these rows, allowed ones too, each with its cause and its witness."""
        shown = self.judged.set_column(self.judged.schema.get_field_index("shown"), "shown", self.judged["codes"])
        for batch in Explainer(self.judge, subscription).violations(shown.to_batches()):
            for row in batch.to_pylist():
                yield from finding_lines(row)

    def _published(self) -> Iterator[Happening]:
        """Publications, and the changes of owner of the slots in between."""
        slots: dict[Scope, dict[int, int]] = {}
        first = NEVER
        for row, slot, hash32 in self._messages():
            first = min(first, row["at"])
            scope = Scope(row["topic"], row["partition"])
            slots.setdefault(scope, {})[slot] = hash32
            owner = self._owner(scope, row["at"], slot, hash32)
            due = f", due at {clock(row['deliver_at'], self.judge.dates)}" if row["deliver_at"] is not None else ""
            yield Happening(row["at"], PUBLISHED, _position_of(row), f"published{_by_whom(row)}{due}{owner}")
        last = self._last()
        for scope, mine in slots.items():
            for slot, hash32 in mine.items():
                yield from self._changes(scope, slot, hash32, first, last)

    def _messages(self) -> Iterator[tuple[Row, int, int]]:
        """Rows of messages, each with its slot and its hash."""
        messages = self.log.filter(pa.array(np.asarray(self.log["kind"]) == 0)).combine_chunks()
        if messages.num_rows:
            keys = message_keys(self.judge.policy, messages)
            yield from zip(messages.to_pylist(), keys.slots.tolist(), keys.hashes.tolist(), strict=True)

    def _last(self) -> int:
        """When the last of these messages was done with; ``NEVER`` where one is not."""
        acked, held = (self.judged[name].to_pylist() for name in ("acked", "held_until"))
        return max((*(at for at in acked if at != NEVER), *held), default=UNKNOWN)

    def _owner(self, scope: Scope, at: int, slot: int, hash32: int) -> str:
        """Who owned a slot at a time, and since which event."""
        policy, timeline = self.judge.policy, self.judge.dispatcher(scope).timeline
        if policy.routing == "any":
            return ""
        epoch = int(timeline.find_epochs(np.array([at]), np.array([0]))[0])
        name = self._names(scope, slot, hash32, np.array([epoch]))[0]
        whose = f"slot {slot} belongs to" if policy.routing == "slot" else "active is"
        return f"; {whose} {name} ({describe_event(timeline.epochs[epoch], self.judge.dates)})"

    def _changes(self, scope: Scope, slot: int, hash32: int, first: int, last: int) -> Iterator[Happening]:
        """By which events a slot got another owner, after a first and up to a last instant."""
        if self.judge.policy.routing == "any":
            return
        timeline = self.judge.dispatcher(scope).timeline
        inside = [e for e in timeline.epochs if first < e.start.at <= last]
        if not inside:
            return
        names = self._names(scope, slot, hash32, np.arange(inside[0].index - 1, inside[-1].index + 1))
        what = f"slot {slot}" if self.judge.policy.routing == "slot" else scope.full_name
        for epoch, before, after in zip(inside, names, names[1:], strict=False):
            if before != after:
                said = f"{describe_event(epoch, self.judge.dates)}: {what} goes from {before} to {after}"
                yield Happening(epoch.start.at, CHANGED, "", said)

    def _names(self, scope: Scope, slot: int, hash32: int, epochs: Ints) -> list[str]:
        """The owners of a slot in some epochs."""
        timeline = self.judge.dispatcher(scope).timeline
        slots, hashes = np.full(len(epochs), slot), np.full(len(epochs), hash32, np.uint32)
        owners = timeline.find_owners(slots, hashes, epochs.astype(np.int32)).tolist()
        return [timeline.consumers[owner].label if owner >= 0 else "nobody" for owner in owners]

    def _name(self, row: Row) -> str | None:
        """The name of the consumer of a delivery, whatever it is called in results."""
        consumers = self.judge.dispatcher(Scope(row["topic"], row["partition"])).timeline.consumers
        return consumers[row["session"]].name if row["session"] >= 0 else row["consumer"]

    def _delivered(self, row: Row, attempt: Row | None) -> Iterator[Happening]:
        """One delivery and how it ended; ``attempt`` is its row of the log."""
        where, consumer = _position_of(row), row["consumer"] or "nobody"
        yield Happening(row["at"], DELIVERED, where, f"delivered to {consumer}" + self._remarks(row))
        if row["received"] != UNKNOWN:
            yield Happening(row["received"], TAKEN, where, f"taken by the application of {consumer}")
        if UNKNOWN < row["acked"] < NEVER:
            how = ", cumulatively" if attempt and attempt["cumulative"] else ""
            yield Happening(row["acked"], ENDED, where, f"acknowledged by {consumer}{how}")
        nacked = attempt["nacked_at"] if attempt else None
        if nacked is not None:
            yield Happening(nacked, ENDED, where, f"given back by {consumer} (nack or ack timeout)")
        if row["held_until"] not in (NEVER, row["acked"], nacked, row["at"]):
            yield Happening(row["held_until"], ENDED, where, f"taken back: {consumer} left")

    def _remarks(self, row: Row) -> str:
        again = f", delivery {row['nth'] + 1} of it" if row["nth"] else ""
        count = f", redelivery count {row['redelivery_count']}" if row["redelivery_count"] > 0 else ""
        astray = self.judge.policy.routing != "any" and row["expected"] not in (None, row["consumer"])
        owner = f"; its owner was {row['expected']}" if astray else ""
        return again + count + owner + (", while a change was under way" if row["in_transition"] else "")


def finding_lines(row: Row) -> Iterator[str]:
    """A row of table ``violations``."""
    yield f"  {row['code']} ({'allowed' if row['verdict'] == 'valid' else row['verdict']}): {row['explanation']}"
    yield f"    cause: {row['cause']}"
    yield from (f"    witness: {evidence}" for evidence in row["witness"])


def _wait(wait: Row, dates: bool) -> str:
    until = "the end" if wait["until"] == NEVER else clock(wait["until"], dates)
    holder = position(wait["holder"]["ledger"], wait["holder"]["entry"], wait["holder"]["batch_index"])
    others = f"{wait['of']:,} others, last by " if wait["of"] > 1 else ""
    return f"held back by {others}{holder} at {wait['consumer']} until {until}"


def _by_whom(row: Row) -> str:
    """By which producer, as what, and how large, as far as the source tells."""
    by = "" if row["producer"] is None else f" by {row['producer']}"
    numbered = "" if row["own_sequence_id"] is None else f" as sequence {row['own_sequence_id']}"
    return by + numbered + ("" if row["size"] is None else f", {row['size']} bytes")


def _position_of(row: Row) -> str:
    """A message of the topic, or of one of its partitions."""
    inside = position(row["ledger"], row["entry"], row["batch_index"])
    return inside if row["partition"] < 0 else f"{row['partition']}/{inside}"
