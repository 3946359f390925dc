"""Tables whose columns are somebody else's, on the disk of this machine: as Spark would read them, and few rows as a
table of ours in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from subreplay.adapters.source.convert import HIDDEN, convert
from subreplay.adapters.source.plan import Plan, numbered
from subreplay.rows.model.columns import gathered
from subreplay.rows.scan import files
from subreplay.rows.scan.files import Files

MOST_BYTES: Final = 1 << 26  # of their columns, once they are unpacked
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


@dataclass(frozen=True)
class Theirs:
    """A table of somebody else; ``schema`` has its columns as Spark reads them."""

    dataset: ds.FileSystemDataset
    schema: pa.Schema

    @property
    def columns(self) -> pa.Schema:
        """The columns without those that stand beside the records of text files."""
        return pa.schema([field for field in self.schema if field.name not in HIDDEN])

    def first(self, rows: int) -> pa.Table:
        """So many of its rows, those of the first file first. Raises ``pa.ArrowException`` or ``OSError`` where a file
        cannot be read."""
        return self.dataset.head(rows, use_threads=False, batch_size=1_024, batch_readahead=0).cast(self.schema)

    def few(self, most_rows: int) -> bool:
        """Whether it has at most so many rows, which are not many bytes, either. Raises as ``first`` does."""
        rows = size = 0
        for part in self.dataset.get_fragments():
            for group in part.row_groups:
                rows, size = rows + group.num_rows, size + group.total_byte_size
            if rows > most_rows or size > MOST_BYTES:
                return False
        return True

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All of its rows. Raises as ``first`` does."""
        for batch in self.dataset.to_batches(use_threads=False):
            yield from pa.Table.from_batches([batch]).cast(self.schema).to_batches()

    def as_ours(self, plan: Plan, location: str, file: Path) -> Files | None:
        """It as ``plan`` converts it, written to a new ``file``; None where a row would be rejected, or the file of a
        row tells something: then Spark has to look. Raises as ``first`` does."""
        if plan.by_path:
            return None
        rows: list[pa.RecordBatch] = []
        for table in gathered(self.batches()):
            for batch in table.to_batches():
                found = convert(batch, plan, location)
                if found.rejected:
                    return None
                rows.append(found.rows)
        if not rows:
            return None
        ours = pa.Table.from_batches(rows)
        ours = numbered(ours) if plan.by_time else ours
        pq.write_table(ours.select([name for name in ours.column_names if name not in plan.lacks]), file)
        return files.opened(str(file), "parquet", plan.table)


def opened(path: str, form: str) -> Theirs | None:
    """The table in a file or folder; None where it is not there, or is not as plain as is read here."""
    with suppress(pa.ArrowException, OSError, ValueError):
        dataset = files.plain(path, form)
        if dataset is None or len(dataset.files) > files.MOST_FILES:
            return None
        kinds = {field.name: as_read(field.type) for field in dataset.schema}
        names = {name.casefold() for name in kinds}  # Spark knows no others
        if None in kinds.values() or len(names) < len(dataset.schema):
            return None
        return Theirs(dataset, pa.schema(list(kinds.items())))
    return None


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
