"""OTLP JSON lines made for a test: a span a message, in both generations of the semantic conventions."""

import itertools
import json
from dataclasses import astuple

from tests.support.spans import spans

BEGIN = 1_795_308_000_000_000_000
_ids = itertools.count(1)


def attributes(values):
    def value(of):
        return {"intValue": str(of)} if isinstance(of, int) else {"stringValue": of}

    return [{"key": key, "value": value(of)} for key, of in values.items() if of is not None]


def span(values, begin=BEGIN, end=None, **more):
    number = next(_ids)
    return {
        "traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "a span", "kind": 5,
        "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 1_000 if end is None else end),
        "attributes": attributes(values), "events": [], "links": [], "status": {}, **more,
    }  # fmt: skip


def kafka(offset=7, **more):
    """A ``process`` span of the agent with the default conventions."""
    values = {
        "messaging.system": "kafka", "messaging.operation": "process", "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3", "messaging.kafka.message.offset": offset,
        "messaging.kafka.consumer.group": "billing", "messaging.client_id": "consumer-billing-1",
    }  # fmt: skip
    return span(values | more.pop("values", {}), **more)


def stable(offset=7, **more):
    """The same with the stable conventions."""
    values = {
        "messaging.system": "kafka", "messaging.operation.type": "process", "messaging.operation.name": "process",
        "messaging.destination.name": "orders", "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": offset, "messaging.consumer.group.name": "billing",
        "messaging.client.id": "consumer-billing-1",
    }  # fmt: skip
    return span(values | more.pop("values", {}), **more)


def pulsar(message="3:14:0", acknowledgment="acknowledge", **more):
    """A ``process`` span of Pulsar's own Java client."""
    values = {
        "messaging.system": "pulsar", "messaging.operation.name": "process",
        "messaging.destination.name": "persistent://public/default/orders-partition-0",
        "messaging.message.id": message, "messaging.destination.subscription.name": "billing",
        "messaging.pulsar.acknowledgment.type": acknowledgment,
    }  # fmt: skip
    return span(values | more.pop("values", {}), **more)


def export(*spans, instance="pod-1", scope="io.opentelemetry.kafka-clients-0.11", **resource):
    """The object of one line."""
    about = {"service.name": "billing", "service.instance.id": instance, **resource}
    scoped = {"scope": {"name": scope, "version": "2.33.1"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": {"attributes": attributes(about)}, "scopeSpans": [scoped]}]}


def line(*spans, **more):
    return json.dumps(export(*spans, **more), separators=(",", ":"))


def make_reader(folder):
    """A function of lines: what they tell as one file of a folder."""

    def read_lines(*lines, selection=None):
        path = folder / "traces.jsonl"
        path.write_bytes(b"".join((one if isinstance(one, bytes) else one.encode()) + b"\n" for one in lines))
        return spans(path, selection)

    return read_lines


def rows(found):
    return found.deliveries.to_pylist()


def only(found):
    (row,) = rows(found)
    return row


def counts(found, name="traces.jsonl"):
    return {key: value for key, value in vars(found.spans[name]).items() if value}


def nanos(time, rest=0):
    return round(time.timestamp() * 1_000_000) * 1_000 + (rest or 0)


def balanced(found):
    """Every line and every span has one fate."""
    for of in found.lines.values():
        assert of.lines == of.exports + of.skipped + of.quarantined
    for of in found.spans.values():
        all_of_them, *fates = astuple(of)
        assert all_of_them == sum(fates)
    assert len(found.deliveries) == sum(of.deliveries for of in found.spans.values())
    quarantined = [of.quarantined for every in (found.lines, found.spans) for of in every.values()]
    assert len(found.rejected) == sum(quarantined)
    return True
