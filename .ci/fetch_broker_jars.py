"""Fetch what tests of real brokers need, once, into this virtual environment: a Kafka broker with its command-line
clients, and Spark's Kafka source. Where a jar cannot be had, file ``failed`` has the reason, and those tests tell it.

Spark's own Ivy resolves them, as it does Delta's. It leaves out what Spark brings along.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark import __version__ as spark

BROKERS = Path(sys.prefix) / "brokers"
KAFKA = "4.0.0"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
SCRIPT = """
import sys
from pyspark.sql import SparkSession
packages, ivy, left_out = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars.ivy", ivy)
builder = builder.config("spark.jars.packages", packages).config("spark.jars.excludes", left_out)
builder.getOrCreate().stop()
"""


def fetch(folder: str, packages: list[str], left_out: str = "none:none") -> str | None:
    """Fetch packages with what they need into a folder; the reason where that failed."""
    ivy = BROKERS / "ivy" / re.sub(r"\W", "_", packages[0])
    command = [sys.executable, "-c", SCRIPT, ",".join(packages), str(ivy), left_out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        why = re.findall(r"unresolved dependency: \S+?;\S+?(?=:)|UnknownHost\w+.*|Connect\w*Exception.*", done.stderr)
        return f"{packages[0]} cannot be fetched: {why[0] if why else done.stderr.strip()[-300:]}"
    (BROKERS / folder).mkdir(parents=True, exist_ok=True)
    for jar in (ivy / "jars").glob("*.jar"):
        shutil.copy(jar, BROKERS / folder / jar.name)
    return None


def source_of(version: str) -> str | None:
    """Spark's Kafka source. Of some versions its provider of tokens is not to be had alone: any does, as it is only
    asked where a cluster wants tokens."""
    source = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    if fetch("spark", [source]) is None:
        return None
    none_of_them = fetch("spark", [source], TOKENS)
    return none_of_them or fetch("spark", [f"{TOKENS}:4.1.0-preview1"])


def main() -> int:
    if (BROKERS / "kafka").exists() and (BROKERS / "spark").exists():
        return 0
    BROKERS.mkdir(exist_ok=True)
    clients = [f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka_2.13", "kafka-tools")]
    failed = fetch("kafka", [*clients, "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"])
    failed = failed or (source_of(spark) and source_of("4.1.3"))
    if failed:
        (BROKERS / "failed").write_text(failed + "\n", encoding="utf-8")
        sys.stderr.write(f"{failed}\n")
    else:
        (BROKERS / "failed").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
