"""What stands in the capture files of a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from subreplay import capture


def rows(folder: Path) -> list[dict[str, Any]]:
    """The events of all files, in their order."""
    tables = [pq.ParquetFile(path).read() for path in capture.list_capture_files(folder)]
    found: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(found, key=lambda row: (row["instance"], row["seq"]))


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Until the recording threads have done what they do in the background."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
