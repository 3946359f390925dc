"""Read plain or gzip text files in blocks of lines; a truncated or damaged file is read up to the damage."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from subreplay.adapters.base import WHOLE_FILE, Reason, RejectedRow
from subreplay.errors import InputError
from subreplay.failures import describe_os_error

LINES: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("text", pa.binary())])
"""Lines by file and number (from 1), without line breaks. Text is bytes; lines that are not UTF-8 are rejected
later."""

BLOCK_BYTES: Final = 16 * 2**20
"""Bytes that are read at once; the rest of the last line comes in addition."""
HEAD_BYTES: Final = 64 * 2**10
"""Bytes of a file that format detection reads."""
GZIP: Final = b"\x1f\x8b"
_DELTA_LOG: Final = "_delta_log"
_BY_SPARK: Final = "Read it with Spark and write its rows as Parquet"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LINE_BREAK: Final = 10
MAX_RATIO: Final = 300
"""Times its size that a gzip file may unpack to. Repetitive logs reach 100; zeros reach 1,030."""
_FREE_BYTES: Final = 64 * 2**20  # bytes that each gzip file may unpack to
_UNPACKED_BYTES: Final = 2**20  # bytes of an unpacked head


def list_files(path: Path) -> list[Path]:
    """List the file, or all files of a folder and its subfolders, sorted by name. Of a Delta table, list the files of
    its latest version. Names that begin with a dot, or with one underscore as Spark's bookkeeping files, are hidden.

    Raises ``InputError`` where there is no file, and ``EnvironmentFailed`` where the folder cannot be read.
    """
    if path.is_file():
        return [path]
    try:
        found = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(path)))
    except OSError as error:
        raise describe_os_error(error, path, "read") from error
    for table in sorted(log.parent for log in path.rglob(_DELTA_LOG) if log.is_dir()):
        counting = list_delta_files(table)
        found = [each for each in found if not each.is_relative_to(table) or each in counting]
    if not found:
        raise InputError(f"{path}: the folder contains no data file. Pass a file, or a folder that contains files")
    return found


def list_delta_files(table: Path) -> set[Path]:
    """List the files of a Delta table's latest version.

    Raises ``InputError`` where its log cannot be read, or where the table needs a reader that applies its log.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        opened = DeltaTable(table)
        settings, deleted = opened.metadata().configuration, pa.table(opened.deletion_vectors()).num_rows
        paths = [unquote(path) for path in pa.table(opened.get_add_actions())["path"].to_pylist()]
    except (DeltaError, OSError, ValueError) as error:
        raise InputError(f"{table}: the log of this Delta table cannot be read ({error}). {_BY_SPARK}") from error
    if settings.get("delta.columnMapping.mode", "none") != "none":
        raise InputError(
            f"{table}: this Delta table maps its columns to other names in its files, so the files cannot be read "
            f"directly. {_BY_SPARK}"
        )
    if deleted:
        raise InputError(
            f"{table}: this Delta table has deletion vectors, so its files still contain deleted rows. {_BY_SPARK}"
        )
    if elsewhere := [path for path in paths if "://" in path or path.startswith("/")]:
        raise InputError(
            f"{table}: this Delta table has files outside its folder ({elsewhere[0]}), which are not read. {_BY_SPARK}"
        )
    return {table / path for path in paths}


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and not part.startswith("__") for part in path.parts)


def read_head(path: Path) -> bytes:
    """Read and unpack the first bytes of a file. Raises ``OSError`` where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return _unpack_head(head) if head.startswith(GZIP) else head


def _unpack_head(head: bytes) -> bytes:
    """Unpack the first bytes of a gzip file as far as possible."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _UNPACKED_BYTES)
    except zlib.error:
        return b""


