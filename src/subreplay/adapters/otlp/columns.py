"""Arrow columns of texts as the arrays that spans are judged by."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.capture.checks import Mask
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.contracts import LARGEST
from subreplay.rows.model.tables import TIME

_NATURAL: Final = r"^\d{1,19}$"
NO_NUMBER: Final = -2
"""What stands for a text that is no number: legal nowhere."""


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)


def codes(values: pa.Array | pa.ChunkedArray) -> Ints:
    """A number for each distinct value; -1 for null."""
    return ints(pc.dictionary_encode(whole(values)).indices.cast(pa.int64()), -1)


def in_words(values: pa.Array | pa.ChunkedArray) -> Ints:
    """A number for each distinct text, in the order of the texts; -1 for null."""
    coded = pc.dictionary_encode(whole(values))
    rank = np.argsort(np.argsort(np.array(coded.dictionary.to_pylist(), np.str_), kind="stable"), kind="stable")
    return np.append(rank, -1)[ints(coded.indices.cast(pa.int64()), -1)]


def ints(values: pa.Array, missing: int) -> Ints:
    return np.asarray(pc.fill_null(values, missing), np.int64)


def nonempty(values: pa.ChunkedArray) -> pa.Array:
    """Texts; an empty one tells nothing."""
    values = whole(values)
    return pc.if_else(pc.equal(values, ""), pa.scalar(None, pa.string()), values)


def natural(values: pa.ChunkedArray) -> pa.Array:
    values = whole(values)
    return pc.if_else(pc.match_substring_regex(values, _NATURAL), values, pa.scalar(None, pa.string()))


def number(texts: pa.Array) -> Ints:
    """Whole numbers of at most 19 digits; ``NO_NUMBER`` where there is none that fits 64 bits."""
    large = pc.and_(pc.equal(pc.utf8_length(texts), 19), pc.greater(texts, str(LARGEST)))
    none = pc.or_(pc.equal(texts, ""), large)
    return ints(pc.if_else(none, pa.scalar(None, pa.string()), texts).cast(pa.int64()), NO_NUMBER)


def times(nanos: Ints) -> pa.Array:
    return pa.array(nanos // 1_000).cast(TIME)
