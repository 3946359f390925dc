"""Convert the Arrow text columns of spans to arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.event_checks import Mask
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import LARGEST
from subreplay.rows.model.tables import TIME

_NATURAL: Final = r"^\d{1,19}$"
NOT_A_NUMBER: Final = -2
"""The value of a text that is not a number; it is outside every legal range."""


def combine_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def to_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def encode_values(values: pa.Array | pa.ChunkedArray) -> Ints:
    """Number the distinct values; null is -1."""
    return to_ints(pc.dictionary_encode(combine_chunks(values)).indices.cast(pa.int64()), -1)


def rank_texts(values: pa.Array | pa.ChunkedArray) -> Ints:
    """Number the distinct texts in text order; null is -1."""
    coded = pc.dictionary_encode(combine_chunks(values))
    rank = np.argsort(np.argsort(np.array(coded.dictionary.to_pylist(), np.str_), kind="stable"), kind="stable")
    return np.append(rank, -1)[to_ints(coded.indices.cast(pa.int64()), -1)]


def to_ints(values: pa.Array, missing: int) -> Ints:
    return np.asarray(pc.fill_null(values, missing), np.int64)


def drop_empty_texts(values: pa.ChunkedArray) -> pa.Array:
    """Replace empty texts by null."""
    values = combine_chunks(values)
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def select_numbers(values: pa.ChunkedArray) -> pa.Array:
    values = combine_chunks(values)
    return pc.if_else(pc.match_substring_regex(values, _NATURAL), values, pa.scalar(None, pa.string()))


def parse_numbers(texts: pa.Array) -> Ints:
    """Parse integers of at most 19 digits; ``NOT_A_NUMBER`` where the text is none or exceeds 64 bits."""
    large = pc.and_(pc.equal(pc.utf8_length(texts), 19), pc.greater(texts, str(LARGEST)))
    none = pc.or_(pc.equal(texts, ""), large)
    return to_ints(pc.if_else(none, pa.scalar(None, pa.string()), texts).cast(pa.int64()), NOT_A_NUMBER)


def nanos_to_times(nanos: Ints) -> pa.Array:
    return pa.array(nanos // 1_000).cast(TIME)
