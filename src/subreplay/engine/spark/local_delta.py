"""Delta tables on the disk of this machine, written and read without Spark.

Some thousand rows that the driver has take Spark half a second of processor time for each table, most of it for plans
and for looking at the table before and after; delta-rs writes them in a tenth of that. Whatever is not as plain is left
to Spark: tables of a catalog or of a store, a session of a cluster, long names, and whatever delta-rs refuses, of which
Spark tells what is wrong with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date as Date
from functools import reduce
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from subreplay.config.run import Location, Schema
from subreplay.rows.scan.files import of_delta

_LONGEST: Final = 200  # bytes of a value that delta-rs makes a folder's name of; file systems take 255
Columns = list[str] | dict[str, pc.Expression] | None
RETRIES: Final = 30  # where runs write other rows of the table at the same moment
_SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:")


def is_here(spark: SparkSession, root: Location) -> bool:
    """Whether tables below ``root`` are files of this machine, as far as the session's settings and the environment
    tell: a path without a scheme may be one of a store."""
    if isinstance(root, Schema) or _SCHEME.match(root) or is_remote() or _settings_of_hadoop():
        return False
    elsewhere = spark.conf.get("spark.hadoop.fs.defaultFS", None) or spark.conf.get("fs.defaultFS", None)
    return elsewhere is None and str(spark.conf.get("spark.master", "")).startswith("local")


def _settings_of_hadoop() -> bool:
    """Whether Java finds settings of Hadoop, whose ``fs.defaultFS`` no session tells; Databricks has its own, also on
    one machine."""
    told = os.environ.get
    of_spark = told("SPARK_CONF_DIR") or Path(told("SPARK_HOME") or Path(pyspark.__file__).parent, "conf")
    folders = [of_spark, told("HADOOP_CONF_DIR"), told("YARN_CONF_DIR")]
    found = any(folder and Path(folder, "core-site.xml").exists() for folder in folders)
    return found or "DATABRICKS_RUNTIME_VERSION" in os.environ


def replace(
    rows: pa.Table, path: str, partitions: Sequence[str], where: Mapping[str, str], configuration: Mapping[str, str]
) -> bool:
    """Replace the rows of a table whose columns equal ``where`` by ``rows``, which have these values, in one
    transaction; a table that is not there is made, partitioned by ``partitions``. Returns whether that was done; if
    not, no row has changed."""
    try:
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError:  # where Spark was there before, it comes without the packages of the extra
        return False
    if any(len(quote(value, safe="")) > _LONGEST for value in where.values()):
        return False
    rows = rows.cast(kept_by_delta(rows.schema))
    try:
        # the empty table first: a condition needs one, and without a condition a run would replace what another one,
        # which has made the table meanwhile, has written
        make(path, rows.schema, partitions, configuration)
        write_deltalake(
            path,
            rows,
            mode="overwrite",
            predicate=" AND ".join(f"{column} = {_literal(value)}" for column, value in where.items()),
            partition_by=list(partitions),
            schema_mode="merge",
            commit_properties=CommitProperties(max_commit_retries=RETRIES),
        )
    except (DeltaError, OSError):
        return False
    return True


def make(path: str, schema: pa.Schema, partitions: Sequence[str], configuration: Mapping[str, str]) -> None:
    """Make a table without rows where there is none; another run may do so at the same moment."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not DeltaTable.is_deltatable(path):
        with suppress(DeltaError):
            DeltaTable.create(path, schema, "error", list(partitions), configuration=dict(configuration))


def kept_by_delta(schema: pa.Schema) -> pa.Schema:
    """Columns as Spark's Delta keeps them: all may be null, and an instant is one of UTC."""
    return pa.schema([pa.field(f.name, _kept_by_delta(f.type)) for f in schema])


@dataclass(frozen=True)
class Table:
    """A Delta table on the disk of this machine."""

    path: str
    dataset: ds.FileSystemDataset

    def equal(self, **where: object) -> pc.Expression:
        """The condition that columns have these values, which may be told as texts."""
        kinds = {name: self.dataset.schema.field(name).type for name in where}
        equal = (pc.field(name) == pa.scalar(value).cast(kinds[name]) for name, value in where.items())
        return reduce(pc.Expression.__and__, equal)

    def count(self, asked: pc.Expression) -> int:
        """How many rows meet a condition."""
        return int(self.dataset.count_rows(filter=asked))

    def rows(self, asked: pc.Expression, columns: Columns = None) -> pa.Table:
        """These rows, which are few, in some columns or what is made of them."""
        return self.dataset.to_table(columns=columns, filter=asked)

    def dates(self, where: Mapping[str, str]) -> set[Date]:
        """The dates of which the table has rows, among those whose columns, by which it is partitioned, have these
        values."""
        from deltalake import DeltaTable

        parts = DeltaTable(self.path).partitions()  # a value may be None
        return {Date.fromisoformat(part["date"]) for part in parts if part["date"] and where.items() <= part.items()}


def opened(path: str) -> Table | None:
    """The table of a folder; None where there is none, or Spark has to read it."""
    with suppress(pa.ArrowException, OSError, ValueError):
        dataset = of_delta(path)
        return None if dataset is None else Table(path, dataset)
    return None


def _kept_by_delta(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _kept_by_delta(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_kept_by_delta(kind.value_type))
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))
