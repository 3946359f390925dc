"""Texts and lists of entries that stand in the lines of a broker's log, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from subreplay.adapters.broker_log.scan import Ints, natural
from subreplay.adapters.canonical import base_topic
from subreplay.kernels.compiled import compiled
from subreplay.rows.model.contracts import shortened


@dataclass(frozen=True)
class Texts:
    """A column of texts as codes of different ones; code 0 is the empty text, which also stands for a missing one."""

    codes: NDArray[np.int64]
    different: list[bytes]
    absent: NDArray[np.bool_]

    @property
    def _legal(self) -> list[str | None]:
        return [_decoded(word) for word in self.different]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Rows whose text is no UTF-8."""
        return np.array([word is None for word in self._legal], np.bool_)[self.codes]

    def shown(self, row: int) -> str:
        return shortened(self.different[self.codes[row]].decode("utf-8", "backslashreplace"))

    def missing(self) -> NDArray[np.bool_]:
        return self.absent

    def strings(self, of: NDArray[np.int64]) -> pa.Array:
        return self._strings(self._legal, of)

    def partitions(self) -> NDArray[np.int64]:
        """Of the topic that the text names; -1 for none."""
        return np.array([base_topic(word or "")[1] for word in self._legal], np.int64)[self.codes]

    def bases(self, of: NDArray[np.int64]) -> pa.Array:
        """The topic without its partition."""
        return self._strings([word and base_topic(word)[0] for word in self._legal], of)

    def _strings(self, words: list[str | None], of: NDArray[np.int64]) -> pa.Array:
        codes = pa.array(self.codes[of].astype(np.int32), mask=self.absent[of])
        return pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string())).cast(pa.string())


def _decoded(word: bytes) -> str | None:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return None


def texts(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Texts:
    texts, offsets = gather(data, start, end)
    column = pa.Array.from_buffers(pa.large_binary(), len(start), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
    coded = column.dictionary_encode()
    codes = coded.indices.to_numpy().astype(np.int64)
    return Texts(codes, coded.dictionary.to_pylist() or [b""], end < 0)


def gather(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> tuple[Any, Any]:
    """The texts one after the other, and their offsets; a negative end is an empty text."""
    lengths = np.where(end < 0, 0, end - start)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    texts = np.empty(int(offsets[-1]), np.uint8)
    _copy(data, start, offsets, texts)
    return texts, offsets


def _copy(data: NDArray[np.uint8], start: Ints, offsets: Ints, texts: NDArray[np.uint8]) -> None:
    for row in range(len(start)):
        first, size = start[row], offsets[row + 1] - offsets[row]
        for k in range(size):
            texts[offsets[row] + k] = data[first + k]


_copy = compiled(_copy)


class Positions(NamedTuple):
    """The entries that lists name, one after the other; ``counts`` is how many each list has, -1 for what is no list.
    ``partial`` tells that some messages of the batch only were acknowledged."""

    ledger: NDArray[np.int64]
    entry: NDArray[np.int64]
    partial: NDArray[np.bool_]
    counts: NDArray[np.int64]


def positions(data: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]) -> Positions:
    """What lists ``L:E, L:E (ackSet …), …`` name."""
    most = int(((end - start + 2) // 5 + 1).clip(0).sum())  # none is shorter than "1:2, "
    found = Positions(
        np.empty(most, np.int64), np.empty(most, np.int64), np.zeros(most, np.bool_), np.zeros(len(start), np.int64)
    )
    total = _positions(data, start, end, *found)
    return Positions(found.ledger[:total], found.entry[:total], found.partial[:total], found.counts)


def _positions(
    data: NDArray[np.uint8], start: Ints, end: Ints,
    ledger: Ints, entry: Ints, partial: NDArray[np.bool_], counts: Ints,
) -> int:  # fmt: skip
    total = 0
    for row in range(len(start)):
        i, last, before = start[row], end[row], total
        legal = True
        while legal and i < last:
            i, ledger[total], legal = natural(data, i, last)
            legal = legal and i < last and data[i] == 58  # ":"
            if not legal:
                break
            i, entry[total], legal = natural(data, i + 1, last)
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


_positions = compiled(_positions)
