"""The bytes of an Arrow column of strings or binaries, as two flat arrays for a compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Hash = TypeVar("Hash", np.uint32, np.uint64)
Kernel: TypeAlias = Callable[[NDArray[np.uint8], NDArray[np.int64]], NDArray[Hash]]

OFFSET_TYPES = {
    pa.binary(): np.int32,
    pa.string(): np.int32,
    pa.large_binary(): np.int64,
    pa.large_string(): np.int64,
}

_NO_BYTES = np.frombuffer(b"", np.uint8)


def hash_column(values: Column, kernel: Kernel[Hash]) -> NDArray[Hash]:
    """Apply ``kernel(data, offsets)`` to every row of ``values``; a null row is 0.

    ``offsets`` has one element more than there are rows; row i is ``data[offsets[i]:offsets[i + 1]]``. Raises TypeError
    if ``values`` is not a column of strings or binaries.
    """
    if isinstance(values, pa.ChunkedArray):
        # chunk by chunk: one combined chunk of 32-bit offsets could not hold more than 2 GiB
        chunks = values.chunks or [pa.array([], values.type)]
        return np.concatenate([hash_column(chunk, kernel) for chunk in chunks])
    hashes = kernel(*get_data_and_offsets(values))
    if values.null_count:
        hashes[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def get_data_and_offsets(values: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the two arrays that ``hash_column`` passes to its kernel, for one chunk; raises TypeError as it does.

    Their types do not depend on the column or its memory, because kernels are compiled for each type: 64-bit offsets
    and read-only bytes.
    """
    if values.type not in OFFSET_TYPES:
        raise TypeError(f"cannot hash a column of type {values.type}. Pass a column of strings or binaries.")
    _, offsets_buffer, data_buffer = values.buffers()
    if not len(values):
        return _NO_BYTES, np.zeros(1, np.int64)
    offsets = np.frombuffer(offsets_buffer, OFFSET_TYPES[values.type], len(values) + 1 + values.offset)
    data = _NO_BYTES if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    data.flags.writeable = False
    return data, offsets[values.offset :].astype(np.int64)  # a slice shares its parent's buffers
