"""Check that files have the format that the user names; if not, detect their format and name the remedy."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from subreplay.adapters.input_files import GZIP, HEAD_BYTES, list_files, read_head
from subreplay.adapters.source.text_files import detect_separator
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.failures import describe_os_error

MAX_FILES: Final = 1_000
_PARQUET: Final = b"PAR1"
_FIRST_BYTES: Final = {
    _PARQUET: "parquet", b"Obj\x01": "avro", b"ORC": "orc", b"PK\x03\x04": "zip", b"SQLite format 3": "sqlite",
    b"\x28\xb5\x2f\xfd": "zstd", b"ARROW1": "arrow", b"%PDF": "pdf",
}  # fmt: skip
_TITLES: Final = {
    "parquet": "a Parquet file", "avro": "an Avro file", "orc": "an ORC file", "csv": "CSV text", "json": "JSON text",
    "zip": "a zip archive or an Excel workbook", "sqlite": "an SQLite database", "zstd": "compressed with zstd",
    "arrow": "an Arrow file", "pdf": "a PDF", "gzip": "compressed with gzip",
}  # fmt: skip
_NOT_TITLES: Final = {
    "parquet": "not a Parquet file", "avro": "not an Avro file", "orc": "not an ORC file", "csv": "not CSV text",
    "json": "not JSON text",
}  # fmt: skip
_TABLES: Final = tuple(_NOT_TITLES)


def require_format(path: Path, form: str) -> None:
    """Check the first and last bytes of a file, or of the files of a folder. Raises ``InputError`` where one has
    another format or is empty, and ``EnvironmentFailed`` where one is truncated or unreadable."""
    if form not in _NOT_TITLES:
        return
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise describe_os_error(PermissionError(13, "Permission denied"), path, "read")
    for file in islice(list_files(path), MAX_FILES):
        try:
            _require_file_format(file, form)
        except OSError as error:
            raise describe_os_error(error, file, "read") from error


def detect_table_format(file: Path) -> str | None:
    """Detect the format of a file from its content; None where it could be any text."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD_BYTES)
        found = _detect_by_head(file, head)
        if found == "csv":
            return found if _is_csv_table(read_head(file)) else None
        return found if found in _TABLES else None
    except (OSError, InputError):
        return None


def _is_csv_table(head: bytes) -> bool:
    """Check whether text is certainly a table: a header of names, and lines with as many values."""
    lines = [line for line in head.decode("utf-8-sig", errors="replace").splitlines()[:50] if line.strip()]
    sep = detect_separator("\n".join(lines))
    try:
        counts = [len(row) for row in csv.reader(lines, delimiter=sep)]
    except csv.Error:
        return False
    header = [cell.strip().strip('"') for cell in lines[0].split(sep)] if lines else []
    named = len(header) > 1 and all(re.fullmatch(r"[^\W\d][\w .()/#-]{0,60}", cell) for cell in header)
    return named and len(lines) > 1 and sum(count == counts[0] for count in counts) >= 0.9 * len(counts)


def _require_file_format(file: Path, form: str) -> None:
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(HEAD_BYTES)
        opened.seek(max(0, size - len(_PARQUET)))
        tail = opened.read()
    if not size:
        raise InputError(f"{file}: the file is empty. Check that its writer finished, or remove it")
    if form == "parquet" and head.startswith(_PARQUET):
        if tail != _PARQUET or size < 3 * len(_PARQUET):
            raise EnvironmentFailed(f"{file}: the Parquet file is truncated, because its end is missing. Copy it again")
        return
    found = _detect_by_head(file, head)
    if form == "json" and found == "csv" and not _is_csv_table(read_head(file)):
        found = None
    if found in (None, form):
        if form == "parquet" and found is None:
            raise InputError(
                f"{file}: this is not a Parquet file, because it begins with other bytes. Check the name, or pass "
                "--format"
            )
        return
    remedy = f"Read it with --format {found} (format: {found})" if found in _TABLES else "Export it as Parquet or CSV"
    raise InputError(f"{file}: this is {_TITLES[found]}, {_NOT_TITLES[form]}. {remedy}")


def _detect_by_head(file: Path, head: bytes) -> str | None:
    """Detect the format from the first bytes of a file; None where they are ambiguous."""
    if head.startswith(GZIP):
        try:
            inner = read_head(file)
        except (OSError, EOFError):
            return "gzip"
        return _detect_by_head(file, inner) if not inner.startswith(GZIP) else "gzip"
    found = next((name for magic, name in _FIRST_BYTES.items() if head.startswith(magic)), None)
    return found or next((name for name, fits in _TEXT_FORMATS.items() if fits(head)), None)


def _is_json(head: bytes) -> bool:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith((b"{", b"[")):
        return False
    first = text.decode(errors="replace").lstrip("[ \r\n\t")
    if not first.startswith("{"):  # lines of logs may begin with brackets too
        return False
    try:
        json.JSONDecoder().raw_decode(first)
    except ValueError:
        return text.startswith((b'{"', b"{\n", b"{\r", b"{ ", b"[{", b"[\n", b"[ "))
    return True


def _is_csv(head: bytes) -> bool:
    try:
        text = head.decode("utf-8-sig", errors="strict" if len(head) < HEAD_BYTES else "ignore")
    except UnicodeDecodeError:
        return False
    lines = text.split("\n")
    printable = all(line.replace("\t", "").rstrip("\r").isprintable() for line in lines[:50])
    return printable and detect_separator(text) in lines[0]


_TEXT_FORMATS: Final[dict[str, Callable[[bytes], bool]]] = {"json": _is_json, "csv": _is_csv}
