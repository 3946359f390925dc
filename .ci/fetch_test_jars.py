"""Fetch what tests of real brokers or stores need, once, into this virtual environment. ``brokers``: a Kafka broker
with its command-line clients, Spark's Kafka source, and the distribution of Pulsar. ``stores``: Hadoop's client for S3.
Where one cannot be had, file ``failed`` or ``pulsar-failed`` has the reason, and those tests report it.

Spark's own Ivy resolves jars, as it does Delta's. It leaves out what Spark brings along. A distribution is an archive,
which Spark does not resolve, so Ivy is asked by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
from pyspark import __version__ as spark

BROKERS = Path(sys.prefix) / "brokers"
STORES = Path(sys.prefix) / "stores"
KAFKA = "4.0.0"
PULSAR = "4.0.8"
TOKENS = "org.apache.spark:spark-token-provider-kafka-0-10_2.13"
SCRIPT = """
import sys
from pyspark.sql import SparkSession
packages, ivy, left_out = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars.ivy", ivy)
builder = builder.config("spark.jars.packages", packages).config("spark.jars.excludes", left_out)
builder.getOrCreate().stop()
"""


def fetch(folder: Path, packages: list[str], left_out: str = "none:none") -> str | None:
    """Fetch packages with what they need into a folder; the reason where that failed."""
    ivy = folder.parent / "ivy" / re.sub(r"\W", "_", packages[0])
    command = [sys.executable, "-c", SCRIPT, ",".join(packages), str(ivy), left_out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return _failed(packages[0], done.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    for jar in (ivy / "jars").glob("*.jar"):
        shutil.move(jar, folder / jar.name)
    shutil.rmtree(ivy)
    return None


def source_of(version: str) -> str | None:
    """Spark's Kafka source. Of some versions its provider of tokens is not to be had alone: any does, as it is only
    asked where a cluster wants tokens."""
    source = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    if fetch(BROKERS / "spark", [source]) is None:
        return None
    none_of_them = fetch(BROKERS / "spark", [source], TOKENS)
    return none_of_them or fetch(BROKERS / "spark", [f"{TOKENS}:4.1.0-preview1"])


def distribution() -> str | None:
    """Pulsar's distribution, unpacked; the reason where that failed."""
    ivy = BROKERS / "ivy" / "pulsar"
    jar = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    settings = Path(__file__).with_name("ivy-archives.xml")
    java = Path(os.environ["JAVA_HOME"], "bin/java") if "JAVA_HOME" in os.environ else "java"
    command = [str(java), "-jar", str(jar), "-settings", str(settings), "-cache", str(ivy), "-confs", "default",
               "-dependency", "org.apache.pulsar", "pulsar-server-distribution", PULSAR,
               "-retrieve", f"{ivy}/[module].tar.gz", "-warn"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return _failed(f"Pulsar {PULSAR}", done.stdout + done.stderr)
    with tarfile.open(ivy / "pulsar-server-distribution.tar.gz") as archive:
        archive.extractall(ivy, filter="data")
    (ivy / f"apache-pulsar-{PULSAR}").rename(BROKERS / "pulsar")
    shutil.rmtree(ivy)
    return None


def _failed(what: str, said: str) -> str:
    why = re.findall(r"unresolved dependency: \S+?;\S+?(?=:)|UnknownHost\w+.*|Connect\w*Exception.*", said)
    return f"{what} cannot be fetched: {why[0] if why else said.strip()[-300:]}"


def kafka() -> str | None:
    """Kafka's broker and clients, and Spark's Kafka source; the reason where that failed."""
    clients = [f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka_2.13", "kafka-tools")]
    failed = fetch(BROKERS / "kafka", [*clients, "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"])
    return failed or (source_of(spark) and source_of("4.1.3"))


def hadoop_aws() -> str | None:
    """Hadoop's client for S3, of the version of Spark's Hadoop; the reason where that failed."""
    hadoop = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    return fetch(STORES / "s3", [f"org.apache.hadoop:hadoop-aws:{version}"])


WANTED = {
    "brokers": (BROKERS, [(("kafka", "spark"), kafka, "failed"), (("pulsar",), distribution, "pulsar-failed")]),
    "stores": (STORES, [(("s3",), hadoop_aws, "failed")]),
}


def main() -> int:
    place, parts = WANTED[sys.argv[1]]
    place.mkdir(exist_ok=True)
    for folders, get, reason in parts:
        if all((place / folder).exists() for folder in folders):
            continue
        if failed := get():
            (place / reason).write_text(failed + "\n", encoding="utf-8")
            sys.stderr.write(f"{failed}\n")
        else:
            (place / reason).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
