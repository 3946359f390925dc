"""Each engine runs trivial steps alike, over few rows and over many."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.engine.interface import Engine, TableSource
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import InputError
from subreplay.rows.conditions import field
from subreplay.rows.sorted_blocks import Order
from tests.adapters.delta_logs import add, begun, committed
from tests.engine.simple_steps import NUMBERS, RUNS, doubled, evens_and_sums, fails, read_part, scopes_of

SUMS = pa.schema([("total", pa.int64())])
OUTPUTS = {"even": NUMBERS, "rows": NUMBERS, "sum": SUMS}


def numbers(n: int) -> pa.Table:
    return pa.table({"n": range(n), "word": [f"w{i % 3}" for i in range(n)]}, schema=NUMBERS)


@pytest.fixture
def local() -> Iterator[Engine]:
    with closing(LocalEngine(cores=2)) as engine:
        yield engine


def test_rows_are_selected_and_mapped(engine: Engine) -> None:
    rows = engine.create_dataset(numbers(10)).where(field("word") == "w1").map(doubled, NUMBERS)
    assert sorted(rows.to_table()["n"].to_pylist()) == [2, 8, 14]
    assert len(rows.to_table(2)) == 2
    assert not rows.is_empty()
    assert engine.create_dataset(numbers(10)).where(field("n") > 99).is_empty()


def test_one_look_gives_several_outputs(engine: Engine) -> None:
    rows = engine.concat([engine.create_dataset(numbers(10)), engine.create_dataset(numbers(4))])
    found = rows.split(evens_and_sums, OUTPUTS)
    assert sum(found["sum"].to_table()["total"].to_pylist()) == 45 + 6
    assert sorted(found["even"].to_table()["n"].to_pylist()) == [0, 0, 2, 2, 4, 6, 8]
    assert len(found["rows"].to_table()) == 14


def test_parts_are_read_by_tasks(engine: Engine) -> None:
    rows = engine.read_parts([1, 5], read_part, NUMBERS)
    assert sorted(rows.to_table()["n"].to_pylist()) == [1, 2, 5, 6]


def test_an_error_for_the_user_reaches_the_caller_as_it_is(engine: Engine) -> None:
    with pytest.raises(InputError, match="row 7: this is bad input; correct it"):
        engine.create_dataset(numbers(10)).map(fails, NUMBERS).to_table()
    with pytest.raises(InputError, match="row 7"):
        engine.create_dataset(numbers(10)).map(fails, NUMBERS).split(evens_and_sums, OUTPUTS)


@pytest.mark.parametrize("n", [100, 300_000])
def test_rows_of_a_scope_are_together_and_in_order(engine: Engine, n: int, tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    schema = pa.schema([pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("n", pa.int64()),
                        pa.field("more", pa.int64())])  # fmt: skip
    order = Order(schema, ("n",))
    values, partitions = random.integers(0, n, n), random.integers(0, 5, n)
    table = pa.table({"topic": ["t"] * n, "partition": pa.array(partitions, pa.int32()), "n": values})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=n // 4)
    given = engine.scan(TableSource("rows", str(tmp_path), format="parquet"))
    runs = engine.sort([given], order).map(scopes_of, RUNS).to_table()
    assert all(runs["in_order"].to_pylist())
    assert sum(runs["rows"].to_pylist()) == n
    sums = runs.group_by("partition").aggregate([("rows", "sum")]).to_pylist()
    assert {row["partition"]: row["rows_sum"] for row in sums} == dict(enumerate(np.bincount(partitions).tolist()))


def test_rows_of_an_output_table_replace_those_of_the_same_run(engine: Engine, tmp_path: Path) -> None:
    tables = engine.open_tables(str(tmp_path))
    for word, n in (("w1", 4), ("w2", 6), ("w1", 5)):
        where = {"subscription": word}
        new = tables.begin_write("counted", NUMBERS, where)
        found = engine.create_dataset(numbers(n)).split(evens_and_sums, {"even": new, "rows": NUMBERS, "sum": SUMS})
        assert len(found["rows"].to_table()) == n
        tables.commit(new)
        tables.put("sums", found["sum"].to_table(), where)
        tables.flush()  # what is put at once has no order
    counted, sums = tables.find("counted"), tables.find("sums")
    assert counted is not None
    assert sums is not None
    assert tables.find("others") is None
    rows = counted.to_table().to_pylist()
    assert sorted((row["subscription"], row["n"]) for row in rows) == [
        ("w1", 0), ("w1", 2), ("w1", 4), ("w2", 0), ("w2", 2), ("w2", 4),
    ]  # fmt: skip
    assert {row["date"] for row in rows} == {None}
    assert sorted(row["total"] for row in sums.to_table().to_pylist()) == [10, 15]


@pytest.mark.parametrize("engine", [pytest.param("spark", marks=pytest.mark.spark)], indirect=True)
def test_few_rows_of_several_tasks_are_written_into_one_file(engine: Engine, tmp_path: Path) -> None:
    tables = engine.open_tables(str(tmp_path))
    new = tables.begin_write("counted", NUMBERS, {"subscription": "s"})
    engine.read_parts((0, 10, 20), read_part, NUMBERS).split(
        evens_and_sums, {"even": new, "rows": NUMBERS, "sum": SUMS}
    )
    tables.commit(new)
    counted = tables.find("counted")
    assert counted is not None
    assert sorted(counted.to_table()["n"].to_pylist()) == [0, 10, 20]
    assert len([*tmp_path.rglob("*.parquet")]) == 1


def test_kept_tables_are_there_as_long_as_the_engine_is_open(engine: Engine) -> None:
    tables = engine.open_tables(None)
    new = tables.begin_write("counted", NUMBERS, {"subscription": "s"})
    engine.create_dataset(numbers(4)).split(evens_and_sums, {"even": new, "rows": NUMBERS, "sum": SUMS})
    tables.commit(new)
    tables.put("few", numbers(2), {"subscription": "s"})
    assert sorted(tables.written) == ["counted", "few"]
    assert sorted(tables.written["counted"].to_table()["n"].to_pylist()) == [0, 2]
    assert tables.written["few"].to_table()["subscription"].to_pylist() == ["s", "s"]


def test_a_table_that_is_not_there_is_an_error_that_names_it(engine: Engine, tmp_path: Path) -> None:
    for form in ("delta", "parquet", "csv"):
        with pytest.raises(InputError, match=r"traffic.messages: .*nowhere"):
            engine.scan(TableSource("traffic.messages", str(tmp_path / "nowhere"), format=form))


@pytest.mark.parametrize(
    ("feature", "named"), [("columnMapping", "column mapping"), ("deletionVectors", "deletion vectors")]
)
def test_a_delta_table_with_a_feature_that_only_spark_reads_is_refused(
    local: Engine, tmp_path: Path, feature: str, named: str
) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    committed(tmp_path, [*begun(**features), add("a.parquet")])
    with pytest.raises(InputError) as error:
        local.scan(TableSource("traffic.messages", str(tmp_path)))
    assert str(error.value) == (
        f"traffic.messages: {tmp_path}: the Delta table uses {named}, which the local engine cannot read. "
        "Set engine: spark."
    )


def test_many_rows_go_through_processes(local: Engine, tmp_path: Path) -> None:
    pq.write_table(numbers(600_000), tmp_path / "rows.parquet", row_group_size=150_000)
    rows = local.scan(TableSource("rows", str(tmp_path), format="parquet"))
    found = rows.split(evens_and_sums, OUTPUTS)
    assert len(found["sum"].to_table()) == 2  # one of each process's part
    assert len(found["even"].to_table()) == 300_000


TEXTS = {
    "lines.jsonl": b'{"a": 1}\n\n{"a": 2, "b": "x"\n{"a": 3.5}\n',
    "pretty.json": b'{\n  "a": 1\n}\n{\n  "a": 2\n}\n',
    "array.json": b'[{"a": "x"}, {"a": 1}]',
    "packed.jsonl.gz": gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
    "rows.csv": b'a,b\n1,x\n2\n3,"y\nz"\n',
    "quote.csv": b'a,b\n1,x\n2,"y\n3,z\n',
    "wide.csv": "a,b\n1,ü\n".encode("utf-16"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_records_of_text_have_their_lines_and_why_they_cannot_be_read(
    engine: Engine, local: Engine, tmp_path: Path, name: str
) -> None:
    for folder in ("one", "two"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        (tmp_path / "in" / folder / name).write_bytes(TEXTS[name])
    form = "csv" if name.endswith("csv") else "json"
    options = {"header": "true"} if form == "csv" else {}
    source = TableSource("rows", str(tmp_path / "in"), format=form, options=options, files=True)
    found, expected = (each.scan(source).to_table() for each in (engine, local))
    assert found.column_names == expected.column_names
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
    assert {*found["subreplay_file"].to_pylist()} == {f"one/{name}", f"two/{name}"}
    assert found["subreplay_line"].null_count == 0


def test_a_folder_that_cannot_be_made_is_named_in_one_line(local: Engine) -> None:
    tables = local.open_tables("/proc/no such place")
    with pytest.raises(InputError, match=r"^/proc/no such place/rows: cannot be written: .*check the name$"):
        tables.begin_write("rows", NUMBERS, {})
