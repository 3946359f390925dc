"""Which files of a Delta table count: those of its latest version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from subreplay.adapters.input_files import list_delta_files, list_files
from subreplay.errors import InputError
from tests.adapters.delta_logs import add, begun, committed, remove


def names(table: Path) -> set[str]:
    return {str(path.relative_to(table)) for path in list_delta_files(table)}


def test_what_was_added_and_not_removed_counts(tmp_path: Path) -> None:
    added = [*begun(), add("a"), add("date=2026-11-21/b%20c")]
    committed(tmp_path, added, [remove("a"), add("d")], [{"commitInfo": {}}])
    assert names(tmp_path) == {"date=2026-11-21/b c", "d"}


def test_a_table_with_a_checkpoint_and_odd_partitions_has_the_files_of_its_latest_version(tmp_path: Path) -> None:
    table = tmp_path / "a b"
    for day in ("2026 x", "b%c"):
        write_deltalake(str(table), pa.table({"x": [1], "day": [day]}), partition_by=["day"], mode="append")
    DeltaTable(table).create_checkpoint()
    old = list_delta_files(table)
    write_deltalake(str(table), pa.table({"x": [2], "day": ["z"]}), mode="overwrite")
    assert len(old) == 2
    assert all(path.exists() for path in old)
    assert [path.parent.name for path in list_delta_files(table)] == ["day=z"]


def test_in_a_folder_of_others_only_the_tables_files_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    committed(tmp_path / "lake", [*begun(), add("now.parquet")])
    for name in ("beside.log", "lake/now.parquet", "lake/before.parquet"):
        (tmp_path / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in list_files(tmp_path)] == ["beside.log", "lake/now.parquet"]


FEATURES = {"minReaderVersion": 3, "minWriterVersion": 7}


@pytest.mark.parametrize(
    ("commits", "why"),
    [
        ([], "the log of this Delta table cannot be read"),
        (
            [begun({"delta.columnMapping.mode": "name"}, readerFeatures=["columnMapping"],
                   writerFeatures=["columnMapping"], **FEATURES)],
            "maps its columns to other names in its files",
        ),
        ([[*begun(), add("file:///elsewhere/a")]], "has files outside its folder"),
        ([[*begun(), {"add": {}}]], "the log of this Delta table cannot be read"),
        ([[*begun(), {"add": 7}]], "the log of this Delta table cannot be read"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(tmp_path: Path, commits: list[list[dict[str, Any]]], why: str) -> None:
    committed(tmp_path, *commits)
    with pytest.raises(InputError, match=f"(?s){why}.* Read it with Spark and write its rows as Parquet"):
        list_delta_files(tmp_path)


def test_a_log_with_a_hole_or_a_cut_line_is_refused(tmp_path: Path) -> None:
    committed(tmp_path, [*begun(), add("a")])
    committed(tmp_path, [add("c")], first=2)
    with pytest.raises(InputError, match="the log of this Delta table cannot be read"):
        list_delta_files(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text('{"add": {"pa')
    with pytest.raises(InputError, match="the log of this Delta table cannot be read"):
        list_delta_files(tmp_path)


def test_a_table_of_which_single_rows_are_deleted_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(tmp_path, [*begun(), add("a")])
    monkeypatch.setattr(DeltaTable, "deletion_vectors", lambda self: pa.table({"filepath": ["a"]}))
    with pytest.raises(InputError, match="has deletion vectors"):
        list_delta_files(tmp_path)
