"""Offset commits, the mass of ``__consumer_offsets``, decoded column by column over the bytes of Arrow columns.

What is not as it usually is, by a single comparison, is left to the reader of single records, who knows why: so the
layout is stated twice, and tests hold both against each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import ENTRY, FIRST_TIME, LAST_TIME, PARTITION

Flags = NDArray[np.bool_]
_WIDEST: Final = 8


class Cells:
    """The bytes of a column of binaries, and where those of each row begin and end."""

    def __init__(self, values: pa.Array) -> None:
        self.bytes, offsets = get_data_and_offsets(values)
        self.begin, self.end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        room = np.zeros(max(0, _WIDEST - len(self.bytes)), np.uint8)
        self.padded = np.concatenate([self.bytes, room]) if len(room) else self.bytes

    def integers(self, at: Ints, kind: str) -> Ints:
        """The big-endian number of numpy type ``kind`` at each index; 0 where there is no room for one."""
        width = np.dtype(kind).itemsize
        every = np.ndarray((len(self.padded) - width + 1,), kind, self.padded, strides=(1,))  # at each byte
        inside = (at >= 0) & (at + width <= len(self.bytes))
        return np.where(inside, every[np.where(inside, at, 0)], 0).astype(np.int64)

    def varints(self, at: Ints) -> tuple[Ints, Ints]:
        """The unsigned varint of at most two bytes at each index, and its width; 0 and 2 where it has more."""
        first, second = self.integers(at, ">u1"), self.integers(at + 1, ">u1")
        long = first >= 0x80
        value = np.where(long, (first & 0x7F) | (second << 7), first)
        return np.where(long & (second >= 0x80), 0, value), np.where(long, 2, 1)

    def strings(self, *slices: tuple[Ints, Ints]) -> list[pa.Array]:
        """Some pieces of each row, in order, as columns of bytes.

        Rows and pieces lie in order in the buffer, so they and what is between them are one column whose every other
        element is wanted.
        """
        bounds = np.stack([bound for begin, length in slices for bound in (begin, begin + length)], axis=1).ravel()
        if not len(bounds):
            return [pa.array([], pa.large_binary()) for _ in slices]
        buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds)), pa.py_buffer(self.padded)]
        pieces = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
        step = 2 * len(slices)
        return [pieces.take(pa.array(np.arange(2 * i, len(bounds) - 1, step))) for i in range(len(slices))]


class Commits(NamedTuple):
    """Commits of some rows: ``columns`` of those where ``usual`` is true, in order."""

    usual: Flags
    columns: dict[str, pa.Array]


def key_versions(keys: Cells) -> Ints:
    """The version of each key, which tells the type of its record; -1 where there is none."""
    return np.where(keys.end - keys.begin >= 2, keys.integers(keys.begin, ">i2"), -1)


def commits(key: pa.Array, value: pa.Array) -> Commits:
    """The columns of offset commits; ``key`` and ``value`` are of such records only. A null value is a tombstone."""
    keys, values = Cells(key), Cells(value)
    gone = np.asarray(value.is_null().to_numpy(zero_copy_only=False), np.bool_)
    group = keys.begin + 4, keys.integers(keys.begin + 2, ">i2")
    topic_at = group[0] + group[1]
    topic = topic_at + 2, keys.integers(topic_at, ">i2")
    last = topic[0] + topic[1]
    partition = keys.integers(last, ">i4")
    usual = (group[1] > 0) & (topic[1] > 0) & (last + 4 == keys.end)
    usual &= (partition >= 0) & (partition <= PARTITION.most)

    version = values.integers(values.begin, ">i2")
    offset = values.integers(values.begin + 2, ">i8")
    has_epoch, compact = version >= 3, version == 4
    epoch = np.where(has_epoch, values.integers(values.begin + 10, ">i4"), -1)
    length_at = values.begin + np.where(has_epoch, 14, 10)
    length_plus_1, width = values.varints(length_at)
    size = np.where(compact, length_plus_1 - 1, values.integers(length_at, ">i2"))
    note = length_at + np.where(compact, width, 2), size
    after = note[0] + size
    at = values.integers(after, ">i8")
    expires = np.where(version == 1, values.integers(after + 8, ">i8"), -1)
    tags = np.where(compact, values.integers(after + 8, ">u1"), 0)  # their number
    end = after + 8 + np.where(version == 1, 8, 0) + compact
    whole = (version >= 0) & (version <= 4) & (values.end - values.begin >= 2) & (size >= 0) & (end == values.end)
    whole &= (tags == 0) & (offset >= 0) & (offset <= ENTRY.most + 1)
    whole &= _is_time(at) & (_is_time(expires) | (expires < 0))
    usual &= whole | gone

    texts = {
        **dict(zip(("group", "topic"), _valid(keys, usual, group, topic), strict=True)),
        "metadata": _valid(values, usual & ~gone, note)[0],
    }
    good = {name: _is_text(column) for name, column in texts.items()}
    usual &= np.logical_and.reduce(list(good.values()))
    kept = pa.array(usual)
    told = usual & ~gone
    columns = {name: column.filter(kept).cast(pa.string()) for name, column in texts.items()}
    columns["metadata"] = pc.if_else(pa.array(gone[usual]), pa.scalar(None, pa.string()), columns["metadata"])
    columns["partition"] = pa.array(partition[usual].astype(np.int32))
    columns["tombstone"] = pa.array(gone[usual])
    for name, numbers, known in (
        ("offset", offset, told),
        ("leader_epoch", epoch, told & (epoch >= 0)),
        ("committed_at", at * 1_000, told),
        ("expires_at", expires * 1_000, told & (expires >= 0)),
    ):
        columns[name] = pa.array(numbers[usual], mask=~known[usual])
    return Commits(usual, columns)


def _is_time(millis: Ints) -> Flags:
    return (millis >= FIRST_TIME // 1_000) & (millis <= LAST_TIME // 1_000)


def _valid(cells: Cells, usual: Flags, *slices: tuple[Ints, Ints]) -> list[pa.Array]:
    """The pieces of the rows that are as usual; of the others nothing."""
    return cells.strings(
        *[(np.where(usual, begin, cells.begin), np.where(usual, length, 0)) for begin, length in slices]
    )


def _is_text(values: pa.Array) -> Flags:
    """Whether each is UTF-8."""
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        different = values.dictionary_encode()
        good = np.array([_decodes(word) for word in different.dictionary.to_pylist()], np.bool_)
        return np.asarray(good[np.asarray(different.indices)])
    return np.ones(len(values), np.bool_)


def _decodes(word: bytes) -> bool:
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
