"""Reading (gzip) JSON lines against a row contract: each ends as a valid row, or in quarantine with all its reasons."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from subreplay import failures
from subreplay.adapters.base import FileCount, Reason, Rejected
from subreplay.errors import InputError
from subreplay.rows.model.contracts import KEYS, shortened

Row = TypeVar("Row")
_CORRECT = "correct the value at its source and ingest again"
_MOST_OF_A_VALUE = 200


@dataclass
class Lines(Generic[Row]):
    """The valid rows of one file by line number (from 1), and its rejected ones."""

    table: str
    file: str
    rows: dict[int, Row] = field(default_factory=dict)
    rejected: dict[int, Rejected] = field(default_factory=dict)

    def reject(self, line: int, raw: str, *reasons: Reason) -> None:
        """Move a row to quarantine, or add reasons to one already there."""
        self.rows.pop(line, None)
        before = self.rejected[line].reasons if line in self.rejected else ()
        self.rejected[line] = Rejected(self.table, self.file, line, without_keys(raw), (*before, *reasons))

    @property
    def count(self) -> FileCount:
        return FileCount(self.file, len(self.rows) + len(self.rejected), len(self.rejected))


def read_lines(folder: Path, name: str, contract: TypeAdapter[Row], *, required: bool = True) -> Lines[Row]:
    """Read ``name.jsonl.gz`` or ``name.jsonl`` in ``folder``.

    Raises ``InputError`` where the file is missing (if required) or unreadable, or where no row at all fits the
    contract: a column is missing then, not a row wrong.
    """
    path = next((p for p in (folder / f"{name}.jsonl.gz", folder / f"{name}.jsonl") if p.exists()), None)
    if path is None:
        if required:
            raise InputError(f"{folder}: no file {name}.jsonl.gz or {name}.jsonl; a recording needs it")
        return Lines(name, f"{name}.jsonl.gz")
    lines: Lines[Row] = Lines(name, path.name)
    for number, text in _text(path):
        try:
            lines.rows[number] = contract.validate_json(text)
        except ValidationError as error:
            lines.reject(number, text, *map(_reason, error.errors(include_url=False)))
    if lines.rejected and not lines.rows:
        first = next(iter(lines.rejected.values()))
        raise InputError(f"{path}: none of its {len(lines.rejected)} rows fits the contract; {first}")
    return lines


def _text(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; blank ones do not count as rows."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise failures.describe_read_error(error, path) from error


def without_keys(raw: str) -> str:
    """A row as it may leave: of keys their length only, of what is no row nothing else."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return f"({len(raw.strip()):,} characters that are no JSON)"
    if not isinstance(row, dict):
        return f"({len(raw.strip()):,} characters that are no object)"
    masked = {name: _length(value) if name in KEYS and value is not None else value for name, value in row.items()}
    return shortened(json.dumps(masked, ensure_ascii=False))


def _length(key: Any) -> str:
    return f"({len(key.encode(errors='replace')):,} bytes)" if isinstance(key, str) else f"({type(key).__name__})"


def _reason(error: Any) -> Reason:
    """One pydantic error as a reason; the column is the last field of its location (what has brackets is a type)."""
    names = [part for part in error["loc"] if isinstance(part, str) and "[" not in part]
    column = names[-1] if names else "(row)"
    if error["type"] == "missing":
        remedy = "add the column, or record with a version that writes it"
        return Reason(column, "(absent)", "the column is required", remedy)
    remedy = error.get("ctx", {}).get("remedy", _CORRECT)
    return Reason(column, _value(column, error["input"]), error["msg"], remedy)


def _value(column: str, value: Any) -> str:
    """A wrong value as it may leave."""
    if column in KEYS:
        return _length(value)
    if column == "(row)":
        return f"({len(value):,} characters)" if isinstance(value, str) else f"({type(value).__name__})"
    return shortened(repr(value), _MOST_OF_A_VALUE)
