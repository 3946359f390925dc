"""Spans of Kafka and Pulsar clients as deliveries: what each kind of span tells, and what becomes of every other."""

import gzip
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from subreplay.adapters import Options
from subreplay.adapters.otlp.span_outcomes import SpanSelection
from subreplay.errors import InputError
from subreplay.rows.model.tables import DELIVERIES
from tests.adapters.otlp_exports import (
    BEGIN,
    balanced,
    counts,
    kafka,
    line,
    make_reader,
    nanos,
    only,
    pulsar,
    rows,
    span,
    stable,
)
from tests.support.source_reading import read_at_once
from tests.support.spans import spans

SAMPLES = Path(__file__).parents[1] / "data" / "otlp"
ORDERS = "persistent://public/default/orders"


@pytest.fixture
def read_lines(tmp_path):
    """What lines tell, as one file."""
    return make_reader(tmp_path)


# The samples of the real components


def test_each_span_of_the_samples_is_a_delivery():
    found = spans(SAMPLES, SpanSelection(subscription="otel4"))
    assert balanced(found)
    assert [of.deliveries for of in found.spans.values()] == [500, 80, 80]
    assert found.rejected == ()
    assert found.deliveries.schema == DELIVERIES


def test_the_kafka_agent_records_every_offset_once():
    found = spans(SAMPLES / "kafka_agent_default.jsonl.gz")
    assert [row["entry"] for row in rows(found)] == [*range(500)]
    assert {(row["topic"], row["partition"], row["ledger"], row["batch_index"]) for row in rows(found)} == {
        ("orders", 0, 0, -1)
    }
    assert {(row["subscription"], row["consumer"], row["instance"]) for row in rows(found)} == {
        ("otel-old", "console-consumer", None)
    }


def test_pulsar_spans_of_the_agent_contain_batches_and_partitions():
    found = spans(SAMPLES / "pulsar_client_shared_2.jsonl.gz")
    with gzip.open(SAMPLES / "pulsar_client_shared_2.jsonl.gz", "rt") as file:
        ids = {id_ for id_ in file.read().split('"') if id_.startswith("3:")}
    places = {(row["entry"], row["batch_index"]) for row in rows(found)}
    assert len(ids) == len(places) == 80
    assert {tuple(map(int, f"{id_}:-1".split(":")[1:4:2])) for id_ in ids} == places
    assert {(row["subscription"], row["topic"], row["partition"]) for row in rows(found)} == {("otel4", ORDERS, 0)}


def test_spans_without_a_subscription_need_one():
    path = SAMPLES / "pulsar_client_shared_1.jsonl.gz"
    with pytest.raises(InputError, match=r"none of 80 spans fits the contract.*subscription"):
        spans(path)
    assert {row["subscription"] for row in rows(spans(path, SpanSelection(subscription="mine")))} == {"mine"}


# What a span tells


@pytest.mark.parametrize("convention", [kafka, stable])
def test_both_generations_of_the_conventions_are_read(read_lines, convention):
    row = only(read_lines(line(convention(41, begin=BEGIN + 1_234))))
    place = {"topic": "orders", "partition": 3, "ledger": 0, "entry": 41, "batch_index": -1}
    assert {name: row[name] for name in place} == place
    assert (row["subscription"], row["consumer"], row["instance"]) == ("billing", "consumer-billing-1", None)
    assert nanos(row["received_at"]) == BEGIN + 1_000  # a receipt is told in microseconds
    assert {row[name] for name in ("delivered_at", "acked_at", "nacked_at", "outcome")} == {None}


