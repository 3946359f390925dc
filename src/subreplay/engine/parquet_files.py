"""Write rows of a Parquet table on a local disk, in folders ``column=value`` as Spark writes them.

New files replace the partitions that they have rows of. There are no transactions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.engine.delta_files import NewFiles, list_partition_columns, to_delta_schema
from subreplay.engine.interface import Runs
from subreplay.engine.rows_with_values import add_values

_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED_CHARACTERS: Final = re.compile(
    r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]"
)  # characters that Spark escapes in folder names


@dataclass(frozen=True)
class NewPartitions(NewFiles):
    """New files of a Parquet table."""

    def choose_folder(self, values: Mapping[str, str | None]) -> str:
        """Return the folder of the partition with these values."""
        of_all = {**self.where, **values}
        return "/".join(f"{name}={_escape_value(of_all[name] or _NULL_PARTITION)}" for name in self.partitions)

    def commit(self) -> None:
        """Remove the older files of partitions with new files. A table without any file gets one without rows."""
        mine = {file.name for file in self.files}
        for folder in {os.path.dirname(name) for name in mine} | ({""} if mine else set()):
            for name in os.listdir(f"{self.path}/{folder}"):
                if name.endswith(".parquet") and os.path.join(folder, name) not in mine:
                    os.unlink(f"{self.path}/{folder}/{name}")
        if not mine and not any(name.endswith(".parquet") for _, _, names in os.walk(self.path) for name in names):
            os.makedirs(self.path, exist_ok=True)
            pq.write_table(add_values(self.columns.empty_table(), self.where), f"{self.path}/part-{uuid4()}.parquet")


def begin_write(path: str, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewPartitions:
    """Prepare to write rows of ``columns`` into the partitions of the table at ``path`` whose columns equal
    ``where``."""
    partitions = list_partition_columns(where, runs)
    mine = to_delta_schema(pa.schema([f for f in columns if f.name not in partitions]))
    return NewPartitions(name, columns, dict(where), path, mine, tuple(partitions), frozenset(), runs=tuple(runs))


def _escape_value(value: str) -> str:
    return _ESCAPED_CHARACTERS.sub(lambda found: f"%{ord(found[0]):02X}", value)
