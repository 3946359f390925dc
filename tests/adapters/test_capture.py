from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay import capture
from subreplay.adapters.base import SourceTables
from subreplay.capture.file_format import KAFKA, METADATA, PULSAR, VERSION
from subreplay.errors import InputError
from subreplay.rows.model.tables import INPUTS
from tests.support import consumers as fakes
from tests.support.source_reading import read_at_once

read = partial(read_at_once, "capture")
MARKED = capture.EVENTS.with_metadata({METADATA: json.dumps({"version": VERSION}).encode()})

T0 = 1_700_000_000_000_000_000
TOPIC = "persistent://public/default/orders"
RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def event(kind: str, seq: int, **columns: Any) -> dict[str, Any]:
    """An event of a Pulsar consumer, ``seq`` µs after the beginning."""
    return {
        "library": PULSAR, "instance": "host:1:a", "subscription": "sub", "consumer": "c1", "seq": seq, "event": kind,
        "at_ns": T0 + seq * 1_000, **columns,
    }  # fmt: skip


def about(kind: str, seq: int, entry: int, **columns: Any) -> dict[str, Any]:
    """An event about one message."""
    place = {"topic": TOPIC, "partition": -1, "ledger": 5, "entry": entry, "batch_index": -1}
    return event(kind, seq, **(place | columns))


