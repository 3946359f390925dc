"""The SQL names of column types, for error messages."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_NAMES: Final = {
    pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.string(): "string",
    pa.large_string(): "string", pa.binary(): "binary", pa.large_binary(): "binary", pa.bool_(): "boolean",
    pa.float32(): "float", pa.float64(): "double", pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


def get_sql_name(kind: pa.DataType) -> str:
    """Return the SQL name of a type, without its nullability.

    >>> get_sql_name(pa.list_(pa.struct([("start", pa.int64())])))
    'array<struct<start:bigint>>'
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{get_sql_name(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{get_sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{get_sql_name(kind.key_type)},{get_sql_name(kind.item_type)}>"
    return str(kind)
