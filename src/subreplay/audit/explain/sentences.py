"""One sentence for each rule about deliveries, and the columns that fill it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.audit.codes import Code
from subreplay.audit.explain import wording
from subreplay.audit.rules.redelivery import Ending
from subreplay.model.columns import NEVER, column

SENTENCES: Final = {
    Code.WRONG_OWNER: "{message} of key {key} (slot {slot}) went to {consumer} at {at}; its owner was {expected}",
    Code.NOT_CONNECTED: "{message} of key {key} went at {at} to {consumer}, which was not connected",
    Code.KEY_ORDER: "{message} of key {key} first reached {consumer} at {at}, after the later {order_witness}",
    Code.PARTITION_ORDER: "{message} first reached {consumer} at {at}, after the later {order_witness}",
    Code.KEY_TWO_OWNERS: "{message} of key {key} reached {consumer} at {at} while {owner_witness} was still "
    "outstanding",
    Code.DUP_DELIVERY: "{message} of key {key} was delivered again, to {consumer} at {at}, after its acknowledgement",
    Code.DUP_OUTSTANDING: "{message} of key {key} was delivered again, to {consumer} at {at}, while it was outstanding",
    Code.LOST: "{message} of key {key}, published at {published}, {lost}",
    Code.MIXED_BATCH: "the batch {entry}, given to {consumer} at {at}, holds other keys than the one it was sent by",
    Code.UNROUTABLE: "{message} of key {key} waits: no connected consumer owns slot {slot}",
    Code.DIVERGENT_ID: "{message} stands in the log with two different contents",
    Code.UNKNOWN_MESSAGE: "{message}, delivered to {consumer} at {at}, is not in the messages table",
    Code.ACK_EARLY: "{message} of key {key} was acknowledged at {acked}, before its delivery to {consumer} at {at}",
    Code.UNSEEN: "{message} of key {key}, published at {published}, was not delivered by the end",
    Code.UNACKED: "{message} of key {key}, delivered to {consumer} at {at}, was not acknowledged by the end",
    Code.REDELIVERED: "{message} of key {key} was delivered again, to {consumer} at {at}, {previous}",
    Code.BEFORE_PREDECESSOR_ACK: "key {key} went on to {consumer} with {message} at {at} while "
    "{owner_witness} was open",
    Code.REDELIVERY_ORDER: "{message} of key {key} came again, to {consumer} at {at}, after the newer {order_witness}",
    Code.SKIP: "{message} reached {consumer} at {at}, although {skipped}, before it in the log, was neither given to "
    "it nor acknowledged by then",
    Code.PRODUCER_ORDER: "{message} was stored after the later message {twin} of its producer",
    Code.DUP_PUBLISH: "{message} has the producer and the sequence id of {twin}",
    Code.TWO_ACTIVE: "{message} went to {consumer} at {at}, though its owner was being served: {owner_witness}",
    Code.CUM_ACK_MISUSE: "{message} of key {key} was acknowledged cumulatively by {consumer} at {acked}",
    Code.ROUTING_MISMATCH: "{message} of key {key} is in partition {partition}, where its key does not belong",
    Code.EARLY: "{message} of key {key} reached {consumer} at {at}, {early} s before its time {due}",
    Code.OVER_PERMITS: "{message} reached {consumer} at {at}, when its receiver queue was already full",
    Code.STUCK: "{message} of key {key} (slot {slot}) waited {wait} for {holder_witness}{other_key}",
    Code.STARVED: "{message} of key {key}, published at {published}, waits for {expected}, which is connected and idle",
    Code.BEFORE_PUBLICATION: "{message} of key {key} reached {consumer} at {at}, before its publication at {published}",
    Code.REDELIVERED_UNASKED: "{message} of key {key} was delivered again, to {consumer} at {at}, and no cause is seen",
}
_ENDINGS: Final = {
    Ending.NONE: "after an earlier delivery",
    Ending.ACKED: "after its acknowledgement",
    Ending.NACKED: "after its redelivery was asked for (nack or ack timeout)",
    Ending.CLOSED: "after its consumer left",
    Ending.OPEN: "while the earlier delivery was outstanding",
}


@dataclass(frozen=True)
class Words:
    """What sentences say of some rows, column by column; each is made once, when it is asked for."""

    rows: pa.Table
    made: dict[str, pa.Array] = field(default_factory=dict)

    def of(self, name: str) -> pa.Array:
        if name not in self.made:
            self.made[name] = _WORDS[name](self)
        return self.made[name]

    def given(self, name: str) -> pa.Array:
        return column(self.rows, name)

    def holder(self, name: str) -> pa.Array:
        return pc.struct_field(self.given("holder_witness"), name)

    def delivery(self, witness: str) -> pa.Array:
        """A witness in words; null for none."""
        given = self.given(witness)
        told = (pc.struct_field(given, name) for name in ("consumer", "at", "held_until"))
        return wording.delivery(wording.place(given), *told)

    def lost(self) -> pa.Array:
        """What became of a lost message."""
        skipped = pc.equal(self.given("acked"), NEVER)
        return pc.case_when(
            pc.make_struct(self.given("delivered"), skipped, field_names=["delivered", "skipped"]),
            "was acknowledged although no application received it",
            "was skipped: later messages of its owner were delivered",
            "was acknowledged although no delivery of it is recorded",
        )

    def wait(self) -> pa.Array:
        """How long a message was held back, as far as the data go."""
        since = pc.max_element_wise(self.given("due"), self.holder("at"), skip_nulls=False)
        ended = wording.joined(wording.seconds(pc.subtract(self.holder("held_until"), since)), " s")
        return pc.if_else(self.given("delivered"), ended, wording.joined("from ", wording.clock(since), " to the end,"))


_WORDS: Final[dict[str, Callable[[Words], pa.Array]]] = {
    "message": lambda w: wording.position(w.given("ledger"), w.given("entry"), w.given("batch_index")),
    "entry": lambda w: wording.position(w.given("ledger"), w.given("entry"), pa.repeat(-1, w.rows.num_rows)),
    "partition": lambda w: wording.number(w.given("partition")),
    "key": lambda w: wording.otherwise(w.given("key"), "(none)"),
    "slot": lambda w: wording.numbered(w.given("slot"), "not shown"),
    "consumer": lambda w: wording.otherwise(w.given("consumer"), "nobody"),
    "expected": lambda w: wording.otherwise(w.given("expected"), "nobody"),
    "at": lambda w: wording.clock(w.given("at")),
    "published": lambda w: wording.clock_if_known(w.given("published"), "an unknown time"),
    "due": lambda w: wording.clock_if_known(w.given("due")),
    "early": lambda w: wording.seconds(pc.subtract(w.given("due"), w.given("at"))),
    "acked": lambda w: wording.clock_if_known(w.given("acked")),
    "order_witness": lambda w: w.delivery("order_witness"),
    "owner_witness": lambda w: w.delivery("owner_witness"),
    "holder_witness": lambda w: w.delivery("holder_witness"),
    "delivery": lambda w: wording.delivery(w.of("message"), w.given("consumer"), w.given("at"), w.given("held_until")),
    "wait": Words.wait,
    # blocking works by slot: two keys of one slot share their fate
    "other_key": lambda w: pc.if_else(w.holder("same_key"), "", ", of another key that is held back with it"),
    "twin": lambda w: wording.place(w.given("twin")),
    "skipped": lambda w: wording.place(w.given("skipped")),
    "previous": lambda w: pa.array([_ENDINGS[e] for e in Ending]).take(w.given("previous")),
    "lost": Words.lost,
}
