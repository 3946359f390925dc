"""Which files of a Delta table count: those that its log has added and not removed, as its protocol says.

The log is read as it lies on disk, JSON commits upon the latest checkpoint; no Spark is needed. What changes the
meaning of files, as deletion vectors and renamed columns do, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.errors import InputError
from subreplay.failures import of_system

LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_ACTIONS: Final = ("add", "remove", "metaData")
_REMEDY: Final = "read it by Spark and write its rows as Parquet"


def delta_files(table: Path) -> set[Path]:
    """The files of a table's latest version.

    Raises ``InputError`` where the log is not whole, or says what is not understood here, and ``EnvironmentFailed``
    where it cannot be read.
    """
    try:
        found: set[Path] = set()
        for name, action in _actions(table):
            if name == "metaData":
                _check(table, action.get("configuration"))
            elif name == "remove":
                found.discard(table / unquote(action["path"]))
            else:
                found.add(_added(table, action))
        return found
    except OSError as error:
        raise of_system(error, table / LOG, "read") from error
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{table}: a Delta table whose log cannot be read ({error!r}); {_REMEDY}") from error


def _added(table: Path, action: dict[str, Any]) -> Path:
    path = unquote(action["path"])
    if "://" in path or path.startswith("/"):
        raise InputError(f"{table}: a Delta table with files elsewhere ({path}); {_REMEDY}")
    if action.get("deletionVector") is not None:
        raise InputError(f"{table}: a Delta table of which single rows are deleted; {_REMEDY}")
    return table / path


def _check(table: Path, settings: Any) -> None:
    mode = dict(settings or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise InputError(f"{table}: a Delta table whose columns have other names in its files; {_REMEDY}")


def _actions(table: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the log says, oldest first."""
    names = sorted(path.name for path in (table / LOG).iterdir())
    commits = {int(match[1]): name for name in names if (match := _COMMIT.fullmatch(name))}
    parts: dict[int, list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault(int(match[1]), []).append(name)
    whole = [version for version, some in parts.items() if len(some) == _parts_of(some[0])]
    first = max(whole, default=-1)
    later = [version for version in sorted(commits) if version > first]
    if (first < 0 and not later) or later != list(range(first + 1, first + 1 + len(later))):
        raise InputError(f"{table}: a Delta table whose log is not whole; {_REMEDY}")
    for name in parts.get(first, ()):
        yield from _of_checkpoint(table / LOG / name)
    for version in later:
        yield from _of_commit(table / LOG / commits[version])


def _parts_of(name: str) -> int:
    match = _CHECKPOINT.fullmatch(name)
    return int(match[3]) if match and match[3] else 1


def _of_checkpoint(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    schema = pq.read_schema(path)
    columns = [name for name in ("metaData", "add") if name in schema.names]
    for row in pq.read_table(path, columns=columns).to_pylist():
        yield from ((name, row[name]) for name in columns if row[name] is not None)


def _of_commit(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        action = json.loads(line) if line.strip() else {}
        yield from ((name, action[name]) for name in _ACTIONS if name in action)
