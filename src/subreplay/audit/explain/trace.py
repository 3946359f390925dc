"""Trace a message or a key: its events in order of time, and the findings about it.

A trace handles few rows. The caller selects them and limits their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from subreplay.audit.codes import KEYED, Code, classify_policy
from subreplay.audit.explain.findings import Explainer
from subreplay.audit.judge import Judge
from subreplay.audit.passes.keys import find_message_keys
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_clock, format_instant, format_position
from subreplay.semantics.timelines.event_text import describe_event

Row = Mapping[str, Any]


class TraceEvent(NamedTuple):
    """One event of a trace. ``step`` orders events of the same instant (ns). ``position`` is that of a message, or
    empty."""

    at: int
    step: int
    position: str
    words: str


CHANGED, PUBLISHED, WAITED, DELIVERED, TAKEN, ENDED = range(6)


@dataclass(frozen=True)
class Trace:
    """Some messages and their events.

    ``log`` are their ``LOG`` rows, ``judged`` their ``JUDGED`` rows with masked keys. ``waits`` describe what blocked
    them: their position, the position of the blocking message, its ``consumer``, ``since``, ``until`` (ns), and the
    number ``of`` blocking deliveries.
    """

    judge: Judge
    log: pa.Table
    judged: pa.Table
    waits: tuple[Row, ...] = ()

    def format_lines(self) -> Iterator[str]:
        """Yield the events as lines, in order of time."""
        events = sorted(self.list_events())
        days = {format_instant(h.at)[:10] for h in events}
        wide = max((len(h.position) for h in events), default=0)
        for at, _, where, words in events:
            yield f"  {format_clock(at) if len(days) == 1 else format_instant(at)}  {where:<{wide}}  {words}"
        for row in self.judged.to_pylist():
            if not row["delivered"]:
                yield f"  {'':15}  {_format_position(row):<{wide}}  not delivered by the end"

    def list_events(self) -> Iterator[TraceEvent]:
        """Yield all events in any order."""
        attempts = (row for row in self.log.to_pylist() if row["kind"] == 1)
        ends = {(_format_position(row), row["at"], row["seq"], row["consumer"]): row for row in attempts}
        yield from self._list_publications()
        for wait in self.waits:
            yield TraceEvent(wait["since"], WAITED, _format_position(wait), _describe_wait(wait, self.judge.dates))
        for row in self.judged.to_pylist():
            if row["delivered"]:
                yield from self._list_delivery_events(
                    row, ends.get((_format_position(row), row["at"], row["seq"], self._find_consumer_name(row)))
                )
        for row in ends.values():
            if row["at"] == UNKNOWN:
                said = f"acknowledged by {row['consumer']}, although no delivery of it is recorded"
                yield TraceEvent(row["acked_at"], ENDED, _format_position(row), said)

    def find_waiting(self) -> Iterator[Row]:
        """Yield first deliveries and waiting messages that other messages may block (see rule STUCK).

        Each row has the session that received or owns the message, the instant (ns) from which it could receive it, and
        until when. Deliveries at other consumers block it: those of its ``slot``, or (3.x, null) of any slot, that were
        made ``before`` a time.
        """
        if classify_policy(self.judge.policy) not in KEYED:
            return
        by_slot = self.judge.waits_by_slot
        hashed = {
            _format_position(row): (slot, hash32) for row, slot, hash32 in self._read_messages()
        }  # judged rows may not show slots
        for row in self.judged.to_pylist():
            dispatcher = self.judge.get_dispatcher(Scope(row["topic"], row["partition"]))
            last = np.array([len(dispatcher.timeline.epochs) - 1], np.int32)
            slot, hash32 = hashed.get(_format_position(row), (row["slot"], 0))
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

    def explain_findings(self, subscription: str) -> Iterator[str]:
        """Yield every finding about these rows, including allowed ones, each with its cause and its evidence."""
        shown = self.judged.set_column(self.judged.schema.get_field_index("shown"), "shown", self.judged["codes"])
        for batch in Explainer(self.judge, subscription).explain_violations(shown.to_batches()):
            for row in batch.to_pylist():
                yield from format_finding(row)

    def _list_publications(self) -> Iterator[TraceEvent]:
        """Yield the publication of each message, and the owner changes of its slot."""
        slots: dict[Scope, dict[int, int]] = {}
        first = NEVER
        for row, slot, hash32 in self._read_messages():
            first = min(first, row["at"])
            scope = Scope(row["topic"], row["partition"])
            slots.setdefault(scope, {})[slot] = hash32
            owner = self._describe_owner(scope, row["at"], slot, hash32)
            due = (
                f", due at {format_clock(row['deliver_at'], self.judge.dates)}" if row["deliver_at"] is not None else ""
            )
            yield TraceEvent(
                row["at"], PUBLISHED, _format_position(row), f"published{_describe_producer(row)}{due}{owner}"
            )
        last = self._find_last_end()
        for scope, selected in slots.items():
            for slot, hash32 in selected.items():
                yield from self._list_owner_changes(scope, slot, hash32, first, last)

    def _read_messages(self) -> Iterator[tuple[Row, int, int]]:
        """Yield the rows of messages, each with its slot and its hash."""
        messages = self.log.filter(pa.array(np.asarray(self.log["kind"]) == 0)).combine_chunks()
        if messages.num_rows:
            keys = find_message_keys(self.judge.policy, messages)
            yield from zip(messages.to_pylist(), keys.slots.tolist(), keys.hashes.tolist(), strict=True)

    def _find_last_end(self) -> int:
        """Return when the last of these messages ended; ``NEVER`` if one did not."""
        acked, end_times = (self.judged[name].to_pylist() for name in ("acked", "held_until"))
        return max((*(at for at in acked if at != NEVER), *end_times), default=UNKNOWN)

    def _describe_owner(self, scope: Scope, at: int, slot: int, hash32: int) -> str:
        """Describe the owner of a slot at an instant, and the event since which it owns the slot."""
        policy, timeline = self.judge.policy, self.judge.get_dispatcher(scope).timeline
        if policy.routing == "any":
            return ""
        epoch = int(timeline.find_epochs(np.array([at]), np.array([0]))[0])
        name = self._find_owner_names(scope, slot, hash32, np.array([epoch]))[0]
        whose = f"slot {slot} belongs to" if policy.routing == "slot" else "active is"
        return f"; {whose} {name} ({describe_event(timeline.epochs[epoch], self.judge.dates)})"

    def _list_owner_changes(self, scope: Scope, slot: int, hash32: int, first: int, last: int) -> Iterator[TraceEvent]:
        """Yield the events that changed the owner of a slot, after a first and up to a last instant."""
        if self.judge.policy.routing == "any":
            return
        timeline = self.judge.get_dispatcher(scope).timeline
        inside = [e for e in timeline.epochs if first < e.start.at <= last]
        if not inside:
            return
        names = self._find_owner_names(scope, slot, hash32, np.arange(inside[0].index - 1, inside[-1].index + 1))
        what = f"slot {slot}" if self.judge.policy.routing == "slot" else scope.full_name
        for epoch, before, after in zip(inside, names, names[1:], strict=False):
            if before != after:
                said = (
                    f"{describe_event(epoch, self.judge.dates)}: the owner of {what} changes from {before} to {after}"
                )
                yield TraceEvent(epoch.start.at, CHANGED, "", said)

    def _find_owner_names(self, scope: Scope, slot: int, hash32: int, epochs: Ints) -> list[str]:
        """Return the names of a slot's owners in some epochs."""
        timeline = self.judge.get_dispatcher(scope).timeline
        slots, hashes = np.full(len(epochs), slot), np.full(len(epochs), hash32, np.uint32)
        owners = timeline.find_owners(slots, hashes, epochs.astype(np.int32)).tolist()
        return [timeline.consumers[owner].label if owner >= 0 else "nobody" for owner in owners]

    def _find_consumer_name(self, row: Row) -> str | None:
        """Return the recorded name of a delivery's consumer, whatever label results use."""
        consumers = self.judge.get_dispatcher(Scope(row["topic"], row["partition"])).timeline.consumers
        return consumers[row["session"]].name if row["session"] >= 0 else row["consumer"]

    def _list_delivery_events(self, row: Row, attempt: Row | None) -> Iterator[TraceEvent]:
        """Yield the events of one delivery. ``attempt`` is its row of the log."""
        where, consumer = _format_position(row), row["consumer"] or "nobody"
        yield TraceEvent(row["at"], DELIVERED, where, f"delivered to {consumer}" + self._describe_delivery(row))
        if row["received"] != UNKNOWN:
            yield TraceEvent(row["received"], TAKEN, where, f"received by the application of {consumer}")
        locks = self.judge.record_locks
        if UNKNOWN < row["acked"] < NEVER:
            yield TraceEvent(row["acked"], ENDED, where, _describe_acknowledgement(row, attempt, consumer))
        nacked = attempt["nacked_at"] if attempt else None
        if nacked is not None:
            how = "released by {}" if locks else "negatively acknowledged by {} (nack or ack timeout)"
            yield TraceEvent(nacked, ENDED, where, how.format(consumer))
        if row["held_until"] not in (NEVER, row["acked"], nacked, row["at"]):
            expired = locks is not None and row["held_until"] == row["at"] + locks.duration
            why = f"the lock of {consumer} timed out" if expired else f"{consumer} left"
            yield TraceEvent(row["held_until"], ENDED, where, f"returned to the broker: {why}")

    def _describe_delivery(self, row: Row) -> str:
        """Describe what is special about a delivery."""
        again = f", delivery {row['nth'] + 1} of it" if row["nth"] else ""
        count = f", redelivery count {row['redelivery_count']}" if row["redelivery_count"] > 0 else ""
        astray = self.judge.policy.routing != "any" and row["expected"] not in (None, row["consumer"])
        owner = f"; its owner was {row['expected']}" if astray else ""
        return again + count + owner + (", while a change was under way" if row["in_transition"] else "")


