"""Fetch Delta's jars into this virtual environment, once, prove that Java, Spark and Delta work together, and keep what
makes each later start quick.

The jars are laid beside Spark's own: every session of this environment then has them, with or without a network,
without resolving packages, which takes seconds at each start, and tests that start at the same moment do not race for
the download. What else Delta names, Spark brings.

Java reads and checks some ten thousand classes before a small run is done. It leaves those that the demo needs in an
archive beside the jars, as it has them in memory (``subreplay.engine.spark.session``): later sessions take half as
long to start. Java finds the archive good only where nothing but jars is on its class path, so Spark's folder ``conf``
stays empty.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession

from subreplay.engine.spark.session import CLASSES

SPARK = Path(pyspark.__file__).parent
GROUPS = ("io.delta_", "io.unitycatalog_")
TRY = """
import sys
from subreplay.cli.main import main
from subreplay.config.run import Spark
from subreplay.engine.spark.session import open_session
spark = open_session(Spark(master="local[1]"))
spark.range(3).write.format("delta").save(sys.argv[1])
rows = spark.read.format("delta").load(sys.argv[1]).count()
assert rows == 3 and spark.conf.get("spark.jars.packages", None) is None
assert main(["demo", "--engine", "spark", "--out", sys.argv[2]]) in (0, 1)
"""

for left in (SPARK / "jars").glob("*.jar"):  # of another version
    if left.name.startswith(("delta-", "unitycatalog-")):
        left.unlink()
ivy = Path(sys.prefix) / "ivy"
shutil.rmtree(ivy / "jars", ignore_errors=True)
(SPARK / "conf" / "spark-defaults.conf").unlink(missing_ok=True)  # which earlier versions put there
classes = SPARK / "jars" / CLASSES
classes.unlink(missing_ok=True)

builder = SparkSession.builder.master("local[1]").appName("subreplay-setup").config("spark.ui.enabled", "false")
configure_spark_with_delta_pip(builder.config("spark.jars.ivy", str(ivy))).getOrCreate().stop()
for group in GROUPS:
    for jar in (ivy / "jars").glob(f"{group}*.jar"):
        shutil.copy(jar, SPARK / "jars" / jar.name.removeprefix(group))
with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
    whole = Path(scratch) / CLASSES  # of an archive that is cut off, Java dies
    command = [sys.executable, "-c", TRY, f"{scratch}/table", f"{scratch}/demo"]
    archiving = os.environ | {"SPARK_SUBMIT_OPTS": f'"-XX:ArchiveClassesAtExit={whole}" -Xlog:cds*=off'}
    # Java goes on writing when Python has ended, until nobody writes to this pipe any more
    ran = subprocess.run(command, env=archiving, capture_output=True, text=True, check=False)
    if whole.exists():
        whole.rename(classes)
sys.stdout.write(ran.stdout)
sys.stderr.write(ran.stderr)
sys.exit(ran.returncode)
