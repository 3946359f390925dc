"""Convert texts and lists of entries in the lines of a broker's log to columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.adapters.broker_log.line_scan import Ints, parse_natural
from subreplay.adapters.canonical import split_topic
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.contracts import shorten


@dataclass(frozen=True)
class TextColumn:
    """A column of texts as codes of distinct texts. Code 0 is the empty text, also for a missing one."""

    codes: NDArray[np.int64]
    distinct_texts: list[bytes]
    absent: NDArray[np.bool_]

    @property
    def _legal(self) -> list[str | None]:
        return [_decode(text) for text in self.distinct_texts]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """The rows whose text is not UTF-8."""
        return np.array([text is None for text in self._legal], np.bool_)[self.codes]

    def show(self, row: int) -> str:
        return shorten(self.distinct_texts[self.codes[row]].decode("utf-8", "backslashreplace"))

    def missing(self) -> NDArray[np.bool_]:
        return self.absent

    def build_strings(self, of: NDArray[np.int64]) -> pa.Array:
        return self._take_strings(self._legal, of)

    def parse_partitions(self) -> NDArray[np.int64]:
        """Parse the partitions of topics; -1 for none."""
        return np.array([split_topic(text or "")[1] for text in self._legal], np.int64)[self.codes]

    def build_base_topics(self, of: NDArray[np.int64]) -> pa.Array:
        """Return topics without their partitions."""
        return self._take_strings([text and split_topic(text)[0] for text in self._legal], of)

    def _take_strings(self, texts: list[str | None], of: NDArray[np.int64]) -> pa.Array:
        codes = pa.array(self.codes[of].astype(np.int32), mask=self.absent[of])
        return pa.DictionaryArray.from_arrays(codes, pa.array(texts, pa.string())).cast(pa.string())


def _decode(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def read_texts(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> TextColumn:
    texts, offsets = gather_texts(data, start, end)
    column = pa.Array.from_buffers(pa.large_binary(), len(start), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
    coded = column.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    return TextColumn(codes, coded.dictionary.to_pylist() or [b""], end < 0)


def gather_texts(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[Any, Any]:
    """Concatenate texts, and return them with their offsets; a negative end means an empty text."""
    lengths = np.where(end < 0, 0, end - start)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    texts = np.empty(int(offsets[-1]), np.uint8)
    _copy_texts(data, start, offsets, texts)
    return texts, offsets


def _copy_texts(data: NDArray[np.uint8], start: Ints, offsets: Ints, texts: NDArray[np.uint8]) -> None:
    for row in range(len(start)):
        first, size = start[row], offsets[row + 1] - offsets[row]
        for k in range(size):
            texts[offsets[row] + k] = data[first + k]


_copy_texts = compiled(_copy_texts)


class EntryLists(NamedTuple):
    """The entries of lists, concatenated. ``counts`` has the size of each list, or -1 for a malformed one. ``partial``
    marks entries of which only some messages were acknowledged."""

    ledger: NDArray[np.int64]
    entry: NDArray[np.int64]
    partial: NDArray[np.bool_]
    counts: NDArray[np.int64]


def parse_entry_lists(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> EntryLists:
    """Parse lists ``L:E, L:E (ackSet …), …``."""
    most = int(((end - start + 2) // 5 + 1).clip(0).sum())  # the shortest entry is "1:2, "
    found = EntryLists(
        np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(most, np.bool_), np.zeros(len(start), np.int64)
    )
    total = _parse_lists(data, start, end, *found)
    return EntryLists(found.ledger[:total], found.entry[:total], found.partial[:total], found.counts)


def _parse_lists(
    data: NDArray[np.uint8], start: Ints, end: Ints,
    ledger: Ints, entry: Ints, partial: NDArray[np.bool_], counts: Ints,
) -> int:  # fmt: skip
    total = 0
    for row in range(len(start)):
        i, last, before = start[row], end[row], total
        legal = True
        while legal and i < last:
            i, ledger[total], legal = parse_natural(data, i, last)
            legal = legal and i < last and data[i] == 58  # ":"
            if not legal:
                break
            i, entry[total], legal = parse_natural(data, i + 1, last)
            partial[total] = i + 1 < last and data[i] == 32 and data[i + 1] == 40  # " ("
            if partial[total]:
                while i < last and data[i] != 41:  # ")"
                    i += 1
                legal = legal and i < last
                i += 1
            total += 1
            if i < last:
                legal = legal and i + 2 < last and data[i] == 44 and data[i + 1] == 32  # ", "
                i += 2
        counts[row] = total - before
        if not legal:
            counts[row], total = -1, before
    return total


_parse_lists = compiled(_parse_lists)
