"""Fetch Delta's jars into this virtual environment, once, and prove that Java, Spark and Delta work together.

Every session of this environment then finds them there, with or without a network, and tests that start at the
same moment do not race for the download.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

defaults = Path(pyspark.__file__).parent / "conf" / "spark-defaults.conf"
defaults.parent.mkdir(exist_ok=True)
defaults.write_text(f"spark.jars.ivy {Path(sys.prefix) / 'ivy'}\n", encoding="utf-8")

builder = (
    SparkSession.builder.master("local[1]")
    .appName("subreplay-setup")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
    table = f"{scratch}/table"
    spark.range(3).write.format("delta").save(table)
    rows = spark.read.format("delta").load(table).count()
spark.stop()
sys.exit(rows != 3)
