"""Decide which paths are local, as far as a Spark session shows it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from subreplay.config.run import Location, Schema
from subreplay.engine.spark.settings import read_setting

_SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:")


def is_local(spark: SparkSession, root: Location) -> bool:
    """Return whether tables below ``root`` are local files, according to the session's settings and the environment.

    A path without a scheme may be in a store.
    """
    if isinstance(root, Schema) or _SCHEME.match(root) or is_remote() or _has_hadoop_settings():
        return False
    elsewhere = read_setting(spark, "spark.hadoop.fs.defaultFS") or read_setting(spark, "fs.defaultFS")
    return elsewhere is None and (read_setting(spark, "spark.master") or "").startswith("local")


def _has_hadoop_settings() -> bool:
    """Return whether Java finds Hadoop settings, whose ``fs.defaultFS`` the session does not show. Databricks always
    has them."""
    read_variable = os.environ.get
    spark_folder = read_variable("SPARK_CONF_DIR") or Path(
        read_variable("SPARK_HOME") or Path(pyspark.__file__).parent, "conf"
    )
    folders = [spark_folder, read_variable("HADOOP_CONF_DIR"), read_variable("YARN_CONF_DIR")]
    found = any(folder and Path(folder, "core-site.xml").exists() for folder in folders)
    return found or "DATABRICKS_RUNTIME_VERSION" in os.environ
