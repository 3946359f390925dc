"""Which paths are of this machine, as far as a Spark session tells."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from subreplay.config.run import Location, Schema

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
