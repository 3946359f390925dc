"""Findings in words: the sentence, the witness rows, and the membership event that explains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

import pyarrow as pa

from subreplay.columns import NEVER
from subreplay.model import Scope, Standing
from subreplay.rules.codes import Code, Excuse, excuse_of
from subreplay.rules.happenings import event_words, last_leave
from subreplay.rules.judge import Judge
from subreplay.rules.redelivery import Ending
from subreplay.rules.registry import RULES
from subreplay.tables import VIOLATIONS
from subreplay.words import clock, position

__all__ = ["Explainer", "event_words"]

_SENTENCES: Final = {
    Code.WRONG_OWNER: "{message} of key {key} (slot {slot}) went to {consumer} at {at}; its owner was {expected}",
    Code.NOT_CONNECTED: "{message} of key {key} went at {at} to {consumer}, which was not connected",
    Code.KEY_ORDER: "{message} of key {key} first reached {consumer} at {at}, after the later {order}",
    Code.PARTITION_ORDER: "{message} first reached {consumer} at {at}, after the later {order}",
    Code.KEY_TWO_OWNERS: "{message} of key {key} reached {consumer} at {at} while {owner} was still outstanding",
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
    Code.BEFORE_PREDECESSOR_ACK: "key {key} went on to {consumer} with {message} at {at} while {owner} was open",
    Code.REDELIVERY_ORDER: "{message} of key {key} came again, to {consumer} at {at}, after the newer {order}",
    Code.SKIP: "{message} reached {consumer} at {at}, although {skipped}, before it in the log, was neither given to "
    "it nor acknowledged by then",
    Code.PRODUCER_ORDER: "{message} was stored after the later message {twin} of its producer",
    Code.DUP_PUBLISH: "{message} has the producer and the sequence id of {twin}",
    Code.TWO_ACTIVE: "{message} went to {consumer} at {at}, though its owner was being served: {owner}",
    Code.CUM_ACK_MISUSE: "{message} of key {key} was acknowledged cumulatively by {consumer} at {acked}",
    Code.ROUTING_MISMATCH: "{message} of key {key} is in partition {partition}, where its key does not belong",
    Code.EARLY: "{message} of key {key} reached {consumer} at {at}, {early} s before its time {due}",
    Code.OVER_PERMITS: "{message} reached {consumer} at {at}, when its receiver queue was already full",
    Code.STUCK: "{message} of key {key} (slot {slot}) waited {wait} for {holder}{other_key}",
}
_ENDINGS: Final = {
    Ending.NONE: "after an earlier delivery",
    Ending.ACKED: "after its acknowledgement",
    Ending.NACKED: "after its redelivery was asked for (nack or ack timeout)",
    Ending.CLOSED: "after its consumer left",
    Ending.OPEN: "while the earlier delivery was outstanding",
}

# The other side of a finding, among the words of its sentence
_OTHER: Final = {
    **dict.fromkeys((Code.KEY_ORDER, Code.PARTITION_ORDER, Code.REDELIVERY_ORDER), "order"),
    **dict.fromkeys((Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK, Code.TWO_ACTIVE), "owner"),
    **dict.fromkeys((Code.PRODUCER_ORDER, Code.DUP_PUBLISH), "twin"),
    Code.SKIP: "skipped",
    Code.STUCK: "holder",
}
_OF_REDELIVERY: Final = frozenset({Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.REDELIVERED, Code.REDELIVERY_ORDER})
_OF_OWNERSHIP: Final = frozenset({Code.WRONG_OWNER, Code.NOT_CONNECTED})
# What the producer did
_PUBLISHED: Final = {
    Code.MIXED_BATCH: "the producer batched by time and size, not by key",
    Code.PRODUCER_ORDER: "its producer sent it late or numbers its messages by itself",
    Code.DUP_PUBLISH: "its producer sent it twice, and the topic did not deduplicate",
    Code.ROUTING_MISMATCH: "its producer chooses partitions otherwise than declared, or their number changed",
    Code.CUM_ACK_MISUSE: "its application acknowledges cumulatively",
}


@dataclass(frozen=True)
class Explainer:
    """Turns judged rows into ``violations`` rows: every finding that fails, and the examples of those that do not."""

    judge: Judge
    subscription: str

    def violations(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``JUDGED`` rows, their key already in words -> ``VIOLATIONS`` rows."""
        for batch in batches:
            rows = [v for row in batch.to_pylist() for v in self._of(row)]
            if rows:
                yield from pa.Table.from_pylist(rows, schema=VIOLATIONS).to_batches()

    def _of(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        for code in Code:
            if row["codes"] & code.bit:
                excuse = excuse_of(code, row["excuses"])
                fails = bool(self.judge.promised & code.bit) and excuse is Excuse.NONE
                if fails or row["shown"] & code.bit:
                    yield self._violation(row, code, Standing.PROMISED if fails else Standing.ALLOWED, excuse)

    def _violation(self, row: Mapping[str, Any], code: Code, standing: Standing, excuse: Excuse) -> dict[str, Any]:
        at = row["at"] if row["delivered"] else None
        words = self._words(row)
        moment = datetime.fromtimestamp((at if at is not None else row["published"]) // 1_000_000_000, timezone.utc)
        witness = (_delivery(row) if row["delivered"] else "", words.get(_OTHER.get(code, ""), ""))
        return {
            "date": moment.date(),
            "subscription": self.subscription,
            **{
                name: row[name]
                for name in ("topic", "partition", "ledger", "entry", "batch_index", "consumer", "slot", "epoch")
            },
            "code": code.name,
            "verdict": str(RULES[code].verdict(standing)),
            "excuse": excuse.sentence or None,
            "at": None if at is None else at // 1_000,
            "key": row["key"],
            "cause": self._cause(row, code),
            "witness": [w for w in witness if w],
            "explanation": _SENTENCES[code].format(**words) + (f"; {excuse.sentence}" if excuse else ""),
        }

    def _words(self, row: Mapping[str, Any]) -> dict[str, str]:
        lost = "was acknowledged although no delivery of it is recorded"
        if row["delivered"]:
            lost = "was acknowledged although no application received it"
        elif row["acked"] == NEVER:
            lost = "was skipped: later messages of its owner were delivered"
        return {
            "message": position(row["ledger"], row["entry"], row["batch_index"]),
            "entry": position(row["ledger"], row["entry"], -1),
            "partition": str(row["partition"]),
            "key": row["key"] or "(none)",
            "slot": str(row["slot"]),
            "consumer": row["consumer"] or "nobody",
            "expected": row["expected"] or "nobody",
            "at": clock(row["at"]) if row["delivered"] else "",
            "published": clock(row["published"]) if row["published"] > 0 else "an unknown time",
            "due": clock(row["due"]) if row["due"] > 0 else "",
            "early": _seconds(row["due"] - row["at"]),
            "acked": clock(row["acked"]) if 0 < row["acked"] < NEVER else "",
            "order": _delivery(row["order_witness"]),
            "owner": _delivery(row["owner_witness"]),
            "holder": _delivery(row["holder_witness"]),
            "wait": self._wait(row),
            "other_key": _other_key(row["holder_witness"]),
            "twin": _place(row["twin"]),
            "skipped": _place(row["skipped"]),
            "previous": _ENDINGS[Ending(row["previous"])],
            "lost": lost,
        }

    def _wait(self, row: Mapping[str, Any]) -> str:
        """How long a message was held back, as far as the data go."""
        holder = row["holder_witness"]
        if not holder:
            return ""
        since = max(row["due"], holder["at"])
        return f"{_seconds(holder['held_until'] - since)} s" if row["delivered"] else f"from {clock(since)} to the end,"

    def _cause(self, row: Mapping[str, Any], code: Code) -> str:
        """The epoch change, disconnect, nack or producer fact that explains a finding; else "unexplained"."""
        timeline = self.judge.dispatcher(Scope(row["topic"], row["partition"])).timeline
        if code in _PUBLISHED:
            return _PUBLISHED[code]
        if code is Code.STUCK:
            return self._holding(row)
        if code in _OF_REDELIVERY and row["previous"] == Ending.NACKED:
            return "its redelivery was asked for (nack or ack timeout)"
        if not row["delivered"]:
            return "unexplained" if code is Code.LOST else "the data end"
        if code in _OF_OWNERSHIP:
            return event_words(timeline.epochs[row["epoch"]])
        if row["previous"] == Ending.CLOSED:
            return last_leave(timeline, row["epoch"])
        if row["in_transition"]:
            return event_words(timeline.epochs[row["epoch"] + 1])
        earlier = row[f"{_OTHER[code]}_witness"] if _OTHER.get(code) in ("order", "owner") else None
        epoch = timeline.epochs[row["epoch"]]
        if earlier and epoch.start.at > earlier["at"]:
            return event_words(epoch)
        return self._permission(code)

    def _holding(self, row: Mapping[str, Any]) -> str:
        """Who held a message back, and by what."""
        holder = row["holder_witness"]
        return f"{holder['consumer'] or 'nobody'} held {_place(holder)} without acknowledging it"

    def _permission(self, code: Code) -> str:
        """What explains an allowed finding that no event does."""
        policy = self.judge.policy
        if self.judge.promised & code.bit:
            return "unexplained"
        if code is Code.DUP_OUTSTANDING and policy.routing != "partition":
            return f"{policy.profile} delivers an outstanding message again at times"
        if code in (Code.KEY_ORDER, Code.KEY_TWO_OWNERS, Code.BEFORE_PREDECESSOR_ACK):
            return (
                f"{policy.name} as configured gives a key to any consumer"
                if policy.routing == "any"
                else "out-of-order delivery is allowed"
            )
        return "unexplained"


def _seconds(nanos: int) -> str:
    return f"{nanos / 1e9:.3f}"


def _other_key(holder: Mapping[str, Any] | None) -> str:
    """Blocking works by slot: two keys of one slot share their fate."""
    return "" if not holder or holder["same_key"] else ", of another key that is held back with it"


def _place(place: Mapping[str, Any] | None) -> str:
    return position(place["ledger"], place["entry"], place["batch_index"]) if place else ""


def _delivery(witness: Mapping[str, Any] | None) -> str:
    """A delivery in words; empty for none."""
    if not witness:
        return ""
    until = witness["held_until"]
    end = "never ended" if until == NEVER else f"ended {clock(until)}"
    return f"{_place(witness)} at {witness['consumer'] or 'nobody'} ({clock(witness['at'])}, {end})"