def received(seq: int, entry: int, **columns: Any) -> dict[str, Any]:
    reported = {"publish_time_ms": T0 // 1_000_000, "size": 3, "redelivery_count": 0, "producer": "p", "key": b"k"}
    return about("receive", seq, entry, **(reported | columns))


def of_kafka(
    kind: str, seq: int, entry: int | None = None, partition: int | None = 0, **columns: Any
) -> dict[str, Any]:
    reported: dict[str, Any] = {"publish_time_ms": T0 // 1_000_000, "size": 3, "redelivery_count": 0}
    place = {
        "topic": None if partition is None else "orders", "partition": partition, "entry": entry,
        "ledger": None if entry is None else 0, "batch_index": None if entry is None else -1,
    }  # fmt: skip
    return event(kind, seq, **(place | (reported if kind == "receive" else {}) | {"library": KAFKA} | columns))


def ingested(events: Iterable[dict[str, Any]]) -> SourceTables:
    """What is read of a file with these events."""
    with TemporaryDirectory() as folder:
        pq.write_table(pa.Table.from_pylist(list(events), schema=MARKED), f"{folder}/captured.parquet")
        return read(Path(folder))


def deliveries(events: Iterable[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Columns of all deliveries by seq; times are µs since the beginning."""
    found = ingested(events)
    assert not found.rejected
    rows = sorted(found.tables["deliveries"].to_pylist(), key=lambda row: row["seq"])
    return [tuple(since(row[name]) if name.endswith("_at") else row[name] for name in columns) for row in rows]


def since(at: Any) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000_000) - T0 // 1_000


def test_a_receipt_is_a_delivery_known_by_when_the_application_took_it() -> None:
    (row,) = ingested([received(3, 7, redelivery_count=2)]).tables["deliveries"].to_pylist()
    reported = {name: value for name, value in row.items() if value is not None}
    assert {n: v for n, v in reported.items() if n not in ("date", "received_at")} == {
        "subscription": "sub", "topic": TOPIC, "partition": -1, "ledger": 5, "entry": 7, "batch_index": -1,
        "consumer": "c1", "instance": "host:1:a", "seq": 3, "redelivery_count": 2, "outcome": "pending",
        "source": "observed",
    }  # fmt: skip
    assert since(row["received_at"]) == 3


def test_an_acknowledgement_belongs_to_the_latest_receipt_before_it() -> None:
    events = [
        received(0, 7), received(1, 7), about("acknowledge", 2, 7), about("acknowledge", 3, 7), received(4, 7),
    ]  # fmt: skip
    assert deliveries(events, "received_at", "acked_at", "ack_type", "outcome") == [
        (0, None, None, "pending"), (1, 2, "Individual", "acked"), (4, None, None, "pending"),
    ]  # fmt: skip


def test_an_acknowledgement_is_of_its_own_consumer_and_message() -> None:
    other = {"instance": "host:2:b", "consumer": "c2"}
    events = [
        received(0, 7), received(0, 7, **other), received(1, 8), received(2, 7, batch_index=0),
        about("acknowledge", 3, 7, **other),
    ]  # fmt: skip
    assert sorted(deliveries(events, "consumer", "entry", "batch_index", "acked_at"), key=str) == [
        ("c1", 7, -1, None), ("c1", 7, 0, None), ("c1", 8, -1, None), ("c2", 7, -1, 3),
    ]  # fmt: skip


def test_a_cumulative_acknowledgement_ends_all_up_to_its_message() -> None:
    events = [
        received(0, 6), received(1, 7, batch_index=0), received(2, 7, batch_index=1), received(3, 8),
        received(4, 6, topic=f"{TOPIC}-partition-1", ledger=6),
        about("acknowledge_cumulative", 5, 7, batch_index=0), received(6, 6),
        about("acknowledge_cumulative", 7, 7),
    ]  # fmt: skip
    assert deliveries(events, "entry", "received_at", "acked_at", "ack_type") == [
        (6, 0, 5, "Cumulative"), (7, 1, 5, "Cumulative"), (7, 2, 7, "Cumulative"), (8, 3, None, None),
        (6, 4, None, None), (6, 6, 7, "Cumulative"),
    ]  # fmt: skip


def test_the_first_of_both_acknowledgements_counts() -> None:
    events = [
        received(0, 1), received(1, 2), about("acknowledge", 2, 1), about("acknowledge_cumulative", 3, 2),
        about("acknowledge", 4, 2),
    ]  # fmt: skip
    assert deliveries(events, "acked_at", "ack_type") == [(2, "Individual"), (3, "Cumulative")]


def test_a_negative_acknowledgement_gives_back_and_after_an_acknowledgement_asks_for_nothing() -> None:
    events = [
        received(0, 1), received(1, 2), about("negative_acknowledge", 2, 1), about("acknowledge", 3, 2),
        about("negative_acknowledge", 4, 2), received(5, 1),
    ]  # fmt: skip
    assert deliveries(events, "entry", "nacked_at", "refused_at", "acked_at", "outcome") == [
        (1, 2, 2, None, "redelivered"), (2, None, 4, 3, "acked"), (1, None, None, None, "pending"),
    ]  # fmt: skip


def test_asking_for_all_unacknowledged_ends_what_is_not_acknowledged() -> None:
    events = [
        received(0, 1), received(1, 2), about("acknowledge", 2, 1), event("redeliver_unacknowledged", 3),
        received(4, 2),
    ]  # fmt: skip
    assert deliveries(events, "entry", "nacked_at", "refused_at") == [(1, None, None), (2, 3, None), (2, None, None)]


def test_what_is_open_at_the_close_is_closed() -> None:
    events = [received(0, 1), received(1, 2), about("acknowledge", 2, 1), event("closing", 3), event("close", 4)]
    assert deliveries(events, "outcome") == [("acked",), ("closed",)]


def test_a_call_that_failed_ends_nothing() -> None:
    events = [
        received(0, 1),
        about("acknowledge", 1, 1, error="Timeout: "),
        event("acknowledge", 2, error="TypeError: "),
    ]
    assert deliveries(events, "acked_at") == [(None,)]


def test_an_acknowledgement_without_a_receipt_is_a_delivery_known_by_it_alone() -> None:
    events = [
        about("acknowledge", 0, 1), about("acknowledge", 1, 1), about("negative_acknowledge", 2, 9), received(3, 1),
    ]  # fmt: skip
    columns = ("entry", "received_at", "acked_at", "refused_at", "outcome")
    assert deliveries(events, *columns) == [
        (1, None, 0, None, "acked"), (9, None, None, 2, "redelivered"), (1, 3, None, None, "pending"),
    ]  # fmt: skip


def test_the_receipts_of_a_ledger_contain_the_topic_of_a_message_id() -> None:
    lone = {"topic": None, "partition": 3}
    events = [received(0, 1, topic=f"{TOPIC}-partition-3", partition=3), about("acknowledge", 1, 1, **lone)]
    assert deliveries(events, "topic", "partition", "acked_at") == [(TOPIC, 3, 1)]

    strange = ingested([*events, about("acknowledge", 2, 1, **lone, ledger=77)])
    assert [(r.row, r.reasons[0].column) for r in strange.rejected] == [(3, "topic")]


def test_a_commit_acknowledges_what_was_received_below_it() -> None:
    events = [
        of_kafka("receive", 0, 10), of_kafka("receive", 1, 11), of_kafka("receive", 2, 10, partition=1),
        of_kafka("commit", 3, 11), of_kafka("receive", 4, 10), of_kafka("commit", 5, -1001),
        of_kafka("commit", 6, partition=None), of_kafka("commit", 7, 12, error="not coordinator"),
    ]  # fmt: skip
    assert deliveries(events, "partition", "entry", "received_at", "acked_at", "ack_type") == [
        (0, 10, 0, 3, "Cumulative"), (0, 11, 1, None, None), (1, 10, 2, None, None), (0, 10, 4, None, None),
    ]  # fmt: skip


def test_what_a_revoked_partition_left_open_is_closed() -> None:
    events = [of_kafka("receive", 0, 10), of_kafka("receive", 1, 10, partition=1), of_kafka("revoke", 2)]
    assert deliveries(events, "partition", "outcome") == [(0, "closed"), (1, "pending")]


def membership(events: Iterable[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [
        tuple(since(row[name]) if name in ("at", "since") else row[name] for name in columns)
        for row in ingested(events).tables["membership"].to_pylist()
    ]


def test_a_pulsar_consumer_joins_when_it_is_recorded_and_leaves_when_it_is_closed() -> None:
    events = [
        event("start", 0, topic=TOPIC, subscription_type="Shared"), event("start", 1, topic=f"{TOPIC}-partition-3"),
        event("closing", 2), event("close", 3),
    ]  # fmt: skip
    assert membership(events, "event", "topic", "partition", "type", "at", "since", "consumer", "instance") == [
        ("join", TOPIC, None, "Shared", 0, None, "c1", "host:1:a"),
        ("join", TOPIC, 3, "unknown", 1, None, "c1", "host:1:a"),
        ("leave", TOPIC, None, "unknown", 3, 2, "c1", "host:1:a"),
        ("leave", TOPIC, 3, "unknown", 3, 2, "c1", "host:1:a"),
    ]


def test_a_kafka_consumer_joins_and_leaves_its_partitions() -> None:
    events = [
        of_kafka("start", 0, partition=None), of_kafka("assign", 1, partition=None), of_kafka("assign", 2, partition=0),
        of_kafka("assign", 3, partition=0), of_kafka("assign", 3, partition=1, instance="host:2:b"),
        of_kafka("revoke", 4, partition=0), of_kafka("lost", 5, partition=1, instance="host:2:b"),
        of_kafka("revoke", 6, partition=0), of_kafka("assign", 7, partition=2), of_kafka("close", 8, partition=None),
    ]  # fmt: skip
    assert sorted(membership(events, "at", "event", "partition", "instance")) == [
        (2, "join", 0, "host:1:a"), (3, "join", 1, "host:2:b"), (4, "leave", 0, "host:1:a"),
        (5, "leave", 1, "host:2:b"), (7, "join", 2, "host:1:a"), (8, "leave", 2, "host:1:a"),
    ]  # fmt: skip


def test_a_message_is_recorded_once_and_its_batch_with_its_first_message() -> None:
    seen = [
        received(0, 7, batch_index=1, key=b"b"), received(1, 7, batch_index=0, key=b"a"),
        received(2, 7, batch_index=1, key=b"b"),
        received(3, 8, batch_index=1, key=b"c"), received(4, 9, ordering_key=b"o"),
    ]  # fmt: skip
    columns = ("entry", "batch_index", "key", "batch_key", "ordering_key", "producer", "sequence_id", "size")
    rows = ingested(seen).tables["messages"].select(columns).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (7, 0, b"a", b"a", None, "p", -1, 3), (7, 1, b"b", b"a", None, "p", -1, 3),
        (8, 1, b"c", None, None, "p", -1, 3), (9, -1, b"k", None, b"o", "p", -1, 3),
    ]  # fmt: skip


def test_messages_of_two_contents_are_rejected_and_stay_deliveries() -> None:
    found = ingested([received(0, 1), received(1, 1, key=b"other"), received(2, 2)])
    assert [(r.table, r.row, r.reasons[0].rule) for r in found.rejected] == [
        ("messages", 1, "the messages at one position must be equal"),
        ("messages", 2, "the messages at one position must be equal"),
    ]
    assert found.tables["messages"]["entry"].to_pylist() == [2]
    assert len(found.tables["deliveries"]) == 3
    assert (found.counts[0].rows_in, found.counts[0].quarantined) == (3, 2)


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        ({"at_ns": 5}, "at_ns"), ({"seq": -1}, "seq"), ({"event": "vanish"}, "event"), ({"consumer": ""}, "consumer"),
        ({"subscription": ""}, "subscription"), ({"ledger": None}, "ledger"), ({"ledger": -1}, "ledger"),
        ({"entry": 2**31}, "entry"), ({"batch_index": -2}, "batch_index"),
        ({"redelivery_count": -1}, "redelivery_count"),
        ({"publish_time_ms": None}, "publish_time_ms"), ({"size": None}, "size"), ({"error": "unreadable"}, "error"),
        ({"topic": f"{TOPIC}-partition-99999999999"}, "partition"), ({"seq": 0}, "seq"),
    ],
)  # fmt: skip
def test_a_row_outside_its_contract_is_rejected_with_its_place(wrong: dict[str, Any], column: str) -> None:
    found = ingested([received(0, 1), received(1, 2) | wrong])
    (rejected,) = found.rejected
    assert (rejected.file, rejected.row) == ("captured.parquet", 2)
    assert column in {reason.column for reason in rejected.reasons}
    assert found.counts[0].quarantined == 1
    assert b"k" not in rejected.raw.encode().partition(b'"key"')[2][:6]  # of keys their length only


def test_no_row_at_all_is_no_error() -> None:
    found = ingested([])
    assert {name: len(rows) for name, rows in found.tables.items()} == dict.fromkeys(INPUTS, 0)
    assert all(found.tables[name].schema.equals(schema) for name, schema in INPUTS.items())


def test_what_consumers_recorded_is_read_from_their_folder(tmp_path: Path) -> None:
    messages = [fakes.PulsarMessage(fakes.MessageId(5, n), f"k{n}") for n in range(20)]
    consumer = capture.wrap(fakes.PulsarConsumer(deque(messages)), tmp_path, flush_rows=3, rotate_rows=9)
    for n in range(20):
        message = consumer.receive()
        consumer.acknowledge(message if n % 2 else message.message_id())
    consumer.close()

    found = read(tmp_path)
    assert not found.rejected
    assert [row["outcome"] for row in found.tables["deliveries"].to_pylist()] == ["acked"] * 20
    assert found.tables["messages"]["key"].to_pylist() == [f"k{n}".encode() for n in range(20)]
    assert found.tables["membership"]["event"].to_pylist() == ["join", "leave"]
    assert sum(count.rows_in for count in found.counts) == 43
    assert found.run == {"subscription": {"name": "sub", "topic": TOPIC}}
    assert all(found.tables[name].schema.equals(schema) for name, schema in INPUTS.items())


def test_a_folder_without_capture_files_and_other_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no capture file"):
        read(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match=r"other\.parquet: the file is not a capture file of version 1"):
        read(tmp_path)
    (tmp_path / "other.parquet").write_text("none")
    with pytest.raises(InputError, match="not a Parquet file"):
        read(tmp_path)


KINDS = [
    "receive",
    "receive",
    "acknowledge",
    "acknowledge_cumulative",
    "negative_acknowledge",
    "redeliver_unacknowledged",
]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.sampled_from("ab")), max_size=25)


@given(STEPS)
def test_every_end_is_that_of_the_plain_definition(steps: list[tuple[str, int, str]]) -> None:
    """One consumer after the other, event by event: the latest receipt of each message is what an event can end."""
    events = []
    open_: dict[tuple[str, int], dict[str, Any]] = {}
    expected: list[dict[str, Any]] = []
    for seq, (kind, entry, instance) in enumerate(steps):
        one = event(kind, seq) if kind == "redeliver_unacknowledged" else about(kind, seq, entry)
        events.append((received(seq, entry) if kind == "receive" else one) | {"instance": f"host:1:{instance}"})
        mine = [(place, row) for place, row in open_.items() if place[0] == instance]
        if kind == "receive" or (kind in ("acknowledge", "negative_acknowledge") and (instance, entry) not in open_):
            row = {"seq": seq, "received": seq if kind == "receive" else None, "acked": None, "nacked": None}
            if kind == "receive":
                open_[instance, entry] = row
                expected.append(row)
        if kind == "acknowledge" and (instance, entry) in open_:
            row = open_[instance, entry]
            row["acked"] = seq if row["acked"] is None else row["acked"]
        if kind == "acknowledge_cumulative":
            for place, row in mine:
                if place[1] <= entry and row["acked"] is None:
                    row["acked"] = seq
        if kind in ("negative_acknowledge", "redeliver_unacknowledged"):
            for place, row in mine:
                if (kind == "redeliver_unacknowledged" or place[1] == entry) and row["acked"] is None:
                    row["nacked"] = seq if row["nacked"] is None else row["nacked"]
    found = [row for row in deliveries(events, "seq", "received_at", "acked_at", "nacked_at") if row[1] is not None]
    assert found == [tuple(row.values()) for row in expected]


def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize(
    "name", ["4.0.8/s7_shared_rq_nack_close", "4.0.8/s5_failover_partitioned", "3.2.3/s8_exclusive_cumulative"]
)
def test_captured_events_of_real_clients_are_read_back(name: str) -> None:
    """The clients' own notes of a recording, as events in their order: every receipt, acknowledgement and refusal."""
    add_key_columns = lines(RECORDINGS / name / "deliveries.jsonl.gz")
    calls: list[tuple[int, int, str, dict[str, Any]]] = []
    ends: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in add_key_columns:
        calls.append((row["recv_ns"], 0, "receive", row))
        if row["nack_ns"] is not None:
            calls.append((row["nack_ns"], 1, "negative_acknowledge", row))
        if row["ack_ns"] is not None and row["outcome"] == "acked_cumulative":
            last = ends.setdefault((row["consumer"], row["topic"], row["ack_ns"]), row)
            ends[row["consumer"], row["topic"], row["ack_ns"]] = max(last, row, key=lambda r: (r["ledger"], r["entry"]))
        elif row["ack_ns"] is not None:
            calls.append((row["ack_ns"], 1, "acknowledge", row))
    calls += [(at, 1, "acknowledge_cumulative", row) for (_, _, at), row in ends.items()]
    events = []
    for seq, (at, _, kind, row) in enumerate(sorted(calls, key=lambda call: call[:2])):
        place = {key: row[key] for key in ("topic", "partition", "ledger", "batch_index")}
        one = about(kind, seq, row["entry"], **place)
        if kind == "receive":
            one = received(seq, row["entry"], **place, publish_time_ms=row["publish_time_ms"])
        events.append(one | {"at_ns": at, "instance": f"host:1:{row['consumer']}", "consumer": row["consumer"]})

    found = ingested(events)
    assert not found.rejected
    columns = ("consumer", "entry", "batch_index", "received_at", "acked_at", "refused_at")
    reported = [tuple(row[c] for c in columns) for row in found.tables["deliveries"].to_pylist()]
    exact = [(*row[:3], *(None if t is None else round(t.timestamp() * 1e6) for t in row[3:])) for row in reported]
    names = ("recv_ns", "ack_ns", "nack_ns")
    assert sorted(exact, key=str) == sorted(
        (
            (r["consumer"], r["entry"], r["batch_index"], *(None if r[n] is None else r[n] // 1_000 for n in names))
            for r in add_key_columns
        ),
        key=str,
    )
