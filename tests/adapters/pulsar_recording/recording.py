"""Tiny recordings, written as a story: one call is one line of a file, one millisecond after the line before.

``Recording().join("c1").publish(0, "k").dispatch(0, "c1").ack(0, "c1").read(tmp_path)``

Times count from ``START``; keyword arguments replace fields of a row, and None removes one. Every consumer has a
connection of its own.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from subreplay.adapters import ADAPTERS, SourceTables

START = 1_700_000_000_000_000_000  # ns
MS = 1_000_000
TOPIC = "persistent://public/default/orders"
LEDGER = 5
Row = dict[str, Any]


class Recording:
    """The files of a recording in the making."""

    def __init__(self, topic: str = TOPIC, kind: str = "Key_Shared", **scenario: Any) -> None:
        self.topic, self.kind, self.scenario = topic, kind, scenario
        self.files: dict[str, list[Any]] = {"messages": [], "broker_events": []}
        self.tick = 0

    @property
    def now(self) -> int:
        return START + self.tick * MS

    def line(self, file: str, row: Any, **changes: Any) -> Recording:
        """Append a row to a file; a text stands as it is."""
        if isinstance(row, dict):
            row = {name: value for name, value in (row | changes).items() if value is not None or name == "key"}
        self.files.setdefault(file, []).append(row)
        return self

    def event(self, ev: str, **fields: Any) -> Recording:
        self.tick += 1
        row = {"seq": self.tick, "t_ns": self.now, "ev": ev, "topic": self.topic, "subscription": "sub"}
        return self.line("broker_events", row, **fields)

    # what clients ask for and brokers do

    def subscribe(self, consumer: str, **fields: Any) -> Recording:
        mode = {"key_shared_mode": "AUTO_SPLIT", "allow_out_of_order": False} if self.kind == "Key_Shared" else {}
        return self.event("subscribe", **_consumer(consumer) | {"type": self.kind} | mode | fields)

    def created(self, consumer: str, **fields: Any) -> Recording:
        return self.event("consumer_created", **_consumer(consumer) | {"type": self.kind} | fields)

    def join(self, consumer: str, **fields: Any) -> Recording:
        return self.subscribe(consumer, **fields).created(consumer)

    def refuse(self, consumer: str, error: str, message: str) -> Recording:
        return self.event("error", error=error, message=message, cnx=f"/{consumer}")

    def close(self, consumer: str) -> Recording:
        return self.event("close_consumer", **_consumer(consumer)).event("consumer_closed", **_consumer(consumer))

    def crash(self, consumer: str, **fields: Any) -> Recording:
        return self.event("consumer_closed", **_consumer(consumer) | fields)

    def disconnect(self, address: str) -> Recording:
        return self.event("connection_closed", cnx=f"/{address}")

    def publish(self, entry: int, /, *keys: str | None, **fields: Any) -> Recording:
        """One message, or a batch of as many as there are keys."""
        self.tick += 1
        for index, key in enumerate(keys):
            self.line("messages", self._message(entry, key, index if len(keys) > 1 else -1), **fields)
        return self

    def _message(self, entry: int, key: str | None, index: int) -> Row:
        return {
            "topic": self.topic, "partition": -1, "ledger": LEDGER, "entry": entry, "batch_index": index, "key": key,
            "producer": "p", "sequence_id": 10 * entry + index, "publish_time_ms": self.now // MS, "payload_size": 7,
        }  # fmt: skip

    def dispatch(self, entry: int, consumer: str, again: int = 0, **fields: Any) -> Recording:
        row = {"ledger": LEDGER, "entry": entry, "redelivery_count": again}
        return self.event("dispatch", **_consumer(consumer) | row | fields)

    def ack(self, entry: int, consumer: str, *pending: int, cumulative: bool = False, **fields: Any) -> Recording:
        """Acknowledge an entry, but for the batch indexes that are still ``pending``."""
        bits = sum(1 << index for index in pending)
        ids = [[LEDGER, entry, [bits]] if pending else [LEDGER, entry]]
        kind = "Cumulative" if cumulative else "Individual"
        return self.event("ack", **_consumer(consumer) | {"ack_type": kind, "ids": ids} | fields)

    def nack(self, consumer: str, *entries: int) -> Recording:
        """Ask for entries again; for everything the consumer holds where none is named."""
        return self.event("redeliver_unacked", **_consumer(consumer), ids=[[LEDGER, entry] for entry in entries])

    def receive(self, entry: int, consumer: str, index: int = -1, **fields: Any) -> Recording:
        """The application takes a message."""
        self.tick += 1
        row = {"topic": self.topic, "subscription": "sub", "ledger": LEDGER, "entry": entry, "batch_index": index}
        row |= {"consumer": consumer, "recv_ns": self.now, "redelivery_count": 0, "outcome": "acked"}
        return self.line("deliveries", row, **fields)

    # what is made of it

    def save(self, folder: Path) -> Path:
        for name, rows in self.files.items():
            text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
            (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        if self.scenario:
            (folder / "scenario.json").write_text(json.dumps(self.scenario), encoding="utf-8")
        return folder

    def read(self, folder: Path) -> SourceTables:
        return ADAPTERS["pulsar-recording"](self.save(folder))


def _consumer(name: str) -> Row:
    return {"consumer": name, "consumer_id": 0, "cnx": f"/{name}"}


def rows(ingested: SourceTables, table: str, *columns: str) -> list[Any]:
    """Rows of a canonical table: tuples of ``columns``, plain values of one; times in ms of the story."""
    found = [tuple(_plain(row[c]) for c in columns) for row in ingested.tables[table].to_pylist()]
    return [row[0] for row in found] if len(columns) == 1 else found


def _plain(value: Any) -> Any:
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1000 - START // MS)
    return value


def reasons(ingested: SourceTables) -> list[str]:
    """Every rejected row with its reasons, as a user reads them."""
    return [str(rejected) for rejected in ingested.rejected]


def counts(ingested: SourceTables) -> dict[str, tuple[int, int, int]]:
    """Rows in, valid and quarantined of every file."""
    return {c.file.split(".")[0]: (c.rows_in, c.valid, c.quarantined) for c in ingested.counts}
