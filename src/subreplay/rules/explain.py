"""Findings in words: the sentence, the witness rows, and the membership event that explains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

import pyarrow as pa

from subreplay.columns import NEVER
from subreplay.model import Scope, Standing
from subreplay.rules.facts import Ending
from subreplay.rules.judge import Judge
from subreplay.rules.registry import RULES, Code, Excuse, standings
from subreplay.tables import VIOLATIONS
from subreplay.timeline import Epoch, Timeline
from subreplay.words import clock, position

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
}
_ENDINGS: Final = {
    Ending.NONE: "after an earlier delivery",
    Ending.ACKED: "after its acknowledgement",
    Ending.NACKED: "after its redelivery was asked for (nack or ack timeout)",
    Ending.CLOSED: "after its consumer left",
    Ending.OPEN: "while the earlier delivery was outstanding",
}

_OTHER: Final = {Code.KEY_ORDER: "order", Code.PARTITION_ORDER: "order", Code.KEY_TWO_OWNERS: "owner"}


@dataclass(frozen=True)
class Explainer:
    """Turns judged rows into ``violations`` rows: every finding that fails, and the examples of those that do not."""

    judge: Judge
    subscription: str

    def violations(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """``JUDGED`` rows, their key already in words -> ``VIOLATIONS`` rows."""
        standing = standings(self.judge.policy)
        for batch in batches:
            rows = [v for row in batch.to_pylist() for v in self._of(row, standing)]
            if rows:
                yield from pa.Table.from_pylist(rows, schema=VIOLATIONS).to_batches()

    def _of(self, row: Mapping[str, Any], standing: Mapping[Code, Standing]) -> Iterator[dict[str, Any]]:
        for code in Code:
            excuse = Excuse(row["excuses"] >> 4 * code.value & 15)
            fails = standing[code] is Standing.PROMISED and excuse is Excuse.NONE
            if row["codes"] & code.bit and (fails or row["shown"] & code.bit):
                yield self._violation(row, code, standing[code] if fails else Standing.ALLOWED, excuse)

    def _violation(self, row: Mapping[str, Any], code: Code, standing: Standing, excuse: Excuse) -> dict[str, Any]:
        at = row["at"] if row["delivered"] else None
        words = self._words(row)
        moment = datetime.fromtimestamp((at if at is not None else row["published"]) // 1_000_000_000, timezone.utc)
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
            "cause": self._cause(row, code, excuse),
            "witness": [
                w for w in (_delivery(row) if row["delivered"] else "", words.get(_OTHER.get(code, ""), "")) if w
            ],
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
            "key": row["key"] or "(none)",
            "slot": str(row["slot"]),
            "consumer": row["consumer"] or "nobody",
            "expected": row["expected"] or "nobody",
            "at": clock(row["at"]) if row["delivered"] else "",
            "published": clock(row["published"]) if row["published"] > 0 else "an unknown time",
            "acked": clock(row["acked"]) if 0 < row["acked"] < NEVER else "",
            "order": _delivery(row["order_witness"]),
            "owner": _delivery(row["owner_witness"]),
            "previous": _ENDINGS[Ending(row["previous"])],
            "lost": lost,
        }

    def _cause(self, row: Mapping[str, Any], code: Code, excuse: Excuse) -> str:
        timeline = self.judge.dispatcher(Scope(row["topic"], row["partition"])).timeline
        if code is Code.MIXED_BATCH:
            return "the producer batched by time and size, not by key"
        if code in (Code.DUP_DELIVERY, Code.DUP_OUTSTANDING, Code.REDELIVERED) and row["previous"] == Ending.NACKED:
            return "its redelivery was asked for (nack or ack timeout)"
        if not row["delivered"]:
            return "unexplained" if code is Code.LOST else "the data end"
        if code in (Code.WRONG_OWNER, Code.NOT_CONNECTED):
            return event_words(timeline.epochs[row["epoch"]])
        if row["previous"] == Ending.CLOSED:
            return _last_leave(timeline, row["epoch"])
        if row["in_transition"]:
            return event_words(timeline.epochs[row["epoch"] + 1])
        earlier = row["owner_witness"] if code is Code.KEY_TWO_OWNERS else row["order_witness"]
        epoch = timeline.epochs[row["epoch"]]
        if earlier and epoch.start.at > earlier["at"]:
            return event_words(epoch)
        return self._permission(code)

    def _permission(self, code: Code) -> str:
        """What explains an allowed finding that no event does."""
        policy = self.judge.policy
        if standings(policy)[code] is Standing.PROMISED:
            return "unexplained"
        if code is Code.DUP_OUTSTANDING and policy.routing != "partition":
            return f"{policy.profile} delivers an outstanding message again at times"
        if code in (Code.KEY_ORDER, Code.KEY_TWO_OWNERS):
            return (
                f"{policy.name} as configured gives a key to any consumer"
                if policy.routing == "any"
                else "out-of-order delivery is allowed"
            )
        return "unexplained"


def _last_leave(timeline: Timeline, epoch: int) -> str:
    leaves = [e for e in timeline.epochs[: epoch + 1] if e.left]
    return event_words(leaves[-1]) if leaves else "unexplained"


def event_words(epoch: Epoch) -> str:
    """The event that opened an epoch, in words."""
    if epoch.cause is None:
        return "epoch 0: nobody had joined yet"
    verb = {"join": "joined", "leave": "left", "crash": "disconnected"}[epoch.cause.event]
    refused = " and was rejected" if epoch.rejected else ""
    return f"epoch {epoch.index}: {epoch.cause.consumer} {verb}{refused} at {clock(epoch.start.at)}"


def _delivery(witness: Mapping[str, Any] | None) -> str:
    """A delivery in words; empty for none."""
    if not witness:
        return ""
    message = position(witness["ledger"], witness["entry"], witness["batch_index"])
    until = witness["held_until"]
    end = "never ended" if until == NEVER else f"ended {clock(until)}"
    return f"{message} at {witness['consumer'] or 'nobody'} ({clock(witness['at'])}, {end})"
