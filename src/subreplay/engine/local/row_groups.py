"""What Parquet files tell of their row groups, and how they are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow.dataset as ds

PIECE: Final = 1 << 19
"""Rows that a task reads, about."""
BATCH: Final = 1 << 16  # rows that are looked at at a time
_INSTANT: Final = "INT96"
_ENUMERATION: Final = "ENUM"
READ_OPTIONS: Final = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")


def old_times(part: ds.ParquetFileFragment) -> frozenset[str]:
    """Columns of the type that Spark and Hive write for instants: 96 bits, which say nothing of UTC."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return frozenset(column.path for column in columns if column.physical_type == _INSTANT)


def enumerations(part: ds.ParquetFileFragment) -> frozenset[str]:
    """Columns of texts of an enumeration, as Avro writes them, which are bytes to Arrow."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return frozenset(column.path for column in columns if column.logical_type.type == _ENUMERATION)


def width(part: ds.ParquetFileFragment, names: Collection[str]) -> float:
    """Bytes of some columns of a row group, with all that is in them, on average of a row."""
    if not part.row_groups:
        return 0.0
    (group,) = part.row_groups
    metadata = part.metadata.row_group(group.id)
    columns = (metadata.column(i) for i in range(metadata.num_columns))
    size: int = sum(column.total_uncompressed_size for column in columns if _is_of(column.path_in_schema, names))
    rows: int = max(1, metadata.num_rows)
    return size / rows


def _is_of(path: str, names: Collection[str]) -> bool:
    """Whether a path in a file is one of these columns, or within it."""
    return path in names or path.partition(".")[0] in names
