"""Find the cause of each finding: an epoch change, a disconnect, a nack or a fact about its producer; else
"unexplained".

A cause names an event or a consumer, not a message, so that findings can be counted by cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.audit.acts import Act
from subreplay.audit.codes import Code, Exemption
from subreplay.audit.deliveries import AUTOMATIC_COMMITS, FAILED_COMMIT, Ending
from subreplay.audit.explain.text_columns import (
    describe_stuck_owners,
    fill_missing_text,
    format_clocks,
    format_durations,
    format_numbers,
    join_text,
)
from subreplay.audit.judge import Judge
from subreplay.audit.rules.registry import RULES
from subreplay.audit.rules.waiting_at_end import find_unassigned_since
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.text_format import format_clock
from subreplay.semantics.timelines.event_text import describe_event, describe_pending_change

UNEXPLAINED: Final = "unexplained"
GROUP_ENDING_CAUSES: Final = {
    Ending.SOUGHT: "the application sought back (in its own code)",
    Ending.REVOKED: "its partition was revoked before it was committed",
    Ending.CLOSED: "its consumer closed before it was committed",
    Ending.LOST: "its consumer had left the group (max.poll.interval.ms) before it was committed",
    Ending.CRASHED: "its consumer crashed before it was committed",
}
"""Why a record of a Kafka group is redelivered."""
SHARE_ENDING_CAUSES: Final = {
    Ending.RELEASED: "its consumer released it",
    Ending.EXPIRED: "its acquisition lock timed out before it was acknowledged",
}
"""Why a record of a share group is redelivered, besides the leave or crash of its consumer."""
NOT_COMMITTED_CAUSES: Final = {
    0: "",
    FAILED_COMMIT: ": its commit had failed",
    AUTOMATIC_COMMITS: ": it was delivered after the last automatic commit",
}
"""Why the record was not committed, if that is recorded."""
SKIPPED_CAUSE: Final = (
    "the broker lost it, or it was skipped, cleared or expired on purpose (declare that with topic.resets or topic.ttl)"
)
PASSED_UNFINISHED_CAUSE: Final = (
    "the broker lost it, or the start offset was reset on purpose (kafka-share-groups.sh --reset-offsets)"
)
PASSED_CAUSE: Final = "later records of its partition were delivered, or committed"
NOT_COUNTED_CAUSE: Final = (
    "its redelivery count does not increase, because its subscription type, broker or client does not count "
    "redeliveries"
)
NACKED: Final = "its redelivery was requested (nack or ack timeout)"
_NOT_CONNECTED_BITS: Final = Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
NOT_FETCHED_CAUSE: Final = "its consumer did not fetch it: it hangs, polls rarely, or has paused the partition"
NOT_ACQUIRED_CAUSE: Final = (
    "no member fetched it: those that share its partition are slow or hang, or its window of locks "
    "(group.share.partition.max.record.locks) begins with a record that is not done"
)
HOLDER_PATTERN: Final = "^consumer (?P<holder>.+), which held [0-9]"
"""Matches the cause of a message behind a consumer with unacknowledged messages, and names this consumer."""
NOT_ASSIGNED_CAUSE: Final = "no member of the group owned partition"
_FETCHING_CODES: Final = frozenset({Code.STALLED, Code.STARVED, Code.LATE})
_REDELIVERY_CODES: Final = frozenset(
    {Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.REDELIVERED, Code.REDELIVERY_ORDER, Code.OVER_LIMIT}
)
_ACT_CODES: Final = Exemption.RESET.codes | _REDELIVERY_CODES


class Causes:
    """Finds the causes of judged rows, and caches the events of every dispatcher."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._known_acts: dict[Scope, tuple[Act, ...]] = {}
        self._base: dict[tuple[str, int], int] = {}
        self._starts: Ints = np.zeros(0, np.int64)
        self._since: Ints = np.zeros(0, np.int64)  # when what opened an epoch was asked for
        # by what an epoch began, while that was under way; the latest leave by then
        self._opened = self._opening = self._left = pa.array([], pa.string())

    def number_epochs(self, rows: pa.Table) -> Ints:
        """Return the number of each row's epoch, unique over all dispatchers. The next epoch of a dispatcher has the
        next number."""
        topics = column(rows, "topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        partitions, dispatchers = np.unique(ints(rows, "partition"), return_inverse=True)
        pairs, of_pair = np.unique(np.asarray(topics.indices) * len(partitions) + dispatchers, return_inverse=True)
        scopes = ((names[p // len(partitions)], int(partitions[p % len(partitions)])) for p in pairs)
        return np.array([self._add_dispatcher(*scope) for scope in scopes], np.int64)[of_pair] + ints(rows, "epoch")

    def _add_dispatcher(self, topic: str, partition: int) -> int:
        """Return the number of a dispatcher's first epoch, and store the event texts of its epochs."""
        known = self._base.get((topic, partition))
        if known is not None:
            return known
        timeline = self._judge.get_dispatcher(Scope(topic, partition)).timeline
        self._base[topic, partition] = base = len(self._starts)
        opened = [describe_event(epoch, self._judge.dates) for epoch in timeline.epochs]
        leaves = (words if epoch.left else None for epoch, words in zip(timeline.epochs, opened, strict=True))
        left = accumulate(leaves, lambda latest, words: words or latest, initial=UNEXPLAINED)
        self._starts = np.append(self._starts, [epoch.start.at for epoch in timeline.epochs])
        self._since = np.append(self._since, [epoch.since.at for epoch in timeline.epochs])
        self._opened = pa.concat_arrays([self._opened, pa.array(opened, pa.string())])
        opening = [describe_pending_change(epoch, self._judge.dates) for epoch in timeline.epochs]
        self._opening = pa.concat_arrays([self._opening, pa.array(opening, pa.string())])
        self._left = pa.concat_arrays([self._left, pa.array([*left][1:], pa.string())])
        return base

    def find_causes(self, rows: pa.Table, code: Code, epochs: Ints) -> pa.Array:
        """Return the causes of findings of one code. ``epochs`` are the numbers of the rows' epochs."""
        routing = self._judge.terms.routing
        if code is Code.ROUTING_MISMATCH and routing is not None and routing.why:
            return pa.repeat(routing.why, rows.num_rows)
        if code in _FETCHING_CODES and self._judge.record_locks:
            return pa.repeat(NOT_ACQUIRED_CAUSE, rows.num_rows)
        if code in _FETCHING_CODES and self._judge.is_group:
            holder = column(rows, "holder_witness")
            again = pc.fill_null(pc.less(pc.struct_field(holder, "held"), 0), False)
            fetching = pc.if_else(pa.array(find_unassigned(rows)), self._explain_unassigned(rows), NOT_FETCHED_CAUSE)
            return pc.if_else(again, describe_stuck_owners(holder, self._judge.dates), fetching)
        if RULES[code].cause:
            return pa.repeat(RULES[code].cause, rows.num_rows)
        if code is Code.STUCK:
            name, at, outstanding = (
                pc.struct_field(column(rows, "holder_witness"), of) for of in ("consumer", "at", "held")
            )
            name = fill_missing_text(name, "nobody")
            known = self._judge.horizon if self._judge.has_next_day else self._judge.end
            ended = pc.struct_field(column(rows, "holder_witness"), "held_until")
            ended = pc.min_element_wise(ended, NEVER if known == UNKNOWN else known)
            lasted = pc.if_else(
                pc.equal(ended, NEVER), "", join_text(" (", format_durations(pc.subtract(ended, at)), ")")
            )
            counted = join_text(
                "consumer ", name, ", which held ", format_numbers(outstanding), " unacknowledged since ",
                format_clocks(at, self._judge.dates), lasted,
            )  # fmt: skip
            one = join_text(name, " held an earlier message without acknowledging it")
            one = pc.if_else(
                pc.fill_null(pc.less(outstanding, 0), False),
                describe_stuck_owners(column(rows, "holder_witness"), self._judge.dates),
                one,
            )
            return pc.if_else(pc.fill_null(pc.greater(outstanding, 0), False), counted, one)
        return self._find_event_causes(rows, code, epochs)

    def _explain_unassigned(self, rows: pa.Table) -> pa.Array:
        """Explain that no consumer owned the partition of each row, and since when."""
        topics = column(rows, "topic").dictionary_encode()
        dispatchers = np.column_stack([np.asarray(topics.indices), ints(rows, "partition")])
        distinct, of_row = np.unique(dispatchers, axis=0, return_inverse=True)
        words = []
        for topic, partition in distinct.tolist():
            dispatcher = self._judge.get_dispatcher(Scope(topics.dictionary[topic].as_py(), partition))
            since = find_unassigned_since(self._judge, dispatcher, UNKNOWN)
            when = "" if since in (UNKNOWN, NEVER) else f" since {format_clock(since, self._judge.dates)}"
            words.append(f"{NOT_ASSIGNED_CAUSE} {max(partition, 0)}{when}")
        return pa.array(words, pa.string()).take(pa.array(of_row.reshape(-1)))

    def _find_event_causes(self, rows: pa.Table, code: Code, epochs: Ints) -> pa.Array:
        """Return the event, act or ending that caused each finding."""
        delivered, previous = flags(rows, "delivered"), ints(rows, "previous")
        cases: list[tuple[np.ndarray, pa.Array | str]] = []
        by_act = ints(rows, "excuses") & Exemption.RESET.bit != 0
        if code in _ACT_CODES and by_act.any():
            cases.append((by_act, self._describe_acts(rows, np.flatnonzero(by_act))))
        if code in _REDELIVERY_CODES and self._judge.is_group:
            cases += [(previous == ending | why, words + more) for ending, words in GROUP_ENDING_CAUSES.items()
                      for why, more in NOT_COMMITTED_CAUSES.items()]  # fmt: skip
        elif code in _REDELIVERY_CODES and self._judge.record_locks:
            cases += [(previous == ending, words) for ending, words in SHARE_ENDING_CAUSES.items()]
        elif code in _REDELIVERY_CODES:
            cases.append((previous == Ending.NACKED, NACKED))
        if code is Code.UNSEEN and self._judge.record_locks:
            unread = ints(rows, "excuses") & Exemption.NOT_READ_YET.bit != 0
            cases.append((~delivered & unread, Exemption.NOT_READ_YET.sentence))
        if code is Code.LOST and self._judge.is_group:
            unread = ints(rows, "excuses") & Exemption.NOT_READ_YET.bit != 0
            cases.append((~delivered & unread, Exemption.NOT_READ_YET.sentence))
            skipped = self.describe_skips(rows)
            cases += [(np.asarray(skipped.is_valid()), skipped), (~delivered, PASSED_CAUSE)]
        if code is Code.DLQ_MISSED:
            restarted = ints(rows, "excuses") & Exemption.COUNT_RESTARTED.bit != 0
            cases += [(restarted, Exemption.COUNT_RESTARTED.sentence), (~restarted, NOT_COUNTED_CAUSE)]
        if code is Code.LOST:
            unfinished = ints(rows, "codes") & Code.UNACKED.bit != 0
            cases.append((delivered & unfinished, PASSED_UNFINISHED_CAUSE))
            cases += [(~delivered & (ints(rows, "acked") == NEVER), SKIPPED_CAUSE), (~delivered, UNEXPLAINED)]
        cases.append((~delivered, "the data end"))
        if code is Code.NOT_CONNECTED or code in _REDELIVERY_CODES:
            strange = delivered & (ints(rows, "codes") & _NOT_CONNECTED_BITS != 0)
            cases.append((strange, self._find_last_leaves(rows) if strange.any() else UNEXPLAINED))
        if code is Code.WRONG_OWNER:
            cases.append((delivered, self._take_event_text(self._opened, epochs)))
        cases.append((previous == Ending.CLOSED, self._take_event_text(self._left, epochs)))
        changing = flags(rows, "in_transition") & ~flags(rows, "by_receipt")
        next_begun = self._since[self._clip_epochs(epochs + 1)] <= ints(rows, "at")
        cases.append((changing & next_begun, self._take_event_text(self._opening, epochs + 1)))
        cases.append((changing, self._take_event_text(self._opened, epochs)))
        evidence = RULES[code].evidence
        if evidence in ("order_witness", "owner_witness"):
            earlier = pc.struct_field(column(rows, evidence), "at").fill_null(np.iinfo(np.int64).max)
            begun = self._starts[self._clip_epochs(epochs)] > np.asarray(earlier)
            cases.append((begun, self._take_event_text(self._opened, epochs)))
        return _choose_first(cases, self._explain_allowed(code))

    def _find_last_leaves(self, rows: pa.Table) -> pa.Array:
        """Return the latest leave of the consumer of each delivery, or that the consumer never joined."""
        topics, consumers = (column(rows, name).dictionary_encode() for name in ("topic", "consumer"))
        names = [*consumers.dictionary.to_pylist(), None]
        of_name = consumers.indices.fill_null(len(names) - 1)
        dispatchers = np.column_stack([np.asarray(topics.indices), ints(rows, "partition"), np.asarray(of_name)])
        distinct, of_row = np.unique(dispatchers, axis=0, return_inverse=True)
        words = np.empty(rows.num_rows, object)
        for which, (topic, partition, consumer) in enumerate(distinct.tolist()):
            times, event_texts = self._list_leaves(Scope(topics.dictionary[topic].as_py(), partition), names[consumer])
            selected = np.flatnonzero(of_row.reshape(-1) == which)
            words[selected] = np.array(event_texts, object)[np.searchsorted(times, ints(rows, "at")[selected], "right")]
        return pa.array(words, pa.string())

    def _list_leaves(self, scope: Scope, consumer: str | None) -> tuple[Ints, list[str]]:
        """Return the instants (ns) at which a consumer left, and the text of each. The first text covers the time
        before all of them."""
        epochs = self._judge.get_dispatcher(scope).timeline.epochs
        left = [epoch for epoch in epochs if any(gone.label == consumer for gone in epoch.left)]
        joins = [epoch for epoch in epochs if epoch.joined is not None and epoch.joined.label == consumer]
        refused = [epoch for epoch in epochs if epoch.rejected and epoch.cause and epoch.cause.consumer == consumer]
        first = (joins or refused)[:1]
        words = [describe_event(epoch, self._judge.dates) for epoch in (*first, *left)]
        words = words if first else [f"no join of {consumer or 'it'} is recorded", *words]
        return np.array([epoch.since.at for epoch in left], np.int64), words

    def _describe_acts(self, rows: pa.Table, selected: Ints) -> pa.Array:
        """Return the text of the act that explains each ``selected`` row; null for other rows."""
        words: list[str | None] = [None] * rows.num_rows
        codes = ints(rows, "codes")
        for row, act in self._match_acts(rows, selected):
            words[row] = act.describe(bool(codes[row] & Code.DUP_DELIVERY.bit))
        return pa.array(words, pa.string())

    def find_sought(self, rows: pa.Table, selected: Ints) -> NDArray[np.bool_]:
        """Return which of the ``selected`` rows, which an act explains, a declared seek explains."""
        found = np.zeros(rows.num_rows, np.bool_)
        for row, act in self._match_acts(rows, selected):
            found[row] = act.declared is not None and act.declared.kind == "seek"
        return found

    def describe_skips(self, rows: pa.Table) -> pa.Array:
        """Explain why a Kafka group started reading after messages that it never received; null if the data do not show
        it.

        The messages were published while the group was empty, or directly precede such messages in the log.
        """
        words = np.full(rows.num_rows, None, object)
        topics = column(rows, "topic").dictionary_encode()
        partition, published, entry = (ints(rows, name) for name in ("partition", "published", "entry"))
        dispatchers = np.column_stack([np.asarray(topics.indices), partition])
        for topic, of in np.unique(dispatchers, axis=0).tolist() if self._judge.is_group else ():
            scope = Scope(topics.dictionary[topic].as_py(), of)
            for act in self._find_acts(scope):
                if act.how == "group" and act.declared is None and act.until != NEVER:
                    selected = (
                        (dispatchers == (topic, of)).all(1) & ~flags(rows, "delivered") & (published <= act.until)
                    )
                    selected = np.flatnonzero(selected)[np.argsort(entry[selected], kind="stable")]
                    run = np.cumsum(np.diff(entry[selected], prepend=UNKNOWN) > 1)
                    words[selected[np.isin(run, run[published[selected] >= act.at])]] = act.describe_skip()
        return pa.array(words, pa.string())

    def _find_acts(self, scope: Scope) -> tuple[Act, ...]:
        """Return the acts at a dispatcher, and cache them."""
        if scope not in self._known_acts:
            self._known_acts[scope] = self._judge.list_acts(self._judge.get_dispatcher(scope).timeline)
        return self._known_acts[scope]

    def _match_acts(self, rows: pa.Table, selected: Ints) -> Iterator[tuple[int, Act]]:
        """Yield each ``selected`` row with the latest act before it. A message that was never delivered gets the first
        act after it."""
        some = rows.select(["topic", "partition", "at", "published", "delivered"]).take(pa.array(selected))
        for row, of in zip(selected.tolist(), some.to_pylist(), strict=True):
            acts = self._find_acts(Scope(of["topic"], of["partition"]))
            if of["delivered"]:
                near = [act for act in acts if act.at < of["at"]][-1:]
            else:
                by = of["published"] - self._judge.terms.clock_skew
                near = [act for act in acts if act.declared is not None and act.declared.at >= by][:1]
            yield from ((row, act) for act in near)

    def _take_event_text(self, words: pa.Array, epochs: Ints) -> pa.Array:
        """Return the event text of each epoch."""
        return words.take(pa.array(self._clip_epochs(epochs)))

    def _clip_epochs(self, epochs: Ints) -> Ints:
        """Clip epoch numbers to known epochs. Rows without an epoch, or without a next one, belong to another case."""
        return np.clip(epochs, 0, len(self._starts) - 1)

    def _explain_allowed(self, code: Code) -> str:
        """Explain an allowed finding that no event explains."""
        policy = self._judge.policy
        if self._judge.promised & code.bit:
            return UNEXPLAINED
        if code is Code.DUP_OUTSTANDING and policy.routing != "partition":
            return f"{policy.profile} sometimes redelivers an outstanding message"
        if code in (Code.KEY_ORDER, Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK):
            return (
                f"{policy.name} as configured delivers a key to any consumer"
                if policy.routing == "any"
                else "out-of-order delivery is allowed"
            )
        return UNEXPLAINED


def find_unassigned(rows: pa.Table) -> NDArray[np.bool_]:
    """Return which messages of a Kafka group were never delivered because no member owned their partition."""
    waits = (Code.STARVED.bit | Code.STALLED.bit) & ints(rows, "codes") != 0
    return np.asarray(waits & ~flags(rows, "delivered") & np.asarray(column(rows, "consumer").is_null()))


def _choose_first(cases: Iterable[tuple[np.ndarray, pa.Array | str]], default: str) -> pa.Array:
    """Return the text of the first case that applies to each row."""
    conditions, words = zip(*cases, strict=True)
    names = [str(i) for i in range(len(conditions))]
    return pc.case_when(pc.make_struct(*map(pa.array, conditions), field_names=names), *words, default)
