"""What rejected rows could be about, and why they were rejected, added up."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from subreplay.rows import rejects
from subreplay.rows.model.tables import INPUTS, QUARANTINE

AT = datetime(2023, 11, 14, tzinfo=timezone.utc)
NS = int(AT.timestamp()) * 1_000_000_000


def of(table: str, *rows: dict[str, Any]) -> pa.Table:
    schema = pa.schema([field.with_nullable(True) for field in INPUTS[table]])
    batch = pa.RecordBatch.from_pylist([*rows], schema)
    return rejects.build_rejects(table, batch, np.zeros(len(rows), np.bool_))


def reported(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows.to_pylist()]


def test_what_cannot_be_read_may_be_anything_and_comes_first() -> None:
    rows = [{"partition": 1, "ledger": 3, "entry": 2}, {"partition": -7, "ledger": 3, "entry": 2},
            {"partition": 1, "ledger": 3, "entry": 2**40}]  # fmt: skip
    found = rejects.merge_rejects([of("deliveries", *rows), of("deliveries", *rows)])
    assert reported(found, "partition", "ledger", "entry") == [(None, 3, 2), (1, 3, None), (1, 3, 2)]


def test_a_membership_event_counts_from_when_it_was_requested() -> None:
    second = timedelta(seconds=1)
    rows = [{"consumer": "c", "event": "join", "at": AT, "since": since} for since in (None, AT - second, AT + second)]
    found = of(
        "membership", *rows, {"consumer": "", "event": "nothing", "at": datetime(1960, 1, 1, tzinfo=timezone.utc)}
    )
    assert reported(found, "consumer", "event", "at") == [
        (None, None, None), ("c", "join", None), ("c", "join", NS - 10**9), ("c", "join", NS)
    ]  # fmt: skip


def test_of_too_many_only_topic_partitions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejects, "MOST_REJECTS", 2)
    many = of("deliveries", *({"partition": n % 2, "ledger": 1, "entry": n} for n in range(5)))
    few = of("deliveries", {"partition": 0, "ledger": 1, "entry": 0})
    assert reported(many, "partition", "entry", "whole") == [(0, None, False), (1, None, False)]
    assert rejects.merge_rejects([few, many]) == many


def test_an_ingest_rejects_rows_of_the_tables_it_makes() -> None:
    rows = [{"table": table, "file": "f", "row": 1, "raw": "", "reasons": []} for table in ("broker_events", "x")]
    found = rejects.make_ingest_rejects(pa.RecordBatch.from_pylist(rows, QUARANTINE))
    assert reported(found, "table", "partition") == [("membership", None), ("deliveries", None)]


def test_reasons_are_counted_without_examples_of_keys() -> None:
    def row(table: str, *given: tuple[str, str]) -> dict[str, Any]:
        why = [{"column": column, "value": value, "rule": "r", "remedy": "m"} for column, value in given]
        return {"table": table, "file": "f", "row": 1, "raw": "", "reasons": why}

    one = pa.RecordBatch.from_pylist([row("messages", ("entry", "b"), ("key", "secret"))], QUARANTINE)
    other = pa.RecordBatch.from_pylist([row("messages", ("entry", "a"))], QUARANTINE)
    found = rejects.list_reasons(
        [rejects.build_reasons(one), rejects.build_reasons(other), rejects.build_reasons(other, "ingest: ")]
    )
    assert [tuple(each.values()) for each in found] == [
        ("messages", "entry", "r", "m", 2, "a"),
        ("ingest: messages", "entry", "r", "m", 1, "a"),
        ("messages", "key", "r", "m", 1, None),
    ]
