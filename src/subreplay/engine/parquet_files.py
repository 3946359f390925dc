"""Rows of a Parquet table on a disk of this machine, in folders ``column=value`` as Spark writes them. What is written
replaces the partitions that it has rows of; there are no transactions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.engine.delta_files import NewFiles, kept_by_delta, partitions_of
from subreplay.engine.interface import Runs
from subreplay.engine.rows_with_values import with_values

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")  # what Spark escapes in the names of folders


@dataclass(frozen=True)
class NewPartitions(NewFiles):
    """New files of such a table."""

    def folder(self, values: Mapping[str, str | None]) -> str:
        """The partition with these values."""
        of_all = {**self.where, **values}
        return "/".join(f"{name}={_escaped(of_all[name] or _NULL)}" for name in self.partitions)

    def commit(self) -> None:
        """Remove what was in the partitions that have new files. A table without any file gets one without rows."""
        mine = {file.name for file in self.written}
        for folder in {os.path.dirname(name) for name in mine} | ({""} if mine else set()):
            for name in os.listdir(f"{self.path}/{folder}"):
                if name.endswith(".parquet") and os.path.join(folder, name) not in mine:
                    os.unlink(f"{self.path}/{folder}/{name}")
        if not mine and not any(name.endswith(".parquet") for _, _, names in os.walk(self.path) for name in names):
            os.makedirs(self.path, exist_ok=True)
            pq.write_table(with_values(self.columns.empty_table(), self.where), f"{self.path}/part-{uuid4()}.parquet")


def begin(path: str, name: str, columns: pa.Schema, where: Mapping[str, str], runs: Runs = ()) -> NewPartitions:
    """What writes rows of ``columns`` into the partitions of the table at ``path`` whose columns equal ``where``."""
    partitions = partitions_of(where, runs)
    mine = kept_by_delta(pa.schema([f for f in columns if f.name not in partitions]))
    return NewPartitions(name, columns, dict(where), path, mine, tuple(partitions), frozenset(), runs=tuple(runs))


def _escaped(value: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)