@pytest.mark.parametrize(
    ("acknowledgment", "outcome", "kind"),
    [
        ("acknowledge", "acked", "Individual"),
        ("cumulative_acknowledge", "acked", "Cumulative"),
        ("negative_acknowledge", "redelivered", None),
        ("ack_timeout", "redelivered", None),
        (None, None, None),  # the consumer was closed before
    ],
)
def test_a_pulsar_process_span_ends_as_its_message_did(read_lines, acknowledgment, outcome, kind):
    row = only(read_lines(line(pulsar("3:14:0", acknowledgment, end=BEGIN + 5_000_123))))
    assert (row["outcome"], row["ack_type"]) == (outcome, kind)
    ends = [row["acked_at"] and nanos(row["acked_at"], row["acked_nanos"]),
            row["nacked_at"] and nanos(row["nacked_at"], row["nacked_nanos"])]  # fmt: skip
    ended = BEGIN + 5_000_123
    assert ends == {"acked": [ended, None], "redelivered": [None, ended], None: [None, None]}[outcome]
    assert nanos(row["received_at"]) == BEGIN


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("3:14:0", (0, 3, 14, -1)),
        ("3:14:0:6", (0, 3, 14, 6)),
        ("3:14:-1", (0, 3, 14, -1)),  # of a consumer of this partition alone
        ("3:12:0;3:14:0", (0, 3, 14, -1)),  # of chunks
        ("9223372036854775807:14:0", (0, 2**63 - 1, 14, -1)),
    ],
)
def test_a_message_id_is_a_place(read_lines, message, place):
    row = only(read_lines(line(pulsar(message))))
    assert (row["partition"], row["ledger"], row["entry"], row["batch_index"]) == place
    assert row["topic"] == ORDERS


def test_a_receive_span_ends_when_the_application_has_the_message(read_lines):
    receive = {"messaging.operation.name": "receive", "messaging.pulsar.acknowledgment.type": None}
    row = only(read_lines(line(pulsar(values=receive, end=BEGIN + 9_000))))
    assert nanos(row["received_at"]) == BEGIN + 9_000
    assert row["acked_at"] is None


@pytest.mark.parametrize(
    ("resource", "consumer"),
    [
        ({"instance": "pod-1"}, "pod-1"),
        ({"instance": None, "k8s.pod.name": "billing-0", "host.name": "h"}, "billing-0"),
        ({"instance": None, "host.name": "h", "process.pid": 12}, "h/12"),
    ],
)
def test_a_consumer_without_an_id_is_its_process(read_lines, resource, consumer):
    row = only(read_lines(line(pulsar(), **resource)))
    assert (row["consumer"], row["instance"]) == (consumer, None)


def test_processes_with_one_client_id_are_distinguished(read_lines):
    found = read_lines(line(kafka(1), instance="a"), line(kafka(2), instance="b"), line(pulsar(), instance="a"))
    assert {(row["consumer"], row["instance"]) for row in rows(found)} == {
        ("consumer-billing-1", "a"), ("consumer-billing-1", "b"), ("a", None),
    }  # fmt: skip


def test_a_consumer_without_any_identity_is_rejected(read_lines):
    found = read_lines(line(pulsar(), instance=None, **{"host.name": "h"}), line(pulsar()))
    (rejected,) = found.rejected
    assert (rejected.row, rejected.reasons[0].column) == (1, "service_instance")
    assert "service.instance.id" in rejected.reasons[0].remedy
    assert balanced(found)


def test_receipts_are_numbered_in_their_order(read_lines):
    found = read_lines(line(kafka(1, begin=BEGIN + 20), kafka(2, begin=BEGIN + 10)))
    assert [(row["seq"], row["entry"]) for row in rows(found)] == [(0, 2), (1, 1)]


# What is counted and not judged


def test_spans_of_others_are_counted(read_lines):
    send = kafka(values={"messaging.operation": "publish"})
    web = span({"http.request.method": "GET"})
    rabbit = kafka(values={"messaging.system": "rabbitmq"})
    found = read_lines(line(send, web, rabbit, kafka()))
    assert counts(found) == {"spans": 4, "deliveries": 1, "others": 3}


def test_other_topics_and_subscriptions_are_counted_however_wrong(read_lines):
    elsewhere = kafka(values={"messaging.destination.name": "parcels", "messaging.kafka.message.offset": "none"})
    audit = kafka(values={"messaging.kafka.consumer.group": "audit"})
    found = read_lines(
        line(kafka(), elsewhere, audit), selection=SpanSelection(topics=["orders"], subscriptions=["billing"])
    )
    assert counts(found) == {"spans": 3, "deliveries": 1, "others": 2}
    assert balanced(found)


