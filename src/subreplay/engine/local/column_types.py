"""The types that columns of files are read as: those that Spark reads them as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

_SAME: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean, pa.types.is_date32,
    pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128,
)  # fmt: skip
"""Types that Spark reads from Parquet as Arrow does."""
_OTHER: Final = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.null(): pa.string(),
}  # fmt: skip
"""And those that it reads as others that hold the same values."""


def as_read(kind: pa.DataType) -> pa.DataType | None:
    """The type that a column of Parquet is read as, as Spark has it; None where it is rare."""
    if any(same(kind) for same in _SAME):
        return kind
    if kind in _OTHER:
        return _OTHER[kind]
    if pa.types.is_dictionary(kind):
        return as_read(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()  # as a session of ours is told to (``engine.spark.session``)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        of = as_read(kind.value_type)
        return None if of is None else pa.list_(of)
    if pa.types.is_map(kind):
        key, value = as_read(kind.key_type), as_read(kind.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(kind):
        fields = [(field.name, as_read(field.type)) for field in kind]
        return None if any(of is None for _, of in fields) else pa.struct(fields)
    return None
