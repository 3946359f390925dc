"""Spill files of sorted blocks: one task writes them, another task reads the blocks of its topic partitions in order of
their first keys."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final

import numpy as np
import pyarrow as pa

from subreplay.rows.sorted_blocks import KEY_COLUMNS, ShuffleBlock

_KEY: Final = tuple(f"key_{number}" for number in range(KEY_COLUMNS))
_PLACES: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in (*_KEY, "columns", "begin", "size")),
    ]
)
"""The places of blocks in a file. A file ends with these rows and their number of bytes."""
_LENGTH: Final = 8  # bytes of that number
_MOST_PLACES_AT_ONCE: Final = 1 << 12  # places that are rows of Python at a time


class SpillFile:
    """A new file of blocks. It appears under its path once all blocks are written."""

    def __init__(self, path: str) -> None:
        self._path, self._unfinished = path, f"{path}.{os.getpid()}"
        self._file = open(self._unfinished, "wb")  # noqa: SIM115  closed by ``close``
        self._pending: list[tuple[object, ...]] = []
        self._places: list[pa.RecordBatch] = []

    def add(self, block: ShuffleBlock) -> None:
        """Write a block."""
        self._pending.append((*block.scope, *block.first_key, block.columns, self._file.tell(), len(block.rows)))
        self._file.write(block.rows)
        if len(self._pending) == _MOST_PLACES_AT_ONCE:
            self._places.append(_make_batch(self._pending))
            self._pending = []

    def finish(self) -> None:
        """Write the places of the blocks."""
        places = pa.BufferOutputStream()
        with pa.ipc.new_stream(places, _PLACES) as stream:
            for some in (*self._places, _make_batch(self._pending)):
                stream.write_batch(some)
        self._file.write(end := places.getvalue())
        self._file.write(len(end).to_bytes(_LENGTH, "little"))
        self._file.close()
        os.replace(self._unfinished, self._path)

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


def measure_scopes(paths: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return the topic partitions of the blocks in files, and their numbers of bytes."""
    found: Counter[tuple[str, int]] = Counter()
    for path in paths:
        of_each = _read_places(path).group_by(["topic", "partition"]).aggregate([("size", "sum")])
        for row in of_each.to_pylist():
            found[row["topic"], row["partition"]] += row["size_sum"]
    return dict(found)


def read_blocks(paths: Iterable[str], scopes: Iterable[tuple[str, int]]) -> Iterator[ShuffleBlock]:
    """Read the blocks of some scopes (a text and a number), one scope after the other, in order of first keys."""
    paths, scopes = [*paths], [*scopes]
    of_each = [pa.array([text for text, _ in scopes], pa.string()), pa.array([n for _, n in scopes], pa.int32())]
    wanted = pa.table([*of_each, pa.array(range(len(scopes)), pa.int64())], ["topic", "partition", "scope"])
    of_files = []
    for number, path in enumerate(paths):
        selected = _read_places(path).join(wanted, ["topic", "partition"], join_type="inner", use_threads=False)
        of_files.append(selected.append_column("file", pa.repeat(number, len(selected))))
    if not of_files:
        return
    places = pa.concat_tables(of_files).combine_chunks()
    by = [places[name].to_numpy() for name in ("begin", "file", *reversed(_KEY), "scope")]
    order = np.lexsort(by)
    with ExitStack() as ends:
        files = [ends.enter_context(open(path, "rb", buffering=0)) for path in paths]
        for first in range(0, len(order), _MOST_PLACES_AT_ONCE):
            rows = places.select(["scope", "file", *_KEY, "columns", "begin", "size"]).take(
                pa.array(order[first : first + _MOST_PLACES_AT_ONCE])
            )
            for scope, which, *key, columns, begin, size in zip(*(c.to_pylist() for c in rows.columns), strict=True):
                files[which].seek(begin)
                yield ShuffleBlock(scopes[scope], key, columns, files[which].read(size))


def _make_batch(places: list[tuple[object, ...]]) -> pa.RecordBatch:
    """Make a batch of places."""
    columns = zip(*places, strict=True) if places else ([] for _ in _PLACES)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _PLACES, strict=True)], schema=_PLACES
    )


def _read_places(path: str) -> pa.Table:
    """Read the places of all blocks in a file."""
    with open(path, "rb") as file:
        end = file.seek(-_LENGTH, os.SEEK_END)
        size = int.from_bytes(file.read(_LENGTH), "little")
        file.seek(end - size)
        return pa.ipc.open_stream(file.read(size)).read_all()
