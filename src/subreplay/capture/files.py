"""Capture files on disk: every flush is a whole small file first, and rotation merges them into one.

``<folder>/<name>.parquet`` is a finished file. While it grows, its flushes are ``<folder>/_open/<name>/<n>.parquet``,
a folder that Spark does not look into. A Parquet file has its index at its end, so one that is still written to could
not be read after a crash. Each file is written under a temporary name, handed to the disk and renamed: what bears its
final name is whole. A process that is killed leaves its flushes, which ``files`` finds.
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

OPEN: Final = "_open"
_GROUP: Final = 1 << 16  # rows of a row group
_COMPRESSION: Final = "zstd"


def files(folder: str | Path) -> list[Path]:
    """The capture files of a folder: finished ones, and the flushes of those that are not, or never will be.

    Flushes that were merged already, by a process that was killed before it could remove them, are left out.
    """
    finished = sorted(Path(folder).glob("*.parquet"))
    names = {path.stem for path in finished}
    flushes = sorted(Path(folder).glob(f"{OPEN}/*/*.parquet"))
    return finished + [path for path in flushes if path.parent.name not in names]


class CaptureFile:
    """One file that grows by flushes. Raises OSError or pyarrow's errors where the disk fails."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = folder / f"{name}.parquet"
        self._open = folder / OPEN / name
        self._schema = schema
        self._flushes: list[Path] = []

    def flush(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write these rows so that they outlive the process."""
        table = pa.Table.from_batches(batches).replace_schema_metadata(self._schema.metadata)
        self._open.mkdir(parents=True, exist_ok=True)
        path = self._open / f"{len(self._flushes):06d}.parquet"
        with _whole(path) as file:
            pq.write_table(table, file, compression=_COMPRESSION)
        self._flushes.append(path)
        self.rows += table.num_rows

    def finish(self) -> None:
        """Merge the flushes under the final name."""
        if not self._flushes:
            return
        with (
            _whole(self._path, self._open / "merged.tmp") as file,
            pq.ParquetWriter(file, self._schema, compression=_COMPRESSION) as writer,
        ):
            for table in _gathered(self._flushes):
                writer.write_table(table)
        shutil.rmtree(self._open)


def _gathered(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Files as tables that are large enough for a row group."""
    held: list[pa.Table] = []
    for path in paths:
        held.append(pq.ParquetFile(path).read())
        if sum(table.num_rows for table in held) >= _GROUP:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


@contextmanager
def _whole(path: Path, temporary: Path | None = None) -> Iterator[Any]:
    """A file that gets its name when all of it is on the disk."""
    temporary = temporary or path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