def test_a_topic_is_wanted_with_all_its_partitions(read_lines):
    found = read_lines(line(pulsar()), selection=SpanSelection(topics=[ORDERS]))
    assert counts(found) == {"spans": 1, "deliveries": 1}


@pytest.mark.parametrize("operation", ["receive", "process"])
def test_a_span_of_many_messages_is_no_delivery_of_one(read_lines, operation):
    names = {"messaging.operation": operation, "messaging.kafka.message.offset": None}
    batch = kafka(values=names | {"messaging.batch.message_count": 20}, links=[{"traceId": "0a", "spanId": "0b"}] * 20)
    assert counts(read_lines(line(batch, kafka()))) == {"spans": 2, "deliveries": 1, "batches": 1}


def test_a_process_span_without_a_place_is_rejected(read_lines):
    found = read_lines(line(kafka(values={"messaging.kafka.message.offset": None}), kafka()))
    assert counts(found) == {"spans": 2, "deliveries": 1, "quarantined": 1}
    assert found.rejected[0].reasons[0].column == "offset"


def test_a_copied_file_changes_nothing(tmp_path):
    text = line(kafka(1), kafka(2)) + "\n"
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(text)
    found = spans(tmp_path)
    assert [row["entry"] for row in rows(found)] == [1, 2]
    assert counts(found, "b.jsonl") == {"spans": 2, "repeated": 2}
    assert balanced(found)


def test_one_span_with_two_contents_is_rejected(read_lines):
    one = kafka(1)
    other = one | {"attributes": kafka(2)["attributes"]}
    found = read_lines(line(one), line(other))
    assert counts(found) == {"spans": 2, "deliveries": 1, "quarantined": 1}
    assert found.rejected[0].reasons[0].column == "span_id"


def test_spans_of_two_libraries_about_one_receipt_are_one_delivery(read_lines):
    """Pulsar's own tracing beside the agent's, which names no subscription with the default conventions."""
    agents = {"messaging.operation.name": "receive", "messaging.pulsar.acknowledgment.type": None}
    unnamed = agents | {"messaging.destination.subscription.name": None}
    found = read_lines(
        line(pulsar("3:1:0"), pulsar("3:2:0"), scope="org.apache.pulsar.client"),
        line(pulsar("3:1:0", values=agents), pulsar("3:2:0", values=unnamed), scope="io.opentelemetry.pulsar-2.8"),
    )
    assert counts(found) == {"spans": 4, "deliveries": 2, "duplicates": 2}
    assert {row["outcome"] for row in rows(found)} == {"acked"}


def test_a_span_of_one_library_is_a_delivery(read_lines):
    """Pulsar's own span never ends where its message is never acknowledged; the agent's does."""
    agents = {"messaging.operation.name": "receive", "messaging.pulsar.acknowledgment.type": None}
    found = read_lines(
        line(pulsar("3:1:0"), scope="org.apache.pulsar.client"),
        line(pulsar("3:1:0", values=agents), pulsar("3:2:0", values=agents), scope="io.opentelemetry.pulsar-2.8"),
    )
    assert {(row["entry"], row["outcome"]) for row in rows(found)} == {(1, "acked"), (2, None)}
    assert counts(found) == {"spans": 3, "deliveries": 2, "duplicates": 1}


def test_a_redelivery_is_another_delivery(read_lines):
    found = read_lines(line(pulsar("3:1:0", "negative_acknowledge"), pulsar("3:1:0", begin=BEGIN + 10**9)))
    assert [row["outcome"] for row in rows(found)] == ["redelivered", "acked"]
    assert rows(found)[1]["received_at"] - rows(found)[0]["received_at"] == timedelta(seconds=1)


