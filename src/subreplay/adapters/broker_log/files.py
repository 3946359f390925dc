"""The lines of a broker's log file, plain or gzip, a batch at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, cast

import numpy as np
import pyarrow as pa

from subreplay.adapters.broker_log.events import LOG_LINES
from subreplay.errors import InputError

BLOCK: Final = 16 * 2**20
"""Bytes that are read at once, before the rest of the last line."""
_BREAK = 10
_GZIP = b"\x1f\x8b"


def lines_of(path: Path, name: str | None = None) -> Iterator[pa.RecordBatch]:
    """``LOG_LINES`` of a file, which is gzip where it begins so, whatever its name; ``name`` is what they call it.

    Lines are bytes: what is no UTF-8 is found where it stands in a name. Raises ``InputError`` where the file cannot be
    read to its end.
    """
    first, left = 1, b""
    try:
        with _opened(path) as file:
            while block := file.read(BLOCK):
                whole, found, rest = (left + block).rpartition(b"\n")
                left = rest if found else left + block
                if found:
                    batch = _batch(whole + b"\n", name or path.name, first)
                    first += len(batch)
                    yield batch
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not readable after line {first - 1}: {error}; copy it again") from error
    if left:
        yield _batch(left + b"\n", name or path.name, first)


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP
    return cast(IO[bytes], gzip.open(path, "rb") if packed else path.open("rb"))


def _batch(text: bytes, name: str, first: int) -> pa.RecordBatch:
    """Lines of a text that ends with a line break, each with its own."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _BREAK)
    offsets = np.concatenate([[0], ends + 1]).astype(np.int32)
    count = len(ends)
    lines = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    file = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), [name]).cast(pa.string())
    number = pa.array(np.arange(first, first + count))
    return pa.RecordBatch.from_arrays([file, number, lines], schema=LOG_LINES)
