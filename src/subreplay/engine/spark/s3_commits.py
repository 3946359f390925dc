"""Write Delta tables in S3: Spark's tasks write the files, and delta-rs commits them.

Spark's log store for S3 (``io.delta.storage.S3SingleDriverLogStore``, Delta 4.4) supports only one writing program. If
two programs commit at the same moment, one commit overwrites the other, and rows are lost without an error. delta-rs
writes a commit only if it does not exist (a conditional put, which S3 has since 2024). A log store that the user has
configured in Spark is used instead.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, SparkSession

from subreplay.config.run import Location, Schema
from subreplay.engine import delta_files
from subreplay.engine.delta_files import NewFile
from subreplay.engine.spark.schemas import spark_schema
from subreplay.engine.spark.settings import read_setting
from subreplay.errors import EnvironmentFailed

_S3: Final = re.compile(r"(s3[an]?)://", re.IGNORECASE)
_ENVIRONMENT_NAMES: Final = {
    "access.key": "AWS_ACCESS_KEY_ID", "secret.key": "AWS_SECRET_ACCESS_KEY", "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL", "endpoint.region": "AWS_REGION",
}  # fmt: skip
"""Settings of Hadoop's file system (``fs.s3a.…``) and their names in delta-rs. delta-rs takes missing values from the
environment or from the machine's role."""


def is_needed(spark: SparkSession, root: Location) -> bool:
    """Return whether tables below ``root`` are in S3 and Spark has no configured log store for it."""
    if isinstance(root, Schema) or (found := _S3.match(root)) is None:
        return False
    return read_setting(spark, f"spark.delta.logStore.{found[1].lower()}.impl") is None


def replace_rows(frame: DataFrame, columns: pa.Schema, path: str, name: str, where: Mapping[str, str]) -> None:
    """Replace the rows of the table at ``path`` whose columns equal ``where`` with those of a frame.

    Raises ``EnvironmentFailed`` if another run writes such rows, or if delta-rs has no access.
    """
    spark, date = frame.sparkSession, where.get("date")
    try:
        place, access = find_place(spark, path)
        new = delta_files.begin_write(place, name, columns, where, access)
    except (OSError, EnvironmentFailed) as error:
        why = str(error).splitlines()[0]
        raise EnvironmentFailed(
            f"{path}: delta-rs, which commits to S3, cannot access the table ({why}). Set AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY and AWS_REGION, or spark.hadoop.fs.s3a.access.key and related settings, or write "
            "to a schema of a catalog."
        ) from error
    if date is not None or "date" not in frame.columns:
        frame = frame.withColumn("date", F.lit(date).cast("date"))
    folder = f"{path}/{uuid4()}"
    frame.select(*new.schema.names, "date").write.partitionBy("date").parquet(folder)
    new.files.extend(_list_files(spark, folder, new.schema))
    new.commit()


def find_place(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    """Return the location of a table for delta-rs, and its access to it."""
    return _S3.sub("s3://", path, count=1), read_storage_options(spark, path)


def _list_files(spark: SparkSession, folder: str, schema: pa.Schema) -> list[NewFile]:
    """List the files that tasks have written to a folder of a table."""
    whole = spark_schema(pa.schema([*schema, pa.field("date", pa.date32())]))
    each = F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("size"), F.col("date")
    found = spark.read.schema(whole).parquet(folder).select(*each).groupBy("path", "size", "date").count()
    start = posixpath.basename(folder)
    return sorted(
        NewFile(
            start + unquote(row.path).partition(start)[2],
            row.size,
            row["count"],
            {"date": None if row.date is None else row.date.isoformat()},
        )
        for row in found.collect()
    )


def read_storage_options(spark: SparkSession, path: str) -> dict[str, str]:
    """Read delta-rs's options for a bucket from the session's settings."""
    bucket = urlsplit(path).netloc

    def setting(name: str) -> str | None:
        for key in (f"fs.s3a.bucket.{bucket}.{name}", f"fs.s3a.{name}"):
            for prefix in ("spark.hadoop.", ""):
                if (value := read_setting(spark, prefix + key)) is not None:
                    return value
        return None

    found = {
        variable: value for setting_name, variable in _ENVIRONMENT_NAMES.items() if (value := setting(setting_name))
    }
    endpoint = found.get("AWS_ENDPOINT_URL", "")
    if endpoint and "://" not in endpoint:
        found["AWS_ENDPOINT_URL"] = (
            f"{'https' if setting('connection.ssl.enabled') != 'false' else 'http'}://{endpoint}"
        )
    if found.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    if setting("path.style.access") == "false":
        found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "true"
    return found
