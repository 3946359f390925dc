"""Fetch Delta's jars into this virtual environment, once, and prove that Java, Spark and Delta work together.

They are laid beside Spark's own: every session of this environment then has them, with or without a network, without
resolving packages, which takes seconds at each start, and tests that start at the same moment do not race for the
download. What else Delta names, Spark brings.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

SPARK = Path(pyspark.__file__).parent
GROUPS = ("io.delta_", "io.unitycatalog_")
TRY = """
import sys
from pyspark.sql import SparkSession
from subreplay.config.run import Spark
from subreplay.spark.session import open_session
spark = open_session(Spark(master="local[1]"))
spark.range(3).write.format("delta").save(sys.argv[1])
rows = spark.read.format("delta").load(sys.argv[1]).count()
sys.exit(rows != 3 or spark.conf.get("spark.jars.packages", None) is not None)
"""

for left in (SPARK / "jars").glob("*.jar"):  # of another version
    if left.name.startswith(("delta-", "unitycatalog-")):
        left.unlink()
defaults = SPARK / "conf" / "spark-defaults.conf"
defaults.parent.mkdir(exist_ok=True)
ivy = Path(sys.prefix) / "ivy"
shutil.rmtree(ivy / "jars", ignore_errors=True)
defaults.write_text(f"spark.jars.ivy {ivy}\n", encoding="utf-8")  # also where a run file names packages of its own

builder = SparkSession.builder.master("local[1]").appName("subreplay-setup").config("spark.ui.enabled", "false")
configure_spark_with_delta_pip(builder).getOrCreate().stop()
for group in GROUPS:
    for jar in (ivy / "jars").glob(f"{group}*.jar"):
        shutil.copy(jar, SPARK / "jars" / jar.name.removeprefix(group))
with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
    sys.exit(subprocess.run([sys.executable, "-c", TRY, f"{scratch}/table"], check=False).returncode)