# Values that do not fit


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ({"messaging.kafka.message.offset": "many"}, "offset"),
        ({"messaging.kafka.message.offset": 2**41}, "offset"),
        ({"messaging.kafka.message.offset": "99999999999999999999"}, "offset"),
        ({"messaging.kafka.message.offset": "9999999999999999999"}, "offset"),
        ({"messaging.destination.partition.id": None}, "partition"),
        ({"messaging.destination.partition.id": "-1"}, "partition"),
        ({"messaging.destination.name": None}, "topic"),
        ({"messaging.kafka.consumer.group": ""}, "subscription"),
    ],
)
def test_a_kafka_value_that_does_not_fit_is_rejected(read_lines, values, column):
    found = read_lines(line(kafka(values=values), kafka()))
    (rejected,) = found.rejected
    assert [reason.column for reason in rejected.reasons] == [column]
    assert all(rejected.reasons[0])
    assert balanced(found)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("3:14", "ledger:entry"),
        ("3:14:0:0:9", "ledger:entry"),
        ("CLYREAAY", "ledger:entry"),
        (None, "ledger:entry"),
        ("9223372036854775808:1:0", "ledger id"),
        ("3:2147483648:0", "entries 0 to"),
        ("3:14:5", "must agree on the partition"),
        ("3:14:0:1048575", "batch index"),
    ],
)
def test_a_message_id_that_does_not_fit_is_rejected(read_lines, message, rule):
    found = read_lines(line(pulsar(message), pulsar()))
    ((reason,),) = (rejected.reasons for rejected in found.rejected)
    assert reason.column == "message_id"
    assert rule in reason.rule


@pytest.mark.parametrize("time", ["0", "1795308471", "soon", "-5", None])
def test_a_time_that_is_none_is_rejected(read_lines, time):
    found = read_lines(line(kafka() | {"startTimeUnixNano": time}, kafka()))
    assert [reason.column for reason in found.rejected[0].reasons] == ["begin"]


def test_an_unknown_acknowledgment_is_rejected(read_lines):
    found = read_lines(line(pulsar("3:1:0", "forgotten"), pulsar()))
    assert found.rejected[0].reasons[0].column == "acknowledgment"


# As an adapter


def test_rows_in_are_valid_or_quarantined(tmp_path):
    (tmp_path / "traces.jsonl").write_text(
        "\n".join([line(kafka(1), kafka(values={"messaging.destination.name": None})), line(kafka())[:-9]])
    )
    found = read_at_once("otlp-spans", tmp_path)
    (count,) = found.counts
    assert (count.rows_in, count.valid, count.quarantined) == (3, 1, 2)
    assert len(found.rejected) == 2
    assert found.run["subscription"] == {"name": "billing", "topic": "orders"}


def test_options_choose_and_the_run_takes_spans_for_a_sample(tmp_path):
    spans_of = [kafka(1), kafka(2, values={"messaging.destination.name": "invoices"}), kafka(1)]
    (tmp_path / "traces.jsonl").write_text(line(*spans_of))
    (tmp_path / "copy.jsonl").write_text(line(*spans_of))
    read = partial(read_at_once, "otlp-spans")
    every = read(tmp_path)
    named = {every.run["subscription"]["topic"], *(topic for _, topic in every.others)}
    assert named == {"orders", "invoices"}
    assert every.run["traffic"] == {"membership": {"from": "deliveries"}, "deliveries": {"sampled": True}}
    found = read(tmp_path, Options(topic="orders", sampled=False))
    assert set(found.tables["deliveries"]["topic"].to_pylist()) == {"orders"}
    assert found.run["traffic"]["deliveries"] == {"sampled": False}
    assert sum(count.others for count in found.counts) > sum(count.others for count in every.counts)
    for count in (*every.counts, *found.counts):
        assert count.rows_in == count.valid + count.quarantined + count.others
    with pytest.raises(InputError, match="no span is of the requested topic"):
        read(tmp_path, Options(topic="order"))


def test_spans_without_a_subscription_belong_to_the_configured_one():
    found = read_at_once("otlp-spans", SAMPLES, Options(subscription="otel4"))
    assert found.tables["deliveries"].num_rows == 160
    assert [count.others for count in found.counts] == [500, 0, 0]
