"""Write and list capture files: every flush is a complete small file, and rotation merges them into one.

``<folder>/<name>.parquet`` is a finished file. While it grows, its flushes are ``<folder>/_open/<name>/<n>.parquet``,
in a folder that Spark ignores. A Parquet file has its index at its end, so an unfinished one would be unreadable after
a crash. Each file is written under a temporary name, synced and renamed, so a file with a final name is complete. The
flushes of a killed process remain, and ``list_capture_files`` finds them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

OPEN_FOLDER: Final = "_open"
_GROUP: Final = 1 << 16  # rows of a row group
_COMPRESSION: Final = "zstd"


def list_capture_files(folder: str | Path) -> list[Path]:
    """List the capture files of a folder: finished files, and the flushes of unfinished ones.

    It omits flushes that were already merged by a process that was killed before it removed them.
    """
    finished = sorted(Path(folder).glob("*.parquet"))
    names = {path.stem for path in finished}
    flushes = sorted(Path(folder).glob(f"{OPEN_FOLDER}/*/*.parquet"))
    return finished + [path for path in flushes if path.parent.name not in names]


class CaptureFile:
    """One capture file that grows by flushes. Raises OSError or pyarrow's errors where the disk fails."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = folder / f"{name}.parquet"
        self._open = folder / OPEN_FOLDER / name
        self._schema = schema
        self._flushes: list[Path] = []

    def flush(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write these rows durably, so that they survive the process."""
        table = pa.Table.from_batches(batches).replace_schema_metadata(self._schema.metadata)
        self._open.mkdir(parents=True, exist_ok=True)
        path = self._open / f"{len(self._flushes):06d}.parquet"
        with _write_complete_file(path) as file:
            pq.write_table(table, file, compression=_COMPRESSION)
        self._flushes.append(path)
        self.rows += table.num_rows

    def finish(self) -> None:
        """Merge the flushes into the file with the final name."""
        if not self._flushes:
            return
        with (
            _write_complete_file(self._path, self._open / "merged.tmp") as file,
            pq.ParquetWriter(file, self._schema, compression=_COMPRESSION) as writer,
        ):
            for table in _read_row_groups(self._flushes):
                writer.write_table(table)
        shutil.rmtree(self._open)


def _read_row_groups(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Read files as tables that are large enough for a row group."""
    tables: list[pa.Table] = []
    for path in paths:
        tables.append(pq.ParquetFile(path).read())
        if sum(table.num_rows for table in tables) >= _GROUP:
            yield pa.concat_tables(tables)
            tables = []
    if tables:
        yield pa.concat_tables(tables)


@contextmanager
def _write_complete_file(path: Path, temporary: Path | None = None) -> Iterator[Any]:
    """Open a file that gets its final name when it is completely on the disk."""
    temporary = temporary or path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
