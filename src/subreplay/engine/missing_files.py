"""Errors for tables that are missing or cannot be read."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path
from typing import Final

from subreplay.engine.interface import TableSource
from subreplay.errors import InputError

GLOB: Final = re.compile(r"[*?\[\]{}]")  # a path with one of these is a pattern
_VERSION: Final = re.compile(r"@(?:[vV]\d+|\d{17})$")  # suffix of a path: an older version of a Delta table


def find_missing_condition(path: str, form: str) -> str | None:
    """Return Spark's error condition for a local path without a table; None if there may be a table."""
    if form == "iceberg" or GLOB.search(path) or _VERSION.search(path):
        return None  # an Iceberg path may be the name of a table
    if not os.path.exists(path):
        return "PATH_NOT_FOUND"
    if form != "delta":
        return None
    folder = Path(os.path.abspath(path))  # may be a partition of a table in a parent folder
    of_delta = any((place / "_delta_log").is_dir() for place in (folder, *folder.parents))
    return None if of_delta else "DELTA_TABLE_NOT_FOUND"


def describe_unreadable(source: TableSource, why: str) -> InputError:
    """Build the error for a table that cannot be read."""
    location, form = source.path or source.table, source.format
    if source.is_own:
        return InputError(
            f"{location}: no readable {form} table ({why}). Run subreplay ingest first, or set traffic.path and "
            "traffic.format."
        )
    what = "table" if source.table is not None else f"readable {form} table"
    remedy = "Correct path, table or format."
    if GLOB.search(str(location)) and why == "PATH_NOT_FOUND":
        remedy = "The characters * ? [ ] { } in a path are a pattern. Rename the file or folder."
    elif why == "PATH_NOT_FOUND" and source.path is not None:
        return InputError(f"{source.key}: {describe_missing_path(source.path)}")
    return InputError(f"{source.key}: {location}: no {what} ({why}). {remedy}")


def describe_missing_path(path: str) -> str:
    """Explain that a local path names no file or folder, and suggest a similar name."""
    folder, name = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        return f"{path}: no such file or folder; {folder} does not exist either. Correct the path."
    near = difflib.get_close_matches(name, sorted(os.listdir(folder)), 1, 0.75)
    meant = f"Did you mean {near[0]}?" if near else "Correct the path."
    return f"{path}: no such file or folder in {folder}. {meant}"
