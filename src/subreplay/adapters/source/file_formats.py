"""Whether files are of the format that they are taken for; where not, what they are, and what to do."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from subreplay.adapters.files import GZIP, HEAD, files, head_of
from subreplay.adapters.source.text_files import separator
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.failures import describe_os_error

MOST_FILES: Final = 1_000
_PARQUET: Final = b"PAR1"
_MAGIC: Final = {
    _PARQUET: "parquet", b"Obj\x01": "avro", b"ORC": "orc", b"PK\x03\x04": "zip", b"SQLite format 3": "sqlite",
    b"\x28\xb5\x2f\xfd": "zstd", b"ARROW1": "arrow", b"%PDF": "pdf",
}  # fmt: skip
_TITLES: Final = {
    "parquet": "a Parquet file", "avro": "an Avro file", "orc": "an ORC file", "csv": "CSV text", "json": "JSON text",
    "zip": "a zip archive or an Excel workbook", "sqlite": "an SQLite database", "zstd": "packed by zstd",
    "arrow": "an Arrow file", "pdf": "a PDF", "gzip": "packed by gzip",
}  # fmt: skip
_WANTED: Final = {
    "parquet": "no Parquet file", "avro": "no Avro file", "orc": "no ORC file", "csv": "no CSV", "json": "no JSON",
}  # fmt: skip
_TABLES: Final = tuple(_WANTED)


def require_format(path: Path, form: str) -> None:
    """Check the beginning and the end of a file, or of the files of a folder. Raises ``InputError`` where one is of
    another format or empty, ``EnvironmentFailed`` where it is cut off or may not be read."""
    if form not in _WANTED:
        return
    if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
        raise describe_os_error(PermissionError(13, "Permission denied"), path, "read")
    for file in islice(files(path), MOST_FILES):
        try:
            _require(file, form)
        except OSError as error:
            raise describe_os_error(error, file, "read") from error


def detect_format(file: Path) -> str | None:
    """The format that a file has by its content, whatever its name; None where it could be any text."""
    try:
        with file.open("rb") as opened:
            head = opened.read(HEAD)
        found = _format_of(file, head)
        if found == "csv":
            return found if _is_table(head_of(file)) else None
        return found if found in _TABLES else None
    except (OSError, InputError):
        return None


def _is_table(head: bytes) -> bool:
    """Whether text is a table for sure: a header of names, and lines with as many values."""
    lines = [line for line in head.decode("utf-8-sig", errors="replace").splitlines()[:50] if line.strip()]
    sep = separator("\n".join(lines))
    try:
        counts = [len(row) for row in csv.reader(lines, delimiter=sep)]
    except csv.Error:
        return False
    header = [cell.strip().strip('"') for cell in lines[0].split(sep)] if lines else []
    named = len(header) > 1 and all(re.fullmatch(r"[^\W\d][\w .()/#-]{0,60}", cell) for cell in header)
    return named and len(lines) > 1 and sum(count == counts[0] for count in counts) >= 0.9 * len(counts)


def _require(file: Path, form: str) -> None:
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(HEAD)
        opened.seek(max(0, size - len(_PARQUET)))
        tail = opened.read()
    if not size:
        raise InputError(f"{file}: the file is empty; was it written to its end?")
    if form == "parquet" and head.startswith(_PARQUET):
        if tail != _PARQUET or size < 3 * len(_PARQUET):
            raise EnvironmentFailed(f"{file}: the Parquet file is cut off: its end is missing; copy or write it again")
        return
    found = _format_of(file, head)
    if form == "json" and found == "csv" and not _is_table(head_of(file)):
        found = None
    if found in (None, form):
        if form == "parquet" and found is None:
            raise InputError(f"{file}: this is no Parquet file: it begins with other bytes; check the name")
        return
    remedy = (
        f"read it as that: --format {found} (format: {found})" if found in _TABLES else "export it as Parquet or CSV"
    )
    raise InputError(f"{file}: this is {_TITLES[found]}, {_WANTED[form]}; {remedy}")


def _format_of(file: Path, head: bytes) -> str | None:
    """The format that the first bytes of a file have, None where they tell none."""
    if head.startswith(GZIP):
        try:
            inner = head_of(file)
        except (OSError, EOFError):
            return "gzip"
        return _format_of(file, inner) if not inner.startswith(GZIP) else "gzip"
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    return found or next((name for name, fits in _TEXTS.items() if fits(head)), None)


def _is_json(head: bytes) -> bool:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text.startswith((b"{", b"[")):
        return False
    first = text.decode(errors="replace").lstrip("[ \r\n\t")
    if not first.startswith("{"):  # lines of logs begin with brackets, too
        return False
    try:
        json.JSONDecoder().raw_decode(first)
    except ValueError:
        return text.startswith((b'{"', b"{\n", b"{\r", b"{ ", b"[{", b"[\n", b"[ "))
    return True


def _is_csv(head: bytes) -> bool:
    try:
        text = head.decode("utf-8-sig", errors="strict" if len(head) < HEAD else "ignore")
    except UnicodeDecodeError:
        return False
    lines = text.split("\n")
    printable = all(line.replace("\t", "").rstrip("\r").isprintable() for line in lines[:50])
    return printable and separator(text) in lines[0]


_TEXTS: Final[dict[str, Callable[[bytes], bool]]] = {"json": _is_json, "csv": _is_csv}
