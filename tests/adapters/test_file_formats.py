"""A file that is not what it is taken for is named for what it is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters.source.file_formats import detect_table_format, require_format
from subreplay.errors import EnvironmentFailed, InputError


@pytest.fixture
def parquet(tmp_path: Path) -> bytes:
    pq.write_table(pa.table({"a": list(range(1_000))}), tmp_path / "a.parquet")
    return (tmp_path / "a.parquet").read_bytes()


@pytest.mark.parametrize(
    ("content", "form", "says"),
    [
        (b"a,b\n1,2\n", "parquet", "this is CSV text, not a Parquet file. Read it with --format csv"),
        (b"a;b\n1;2\n", "parquet", "this is CSV text"),
        (b'{"a": 1}\n', "parquet", "this is JSON text, not a Parquet file"),
        (b'{\n "a": 1\n}\n', "parquet", "this is JSON text"),
        (b'[\n {"a": 1, "b": 2}\n]\n', "csv", "this is JSON text, not CSV text. Read it with --format json"),
        (b"part,off\n1,2\n3,4\n", "json", "this is CSV text, not JSON text. Read it with --format csv"),
        (b"Obj\x01avro", "parquet", "this is an Avro file"),
        (b"PK\x03\x04....", "csv", "a zip archive or an Excel workbook, not CSV text. Export it"),
        (b"\x00\x01\x02", "parquet", "this is not a Parquet file"),
        (b"", "csv", "the file is empty"),
        (b"", "parquet", "the file is empty"),
    ],
)
def test_another_format_is_named(content: bytes, form: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "notreally.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        require_format(path, form)
    assert says in str(raised.value)


def test_parquet_named_csv_is_named(parquet: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(parquet)
    with pytest.raises(InputError, match=r"a Parquet file, not CSV text. Read it with --format parquet"):
        require_format(path, "csv")


def test_a_file_that_is_cut_off_is_said_to_be(parquet: bytes, tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(parquet[:-100])
    with pytest.raises(EnvironmentFailed, match="the Parquet file is truncated"):
        require_format(tmp_path, "parquet")


def test_a_file_that_may_not_be_read_is_said_to_be(
    parquet: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(EnvironmentFailed, match="Permission denied; check its permissions"):
        require_format(tmp_path / "a.parquet", "parquet")


@pytest.mark.parametrize(
    ("content", "form"),
    [(b"one column\n1\n", "csv"), (b'"x"\n', "csv"), (b"1\n", "json"), (b"a,b\n", "json"), (b"# note\n", "csv")],
)
def test_what_may_be_of_the_format_is_left_to_its_reader(content: bytes, form: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    require_format(tmp_path, form)


def test_whole_files_are_of_their_format(parquet: bytes, tmp_path: Path) -> None:
    require_format(tmp_path, "parquet")


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b"when;who\n2026-11-20 10:00:00;a\n2026-11-20 10:00:01;b\n", "csv"),
        (b"a\tb c\n1\t2\n", "csv"),
        (b'{"a": 1}\n{"a": 2}\n', "json"),
        (b"Obj\x01avro", "avro"),
        (b"CreateTime:1584680012228\tPartition:0\tkey\nCreateTime:1584680012265\tPartition:2\tkey\n", None),
        (b"2026-11-20 INFO started, ready\n2026-11-20 INFO stopped\n", None),
        (b"[2026-01-01 00:00:00,000] INFO [GroupCoordinator 1]: started\n", None),
        (b'[{"a": 1},\n {"a": 2}]\n', "json"),
        (b"# HELP a_total help, text\na_total 1\n", None),
        (b"a,b\n", None),
    ],
)
def test_the_format_of_a_file_without_an_ending_is_known_by_its_content(
    content: bytes, form: str | None, tmp_path: Path
) -> None:
    (tmp_path / "dump").write_bytes(content)
    assert detect_table_format(tmp_path / "dump") == form
