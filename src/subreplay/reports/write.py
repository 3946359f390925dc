"""Write a report's files: JSON, text and, unless switched off, the page. Each file appears complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from subreplay.reports.data import ReportData
from subreplay.reports.history_data import History
from subreplay.reports.json_report import format_overview_json, to_json
from subreplay.reports.overview_data import Overview, OverviewRow
from subreplay.reports.report_folder import ReportFolder
from subreplay.reports.text import to_text

PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """The paths of one report's files; ``html`` is None if no page was requested."""

    html: Path | None
    json: Path
    text: Path


def write_reports(data: ReportData, out_dir: Path, *, html: bool = True) -> ReportPaths:
    """Write ``report.json``, ``report.txt`` and ``report.html`` into ``out_dir``, replacing those of an earlier run.

    Without a page, the ``report.html`` of an earlier run is removed, because its verdict may differ from the new one.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    paths = ReportPaths(out_dir / PAGE if html else None, out_dir / "report.json", out_dir / "report.txt")
    replace_file(paths.json, to_json(data))
    replace_file(paths.text, to_text(data))
    if paths.html is None:
        (out_dir / PAGE).unlink(missing_ok=True)
    else:
        from subreplay.reports.page.html import to_html  # only a page needs the templates

        replace_file(paths.html, to_html(data))
    return paths


def write_overview(data: Overview, reports: Iterable[tuple[OverviewRow, bytes, bytes]], out_dir: Path) -> Path:
    """Write ``overview.html`` and ``overview.json`` into ``out_dir``, and return the path of the page.

    The report of each row is written as JSON and as a page into a folder below ``out_dir``.
    """
    from subreplay.reports.page.overview import render_overview_page

    for row, report, page in reports:
        folder = out_dir / Path(row.page).parent
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "report.json", report.decode())
        replace_file(folder / PAGE, page.decode())
    out_dir.mkdir(parents=True, exist_ok=True)
    replace_file(out_dir / "overview.json", format_overview_json(data))
    replace_file(path := out_dir / "overview.html", render_overview_page(data))
    return path


def write_history(data: History, location: str, settings: Mapping[str, str]) -> str:
    """Write the page of a history; ``location`` and the result are those of ``write_file``."""
    from subreplay.reports.page.history import render_history_page

    return write_file(location, render_history_page(data), settings)


def write_file(location: str, text: str, settings: Mapping[str, str]) -> str:
    """Write a text to a file of this machine or of a store, and return its address.

    ``settings`` are those of ``ReportFolder``. Raises ``OSError``, or ``EnvironmentFailed`` of a store.
    """
    parent, name = os.path.split(location)
    folder = ReportFolder(parent or os.curdir, settings)
    folder.path.mkdir(parents=True, exist_ok=True)
    replace_file(folder.path / name, text)
    folder.upload()
    address = folder.describe(folder.path / name)
    folder.remove_copy()
    return address


def replace_file(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that a reader never sees a partial file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_read_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read_umask() -> int:
    """Return the process's file mode mask, which ``mkstemp`` ignores."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