def _describe_acknowledgement(row: Row, attempt: Row | None, consumer: str) -> str:
    """Describe an acknowledgement; that of a share group may reject the record, or be too late."""
    done = "rejected" if row["codes"] & Code.REJECTED.bit else "acknowledged"
    how = ", cumulatively" if attempt and attempt["cumulative"] else ""
    late = ", too late" if row["codes"] & Code.LATE_ACK.bit else ""
    refused = ": the broker refused it" if late and attempt and attempt["ack_refused"] else ""
    return f"{done} by {consumer}{how}{late}{refused}"


def format_finding(row: Row) -> Iterator[str]:
    """Format a row of table ``violations``."""
    yield f"  {row['code']} ({'allowed' if row['verdict'] == 'valid' else row['verdict']}): {row['explanation']}"
    yield f"    cause: {row['cause']}"
    yield from (f"    evidence: {evidence}" for evidence in row["witness"])


def _describe_wait(wait: Row, dates: bool) -> str:
    """Describe the delivery that blocked a message."""
    until = "the end" if wait["until"] == NEVER else format_clock(wait["until"], dates)
    holder = format_position(wait["holder"]["ledger"], wait["holder"]["entry"], wait["holder"]["batch_index"])
    others = f"{wait['of']:,} others, last by " if wait["of"] > 1 else ""
    return f"blocked by {others}{holder} at {wait['consumer']} until {until}"


def _describe_producer(row: Row) -> str:
    """Describe the producer, the sequence id and the size of a message, if they are recorded."""
    by = "" if row["producer"] is None else f" by {row['producer']}"
    numbered = "" if row["own_sequence_id"] is None else f" as sequence {row['own_sequence_id']}"
    return by + numbered + ("" if row["size"] is None else f", {row['size']} bytes")


def _format_position(row: Row) -> str:
    """Format the position of a message within its topic."""
    inside = format_position(row["ledger"], row["entry"], row["batch_index"])
    return inside if row["partition"] < 0 else f"{row['partition']}/{inside}"
