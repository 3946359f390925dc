"""Read the metadata of Parquet row groups, and choose how they are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pyarrow.dataset as ds

TASK_ROWS: Final = 1 << 19
"""The approximate number of rows that a task reads."""
BATCH_ROWS: Final = 1 << 16  # rows that are read at a time
_INSTANT: Final = "INT96"
_ENUMERATION: Final = "ENUM"
READ_OPTIONS: Final = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")


def find_int96_columns(part: ds.ParquetFileFragment) -> frozenset[str]:
    """Find the columns of type INT96, which Spark and Hive write for instants. The type does not record UTC."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return frozenset(column.path for column in columns if column.physical_type == _INSTANT)


def find_enum_columns(part: ds.ParquetFileFragment) -> frozenset[str]:
    """Find the text columns of type ENUM, as Avro writes them. Arrow reads them as bytes."""
    schema = part.metadata.schema
    columns = [schema.column(i) for i in range(len(schema))]
    return frozenset(column.path for column in columns if column.logical_type.type == _ENUMERATION)


def compute_row_width(part: ds.ParquetFileFragment, names: Collection[str]) -> float:
    """Compute the average bytes per row of some columns of a row group, including nested columns."""
    if not part.row_groups:
        return 0.0
    (group,) = part.row_groups
    metadata = part.metadata.row_group(group.id)
    columns = (metadata.column(i) for i in range(metadata.num_columns))
    size: int = sum(column.total_uncompressed_size for column in columns if _is_within(column.path_in_schema, names))
    rows: int = max(1, metadata.num_rows)
    return size / rows


def _is_within(path: str, names: Collection[str]) -> bool:
    """Return whether a column path in a file is one of these columns or is nested in one."""
    return path in names or path.partition(".")[0] in names
