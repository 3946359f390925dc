"""The intake of an input table: what one look at its rows gives."""

from __future__ import annotations

import pickle
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from subreplay.rows import intake, rejects
from subreplay.rows.check import find_valid
from subreplay.rows.intake import NUMBERS, IngestIntake, Intake, Profiling
from subreplay.rows.model.tables import INPUTS, QUARANTINE, REJECTED
from subreplay.rows.scan import counts
from subreplay.rows.scan.log_rows import make_log_rows, select_log_columns
from tests.support.drawn import drawn

SIZES = pa.schema([("messages", pa.int64())])


def sizes(held: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"messages": [sum(batch.num_rows for batch in held)]}, schema=SIZES)


def taken_in(step: Intake | IngestIntake, batches: Iterable[pa.RecordBatch]) -> dict[str, list[pa.RecordBatch]]:
    found = defaultdict(list)
    for name, batch in pickle.loads(pickle.dumps(step))(batches):  # noqa: S301  as engines hand it on
        assert {*batch.schema.names} <= {*step.outputs[name].names}
        found[name].append(batch)
    return found


@pytest.mark.parametrize("table", INPUTS)
def test_every_row_is_valid_or_in_quarantine(table: str) -> None:
    rows = drawn(table, random.Random(3), 200)
    (whole,) = rows.combine_chunks().to_batches()
    keeps = find_valid(table, whole)
    assert keeps is not None
    logged = table != "membership"
    step = Intake(table, log=logged, valid=True, by_ledger=logged)
    found = taken_in(step, rows.to_batches(max_chunksize=7))
    mine = whole.filter(pa.array(keeps))
    assert found["valid"] == [mine.cast(step.outputs["valid"])]
    assert sum(batch.num_rows for batch in found["quarantine"]) == int((~keeps).sum())
    if logged:
        assert found["log"] == [make_log_rows(table, mine)]
        assert pa.Table.from_batches(found["counts"]) == counts.merge_counts(
            table, [counts.count_rows(table, whole, keeps)]
        )
    else:
        assert found["counts"][0].to_pylist() == [
            {"valid": False, "count": int((~keeps).sum())},
            {"valid": True, "count": int(keeps.sum())},
        ]
    assert pa.Table.from_batches(found["rejects"]) == rejects.build_rejects(table, whole, keeps)
    assert pa.Table.from_batches(found["reasons"]) == rejects.add_reasons(
        map(rejects.build_reasons, found["quarantine"])
    )


def test_small_tables_are_added_up_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn("messages", random.Random(4), 300).to_batches(max_chunksize=10)
    whole = taken_in(Intake("messages", by_ledger=True), rows)
    monkeypatch.setattr(intake, "_MOST_PENDING", 5)
    monkeypatch.setattr(
        intake, "gather_batches", lambda batches: map(pa.Table.from_batches, ([each] for each in batches))
    )
    found = taken_in(Intake("messages", by_ledger=True), rows)
    for name in ("counts", "rejects", "reasons"):
        one, other = (pa.Table.from_batches(of[name]) for of in (whole, found))
        assert one == other
    assert {name: len(of) for name, of in found.items() if name != "quarantine"} == {
        "counts": 1,
        "rejects": 1,
        "reasons": 1,
    }


def test_messages_are_profiled_some_at_a_time() -> None:
    rows = drawn("messages", random.Random(4), 300)
    (whole,) = rows.combine_chunks().to_batches()
    keeps = find_valid("messages", whole)
    mine = whole.filter(pa.array(keeps))
    columns = ("topic", "at", "key")
    found = taken_in(Intake("messages", profiling=Profiling(sizes, columns, 10, SIZES)), [whole])
    assert found["profile"] == [*sizes([select_log_columns(mine, columns)])]
    assert "log" not in found


def test_rows_that_could_not_be_read_are_counted_and_kept() -> None:
    unread = {"file": "f", "row": 7, "raw": "(line)", "reasons": []}
    schema = pa.schema([*(f.with_nullable(True) for f in INPUTS["deliveries"]), pa.field("rejected", REJECTED)])
    found = taken_in(Intake("deliveries", log=True), [pa.RecordBatch.from_pylist([{"rejected": unread}], schema)])
    assert found["counts"][0].to_pylist() == [{"valid": False, "count": 1}]
    assert found["quarantine"][0].to_pylist() == [unread | {"table": "deliveries"}]
    assert found["rejects"][0].to_pylist()[0]["partition"] is None


def test_rows_that_an_ingest_rejected_are_counted() -> None:
    why = [{"column": "entry", "value": "x", "rule": "r", "remedy": "m"}]
    raws = {"messages": '{"topic": "orders"}', "broker_events": '{"topic": "u"}', "deliveries": "(line 3)"}
    rows = [{"table": table, "file": "f", "row": 1, "raw": raw, "reasons": why} for table, raw in raws.items()]
    found = taken_in(IngestIntake("orders"), [pa.RecordBatch.from_pylist(rows, QUARANTINE)])
    assert found["counts"] == [pa.RecordBatch.from_pylist([{"valid": False, "count": 2}], NUMBERS)]
    assert [row["table"] for row in found["rejects"][0].to_pylist()] == ["messages", "deliveries"]
    assert [row["table"] for row in found["reasons"][0].to_pylist()] == ["ingest: deliveries", "ingest: messages"]
