"""Blocks of a log that wait in files: who reads a table leaves them there, and who judges a topic partition takes its
own, in order of their first keys.

Where all of Spark's tasks are on one machine, rows go from one to the other so, and not through Java, which would take
them out of Python, cut them up, and put them in again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.rows.sorted_blocks import KEY_COLUMNS, ShuffleBlock

_KEY: Final = tuple(f"key_{number}" for number in range(KEY_COLUMNS))
_PLACES: Final = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *(pa.field(name, pa.int64(), nullable=False) for name in (*_KEY, "columns", "begin", "size")),
    ]
)
"""Where a file has which block; a file ends with these rows, and with the number of bytes that they take."""
_LENGTH: Final = 8  # bytes of that number
_AT_A_TIME: Final = 1 << 12  # places that are rows of Python at a time


def leave(blocks: Iterable[ShuffleBlock], path: str) -> None:
    """Write blocks into a file, which is there when all of them are."""
    unfinished = f"{path}.{os.getpid()}"
    held: list[tuple[object, ...]] = []
    places: list[pa.RecordBatch] = []
    with open(unfinished, "wb") as file:
        for block in blocks:
            held.append((*block.scope, *block.first_key, block.columns, file.tell(), len(block.rows)))
            file.write(block.rows)
            if len(held) == _AT_A_TIME:
                places.append(_as_batch(held))
                held = []
        told = pa.BufferOutputStream()
        with pa.ipc.new_stream(told, _PLACES) as stream:
            for some in (*places, _as_batch(held)):
                stream.write_batch(some)
        file.write(end := told.getvalue())
        file.write(len(end).to_bytes(_LENGTH, "little"))
    os.replace(unfinished, path)


def sizes(paths: Iterable[str]) -> dict[tuple[str, int], int]:
    """Of which topic partitions blocks wait in files, and how many bytes they have."""
    found: Counter[tuple[str, int]] = Counter()
    for path in paths:
        of_each = _all_places(path).group_by(["topic", "partition"]).aggregate([("size", "sum")])
        for row in of_each.to_pylist():
            found[row["topic"], row["partition"]] += row["size_sum"]
    return dict(found)


def waiting(paths: Iterable[str], scopes: Iterable[tuple[str, int]]) -> Iterator[ShuffleBlock]:
    """The blocks of some topic partitions (topic, number), one of these after the other, in order of first keys."""
    paths = [*paths]
    for scope in scopes:
        of_files = [_places(path, scope) for path in paths]
        number = np.repeat(np.arange(len(paths)), [len(places) for places in of_files])
        places = pa.concat_tables(of_files).combine_chunks()
        keys = [places[name].to_numpy() for name in _KEY]
        order = np.lexsort([places["begin"].to_numpy(), number, *reversed(keys)])
        for first in range(0, len(order), _AT_A_TIME):
            mine = order[first : first + _AT_A_TIME]
            rows = places.select([*_KEY, "columns", "begin", "size"]).take(pa.array(mine))
            for which, *key, columns, begin, size in zip(
                number[mine], *(c.to_pylist() for c in rows.columns), strict=True
            ):
                with open(paths[which], "rb", buffering=0) as file:
                    file.seek(begin)
                    yield ShuffleBlock(scope, key, columns, file.read(size))


def _as_batch(places: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*places, strict=True) if places else ([] for _ in _PLACES)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _PLACES, strict=True)], schema=_PLACES
    )


def _places(path: str, scope: tuple[str, int]) -> pa.Table:
    """Where the blocks of a topic partition are in a file."""
    places, (topic, partition) = _all_places(path), scope
    return places.filter(pc.and_(pc.equal(places["topic"], topic), pc.equal(places["partition"], partition)))


def _all_places(path: str) -> pa.Table:
    with open(path, "rb") as file:
        end = file.seek(-_LENGTH, os.SEEK_END)
        size = int.from_bytes(file.read(_LENGTH), "little")
        file.seek(end - size)
        return pa.ipc.open_stream(file.read(size)).read_all()
