"""Read (gzip) JSON lines and validate each against a row contract: it is valid, or quarantined with all its reasons."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from subreplay import failures
from subreplay.adapters.base import FileCount, Reason, RejectedRow
from subreplay.adapters.input_files import open_gzip
from subreplay.errors import InputError
from subreplay.rows.model.contracts import KEYS, shorten

Row = TypeVar("Row")
_REMEDY = "correct the value at its source and ingest again"
_MAX_VALUE_LENGTH = 200


@dataclass
class ContractRows(Generic[Row]):
    """The valid rows of one file by line number (from 1), and its rejected rows."""

    table: str
    file: str
    rows: dict[int, Row] = field(default_factory=dict)
    rejected: dict[int, RejectedRow] = field(default_factory=dict)

    def reject(self, line: int, raw: str, *reasons: Reason) -> None:
        """Move a row to quarantine, or add reasons to a row that is already there."""
        self.rows.pop(line, None)
        before = self.rejected[line].reasons if line in self.rejected else ()
        self.rejected[line] = RejectedRow(self.table, self.file, line, mask_keys(raw), (*before, *reasons))

    @property
    def count(self) -> FileCount:
        return FileCount(self.file, len(self.rows) + len(self.rejected), len(self.rejected))


def read_contract_rows(
    folder: Path, name: str, contract: TypeAdapter[Row], *, required: bool = True
) -> ContractRows[Row]:
    """Read ``name.jsonl.gz`` or ``name.jsonl`` in ``folder``.

    Raises ``InputError`` where the file is missing (if required) or unreadable. It also raises ``InputError`` where no
    row fits the contract, because a column is then missing from the whole file.
    """
    path = next((p for p in (folder / f"{name}.jsonl.gz", folder / f"{name}.jsonl") if p.exists()), None)
    if path is None:
        if required:
            raise InputError(
                f"{folder}: the recording has no file {name}.jsonl.gz or {name}.jsonl. Copy the file into the folder, "
                "or record the run again"
            )
        return ContractRows(name, f"{name}.jsonl.gz")
    lines: ContractRows[Row] = ContractRows(name, path.name)
    for number, text in _read_text_lines(path):
        try:
            lines.rows[number] = contract.validate_json(text)
        except ValidationError as error:
            lines.reject(number, text, *map(_build_reason, error.errors(include_url=False)))
    if lines.rejected and not lines.rows:
        first = next(iter(lines.rejected.values()))
        raise InputError(f"{path}: none of its {len(lines.rejected)} rows fits the contract. The first one is {first}")
    return lines


def _read_text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers; blank lines are not rows."""
    try:
        with io.TextIOWrapper(open_gzip(path) if path.suffix == ".gz" else path.open("rb"), encoding="utf-8") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise failures.describe_read_error(error, path) from error


def mask_keys(raw: str) -> str:
    """Mask a row for quarantine: keep only the length of keys, and only the size of text that is not an object."""
    try:
        row = json.loads(raw)
    except (ValueError, RecursionError):
        return f"({len(raw.strip()):,} characters that are not JSON)"
    if not isinstance(row, dict):
        return f"({len(raw.strip()):,} characters that are not a JSON object)"
    masked = {
        name: _describe_length(value) if name in KEYS and value is not None else value for name, value in row.items()
    }
    return shorten(json.dumps(masked, ensure_ascii=False))


def _describe_length(key: Any) -> str:
    return f"({len(key.encode(errors='replace')):,} bytes)" if isinstance(key, str) else f"({type(key).__name__})"


def _build_reason(error: Any) -> Reason:
    """Convert a pydantic error to a reason. The column is the last field of its location; names in brackets are
    types."""
    names = [part for part in error["loc"] if isinstance(part, str) and "[" not in part]
    column = names[-1] if names else "(row)"
    if error["type"] == "missing":
        remedy = "add the column, or record with a version that writes it"
        return Reason(column, "(absent)", "the column is required", remedy)
    remedy = error.get("ctx", {}).get("remedy", _REMEDY)
    return Reason(column, _describe_value(column, error["input"]), error["msg"], remedy)


def _describe_value(column: str, value: Any) -> str:
    """Describe a wrong value; of a key only the length."""
    if column in KEYS:
        return _describe_length(value)
    if column == "(row)":
        return f"({len(value):,} characters)" if isinstance(value, str) else f"({type(value).__name__})"
    return shorten(repr(value), _MAX_VALUE_LENGTH)
