"""Rows that tasks write into files of a table replace those of the same values, in one transaction, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from subreplay.engine.spark import delta_files
from subreplay.engine.spark.delta_files import NewFiles, begun
from subreplay.errors import EnvironmentFailed

PARTITIONS = ["topic", "date"]
DAYS = [date(2026, 1, 1), date(2026, 1, 2)]
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("of", pa.struct([pa.field("part", pa.int32(), nullable=False)])),
        pa.field("topic", pa.string()),
        pa.field("date", pa.date32()),
    ]
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_rows_of_each_date_are_where_they_belong(path: str) -> None:
    """A part that a task left is one file a date; a date may be unknown."""
    new = start(path)
    commit(new, [rows([1, 2, 3], dates=[DAYS[0], DAYS[1], DAYS[0]]), rows([4], dates=[None])])
    assert told(path) == [(1, "a", DAYS[0]), (2, "a", DAYS[1]), (3, "a", DAYS[0]), (4, "a", None)]
    added = pa.table(DeltaTable(path).get_add_actions(flatten=True))
    assert sorted(added["num_records"].to_pylist()) == [1, 1, 2]
    assert DeltaTable(path).to_pyarrow_table().schema.field("at").type == pa.timestamp("us", "UTC")


def test_only_rows_of_the_same_values_are_replaced(path: str) -> None:
    """A second run of a topic and date leaves the rows of others, and its own may be none."""
    commit(start(path, topic="a", date="2026-01-01"), [rows([1])])
    commit(start(path, topic="b", date="2026-01-01"), [rows([2], topic="b")])
    commit(start(path, topic="a", date="2026-01-02"), [rows([3], dates=[DAYS[1]])])
    commit(start(path, topic="a", date="2026-01-01"), [rows([4, 5])])
    assert told(path) == [(2, "b", DAYS[0]), (3, "a", DAYS[1]), (4, "a", DAYS[0]), (5, "a", DAYS[0])]
    commit(start(path, topic="a"), [])
    assert told(path) == [(2, "b", DAYS[0])]


def test_a_name_that_a_path_would_not_take(path: str) -> None:
    """No folder is named after a value."""
    name = "it's/" + "ä" * 300
    for numbers in ([1], [2]):
        commit(start(path, topic=name), [rows(numbers, topic=name)])
    assert told(path) == [(2, name, DAYS[0])]


def test_two_runs_of_the_same_rows_do_not_double_them(path: str) -> None:
    """The one that ends later is told, whether there were rows before or not."""
    for numbers in ([1], [2]):
        one, other = start(path), start(path)
        commit(one, [rows(numbers)])
        with pytest.raises(EnvironmentFailed, match="another run is writing the same"):
            commit(other, [rows([9])])
        assert told(path) == [(*numbers, "a", DAYS[0])]


def test_runs_of_other_rows_do_not_disturb_one_another(path: str) -> None:
    """Both end, in any order."""
    one, other = start(path, topic="a"), start(path, topic="b")
    commit(other, [rows([2], topic="b")])
    commit(one, [rows([1])])
    assert told(path) == [(1, "a", DAYS[0]), (2, "b", DAYS[0])]


def test_nobody_comes_between_the_look_and_the_commit(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that looked at the table before another one wrote the same rows looks once more."""
    one, other = start(path), start(path)
    write = DeltaTable.create_write_transaction

    def after_the_other(table: DeltaTable, *asked: object, **named: object) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", write)
        commit(other, [rows([2])])
        write(table, *asked, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", after_the_other)
    with pytest.raises(EnvironmentFailed):
        commit(one, [rows([1])])
    assert told(path) == [(2, "a", DAYS[0])]


def test_few_rows_at_a_time_become_one_group_of_a_file(path: str) -> None:
    """Groups of ten rows each would be slow to read; a date may come and go."""
    new = start(path)
    dates: list[list[date | None]] = [[DAYS[0]], [None], [DAYS[0]]]
    commit(new, (rows([number], dates=dates[number % 3]) for number in range(300)))
    files = [pq.ParquetFile(file) for file in Path(path).rglob("*.parquet")]
    assert [file.num_row_groups for file in files] == [1, 1]
    assert sorted(file.metadata.num_rows for file in files) == [100, 200]
    assert [number for number, *_ in told(path)] == [*range(300)]


@pytest.mark.parametrize("many", ["ROWS", "MOST_BYTES"])
def test_after_an_error_no_file_is_left(path: str, monkeypatch: pytest.MonkeyPatch, many: str) -> None:
    """A task that fails takes what it wrote with it."""
    monkeypatch.setattr(delta_files, many, 1)
    written = Mock(wraps=pq.ParquetWriter)
    monkeypatch.setattr(delta_files.pq, "ParquetWriter", written)

    def failing() -> Iterator[pa.Table]:
        yield rows([1])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commit(start(path), failing())
    assert written.called
    assert not [*Path(path).rglob("*.parquet")]


def test_what_spark_has_to_look_after(path: str, tmp_path: Path) -> None:
    """Tables of another layout, with other columns, or with more than this writer knows."""
    start(path)
    assert begun(path, SCHEMA, ["date", "topic"], {"topic": "a"}, {}) is None
    assert begun(path, SCHEMA.append(pa.field("more", pa.int64())), PARTITIONS, {"topic": "a"}, {}) is None
    constrained = str(tmp_path / "constrained")
    write_deltalake(constrained, rows([1]), partition_by=PARTITIONS)
    DeltaTable(constrained).alter.add_constraint({"positive": "number > 0"})
    assert begun(constrained, SCHEMA, PARTITIONS, {"topic": "a"}, {}) is None
    file = tmp_path / "file"
    file.touch()
    assert begun(f"{file}/table", SCHEMA, PARTITIONS, {"topic": "a"}, {}) is None


def start(path: str, **where: str) -> NewFiles:
    new = begun(path, SCHEMA, PARTITIONS, where or {"topic": "a"}, {})
    assert new is not None
    return new


def commit(new: NewFiles, parts: Iterable[pa.Table]) -> None:
    """What a task does with its rows, and the driver with its files."""
    with new.writing() as writing:
        for part in parts:
            writing.add(part)
    new.commit(writing.files)


def rows(numbers: list[int], topic: str = "a", dates: list[date | None] | list[date] | None = None) -> pa.Table:
    n = len(numbers)
    columns = [numbers, [0] * n, [{"part": 1}] * n, [topic] * n, dates or [DAYS[0]] * n]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def told(path: str) -> list[tuple[int, str, date | None]]:
    """The rows of a table."""
    table = DeltaTable(path).to_pyarrow_table()
    assert pc.all(pc.equal(pc.struct_field(table["of"], "part"), 1)).as_py()
    return sorted(zip(*(table[name].to_pylist() for name in ("number", "topic", "date")), strict=True))
