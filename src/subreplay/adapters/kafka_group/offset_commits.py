"""Decode offset commits, most of ``__consumer_offsets``, column by column over the bytes of Arrow columns.

A record that deviates in any comparison is left to the decoder of single records, which knows the reason. So the layout
is written twice, and tests compare both decoders.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import get_data_and_offsets
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import ENTRY, FIRST_TIME, LAST_TIME, PARTITION

Flags = NDArray[np.bool_]
TOPIC_IDS: Final = pa.schema([("topic_id", pa.string()), ("topic", pa.string())])
"""Topics by their ids."""
_MAX_WIDTH: Final = 8
_TOPIC_ID_TAG: Final = 16
"""The first two bytes of the tagged field ``topicId``: tag 0, and its length."""


class BinaryCells:
    """The bytes of a binary column, with the begin and end of each row."""

    def __init__(self, values: pa.Array) -> None:
        self.bytes, offsets = get_data_and_offsets(values)
        self.begin, self.end = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        padding = np.zeros(max(0, _MAX_WIDTH - len(self.bytes)), np.uint8)
        self.padded = np.concatenate([self.bytes, padding]) if len(padding) else self.bytes

    def read_integers(self, at: Ints, kind: str) -> Ints:
        """Read the big-endian number of numpy type ``kind`` at each index; 0 where it does not fit."""
        width = np.dtype(kind).itemsize
        every = np.ndarray((len(self.padded) - width + 1,), kind, self.padded, strides=(1,))  # at each byte
        inside = (at >= 0) & (at + width <= len(self.bytes))
        return np.where(inside, every[np.where(inside, at, 0)], 0).astype(np.int64)

    def read_varints(self, at: Ints) -> tuple[Ints, Ints]:
        """Read the unsigned varint of at most two bytes at each index, and its width; 0 and 2 where it is longer."""
        first, second = self.read_integers(at, ">u1"), self.read_integers(at + 1, ">u1")
        long = first >= 0x80
        value = np.where(long, (first & 0x7F) | (second << 7), first)
        return np.where(long & (second >= 0x80), 0, value), np.where(long, 2, 1)

    def read_strings(self, *slices: tuple[Ints, Ints]) -> list[pa.Array]:
        """Read some slices of each row, in order, as columns of bytes.

        Rows and slices are in order in the buffer. So the slices and the gaps between them form one column, of which
        every other element is selected.
        """
        bounds = np.stack([bound for begin, length in slices for bound in (begin, begin + length)], axis=1).ravel()
        if not len(bounds):
            return [pa.array([], pa.large_binary()) for _ in slices]
        buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds)), pa.py_buffer(self.padded)]
        pieces = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
        step = 2 * len(slices)
        return [pieces.take(pa.array(np.arange(2 * i, len(bounds) - 1, step))) for i in range(len(slices))]


class DecodedCommits(NamedTuple):
    """The commits of some rows: ``columns`` of the rows where ``usual`` is true, in order."""

    usual: Flags
    columns: dict[str, pa.Array]


def list_topic_ids(commits: pa.Table) -> pa.Table:
    """List the ids of topics in decoded commits, as ``TOPIC_IDS``."""
    found = commits.filter(pc.is_valid(commits["topic_id"])).group_by(TOPIC_IDS.names).aggregate([])
    return found.select(TOPIC_IDS.names).cast(TOPIC_IDS)


def read_key_versions(keys: BinaryCells) -> Ints:
    """Read the version of each key, which is the type of its record; -1 where there is none."""
    return np.where(keys.end - keys.begin >= 2, keys.read_integers(keys.begin, ">i2"), -1)


def decode_commits(key: pa.Array, value: pa.Array) -> DecodedCommits:
    """Decode offset commits. ``key`` and ``value`` are of such records only; a null value is a tombstone."""
    keys, values = BinaryCells(key), BinaryCells(value)
    gone = np.asarray(value.is_null().to_numpy(zero_copy_only=False), np.bool_)
    group = keys.begin + 4, keys.read_integers(keys.begin + 2, ">i2")
    topic_at = group[0] + group[1]
    topic = topic_at + 2, keys.read_integers(topic_at, ">i2")
    last = topic[0] + topic[1]
    partition = keys.read_integers(last, ">i4")
    usual = (group[1] > 0) & (topic[1] > 0) & (last + 4 == keys.end)
    usual &= (partition >= 0) & (partition <= PARTITION.most)

    version = values.read_integers(values.begin, ">i2")
    offset = values.read_integers(values.begin + 2, ">i8")
    has_epoch, compact = version >= 3, version == 4
    epoch = np.where(has_epoch, values.read_integers(values.begin + 10, ">i4"), -1)
    length_at = values.begin + np.where(has_epoch, 14, 10)
    length_plus_1, width = values.read_varints(length_at)
    size = np.where(compact, length_plus_1 - 1, values.read_integers(length_at, ">i2"))
    note = length_at + np.where(compact, width, 2), size
    after = note[0] + size
    at = values.read_integers(after, ">i8")
    expires = np.where(version == 1, values.read_integers(after + 8, ">i8"), -1)
    tags = np.where(compact, values.read_integers(after + 8, ">u1"), 0)  # their number
    has_topic_id = (tags == 1) & (values.read_integers(after + 9, ">u2") == _TOPIC_ID_TAG)
    topic_id = np.where(has_topic_id, after + 11, values.begin), np.where(has_topic_id, 16, 0)
    end = after + 8 + np.where(version == 1, 8, 0) + compact + np.where(has_topic_id, 18, 0)
    whole = (version >= 0) & (version <= 4) & (values.end - values.begin >= 2) & (size >= 0) & (end == values.end)
    whole &= ((tags == 0) | has_topic_id) & (offset >= 0) & (offset <= ENTRY.most + 1)
    whole &= _is_legal_time(at) & (_is_legal_time(expires) | (expires < 0))
    usual &= whole | gone

    texts = {
        **dict(zip(("group", "topic"), _read_usual_slices(keys, usual, group, topic), strict=True)),
        "metadata": _read_usual_slices(values, usual & ~gone, note)[0],
    }
    good = {name: _is_text(column) for name, column in texts.items()}
    usual &= np.logical_and.reduce(list(good.values()))
    kept = pa.array(usual)
    present = usual & ~gone
    columns = {name: column.filter(kept).cast(pa.string()) for name, column in texts.items()}
    columns["metadata"] = pc.if_else(pa.array(gone[usual]), pa.scalar(None, pa.string()), columns["metadata"])
    columns["topic_id"] = _format_topic_ids(_read_usual_slices(values, present, topic_id)[0].filter(kept))
    columns["partition"] = pa.array(partition[usual].astype(np.int32))
    columns["tombstone"] = pa.array(gone[usual])
    for name, numbers, known in (
        ("offset", offset, present),
        ("leader_epoch", epoch, present & (epoch >= 0)),
        ("committed_at", at * 1_000, present),
        ("expires_at", expires * 1_000, present & (expires >= 0)),
    ):
        columns[name] = pa.array(numbers[usual], mask=~known[usual])
    return DecodedCommits(usual, columns)


def _format_topic_ids(values: pa.Array) -> pa.Array:
    """Format 16 bytes each as Kafka writes topic ids; no bytes become null."""
    coded = values.dictionary_encode()
    texts = [base64.urlsafe_b64encode(each).decode().rstrip("=") or None for each in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)


def _is_legal_time(millis: Ints) -> Flags:
    return (millis >= FIRST_TIME // 1_000) & (millis <= LAST_TIME // 1_000)


def _read_usual_slices(cells: BinaryCells, usual: Flags, *slices: tuple[Ints, Ints]) -> list[pa.Array]:
    """Read the slices of usual rows; those of the others are empty."""
    return cells.read_strings(
        *[(np.where(usual, begin, cells.begin), np.where(usual, length, 0)) for begin, length in slices]
    )


def _is_text(values: pa.Array) -> Flags:
    """Check whether each value is UTF-8."""
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        distinct = values.dictionary_encode()
        good = np.array([_is_utf8(text) for text in distinct.dictionary.to_pylist()], np.bool_)
        return np.asarray(good[np.asarray(distinct.indices)])
    return np.ones(len(values), np.bool_)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
