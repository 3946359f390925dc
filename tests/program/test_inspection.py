"""A first look at messages needs no Spark for files of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters.source import table_overview
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import InputError
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.pipeline import inspection
from subreplay.pipeline.inspection import Inspection
from tests.support.history import history
from tests.support.in_process import Cuts, InProcess

FIRST_MS = 1_760_000_000_000
ORDERS = history("a1 a2 a3 n1", "+C1 a1>C1 a1! n1>C1 n1!")["messages"]


def look(path: Path, form: str | None = None) -> Inspection:
    with LocalEngine(1) as engine:
        return inspection.inspect_source(engine, inspection.build_source(str(path), form))


def records(count: int = 60) -> pa.Table:
    columns = {
        "topic": ["orders"] * count,
        "partition": [n % 3 for n in range(count)],
        "offset": [n // 3 for n in range(count)],
        "timestamp": [FIRST_MS + n for n in range(count)],
        "key": [f"k{n % 7}" for n in range(count)],
    }
    return pa.table(columns)


def test_messages_of_a_kafka_topic_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.concat_tables([records(), records(2)]), tmp_path / "orders.parquet")
    found = look(tmp_path / "orders.parquet")
    assert found.overview is not None
    assert found.candidate.name == "kafka-table.spark"
    assert (found.overview.rows, found.overview.valid, found.overview.copies) == (62, 62, 2)
    assert (found.overview.topics, found.overview.partitions, found.overview.keyed, found.overview.keys) == (
        ("orders",),
        3,
        62,
        7,
    )
    assert inspection.build_run_file(found)["scenarios"][0]["policy"] == "kafka.range"


def test_lines_that_cannot_be_read_are_counted_by_their_reason(tmp_path: Path) -> None:
    lines = [json.dumps(row) for row in records().to_pylist()]
    (tmp_path / "orders.jsonl").write_text("\n".join([*lines, "{broken", ""]))
    found = look(tmp_path / "orders.jsonl")
    assert found.overview is not None
    assert (found.overview.rows, found.overview.valid) == (61, 60)
    (why,) = found.overview.why
    assert (why["rule"], why["count"]) == ("the line must be readable", 1)


def test_messages_in_our_own_columns_are_checked(tmp_path: Path) -> None:
    rows = [row | ({"batch_index": -7} if n == 1 else {}) for n, row in enumerate(ORDERS.to_pylist())]
    pq.write_table(pa.Table.from_pylist(rows, ORDERS.schema), tmp_path / "messages.parquet")
    found = look(tmp_path / "messages.parquet")
    assert found.overview is not None
    assert (found.candidate.name, found.overview.rows, found.overview.valid) == ("canonical", 4, 3)
    assert [(why["column"], why["example"]) for why in found.overview.why] == [("batch_index", "-7")]


@pytest.mark.parametrize("name", ["not there", "empty.csv", "header.csv"])
def test_what_has_no_messages_is_an_error_in_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("partition,offset,key\n")
    with pytest.raises(InputError, match=r"no such file|is empty|has no rows; its columns are partition"):
        look(tmp_path / name)


@pytest.mark.parametrize(("tasks", "rows"), [(1, 100), (3, 7)])
def test_tasks_sum_up_what_one_does(tasks: int, rows: int) -> None:
    some = pa.concat_tables([records(), records(5)])
    engine = InProcess(Cuts(tasks, rows))
    parts = [some.slice(begin, rows) for begin in range(0, len(some), rows)]
    dataset = engine.read_parts(parts, pa.Table.to_batches, some.schema)
    step = table_overview.OverviewStep("messages", "orders", some.schema, {"from": "kafka-table.spark", "columns": {
        "key": {"column": "key", "as": "utf8"}, "timestamp": {"column": "timestamp", "as": "epoch_ms"}}})  # fmt: skip
    found = table_overview.combine_sums(
        {name: each.to_table() for name, each in dataset.split(step, table_overview.OVERVIEW_SCHEMAS).items()}
    )
    assert (found.rows, found.valid, found.copies, found.keys, found.partitions) == (65, 65, 5, 7, 3)


def test_of_very_many_keys_their_number_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_overview, "MAX_EXACT", 1_000)
    keys = pa.array([f"key {n}" for n in range(50_000)])
    least = np.union1d(compute_key_identities(keys), [])[:1_000].astype(np.int64)
    assert table_overview._estimate_keys(pa.chunked_array([least])) == pytest.approx(50_000, rel=0.1)
    assert table_overview._estimate_keys(pa.chunked_array([least[:10]])) == 10
