"""Messages of a Pulsar topic by the client's Reader, here one that is made up: bounded by time, as canonical rows."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from subreplay.engine.spark import pulsar_source
from subreplay.engine.spark.pulsar_source import CLIENT_COLUMNS, PulsarMessages, read_batches, require_client
from subreplay.errors import EnvironmentFailed
from subreplay.rows.model.tables import MESSAGES

TOPIC = "persistent://public/default/orders-partition-3"
MS = 1_760_000_000_000


class Reader:
    """What there is is all there will be; the first instant that it is asked for is ``sought``."""

    def __init__(self, published: list[int]) -> None:
        self.published, self.sought, self.closed = published, None, False

    def seek(self, at: int) -> None:
        self.sought = at
        self.published = [each for each in self.published if each >= at]

    def has_message_available(self) -> bool:
        return bool(self.published)

    def read_next(self, timeout_millis: int) -> Any:
        at = self.published.pop(0)
        values = {
            "message_id": SimpleNamespace(ledger_id=lambda: 7, entry_id=lambda: at - MS, batch_index=lambda: -1),
            "partition_key": f"k{at - MS}" if at % 2 else "", "ordering_key": "", "producer_name": "p",
            "publish_timestamp": at, "event_timestamp": 0, "data": b"12345",
        }  # fmt: skip
        return SimpleNamespace(**{name: lambda value=value: value for name, value in values.items()})

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pulsar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pulsar", SimpleNamespace(MessageId=SimpleNamespace(earliest="earliest")))


@pytest.mark.parametrize(
    ("begin", "end", "entries"), [(None, MS + 9, [0, 1, 5]), (MS + 1, MS + 5, [1]), (MS + 1, MS, []), (None, MS, [])]
)
def test_it_reads_from_one_instant_to_before_another(
    pulsar: None, begin: int | None, end: int, entries: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulsar_source, "_BATCH_ROWS", 2)
    reader = Reader([MS, MS + 1, MS + 5])
    client = SimpleNamespace(create_reader=lambda topic, start: reader)
    found = [row for batch in read_batches(client, TOPIC, begin, end) for row in batch.to_pylist()]
    assert [row["entry"] for row in found] == entries
    assert (reader.sought, reader.closed) == (begin, True)


def test_a_message_becomes_a_row_of_table_messages(pulsar: None) -> None:
    client = SimpleNamespace(create_reader=lambda topic, start: Reader([MS, MS + 1]))
    (batch,) = read_batches(client, TOPIC, None, MS + 9)
    first, second = batch.to_pylist()
    assert (first["topic"], first["partition"]) == ("persistent://public/default/orders", 3)
    assert (first["ledger"], first["entry"], first["batch_index"], first["size"]) == (7, 0, -1, 5)
    assert (first["key"], second["key"], first["ordering_key"], first["event_time"]) == (None, b"k1", None, None)
    assert round(second["publish_time"].timestamp() * 1_000) == MS + 1
    assert first["date"] == first["publish_time"].date()


def test_its_columns_are_those_of_messages_with_all_that_must_be_there() -> None:
    assert {field.name for field in MESSAGES if not field.nullable} <= set(CLIENT_COLUMNS.names)
    assert all(MESSAGES.field(field.name) == field for field in CLIENT_COLUMNS)
    assert PulsarMessages({}).schema().fieldNames() == CLIENT_COLUMNS.names


def test_without_the_client_one_sentence_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsar_source, "find_spec", lambda name: None)
    with pytest.raises(
        EnvironmentFailed, match=r"traffic\.messages: .* not installed. Install it: pip install 'subreplay\[pulsar\]'"
    ):
        require_client("traffic.messages")
