"""Files appear whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from subreplay.reports import write
from subreplay.reports.data import ReportData
from subreplay.reports.json_report import to_json
from subreplay.reports.write import ReportPaths, write_reports


def test_three_files_are_written_twice_the_same(small: ReportData, tmp_path: Path) -> None:
    out = tmp_path / "new" / "dir"
    paths = write_reports(small, out)
    assert paths == ReportPaths(out / "report.html", out / "report.json", out / "report.txt")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(before) == {"report.html", "report.json", "report.txt"}
    assert json.loads(before["report.json"])["verdict"] == "invalid"
    assert before["report.html"].startswith(b"<!doctype html>")
    write_reports(small, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_without_a_page_an_old_page_does_not_stay(small: ReportData, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("an older verdict")
    paths = write_reports(small, tmp_path, html=False)
    assert paths.html is None
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.txt"}


def test_a_failure_leaves_the_old_file_and_no_litter(
    small: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.json").write_text("old")

    def fail(source: object, target: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(write.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_reports(small, tmp_path, html=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"report.json": "old"}


def test_files_are_readable_by_others_as_usual(small: ReportData, tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    path = write_reports(small, tmp_path, html=False).json
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    assert path.read_text(encoding="utf-8") == to_json(small)
