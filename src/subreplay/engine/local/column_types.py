"""The Arrow types that columns of files are read as, equal to the types that Spark uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

_UNCHANGED_TYPES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_boolean, pa.types.is_date32,
    pa.types.is_string, pa.types.is_binary, pa.types.is_decimal128,
)  # fmt: skip
"""Parquet types that Spark reads with the same type as Arrow."""
_CONVERTED_TYPES: Final = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.null(): pa.string(),
}  # fmt: skip
"""Types that Spark reads as another type with the same values."""


def get_read_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type that a Parquet column is read as, as Spark does; None if no rule supports the type."""
    if any(same(kind) for same in _UNCHANGED_TYPES):
        return kind
    if kind in _CONVERTED_TYPES:
        return _CONVERTED_TYPES[kind]
    if pa.types.is_dictionary(kind):
        return get_read_type(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()  # as ``engine.spark.session`` configures it
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        of = get_read_type(kind.value_type)
        return None if of is None else pa.list_(of)
    if pa.types.is_map(kind):
        key, value = get_read_type(kind.key_type), get_read_type(kind.item_type)
        return None if key is None or value is None else pa.map_(key, value)
    if pa.types.is_struct(kind):
        fields = [(field.name, get_read_type(field.type)) for field in kind]
        return None if any(of is None for _, of in fields) else pa.struct(fields)
    return None
