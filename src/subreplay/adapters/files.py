"""Files of text, plain or gzip, a block of lines at a time; what a cut or damaged file still holds is read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from subreplay.adapters.base import Reason, Rejected
from subreplay.errors import InputError
from subreplay.failures import describe_os_error

LINES: Final = pa.schema([("file", pa.string()), ("line", pa.int64()), ("text", pa.binary())])
"""Lines by file and number from 1, without their breaks. Text is bytes: what is no UTF-8 is rejected where it is."""

BLOCK: Final = 16 * 2**20
"""Bytes that are read at once, before the rest of the last line."""
HEAD: Final = 64 * 2**10
"""Bytes of a file that are looked at first."""
GZIP: Final = b"\x1f\x8b"
_DELTA_LOG: Final = "_delta_log"
_BY_SPARK: Final = "read it by Spark and write its rows as Parquet"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BREAK: Final = 10
_UNPACKED: Final = 2**20  # bytes, of a packed head


def files(path: Path) -> list[Path]:
    """The file, or all files of a folder and its folders, in the order of their names. Names that begin with a dot, or
    with one underscore as those that Spark writes beside its data, are hidden. Of a Delta table, those of its latest
    version.

    Raises ``InputError`` where there is none, and ``EnvironmentFailed`` where the folder cannot be read.
    """
    if path.is_file():
        return [path]
    try:
        found = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
    except OSError as error:
        raise describe_os_error(error, path, "read") from error
    for table in sorted(log.parent for log in path.rglob(_DELTA_LOG) if log.is_dir()):
        counting = delta_files(table)
        found = [each for each in found if not each.is_relative_to(table) or each in counting]
    if not found:
        raise InputError(f"{path}: no file there; give a file, or a folder of files")
    return found


def delta_files(table: Path) -> set[Path]:
    """The files of a Delta table's latest version.

    Raises ``InputError`` where its log cannot be read, or says what changes the meaning of files.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        opened = DeltaTable(table)
        settings, deleted = opened.metadata().configuration, pa.table(opened.deletion_vectors()).num_rows
        paths = [unquote(path) for path in pa.table(opened.get_add_actions())["path"].to_pylist()]
    except (DeltaError, OSError, ValueError) as error:
        raise InputError(f"{table}: a Delta table whose log cannot be read ({error}); {_BY_SPARK}") from error
    if settings.get("delta.columnMapping.mode", "none") != "none":
        raise InputError(f"{table}: a Delta table whose columns have other names in its files; {_BY_SPARK}")
    if deleted:
        raise InputError(f"{table}: a Delta table of which single rows are deleted; {_BY_SPARK}")
    if elsewhere := [path for path in paths if "://" in path or path.startswith("/")]:
        raise InputError(f"{table}: a Delta table with files elsewhere ({elsewhere[0]}); {_BY_SPARK}")
    return {table / path for path in paths}


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) and not part.startswith("__") for part in path.parts)


def head_of(path: Path) -> bytes:
    """The beginning of a file, unpacked. Raises ``OSError`` where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    return _unpacked(head) if head.startswith(GZIP) else head


def _unpacked(head: bytes) -> bytes:
    """The beginning of a gzip file, as far as it goes."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _UNPACKED)
    except zlib.error:
        return b""


def lines_of(path: Path, name: str | None = None) -> Iterator[pa.RecordBatch | Rejected]:
    """``LINES`` of a file; ``name`` is what they call it. Where the file cannot be read to its end, the last item is
    its rejected rest. Raises ``InputError`` or ``EnvironmentFailed`` where it cannot be read at all."""
    name = name or path.name
    first, left, damage = 1, b"", None
    try:
        with path.open("rb") as plain:
            begin = plain.read(8)
        if _ZSTD in (begin[:4], begin[4:]):  # the collector puts a length before each of its blocks
            yield _rejected(name, 1, "the file is compressed by zstd", "unpack it, or set compression: none")
            return
        with _opened(path, begin.startswith(GZIP)) as file:
            for block in _blocks(file):
                if isinstance(block, Exception):
                    damage = block
                    break
                text = left + block if left else block
                end = text.rfind(b"\n") + 1
                left = text[end:]
                if end:
                    batch = _batch(text, end, name, first)
                    first += len(batch)
                    yield batch
    except OSError as error:
        raise describe_os_error(error, path, "read") from error
    if damage is not None:
        yield _rejected(name, first, f"the file is cut off or damaged here: {damage}", "copy it again")
    elif left:
        yield _batch(left + b"\n", len(left) + 1, name, first)


def _opened(path: Path, packed: bool) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb") if packed else path.open("rb"))


def _blocks(file: IO[bytes]) -> Iterator[bytes | Exception]:
    """The file's bytes in blocks, and, where it is damaged, why after all that precedes it."""
    parts: list[bytes] = []
    size, damage = 0, None
    while True:
        try:
            part = file.read1(BLOCK)  # type: ignore[attr-defined]  # ``read`` would lose what precedes the damage
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            part, damage = b"", error
        parts.append(part)
        size += len(part)
        if size >= BLOCK or (not part and size):
            yield b"".join(parts)
            parts, size = [], 0
        if not part:
            break
    if damage is not None:
        yield damage


def _batch(text: bytes, end: int, name: str, first: int) -> pa.RecordBatch:
    """The lines of a text up to ``end``, which is behind a line break."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8, end) == _BREAK) + 1
    wide = end > np.iinfo(np.int32).max
    offsets = np.zeros(len(ends) + 1, np.int64 if wide else np.int32)
    offsets[1:] = ends
    kind = pa.large_binary() if wide else pa.binary()
    lines = pa.Array.from_buffers(kind, len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    file = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(ends), np.int32)), [name]).cast(pa.string())
    number = pa.array(np.arange(first, first + len(ends)))
    return pa.RecordBatch.from_arrays([file, number, lines.cast(pa.binary())], schema=LINES)


def _rejected(name: str, line: int, rule: str, remedy: str) -> Rejected:
    return Rejected("deliveries", name, line, "(the rest of the file)", (Reason("(file)", name, rule, remedy),))
