"""Add the receipts of applications to the broker's deliveries: a consumer's n-th receipt of a message is its n-th
dispatch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from subreplay.adapters.base import Reason
from subreplay.adapters.jsonl import ContractRows
from subreplay.adapters.pulsar_recording.recorded_deliveries import MessageKey, OpenDelivery
from subreplay.adapters.pulsar_recording.recorded_events import RecordedReceipt

_Waiting = Mapping[tuple[MessageKey, str], list[OpenDelivery]]  # deliveries by message and consumer, the latest first


def add_receipts(
    deliveries: Mapping[MessageKey, list[OpenDelivery]], receipts: ContractRows[RecordedReceipt], subscription: str
) -> None:
    """Add to each delivery of ``subscription`` when its application received and negatively acknowledged it.

    A receipt beyond the dispatches of a message becomes a delivery that only the client shows. A receipt of a message
    that the broker never dispatched is quarantined.
    """
    waiting: dict[tuple[MessageKey, str], list[OpenDelivery]] = defaultdict(list)
    for one, of_message in deliveries.items():
        for d in reversed(of_message):
            waiting[one, d.consumer].append(d)
    matching = [(line, r) for line, r in receipts.rows.items() if r.subscription == subscription]
    called = _match_instance_names((receipt for _, receipt in matching), waiting)
    for line, receipt in sorted(matching, key=lambda item: (item[1].recv_ns, item[0])):
        if delivery := _take_delivery(receipt, waiting[receipt.one, receipt.consumer], called):
            delivery.received, delivery.refused = receipt.recv_ns, receipt.nack_ns
        elif receipt.one in deliveries:
            instance = next((known for known, name in called.items() if name == receipt.instance), None)
            deliveries[receipt.one].append(
                OpenDelivery(
                    receipt.consumer,
                    instance,
                    receipt.subscription,
                    receipt.recv_ns,
                    0,
                    receipt.redelivery_count,
                    received=receipt.recv_ns,
                    acked=receipt.ack_ns,
                    nacked=receipt.nack_ns,
                    refused=receipt.nack_ns,
                )
            )
        else:
            place = f"{receipt.ledger}:{receipt.entry}:{receipt.batch_index}"
            receipts.reject(
                line,
                receipt.model_dump_json(),
                Reason("ledger, entry", place, "the broker must have dispatched the message",
                       "record broker events and deliveries of the same session"),
            )  # fmt: skip


def _match_instance_names(receipts: Iterable[RecordedReceipt], waiting: _Waiting) -> dict[str, str]:
    """Find the recorder's name for each instance of a shared consumer name, from messages with one delivery."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for receipt in receipts:
        only = waiting.get((receipt.one, receipt.consumer), [])
        if receipt.instance and len(only) == 1 and only[0].instance:
            votes[only[0].instance][receipt.instance] += 1
    return {instance: names.most_common(1)[0][0] for instance, names in votes.items()}


def _take_delivery(
    receipt: RecordedReceipt, waiting: list[OpenDelivery], called: Mapping[str, str]
) -> OpenDelivery | None:
    """Remove and return the waiting delivery of a receipt: the first one of the instance that the recorder names, else
    the first one of an instance without a known name."""
    names = [receipt.instance if d.instance is None else called.get(d.instance) for d in waiting]
    for wanted in (receipt.instance, None):
        for place in reversed(range(len(waiting))):
            if receipt.instance is None or names[place] == wanted:
                return waiting.pop(place)
    return None