def read_line_batches(path: Path, name: str | None = None) -> Iterator[pa.RecordBatch | RejectedRow]:
    """Yield batches of the lines (``LINES``) of a file, which the rows call ``name``.

    Where the file cannot be read to its end, the last item is the rejected rest. Raises ``InputError`` or
    ``EnvironmentFailed`` where it cannot be read at all.
    """
    name = name or path.name
    first, unfinished, damage = 1, b"", None
    try:
        with path.open("rb") as plain:
            begin = plain.read(8)
        if _ZSTD in (begin[:4], begin[4:]):  # the collector puts a length before each of its blocks
            yield _reject_rest(
                name, 1, "files with zstd compression are not supported", "unpack it, or set compression: none"
            )
            return
        with open_gzip(path) if begin.startswith(GZIP) else path.open("rb") as file:
            for block in _read_blocks(file):
                if isinstance(block, Exception):
                    damage = block
                    break
                text = unfinished + block if unfinished else block
                end = text.rfind(b"\n") + 1
                unfinished = text[end:]
                if end:
                    batch = _build_batch(text, end, name, first)
                    first += len(batch)
                    yield batch
    except OSError as error:
        raise describe_os_error(error, path, "read") from error
    if damage is not None:
        yield _reject_rest(name, first, f"the file is truncated or damaged at this line: {damage}", "copy it again")
    elif unfinished:
        yield _build_batch(unfinished + b"\n", len(unfinished) + 1, name, first)


def open_gzip(path: Path) -> io.BufferedReader:
    """Open a gzip file for reading its unpacked bytes.

    Reading raises ``InputError`` where the file unpacks to far more bytes than logs do, so that a small file cannot
    fill memory or disks.
    """
    return io.BufferedReader(_BoundedGzip(path), 2**16)


class _BoundedGzip(io.RawIOBase):
    """The unpacked bytes of a gzip file, up to ``MAX_RATIO`` times its size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unpacked = gzip.GzipFile(path, "rb")
        self._limit = max(_FREE_BYTES, MAX_RATIO * path.stat().st_size)
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._unpacked.read1(len(buffer))
        self._count += len(part)
        if self._count > self._limit:
            raise InputError(
                f"{self._path}: this gzip file unpacks to more than {MAX_RATIO} times its size, as logs do not. "
                "Check where it comes from. If you trust it, unpack it (gunzip) and read the result"
            )
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._unpacked.close()
        super().close()


def _read_blocks(file: IO[bytes]) -> Iterator[bytes | Exception]:
    """Yield the bytes of a file in blocks; where it is damaged, the error follows all readable bytes."""
    parts: list[bytes] = []
    size, damage = 0, None
    while True:
        try:
            part = file.read1(BLOCK_BYTES)  # type: ignore[attr-defined]  # ``read`` would lose what precedes the damage
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            part, damage = b"", error
        parts.append(part)
        size += len(part)
        if size >= BLOCK_BYTES or (not part and size):
            yield b"".join(parts)
            parts, size = [], 0
        if not part:
            break
    if damage is not None:
        yield damage


def _build_batch(text: bytes, end: int, name: str, first: int) -> pa.RecordBatch:
    """Build the batch of the lines of a text up to ``end``, which follows a line break."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8, end) == _LINE_BREAK) + 1
    wide = end > np.iinfo(np.int32).max
    offsets = np.zeros(len(ends) + 1, np.int64 if wide else np.int32)
    offsets[1:] = ends
    kind = pa.large_binary() if wide else pa.binary()
    lines = pa.Array.from_buffers(kind, len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    file = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(ends), np.int32)), [name]).cast(pa.string())
    number = pa.array(np.arange(first, first + len(ends)))
    return pa.RecordBatch.from_arrays([file, number, lines.cast(pa.binary())], schema=LINES)


def _reject_rest(name: str, line: int, rule: str, remedy: str) -> RejectedRow:
    return RejectedRow("deliveries", name, line, "(the rest of the file)", (Reason(WHOLE_FILE, name, rule, remedy),))
