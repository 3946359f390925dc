"""Which files of a Delta table count, by its log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters.delta_files import delta_files
from subreplay.adapters.files import files
from subreplay.errors import InputError
from tests.adapters.delta_logs import add, committed, remove


def names(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in delta_files(table)}


def checkpoint(table: Path, version: int, *files: str, part: str = "") -> None:
    rows = [{"metaData": {"configuration": []}, "add": None}]
    rows += [{"metaData": None, "add": {"path": name, "deletionVector": None}} for name in files]
    kinds = pa.schema(
        [
            ("metaData", pa.struct([("configuration", pa.map_(pa.string(), pa.string()))])),
            ("add", pa.struct([("path", pa.string()), ("deletionVector", pa.struct([("size", pa.int32())]))])),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, kinds), table / "_delta_log" / f"{version:020}.checkpoint{part}.parquet")


def test_what_was_added_and_not_removed_counts(tmp_path: Path) -> None:
    committed(tmp_path, [add("a"), add("date=2026-11-21/b%20c")], [remove("a"), add("d")], [{"commitInfo": {}}])
    assert names(tmp_path) == {"date=2026-11-21/b c", "d"}


def test_a_checkpoint_stands_for_the_commits_up_to_it(tmp_path: Path) -> None:
    committed(tmp_path, [remove("a"), add("c")], first=11)
    checkpoint(tmp_path, 10, "a", "b")
    assert names(tmp_path) == {"b", "c"}


def test_a_checkpoint_of_which_a_part_is_missing_does_not_count(tmp_path: Path) -> None:
    committed(tmp_path, [add("a")], [add("b")])
    checkpoint(tmp_path, 1, "x", part=".0000000001.0000000002")
    assert names(tmp_path) == {"a", "b"}
    checkpoint(tmp_path, 1, "y", part=".0000000002.0000000002")
    assert names(tmp_path) == {"x", "y"}


def test_in_a_folder_of_others_only_the_tables_files_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    committed(tmp_path / "lake", [add("now.parquet")])
    for name in ("beside.log", "lake/now.parquet", "lake/before.parquet"):
        (tmp_path / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in files(tmp_path)] == ["beside.log", "lake/now.parquet"]


MAPPED = {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}


@pytest.mark.parametrize(
    ("commits", "why"),
    [
        ([], "whose log is not whole"),
        ([[add("a", deletionVector={"storageType": "u"})]], "of which single rows are deleted"),
        ([[MAPPED]], "whose columns have other names in its files"),
        ([[add("file:///elsewhere/a")]], "with files elsewhere"),
        ([[{"add": {}}]], "whose log cannot be read"),
        ([[{"add": 7}]], "whose log cannot be read"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, commits: list[list[dict[str, Any]]], why: str) -> None:
    committed(tmp_path, *commits)
    with pytest.raises(InputError, match=f"{why}.* read it by Spark and write its rows as Parquet"):
        delta_files(tmp_path)


def test_a_log_with_a_hole_or_a_cut_line_is_refused(tmp_path: Path) -> None:
    committed(tmp_path, [add("a")])
    committed(tmp_path, [add("c")], first=2)
    with pytest.raises(InputError, match="whose log is not whole"):
        delta_files(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')
    with pytest.raises(InputError, match="whose log cannot be read"):
        delta_files(tmp_path)
