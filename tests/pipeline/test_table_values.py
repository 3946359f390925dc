"""Values of tables, numbers and copies of messages, on the engine of one machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import date as Date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters.source.row_conversion import build_canonical_schema
from subreplay.engine.interface import Engine
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.numbered_messages import drop_copies, number_by_time
from subreplay.pipeline.table_values import find_distinct_values, find_stored_values
from subreplay.rows.check import find_valid
from subreplay.rows.model.stored_rows import Stored
from subreplay.rows.model.tables import LOG
from subreplay.rows.scan.log_rows import make_log_rows
from tests.support.drawn import drawn


@pytest.fixture
def engine() -> Iterator[Engine]:
    with closing(LocalEngine(cores=1)) as engine:
        yield engine


def test_values_and_days_of_tables(engine: Engine) -> None:
    deliveries = drawn("deliveries", random.Random(1), 100)
    rows = engine.concat([engine.create_dataset(deliveries.slice(0, 50)), engine.create_dataset(deliveries.slice(50))])
    assert find_distinct_values(rows, ["topic"]) == [("",), ("t",), ("u",)]
    assert find_distinct_values(rows, ["topic"], most=2) == [("",), ("t",)]
    pairs = zip(deliveries["topic"].to_pylist(), deliveries["partition"].to_pylist(), strict=True)
    assert find_distinct_values(rows, ["topic", "partition"]) == sorted({*pairs})
    found = find_stored_values(
        {"messages": engine.create_dataset(drawn("messages", random.Random(1), 100)), "deliveries": rows}
    )
    assert [each[:3] for each in found[:4]] == [
        ("messages", None, ""), ("messages", None, "t"), ("messages", None, "u"), ("deliveries", "", "")
    ]  # fmt: skip
    assert Stored("deliveries", "sub", "t", Date(1950, 1, 1), Date(2023, 11, 15)) in found


def test_messages_get_numbers_in_the_order_of_their_times(engine: Engine) -> None:
    rows = drawn("messages", random.Random(1), 100)
    rows = rows.append_column(
        "rejected", pa.nulls(len(rows), build_canonical_schema("messages").field("rejected").type)
    )
    found = number_by_time(engine, engine.create_dataset(rows.cast(build_canonical_schema("messages")))).to_table()
    assert found.schema == build_canonical_schema("messages")
    assert len(found) == len(rows)
    mine = found.filter(pc.and_(pc.equal(found["topic"], "t"), pc.equal(found["partition"], 0)))
    assert mine["entry"].to_pylist() == list(range(len(mine)))
    assert mine["publish_time"].to_pylist() == sorted(mine["publish_time"].to_pylist())


def test_copies_are_left_out_whichever_part_has_them(engine: Engine) -> None:
    (rows,) = drawn("messages", random.Random(1), 100).combine_chunks().to_batches()
    log = pa.Table.from_batches([make_log_rows("messages", rows.filter(pa.array(find_valid("messages", rows))))])
    schema = pa.schema([field for field in LOG if field.name in log.column_names])
    twice = engine.concat([engine.create_dataset(log.cast(schema)), engine.create_dataset(log.cast(schema))])
    found, copies = drop_copies(engine, twice)
    again, none = drop_copies(engine, found)
    assert len(found.to_table()) == 2 * len(log) - copies
    assert copies >= len(log)
    assert (len(again.to_table()), none) == (len(found.to_table()), 0)
