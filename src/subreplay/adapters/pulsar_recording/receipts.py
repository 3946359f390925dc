"""What applications received, beside what the broker delivered to them: a consumer's n-th receipt of a message is its
n-th dispatch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from subreplay.adapters.base import Reason
from subreplay.adapters.jsonl import Lines
from subreplay.adapters.pulsar_recording.deliveries import Delivery, One
from subreplay.adapters.pulsar_recording.rows import Receipt

_Waiting = Mapping[tuple[One, str], list[Delivery]]  # deliveries by message and consumer, the latest first


def add_receipts(deliveries: Mapping[One, list[Delivery]], receipts: Lines[Receipt], subscription: str) -> None:
    """Give each delivery of ``subscription`` the times its application took it and gave it back.

    A receipt beyond the dispatches of a dispatched message becomes a delivery of its own, known from the client alone;
    one of a message the broker never dispatched goes to quarantine.
    """
    waiting: dict[tuple[One, str], list[Delivery]] = defaultdict(list)
    for one, of_message in deliveries.items():
        for d in reversed(of_message):
            waiting[one, d.consumer].append(d)
    mine = [(line, r) for line, r in receipts.rows.items() if r.subscription == subscription]
    called = _called((receipt for _, receipt in mine), waiting)
    for line, receipt in sorted(mine, key=lambda item: (item[1].recv_ns, item[0])):
        if delivery := _received(receipt, waiting[receipt.one, receipt.consumer], called):
            delivery.received, delivery.refused = receipt.recv_ns, receipt.nack_ns
        elif receipt.one in deliveries:
            instance = next((known for known, name in called.items() if name == receipt.instance), None)
            deliveries[receipt.one].append(
                Delivery(receipt.consumer, instance, receipt.subscription, receipt.recv_ns, 0, receipt.redelivery_count,
                         received=receipt.recv_ns, acked=receipt.ack_ns, nacked=receipt.nack_ns,
                         refused=receipt.nack_ns)
            )  # fmt: skip
        else:
            place = f"{receipt.ledger}:{receipt.entry}:{receipt.batch_index}"
            receipts.reject(
                line,
                receipt.model_dump_json(),
                Reason("ledger, entry", place, "the broker never dispatched this message to anyone",
                       "record broker events and deliveries of the same session"),
            )  # fmt: skip


def _called(receipts: Iterable[Receipt], waiting: _Waiting) -> dict[str, str]:
    """What the recorder calls each instance of a name that several bear, as most messages tell that came once."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for receipt in receipts:
        only = waiting.get((receipt.one, receipt.consumer), [])
        if receipt.instance and len(only) == 1 and only[0].instance:
            votes[only[0].instance][receipt.instance] += 1
    return {instance: names.most_common(1)[0][0] for instance, names in votes.items()}


def _received(receipt: Receipt, waiting: list[Delivery], called: Mapping[str, str]) -> Delivery | None:
    """Which delivery a receipt is of, no longer waiting: of those to the consumer that the recorder calls so the first,
    else of those to consumers that it is not known to call otherwise."""
    names = [receipt.instance if d.instance is None else called.get(d.instance) for d in waiting]
    for wanted in (receipt.instance, None):
        for place in reversed(range(len(waiting))):
            if receipt.instance is None or names[place] == wanted:
                return waiting.pop(place)
    return None
