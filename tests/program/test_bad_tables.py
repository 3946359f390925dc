"""Tables and folders that are not what they should be, through the command: exit code, sentence, remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from subreplay.cli.main import main
from tests.support.recordings import ROOT

Audited = Callable[[Path], tuple[int, str]]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording as tables, in folder ``in``."""
    folder = tmp_path_factory.mktemp("tables")
    recording = str(ROOT / "4.0.8/s8_exclusive_cumulative")
    assert main(["ingest", recording, "--to", str(folder / "in"), "--quiet"]) == 0
    return folder / "in"


@pytest.fixture
def spoiled(tables: Path, tmp_path: Path) -> Path:
    """A copy of the tables to be spoiled."""
    return Path(shutil.copytree(tables, tmp_path / "in"))


@pytest.fixture
def audited(tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Audited:
    """Audit other tables of that subscription; exit code and the last sentence on standard error."""

    def run(path: Path, *options: str) -> tuple[int, str]:
        arguments = ["--config", str(tables / "audit.yaml"), "--tables", str(path), "--out", str(tmp_path / "out")]
        code = main(["audit", *arguments, *options, "--quiet"])
        said = capsys.readouterr().err.splitlines()
        return code, next(line for line in said if line.startswith("subreplay: "))

    return run


def files(table: Path, pattern: str = "**/*.parquet") -> Iterator[Path]:
    yield from sorted(table.glob(pattern))


def test_a_folder_without_tables(audited: Audited, tmp_path: Path) -> None:
    code, said = audited(tmp_path)
    assert code == 2
    assert f"{tmp_path}/messages: no readable delta table" in said


def test_parquet_that_is_called_delta(audited: Audited, spoiled: Path) -> None:
    for table in spoiled.iterdir():
        if table.is_dir():
            shutil.rmtree(table / "_delta_log")
    code, said = audited(spoiled)
    assert code == 2
    assert "no readable delta table" in said
    assert "traffic.format" in said


def test_a_truncated_data_file(audited: Audited, spoiled: Path) -> None:
    for path in files(spoiled / "deliveries"):
        path.write_bytes(path.read_bytes()[:-100])
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    code, said = audited(spoiled)
    assert code == 4
    assert "/deliveries: " in said
    assert "a file of the table is damaged, truncated or missing. Restore the table, or write it again" in said


def test_a_data_file_that_is_gone(audited: Audited, spoiled: Path) -> None:
    for path in files(spoiled / "messages"):
        path.unlink()
    code, said = audited(spoiled)
    assert code == 4
    assert "damaged, truncated or missing" in said


def test_a_garbled_delta_log(audited: Audited, spoiled: Path) -> None:
    for path in files(spoiled / "membership" / "_delta_log", "*.json"):
        path.write_text("{garbled")
        (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    code, said = audited(spoiled)
    assert code in (2, 4)
    assert "membership" in said


@pytest.mark.parametrize("name", ["tables", "tables/audited"])
def test_an_output_where_a_file_is_in_the_way(audited: Audited, tables: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("in the way")
    code, said = audited(tables)
    assert code in (2, 4)
    assert "bug in subreplay" not in said


def test_files_that_are_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello")
    for name in ("cut", "plain", "folders"):
        shutil.copytree(ROOT / "4.0.8/s8_exclusive_cumulative", tmp_path / name)
    cut = tmp_path / "cut" / "deliveries.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:2_000])
    (tmp_path / "plain" / "messages.jsonl.gz").write_text("hello")
    (tmp_path / "folders" / "messages.jsonl.gz").unlink()
    (tmp_path / "folders" / "messages.jsonl.gz").mkdir()
    for name, code, sentence in (
        ("empty", 2, "empty: no adapter recognises it. Name one with --from: "),
        ("text.txt", 2, "text.txt: no adapter recognises it. Name one with --from: "),
        ("cut", 4, "cut/deliveries.jsonl.gz: cannot be read: damaged or cut off"),
        ("plain", 2, "plain/messages.jsonl.gz: cannot be read as (gzip) JSON lines: Not a gzipped file"),
        ("folders", 2, "folders/messages.jsonl.gz: cannot be read: Is a directory"),
    ):
        assert main(["ingest", str(tmp_path / name), "--to", str(tmp_path / "out"), "--quiet"]) == code
        said = capsys.readouterr().err
        assert sentence in said
        assert "Traceback" not in said
        assert not (tmp_path / "out").exists()
