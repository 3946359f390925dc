"""Each table has a description, each column a comment, and files have statistics by which queries skip them."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from subreplay.cli import main
from subreplay.engine import delta_files
from subreplay.rows.model.table_descriptions import describe_column, describe_table, read_descriptions

WHERE = {"subscription": "billing", "topic": "orders", "date": "2026-11-21"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    with redirect_stdout(StringIO()):
        assert main.main(["demo", "--out", str(folder)]) == 0
    return folder


def test_every_table_that_a_run_writes_has_a_description(demo: Path) -> None:
    for folder in (*(demo / "tables").iterdir(), *(demo / "input").iterdir()):
        if folder.is_dir():
            assert DeltaTable(folder).metadata().description == describe_table(folder.name), folder.name


def test_every_column_that_a_run_writes_has_a_comment(demo: Path) -> None:
    for folder in (demo / "tables").iterdir():
        for column in DeltaTable(folder).schema().fields:
            assert column.metadata == {"comment": describe_column(folder.name, column.name)}, column.name


def test_a_column_that_a_later_version_adds_gets_its_comment_too(tmp_path: Path) -> None:
    path = str(tmp_path / "incidents")
    for columns in (["title"], ["title", "detail"]):
        rows = pa.table({name: ["a"] for name in columns})
        delta_files.replace_rows(path, "incidents", rows, WHERE)
    comments = {column.name: column.metadata.get("comment") for column in DeltaTable(path).schema().fields}
    assert comments["detail"] == describe_column("incidents", "detail")


def test_files_have_statistics_of_the_columns_by_which_people_filter(tmp_path: Path) -> None:
    path = str(tmp_path / "violations")
    moments = pa.array([1_700_000_000_000_001, None, 1_700_000_000_999_999], pa.timestamp("us", "UTC"))
    rows = pa.table({"code": ["LOST", "LATE", "LOST"], "moment": moments, "explanation": ["x" * 10_000] * 3})
    delta_files.replace_rows(path, "violations", rows, WHERE)
    (added,) = [
        json.loads(line)["add"]
        for log in sorted(Path(path, "_delta_log").glob("*.json"))
        for line in log.read_text().splitlines()
        if "add" in json.loads(line)
    ]
    assert json.loads(added["stats"]) == {
        "numRecords": 3,
        "minValues": {"code": "LATE", "moment": "2023-11-14T22:13:20.000001Z"},
        "maxValues": {"code": "LOST", "moment": "2023-11-14T22:13:20.999999Z"},
        "nullCount": {"code": 0, "moment": 1},
    }
    properties = DeltaTable(path).metadata().configuration
    assert properties["delta.dataSkippingStatsColumns"] == "code,moment"


def test_a_column_of_nulls_has_no_smallest_value(tmp_path: Path) -> None:
    path = str(tmp_path / "violations")
    delta_files.replace_rows(path, "violations", pa.table({"consumer": pa.nulls(2, pa.string())}), WHERE)
    assert DeltaTable(path).to_pyarrow_table().num_rows == 2


def test_a_table_that_is_not_described_has_no_comments() -> None:
    assert describe_table("orders") is None
    assert describe_column("orders", "date") is None
    assert "orders" not in read_descriptions()["tables"]
