"""Make the columns that fill in the sentences of rules (``Rule.sentence``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.audit.deliveries import WHY, Ending
from subreplay.audit.explain import text_columns
from subreplay.rows.model.columns import NEVER, UNKNOWN, column

_ENDINGS: Final = {
    Ending.NONE: "after an earlier delivery",
    Ending.ACKED: "after its acknowledgement",
    Ending.NACKED: "after its redelivery was requested (nack or ack timeout)",
    Ending.CLOSED: "after its consumer left",
    Ending.OPEN: "while the earlier delivery was outstanding",
    Ending.REVOKED: "after its partition was revoked without a commit of it",
    Ending.LOST: "after its partition was lost without a commit of it",
    Ending.CRASHED: "after its consumer crashed without a commit of it",
    Ending.SOUGHT: "after the application sought back",
    Ending.EXPIRED: "after its acquisition lock had timed out",
    Ending.RENEWED: "after its consumer renewed its lock",
    Ending.RELEASED: "after its consumer released it",
}


@dataclass(frozen=True)
class SentenceColumns:
    """The text columns of some rows, each computed once, when a sentence needs it.

    ``end``: the end of the data (ns). ``dates``: instants include their dates. ``max_redeliveries``: the limit of the
    dead letter policy. ``of_group``: consumers are members of a Kafka group.
    """

    rows: pa.Table
    end: int = UNKNOWN
    dates: bool = False
    max_redeliveries: int = 0
    of_group: bool = False
    computed: dict[str, pa.Array] = field(default_factory=dict)

    def get_text(self, name: str) -> pa.Array:
        """Return the text column with this name."""
        if name not in self.computed:
            self.computed[name] = _TEXT_COLUMNS[name](self)
        return self.computed[name]

    def get_column(self, name: str) -> pa.Array:
        """Return a column of the rows."""
        return column(self.rows, name)

    def get_holder(self, name: str) -> pa.Array:
        """Return a field of the delivery that blocked each message."""
        return pc.struct_field(self.get_column("holder_witness"), name)

    def describe_delivery(self, evidence: str) -> pa.Array:
        """Describe a delivery that is evidence; null for none."""
        given = self.get_column(evidence)
        consumer, at, until = (pc.struct_field(given, name) for name in ("consumer", "at", "held_until"))
        return text_columns.format_deliveries(
            text_columns.format_position_structs(given), consumer, at, until, self.dates
        )

    def format_clock(self, at: pa.Array) -> pa.Array:
        """Format instants."""
        return text_columns.format_clocks(at, self.dates)

    def format_known_clock(self, name: str, unknown: str = "") -> pa.Array:
        """Format the instants of a column, with a text for unknown ones."""
        return text_columns.format_known_clocks(self.get_column(name), unknown, self.dates)

    def describe_loss(self) -> pa.Array:
        """Describe what happened to a lost message."""
        skipped = pc.equal(self.get_column("acked"), NEVER)
        passed = pc.not_equal(pc.bit_wise_and(self.get_column("codes"), Code.UNACKED.bit), 0)
        return pc.case_when(
            pc.make_struct(passed, self.get_column("delivered"), skipped, field_names=["passed", "given", "skipped"]),
            "was neither acknowledged nor archived, but the start offset of its partition passed it",
            "was acknowledged although no application received it",
            "was skipped: later messages of its owner were delivered",
            "was acknowledged although no delivery of it is recorded",
        )

    def measure_wait(self) -> pa.Array:
        """Measure how long after its due time a message was delivered, or has waited (ns); null if the end is not
        known."""
        end = pa.scalar(None if self.end == UNKNOWN else self.end, pa.int64())
        until = pc.if_else(self.get_column("delivered"), self.get_column("at"), end)
        return pc.max_element_wise(pc.subtract(until, self.get_column("due")), 0, skip_nulls=False)

    def measure_wait_micros(self) -> pa.Array:
        """Measure the same in µs; null for a message that did not wait but filled the limit of its consumer."""
        return pc.if_else(self.is_limit_reached(), pa.scalar(None, pa.int64()), pc.divide(self.measure_wait(), 1_000))

    def is_limit_reached(self) -> pa.Array:
        """Return whether a delivery made its consumer reach the limit of unacknowledged messages until the end of the
        data."""
        selected = pc.equal(self.get_holder("consumer"), self.get_column("consumer"))
        selected = pc.and_(
            pc.and_(self.get_column("delivered"), selected), pc.equal(self.get_holder("held_until"), NEVER)
        )
        return pc.fill_null(selected, False)

    def describe_free_owner(self) -> pa.Array:
        """Describe the consumer that should have received a message that was never delivered."""
        named = text_columns.join_text(self.get_column("consumer"), " was connected and idle")
        nobody: pa.Array | str = "consumers were connected and idle"
        if self.of_group:
            nobody = text_columns.join_text(
                "members of the group were connected (none owned partition ", self.get_text("partition"), ")"
            )
        named = pc.if_else(self.get_column("consumer").is_valid(), named, nobody)
        outstanding = pc.fill_null(self.get_holder("held"), 0)
        place = text_columns.format_position_structs(self.get_column("holder_witness"))
        in_turn = text_columns.join_text(
            text_columns.format_numbers(pc.negate(outstanding)),
            " owners in turn were connected, none of which got past ",
            place,
        )
        return pc.if_else(pc.less(outstanding, 0), in_turn, named)

    def describe_blocker(self) -> pa.Array:
        """Describe what blocked a message, or the consumer that reached its limit with it."""
        outstanding, consumer = self.get_holder("held"), self.get_holder("consumer")
        first = text_columns.join_text(
            "which held ", text_columns.format_numbers(outstanding), " unacknowledged since ",
            self.format_clock(self.get_holder("at")),
            " (first: ", text_columns.format_position_structs(self.get_column("holder_witness")), ")",
        )  # fmt: skip
        message = text_columns.join_text(self.get_text("message"), " of key ", self.get_text("key"))
        behind = text_columns.join_text(
            message,
            ", due at ",
            self.get_text("due"),
            ", waited ",
            self.get_text("waited"),
            " behind ",
            consumer,
            ", ",
            first,
        )
        full = text_columns.join_text(
            consumer, " reached its limit of unacknowledged messages with ", self.get_text("message"), " at ",
            self.get_text("at"), " and received nothing more, ", first,
        )  # fmt: skip
        by_slot = text_columns.join_text(
            message, " (slot ", self.get_text("slot"), ") waited ", self.get_text("wait"), " for ",
            self.get_text("holder_witness"), pc.fill_null(self.get_text("other_key"), ""),
        )  # fmt: skip
        again = text_columns.join_text(
            message, ", due at ", self.get_text("due"), ", waited ", self.get_text("waited"), " behind ",
            text_columns.describe_stuck_owners(self.get_column("holder_witness"), self.dates),
        )  # fmt: skip
        by_slot = pc.if_else(pc.fill_null(pc.less(outstanding, 0), False), again, by_slot)
        counted = pc.fill_null(pc.greater(outstanding, 0), False)
        return pc.if_else(counted, pc.if_else(self.is_limit_reached(), full, behind), by_slot)

    def describe_earlier_commit(self) -> pa.Array:
        """Describe the previous commit. It names its consumer only if that is another one."""
        earlier = self.get_column("order_witness")
        consumer, entry, at = (pc.struct_field(earlier, name) for name in ("consumer", "entry", "at"))
        other = pc.fill_null(pc.not_equal(consumer, self.get_column("consumer")), False)
        of = pc.if_else(other, text_columns.join_text(consumer, "'s "), "")
        return text_columns.join_text(of, text_columns.format_numbers(entry), " at ", self.format_clock(at))

    def describe_count(self) -> pa.Array:
        """Describe a redelivery count that should have increased."""
        restarts, count = (
            self.get_column("restarts"),
            text_columns.format_numbers(self.get_column("redelivery_count")),
        )
        often = pc.if_else(
            pc.equal(restarts, 1), "once", text_columns.join_text(text_columns.format_numbers(restarts), " times")
        )
        rose = pc.greater(self.get_column("redelivery_count"), 0)
        no_more = pc.if_else(rose, text_columns.join_text("rose to ", count, " only"), "never rose above 0")
        return pc.if_else(
            pc.equal(restarts, 0), no_more, text_columns.join_text("restarted ", often, ", and was last ", count)
        )

    def describe_wait(self) -> pa.Array:
        """Describe how long a message was blocked, up to the end of the data."""
        since = pc.max_element_wise(self.get_column("due"), self.get_holder("at"), skip_nulls=False)
        ended = text_columns.join_text(
            text_columns.format_seconds(pc.subtract(self.get_holder("held_until"), since)), " s"
        )
        return pc.if_else(
            self.get_column("delivered"),
            ended,
            text_columns.join_text("from ", self.format_clock(since), " to the end,"),
        )


_TEXT_COLUMNS: Final[dict[str, Callable[[SentenceColumns], pa.Array]]] = {
    "message": lambda w: text_columns.format_positions(
        w.get_column("ledger"), w.get_column("entry"), w.get_column("batch_index")
    ),
    "times": lambda w: text_columns.format_numbers(pc.add(w.get_column("nth"), 1)),
    "max_redeliveries": lambda w: pa.repeat(str(w.max_redeliveries), w.rows.num_rows),
    "count": SentenceColumns.describe_count,
    "earlier_commit": SentenceColumns.describe_earlier_commit,
    "offset": lambda w: text_columns.format_numbers(w.get_column("entry")),
    "entry": lambda w: text_columns.format_positions(
        w.get_column("ledger"), w.get_column("entry"), pa.repeat(-1, w.rows.num_rows)
    ),
    "partition": lambda w: text_columns.format_numbers(w.get_column("partition")),
    "key": lambda w: text_columns.fill_missing_text(w.get_column("key"), "(none)"),
    "slot": lambda w: text_columns.format_known_numbers(w.get_column("slot"), "not shown"),
    "consumer": lambda w: text_columns.fill_missing_text(w.get_column("consumer"), "nobody"),
    "expected": lambda w: text_columns.fill_missing_text(w.get_column("expected"), "nobody"),
    "at": lambda w: w.format_clock(w.get_column("at")),
    "published": lambda w: w.format_known_clock("published", "an unknown time"),
    "due": lambda w: w.format_known_clock("due"),
    "early": lambda w: text_columns.format_seconds(pc.subtract(w.get_column("due"), w.get_column("at"))),
    "acked": lambda w: w.format_known_clock("acked"),
    "order_witness": lambda w: w.describe_delivery("order_witness"),
    "owner_witness": lambda w: w.describe_delivery("owner_witness"),
    "holder_witness": lambda w: w.describe_delivery("holder_witness"),
    "delivery": lambda w: text_columns.format_deliveries(
        w.get_text("message"), w.get_column("consumer"), w.get_column("at"), w.get_column("held_until"), w.dates
    ),
    "wait": SentenceColumns.describe_wait,
    "waited": lambda w: pc.fill_null(text_columns.format_durations(w.measure_wait()), "to the end"),
    "free_owner": SentenceColumns.describe_free_owner,
    "stuck": SentenceColumns.describe_blocker,
    # blocking works by slot: two keys of one slot share their fate
    "other_key": lambda w: pc.if_else(w.get_holder("same_key"), "", ", of another key that is blocked with it"),
    "twin": lambda w: text_columns.format_position_structs(w.get_column("twin")),
    "skipped": lambda w: text_columns.format_position_structs(w.get_column("skipped")),
    "skipped_others": lambda w: pc.if_else(w.get_column("skipped_others"), "and others", text_columns.NO_TEXT),
    "previous": lambda w: pa.array([_ENDINGS[e] for e in Ending]).take(pc.bit_wise_and(w.get_column("previous"), ~WHY)),
    "lost": SentenceColumns.describe_loss,
}
