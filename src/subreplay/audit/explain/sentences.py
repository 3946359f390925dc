"""The columns that fill in the sentences of rules (``Rule.sentence``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.deliveries import WHY, Ending
from subreplay.audit.explain import wording
from subreplay.rows.model.columns import NEVER, UNKNOWN, column

_ENDINGS: Final = {
    Ending.NONE: "after an earlier delivery",
    Ending.ACKED: "after its acknowledgement",
    Ending.NACKED: "after its redelivery was asked for (nack or ack timeout)",
    Ending.CLOSED: "after its consumer left",
    Ending.OPEN: "while the earlier delivery was outstanding",
    Ending.REVOKED: "after its partition was revoked without a commit of it",
    Ending.LOST: "after its partition was lost without a commit of it",
    Ending.CRASHED: "after its consumer crashed without a commit of it",
    Ending.SOUGHT: "after the application sought back",
}


@dataclass(frozen=True)
class Words:
    """What sentences say of some rows, column by column; each is made once, when it is asked for. ``end``: that of the
    data (ns). ``dates``: instants are shown with their dates. ``max_redeliveries``: of the dead letter policy.
    ``of_group``: consumers are members of a Kafka group."""

    rows: pa.Table
    end: int = UNKNOWN
    dates: bool = False
    max_redeliveries: int = 0
    of_group: bool = False
    made: dict[str, pa.Array] = field(default_factory=dict)

    def of(self, name: str) -> pa.Array:
        if name not in self.made:
            self.made[name] = _WORDS[name](self)
        return self.made[name]

    def given(self, name: str) -> pa.Array:
        return column(self.rows, name)

    def holder(self, name: str) -> pa.Array:
        return pc.struct_field(self.given("holder_witness"), name)

    def delivery(self, evidence: str) -> pa.Array:
        """A witness in words; null for none."""
        given = self.given(evidence)
        consumer, at, until = (pc.struct_field(given, name) for name in ("consumer", "at", "held_until"))
        return wording.delivery(wording.position_of(given), consumer, at, until, self.dates)

    def clock(self, at: pa.Array) -> pa.Array:
        return wording.clock(at, self.dates)

    def clock_if_known(self, name: str, unknown: str = "") -> pa.Array:
        return wording.clock_if_known(self.given(name), unknown, self.dates)

    def lost(self) -> pa.Array:
        """What became of a lost message."""
        skipped = pc.equal(self.given("acked"), NEVER)
        return pc.case_when(
            pc.make_struct(self.given("delivered"), skipped, field_names=["delivered", "skipped"]),
            "was acknowledged although no application received it",
            "was skipped: later messages of its owner were delivered",
            "was acknowledged although no delivery of it is recorded",
        )

    def waited(self) -> pa.Array:
        """How long past due a message was delivered, or has waited (ns); null where the end is not known."""
        end = pa.scalar(None if self.end == UNKNOWN else self.end, pa.int64())
        until = pc.if_else(self.given("delivered"), self.given("at"), end)
        return pc.max_element_wise(pc.subtract(until, self.given("due")), 0, skip_nulls=False)

    def waited_micros(self) -> pa.Array:
        """The same in µs; null for a message that did not wait itself, but filled the limit of its consumer."""
        return pc.if_else(self.fills_limit(), pa.scalar(None, pa.int64()), pc.divide(self.waited(), 1_000))

    def fills_limit(self) -> pa.Array:
        """Whether a delivery made its consumer reach the limit of unacknowledged messages, to the end."""
        mine = pc.equal(self.holder("consumer"), self.given("consumer"))
        mine = pc.and_(pc.and_(self.given("delivered"), mine), pc.equal(self.holder("held_until"), NEVER))
        return pc.fill_null(mine, False)

    def free_owner(self) -> pa.Array:
        """Whose turn it was to receive a message that never came."""
        named = wording.joined(self.given("consumer"), " was connected and free")
        nobody: pa.Array | str = "consumers were connected and free"
        if self.of_group:
            nobody = wording.joined(
                "members of the group were connected (none owned partition ", self.of("partition"), ")"
            )
        named = pc.if_else(self.given("consumer").is_valid(), named, nobody)
        held = pc.fill_null(self.holder("held"), 0)
        place = wording.position_of(self.given("holder_witness"))
        in_turn = wording.joined(
            wording.number(pc.negate(held)), " owners in turn were connected, none of which got past ", place
        )
        return pc.if_else(pc.less(held, 0), in_turn, named)

    def stuck(self) -> pa.Array:
        """What a message waited for, or the consumer that reached its limit with it."""
        held, consumer = self.holder("held"), self.holder("consumer")
        first = wording.joined(
            "which held ", wording.number(held), " unacknowledged since ", self.clock(self.holder("at")),
            " (first: ", wording.position_of(self.given("holder_witness")), ")",
        )  # fmt: skip
        message = wording.joined(self.of("message"), " of key ", self.of("key"))
        behind = wording.joined(
            message, ", due at ", self.of("due"), ", waited ", self.of("waited"), " behind ", consumer, ", ", first
        )
        full = wording.joined(
            consumer, " reached its limit of unacknowledged messages with ", self.of("message"), " at ", self.of("at"),
            " and received nothing more, ", first,
        )  # fmt: skip
        by_slot = wording.joined(
            message, " (slot ", self.of("slot"), ") waited ", self.of("wait"), " for ", self.of("holder_witness"),
            pc.fill_null(self.of("other_key"), ""),
        )  # fmt: skip
        again = wording.joined(
            message, ", due at ", self.of("due"), ", waited ", self.of("waited"), " behind ",
            wording.no_further(self.given("holder_witness"), self.dates),
        )  # fmt: skip
        by_slot = pc.if_else(pc.fill_null(pc.less(held, 0), False), again, by_slot)
        counted = pc.fill_null(pc.greater(held, 0), False)
        return pc.if_else(counted, pc.if_else(self.fills_limit(), full, behind), by_slot)

    def earlier_commit(self) -> pa.Array:
        """Who committed before, what and when; a consumer's own commits are not named as somebody's."""
        earlier = self.given("order_witness")
        consumer, entry, at = (pc.struct_field(earlier, name) for name in ("consumer", "entry", "at"))
        other = pc.fill_null(pc.not_equal(consumer, self.given("consumer")), False)
        of = pc.if_else(other, wording.joined(consumer, "'s "), "")
        return wording.joined(of, wording.number(entry), " at ", self.clock(at))

    def count(self) -> pa.Array:
        """What became of a redelivery count that should have risen."""
        restarts, count = self.given("restarts"), wording.number(self.given("redelivery_count"))
        often = pc.if_else(pc.equal(restarts, 1), "once", wording.joined(wording.number(restarts), " times"))
        rose = pc.greater(self.given("redelivery_count"), 0)
        no_more = pc.if_else(rose, wording.joined("rose to ", count, " only"), "never rose above 0")
        return pc.if_else(
            pc.equal(restarts, 0), no_more, wording.joined("started anew ", often, ", and was last ", count)
        )

    def wait(self) -> pa.Array:
        """How long a message was held back, as far as the data go."""
        since = pc.max_element_wise(self.given("due"), self.holder("at"), skip_nulls=False)
        ended = wording.joined(wording.seconds(pc.subtract(self.holder("held_until"), since)), " s")
        return pc.if_else(self.given("delivered"), ended, wording.joined("from ", self.clock(since), " to the end,"))


_WORDS: Final[dict[str, Callable[[Words], pa.Array]]] = {
    "message": lambda w: wording.position(w.given("ledger"), w.given("entry"), w.given("batch_index")),
    "times": lambda w: wording.number(pc.add(w.given("nth"), 1)),
    "max_redeliveries": lambda w: pa.repeat(str(w.max_redeliveries), w.rows.num_rows),
    "count": Words.count,
    "earlier_commit": Words.earlier_commit,
    "offset": lambda w: wording.number(w.given("entry")),
    "entry": lambda w: wording.position(w.given("ledger"), w.given("entry"), pa.repeat(-1, w.rows.num_rows)),
    "partition": lambda w: wording.number(w.given("partition")),
    "key": lambda w: wording.otherwise(w.given("key"), "(none)"),
    "slot": lambda w: wording.numbered(w.given("slot"), "not shown"),
    "consumer": lambda w: wording.otherwise(w.given("consumer"), "nobody"),
    "expected": lambda w: wording.otherwise(w.given("expected"), "nobody"),
    "at": lambda w: w.clock(w.given("at")),
    "published": lambda w: w.clock_if_known("published", "an unknown time"),
    "due": lambda w: w.clock_if_known("due"),
    "early": lambda w: wording.seconds(pc.subtract(w.given("due"), w.given("at"))),
    "acked": lambda w: w.clock_if_known("acked"),
    "order_witness": lambda w: w.delivery("order_witness"),
    "owner_witness": lambda w: w.delivery("owner_witness"),
    "holder_witness": lambda w: w.delivery("holder_witness"),
    "delivery": lambda w: wording.delivery(
        w.of("message"), w.given("consumer"), w.given("at"), w.given("held_until"), w.dates
    ),
    "wait": Words.wait,
    "waited": lambda w: pc.fill_null(wording.duration(w.waited()), "to the end"),
    "free_owner": Words.free_owner,
    "stuck": Words.stuck,
    # blocking works by slot: two keys of one slot share their fate
    "other_key": lambda w: pc.if_else(w.holder("same_key"), "", ", of another key that is held back with it"),
    "twin": lambda w: wording.position_of(w.given("twin")),
    "skipped": lambda w: wording.position_of(w.given("skipped")),
    "skipped_others": lambda w: pc.if_else(w.given("skipped_others"), "others beside it", wording.NOTHING),
    "previous": lambda w: pa.array([_ENDINGS[e] for e in Ending]).take(pc.bit_wise_and(w.given("previous"), ~WHY)),
    "lost": Words.lost,
}
