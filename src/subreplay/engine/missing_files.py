"""What to say of a table that is not there, or cannot be read."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Final

from subreplay.engine.interface import TableSource
from subreplay.errors import InputError

PATTERN: Final = re.compile(r"[*?\[\]{}]")  # in a path: it stands for several
_VERSION: Final = re.compile(r"@(?:[vV]\d+|\d{17})$")  # behind a path: Delta reads the table as it was


def missing(path: str, form: str) -> str | None:
    """Why a path of this machine has no table, in Spark's words; None: it may have one."""
    if form == "iceberg" or PATTERN.search(path) or _VERSION.search(path):
        return None  # of Iceberg it may be the name of a table
    if not os.path.exists(path):
        return "PATH_NOT_FOUND"
    if form != "delta":
        return None
    folder = Path(os.path.abspath(path))  # or a partition of a table above
    of_delta = any((place / "_delta_log").is_dir() for place in (folder, *folder.parents))
    return None if of_delta else "DELTA_TABLE_NOT_FOUND"


def unreadable(source: TableSource, why: str) -> InputError:
    """That a table cannot be read, and what to do."""
    location, form = source.path or source.table, source.format
    if source.is_own:
        return InputError(
            f"{location}: no readable {form} table ({why}); ingest first, or set traffic.path and traffic.format"
        )
    what = "table" if source.table is not None else f"readable {form} table"
    remedy = "correct path, table or format"
    if PATTERN.search(str(location)) and why == "PATH_NOT_FOUND":
        remedy = "* ? [ ] { } in a path stand for several: give the file or folder another name"
    elif why == "PATH_NOT_FOUND" and source.path is not None:
        return InputError(f"{source.key}: {not_there(source.path)}")
    return InputError(f"{source.key}: {location}: no {what} ({why}); {remedy}")


def not_there(path: str) -> str:
    """That a path of this machine names no file or folder, and which one may be meant."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"{path}: there is no such file or folder: {folder} is not there either; correct the path"
    near = difflib.get_close_matches(name, sorted(os.listdir(folder)), 1, 0.75)
    meant = f"did you mean {near[0]}?" if near else "correct the path"
    return f"{path}: there is no such file or folder in {folder}; {meant}"
