"""Write a report's files: JSON and text always, the page unless told not to; each appears whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subreplay.reports.data import ReportData
from subreplay.reports.json_report import overview_json, to_json
from subreplay.reports.overview_data import Overview, OverviewRow
from subreplay.reports.text import to_text

PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the files of one report are; ``html`` is None where no page was asked for."""

    html: Path | None
    json: Path
    text: Path


def write_reports(data: ReportData, out_dir: Path, *, html: bool = True) -> ReportPaths:
    """Write ``report.json``, ``report.txt`` and ``report.html`` into ``out_dir``, replacing those of an earlier run.

    Without a page, an earlier run's ``report.html`` is removed: it would show another verdict than its neighbours.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = ReportPaths(out_dir / PAGE if html else None, out_dir / "report.json", out_dir / "report.txt")
    _replace(paths.json, to_json(data))
    _replace(paths.text, to_text(data))
    if paths.html is None:
        (out_dir / PAGE).unlink(missing_ok=True)
    else:
        from subreplay.reports.page.html import to_html  # templates load only for a page

        _replace(paths.html, to_html(data))
    return paths


def write_overview(data: Overview, reports: Iterable[tuple[OverviewRow, bytes, bytes]], out_dir: Path) -> Path:
    """Write the overview of several subscriptions as ``overview.html`` and ``overview.json`` into ``out_dir``, and the
    reports of its rows, each as JSON and as a page, into folders below it. Returns the path of the page."""
    from subreplay.reports.page.overview import overview_page

    for row, report, page in reports:
        folder = out_dir / Path(row.page).parent
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / "report.json", report.decode())
        _replace(folder / PAGE, page.decode())
    out_dir.mkdir(parents=True, exist_ok=True)
    _replace(out_dir / "overview.json", overview_json(data))
    _replace(path := out_dir / "overview.html", overview_page(data))
    return path


def _replace(path: Path, text: str) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's file mode mask (mkstemp ignores it and writes private files)."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
