"""What explains a finding: the epoch change, disconnect, nack or producer fact; else "unexplained".

Causes are few: they name events and consumers, not messages, so that findings can be counted by them.
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
from subreplay.audit.explain.wording import clock, duration, joined, no_further, number, otherwise
from subreplay.audit.judge import Judge
from subreplay.audit.rules.registry import RULES
from subreplay.audit.rules.waiting_at_end import unowned_since
from subreplay.rows.model.columns import NEVER, UNKNOWN, Ints, column, flags, ints
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.words import clock as words_of_clock
from subreplay.semantics.timelines.event_text import describe_event, describe_pending_change

UNEXPLAINED: Final = "unexplained"
OF_GROUP: Final = {
    Ending.SOUGHT: "the application sought back (its own code)",
    Ending.REVOKED: "its partition was revoked before it was committed",
    Ending.CLOSED: "its consumer closed before it was committed",
    Ending.LOST: "its consumer had left the group (max.poll.interval.ms) before it was committed",
    Ending.CRASHED: "its consumer crashed before it was committed",
}
"""Why a record of a Kafka group comes again."""
NOT_COMMITTED: Final = {
    0: "",
    FAILED_COMMIT: ": its commit had failed",
    AUTOMATIC_COMMITS: ": it was given after the last automatic commit",
}
"""Why it was not committed, as far as it is told."""
SKIPPED: Final = (
    "the broker lost it, or it was skipped, cleared or expired on purpose: topic.resets and topic.ttl declare that"
)
PASSED: Final = "later records of its partition were delivered, or committed"
NOT_COUNTED: Final = "its redelivery count does not rise: its type of subscription, broker or client does not count"
NACKED: Final = "its redelivery was asked for (nack or ack timeout)"
_STRANGE: Final = Code.NOT_CONNECTED.bit | Code.NEVER_JOINED.bit
NOT_FETCHED: Final = "its consumer did not fetch it: it hangs, polls rarely, or has paused the partition"
NOT_ASSIGNED: Final = "no member of the group owned partition"
_OF_FETCHING: Final = frozenset({Code.STALLED, Code.STARVED, Code.LATE})
_OF_REDELIVERY: Final = frozenset({Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.REDELIVERED, Code.REDELIVERY_ORDER})
_OF_ACT: Final = Exemption.RESET.codes | _OF_REDELIVERY


class Causes:
    """Names the causes of judged rows; remembers the events of every dispatcher that it met."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._acts_of: dict[Scope, tuple[Act, ...]] = {}
        self._base: dict[tuple[str, int], int] = {}
        self._starts: Ints = np.zeros(0, np.int64)
        self._since: Ints = np.zeros(0, np.int64)  # when what opened an epoch was asked for
        # by what an epoch began, while that was under way; the latest leave by then
        self._opened = self._opening = self._left = pa.array([], pa.string())

    def epochs(self, rows: pa.Table) -> Ints:
        """A number for the epoch of each row, unique over all dispatchers; the next epoch of it has the next number."""
        topics = column(rows, "topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        partitions, whose = np.unique(ints(rows, "partition"), return_inverse=True)
        pairs, of_pair = np.unique(np.asarray(topics.indices) * len(partitions) + whose, return_inverse=True)
        scopes = ((names[p // len(partitions)], int(partitions[p % len(partitions)])) for p in pairs)
        return np.array([self._base_of(*scope) for scope in scopes], np.int64)[of_pair] + ints(rows, "epoch")

    def _base_of(self, topic: str, partition: int) -> int:
        known = self._base.get((topic, partition))
        if known is not None:
            return known
        timeline = self._judge.dispatcher(Scope(topic, partition)).timeline
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

    def of(self, rows: pa.Table, code: Code, epochs: Ints) -> pa.Array:
        """The causes of findings of one code; ``epochs`` are the numbers of the rows' epochs."""
        routing = self._judge.terms.routing
        if code is Code.ROUTING_MISMATCH and routing is not None and routing.why:
            return pa.repeat(routing.why, rows.num_rows)
        if code in _OF_FETCHING and self._judge.of_group:
            holder = column(rows, "holder_witness")
            again = pc.fill_null(pc.less(pc.struct_field(holder, "held"), 0), False)
            fetching = pc.if_else(pa.array(unassigned(rows)), self._unassigned(rows), NOT_FETCHED)
            return pc.if_else(again, no_further(holder, self._judge.dates), fetching)
        if RULES[code].cause:
            return pa.repeat(RULES[code].cause, rows.num_rows)
        if code is Code.STUCK:
            name, at, held = (pc.struct_field(column(rows, "holder_witness"), of) for of in ("consumer", "at", "held"))
            name = otherwise(name, "nobody")
            known = self._judge.horizon if self._judge.carries else self._judge.end
            ended = pc.struct_field(column(rows, "holder_witness"), "held_until")
            ended = pc.min_element_wise(ended, NEVER if known == UNKNOWN else known)
            lasted = pc.if_else(pc.equal(ended, NEVER), "", joined(" (", duration(pc.subtract(ended, at)), ")"))
            counted = joined(
                "consumer ", name, ", which held ", number(held), " unacknowledged since ",
                clock(at, self._judge.dates), lasted,
            )  # fmt: skip
            one = joined(name, " held an earlier message without acknowledging it")
            one = pc.if_else(
                pc.fill_null(pc.less(held, 0), False),
                no_further(column(rows, "holder_witness"), self._judge.dates),
                one,
            )
            return pc.if_else(pc.fill_null(pc.greater(held, 0), False), counted, one)
        return self._of_event(rows, code, epochs)

    def _unassigned(self, rows: pa.Table) -> pa.Array:
        """That nobody owned the partition of each row, and since when."""
        topics = column(rows, "topic").dictionary_encode()
        whose = np.column_stack([np.asarray(topics.indices), ints(rows, "partition")])
        distinct, of_row = np.unique(whose, axis=0, return_inverse=True)
        words = []
        for topic, partition in distinct.tolist():
            dispatcher = self._judge.dispatcher(Scope(topics.dictionary[topic].as_py(), partition))
            since = unowned_since(self._judge, dispatcher, UNKNOWN)
            when = "" if since in (UNKNOWN, NEVER) else f" since {words_of_clock(since, self._judge.dates)}"
            words.append(f"{NOT_ASSIGNED} {max(partition, 0)}{when}")
        return pa.array(words, pa.string()).take(pa.array(of_row.reshape(-1)))

    def _of_event(self, rows: pa.Table, code: Code, epochs: Ints) -> pa.Array:
        delivered, previous = flags(rows, "delivered"), ints(rows, "previous")
        cases: list[tuple[np.ndarray, pa.Array | str]] = []
        by_act = ints(rows, "excuses") & Exemption.RESET.bit != 0
        if code in _OF_ACT and by_act.any():
            cases.append((by_act, self._acts(rows, np.flatnonzero(by_act))))
        if code in _OF_REDELIVERY and self._judge.of_group:
            cases += [(previous == ending | why, words + more) for ending, words in OF_GROUP.items()
                      for why, more in NOT_COMMITTED.items()]  # fmt: skip
        elif code in _OF_REDELIVERY:
            cases.append((previous == Ending.NACKED, NACKED))
        if code is Code.LOST and self._judge.of_group:
            unread = ints(rows, "excuses") & Exemption.NOT_READ_YET.bit != 0
            cases.append((~delivered & unread, Exemption.NOT_READ_YET.sentence))
            skipped = self.skipped(rows)
            cases += [(np.asarray(skipped.is_valid()), skipped), (~delivered, PASSED)]
        if code is Code.DLQ_MISSED:
            restarted = ints(rows, "excuses") & Exemption.COUNT_RESTARTED.bit != 0
            cases += [(restarted, Exemption.COUNT_RESTARTED.sentence), (~restarted, NOT_COUNTED)]
        if code is Code.LOST:
            cases += [(~delivered & (ints(rows, "acked") == NEVER), SKIPPED), (~delivered, UNEXPLAINED)]
        cases.append((~delivered, "the data end"))
        if code is Code.NOT_CONNECTED or code in _OF_REDELIVERY:
            strange = delivered & (ints(rows, "codes") & _STRANGE != 0)
            cases.append((strange, self._last_seen(rows) if strange.any() else UNEXPLAINED))
        if code is Code.WRONG_OWNER:
            cases.append((delivered, self._words(self._opened, epochs)))
        cases.append((previous == Ending.CLOSED, self._words(self._left, epochs)))
        changing = flags(rows, "in_transition") & ~flags(rows, "by_receipt")
        next_begun = self._since[self._within(epochs + 1)] <= ints(rows, "at")
        cases.append((changing & next_begun, self._words(self._opening, epochs + 1)))
        cases.append((changing, self._words(self._opened, epochs)))
        evidence = RULES[code].evidence
        if evidence in ("order_witness", "owner_witness"):
            earlier = pc.struct_field(column(rows, evidence), "at").fill_null(np.iinfo(np.int64).max)
            begun = self._starts[self._within(epochs)] > np.asarray(earlier)
            cases.append((begun, self._words(self._opened, epochs)))
        return _first(cases, self._permission(code))

    def _last_seen(self, rows: pa.Table) -> pa.Array:
        """By which event the consumer of each delivery was last seen to leave, or that it never joined."""
        topics, consumers = (column(rows, name).dictionary_encode() for name in ("topic", "consumer"))
        names = [*consumers.dictionary.to_pylist(), None]
        of_name = consumers.indices.fill_null(len(names) - 1)
        whose = np.column_stack([np.asarray(topics.indices), ints(rows, "partition"), np.asarray(of_name)])
        distinct, of_row = np.unique(whose, axis=0, return_inverse=True)
        words = np.empty(rows.num_rows, object)
        for which, (topic, partition, consumer) in enumerate(distinct.tolist()):
            times, told = self._stays(Scope(topics.dictionary[topic].as_py(), partition), names[consumer])
            mine = np.flatnonzero(of_row.reshape(-1) == which)
            words[mine] = np.array(told, object)[np.searchsorted(times, ints(rows, "at")[mine], "right")]
        return pa.array(words, pa.string())

    def _stays(self, scope: Scope, consumer: str | None) -> tuple[Ints, list[str]]:
        """When a consumer left (ns), and the words for each time; in front, those for the time before the first."""
        epochs = self._judge.dispatcher(scope).timeline.epochs
        left = [epoch for epoch in epochs if any(gone.label == consumer for gone in epoch.left)]
        joins = [epoch for epoch in epochs if epoch.joined is not None and epoch.joined.label == consumer]
        refused = [epoch for epoch in epochs if epoch.rejected and epoch.cause and epoch.cause.consumer == consumer]
        first = (joins or refused)[:1]
        words = [describe_event(epoch, self._judge.dates) for epoch in (*first, *left)]
        words = words if first else [f"no join of {consumer or 'it'} is recorded", *words]
        return np.array([epoch.since.at for epoch in left], np.int64), words

    def _acts(self, rows: pa.Table, mine: Ints) -> pa.Array:
        """The acts that explain ``mine`` of some rows; null for the others."""
        words: list[str | None] = [None] * rows.num_rows
        codes = ints(rows, "codes")
        for row, act in self._act_of(rows, mine):
            words[row] = act.words(bool(codes[row] & Code.DUP_DELIVERY.bit))
        return pa.array(words, pa.string())

    def sought(self, rows: pa.Table, mine: Ints) -> NDArray[np.bool_]:
        """Which rows a declared seek explains, of ``mine``, which an act explains."""
        found = np.zeros(rows.num_rows, np.bool_)
        for row, act in self._act_of(rows, mine):
            found[row] = act.declared is not None and act.declared.kind == "seek"
        return found

    def skipped(self, rows: pa.Table) -> pa.Array:
        """Why a Kafka group began behind messages that it never received, some published while it was empty and those
        directly before them in the log; null where nothing shows it."""
        words = np.full(rows.num_rows, None, object)
        topics = column(rows, "topic").dictionary_encode()
        partition, published, entry = (ints(rows, name) for name in ("partition", "published", "entry"))
        whose = np.column_stack([np.asarray(topics.indices), partition])
        for topic, of in np.unique(whose, axis=0).tolist() if self._judge.of_group else ():
            scope = Scope(topics.dictionary[topic].as_py(), of)
            for act in self._acts_in(scope):
                if act.how == "group" and act.declared is None and act.until != NEVER:
                    mine = (whose == (topic, of)).all(1) & ~flags(rows, "delivered") & (published <= act.until)
                    mine = np.flatnonzero(mine)[np.argsort(entry[mine], kind="stable")]
                    run = np.cumsum(np.diff(entry[mine], prepend=UNKNOWN) > 1)
                    words[mine[np.isin(run, run[published[mine] >= act.at])]] = act.skipped()
        return pa.array(words, pa.string())

    def _acts_in(self, scope: Scope) -> tuple[Act, ...]:
        if scope not in self._acts_of:
            self._acts_of[scope] = self._judge.acts(self._judge.dispatcher(scope).timeline)
        return self._acts_of[scope]

    def _act_of(self, rows: pa.Table, mine: Ints) -> Iterator[tuple[int, Act]]:
        """The latest act before each of ``mine`` of some rows; of what was never delivered, the first after it."""
        some = rows.select(["topic", "partition", "at", "published", "delivered"]).take(pa.array(mine))
        for row, of in zip(mine.tolist(), some.to_pylist(), strict=True):
            acts = self._acts_in(Scope(of["topic"], of["partition"]))
            if of["delivered"]:
                near = [act for act in acts if act.at < of["at"]][-1:]
            else:
                by = of["published"] - self._judge.terms.clock_skew
                near = [act for act in acts if act.declared is not None and act.declared.at >= by][:1]
            yield from ((row, act) for act in near)

    def _words(self, words: pa.Array, epochs: Ints) -> pa.Array:
        return words.take(pa.array(self._within(epochs)))

    def _within(self, epochs: Ints) -> Ints:
        """Rows that are in no epoch, or whose epoch has no next one, are in some other case."""
        return np.clip(epochs, 0, len(self._starts) - 1)

    def _permission(self, code: Code) -> str:
        """What explains an allowed finding that no event does."""
        policy = self._judge.policy
        if self._judge.promised & code.bit:
            return UNEXPLAINED
        if code is Code.DUP_OUTSTANDING and policy.routing != "partition":
            return f"{policy.profile} delivers an outstanding message again at times"
        if code in (Code.KEY_ORDER, Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK):
            return (
                f"{policy.name} as configured gives a key to any consumer"
                if policy.routing == "any"
                else "out-of-order delivery is allowed"
            )
        return UNEXPLAINED


def unassigned(rows: pa.Table) -> NDArray[np.bool_]:
    """Which messages of a Kafka group were never delivered because no member owned their partition."""
    waits = (Code.STARVED.bit | Code.STALLED.bit) & ints(rows, "codes") != 0
    return np.asarray(waits & ~flags(rows, "delivered") & np.asarray(column(rows, "consumer").is_null()))


def _first(cases: Iterable[tuple[np.ndarray, pa.Array | str]], default: str) -> pa.Array:
    """Row by row, the words of the first case that holds."""
    conditions, words = zip(*cases, strict=True)
    names = [str(i) for i in range(len(conditions))]
    return pc.case_when(pc.make_struct(*map(pa.array, conditions), field_names=names), *words, default)
