"""The metadata text of a key that was set as bytes (``keyBytes``): base64 with padding."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from subreplay.hashing.arrow_bytes import Column, get_data_and_offsets
from subreplay.kernels.compiled import compiled

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING = ord("=")


def encode_base64(keys: Column) -> Column:
    """Encode every row of a binary column as base64, into a ``large_binary`` column; null stays null.

    >>> encode_base64(pa.array([b"a", None, b"abc"])).to_pylist()
    [b'YQ==', None, b'YWJj']
    """
    if isinstance(keys, pa.ChunkedArray):
        return pa.chunked_array([encode_base64(chunk) for chunk in keys.chunks], pa.large_binary())
    data, offsets = get_data_and_offsets(keys)
    text_offsets = np.concatenate([[0], np.cumsum((np.diff(offsets) + 2) // 3 * 4)]).astype(np.int64)
    buffers = [None, pa.py_buffer(text_offsets), pa.py_buffer(_encode_rows(data, offsets, text_offsets))]
    text = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    return pc.if_else(keys.is_valid(), text, None)


@compiled
def _encode_rows(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], text_offsets: NDArray[np.int64]
) -> NDArray[np.uint8]:  # pragma: no cover - compiled
    text = np.empty(text_offsets[-1], np.uint8)
    for row in range(len(offsets) - 1):
        written = text_offsets[row]
        for start in range(offsets[row], offsets[row + 1], 3):
            byte_count = min(3, offsets[row + 1] - start)
            bits = 0
            for i in range(3):
                bits = bits << 8 | (int(data[start + i]) if i < byte_count else 0)
            for i in range(4):
                text[written + i] = _ALPHABET[bits >> 18 - 6 * i & 63] if i <= byte_count else _PADDING
            written += 4
    return text
