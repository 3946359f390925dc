"""The local engine runs what is a file of this machine, Spark the rest, and a run that requests an engine gets it."""

from __future__ import annotations

from typing import Any

import pytest

from subreplay.config.engines import select_engine
from subreplay.config.run import RunConfig, parse
from subreplay.errors import ConfigError

TABLES = ("messages", "membership", "deliveries")


def run(**sections: Any) -> RunConfig:
    return parse(sections, "run.yaml")


@pytest.mark.parametrize(
    "traffic",
    [
        {},
        {"path": "data/tables", "format": "parquet"},
        {"messages": {"path": "m.csv", "format": "csv", "options": {"sep": ";"}, "columns": {"key": "k"}}},
        {"messages": {"path": "m.json", "format": "json"}, "membership": {"from": "deliveries"}},
        {"messages": {"path": "spans", "from": "otlp-spans"}},
        {"messages": {"path": "m", "format": "delta", "options": {"versionAsOf": "3"}}, "profile": "profiles"},
    ],
)
def test_files_and_folders_of_this_machine_are_read_without_spark(traffic: dict[str, Any]) -> None:
    choice = select_engine(run(traffic=traffic))
    assert choice == ("local", "every table is a file or folder of this machine")


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"traffic": {"path": "s3a://lake/tables"}}, "traffic.path is in a store (s3a://lake/tables)"),
        ({"traffic": {"messages": {"path": "abfss://a@b/m"}}}, "traffic.messages is in a store (abfss://a@b/m)"),
        ({"traffic": {"messages": {"table": "main.raw.m"}}}, "traffic.messages is a table of a catalog (main.raw.m)"),
        ({"traffic": {"deliveries": {"path": "d", "format": "orc"}}}, "traffic.deliveries is in format orc"),
        (
            {"traffic": {"messages": {"path": "m", "format": "csv", "options": {"versionAsOf": "1"}}}},
            "traffic.messages is csv with options that only Spark supports (versionAsOf)",
        ),
        (
            {
                "traffic": {
                    "messages": {
                        "from": "kafka-live",
                        "options": {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"},
                    }
                }
            },
            "traffic.messages is a live source (kafka-live orders)",
        ),
        ({"traffic": {"profile": "gs://p"}}, "traffic.profile is in a store (gs://p)"),
        ({"output": {"tables": {"schema": "main.audits"}}}, "output.tables is a schema of a catalog (main.audits)"),
        ({"output": {"tables": "s3a://lake/out"}}, "output.tables is in a store (s3a://lake/out)"),
    ],
)
def test_what_only_spark_reads_or_writes_needs_it(sections: dict[str, Any], reason: str) -> None:
    assert select_engine(run(**sections)) == ("spark", reason)
    assert select_engine(run(engine="spark", **sections)).engine == "spark"
    with pytest.raises(ConfigError) as error:
        select_engine(run(engine="local", **sections))
    assert str(error.value) == f"engine: local cannot run this, because {reason}; set engine: spark"


def test_a_store_below_which_no_table_is_looked_for_needs_no_spark() -> None:
    elsewhere = {name: {"path": f"tables/{name}"} for name in TABLES}
    assert select_engine(run(traffic={"path": "s3a://lake/tables", **elsewhere})).engine == "local"


@pytest.mark.parametrize(
    ("spark", "reason"),
    [
        ({"remote": "sc://host:15002"}, "spark.remote is set (sc://host:15002)"),
        ({"master": "yarn"}, "spark.master is a cluster (yarn)"),
        ({"conf": {"spark.hadoop.fs.defaultFS": "hdfs://n"}}, "spark.conf sets a default file system (hdfs://n)"),
    ],
)
def test_settings_of_a_cluster_are_a_reason_for_spark_unless_the_run_says_local(
    spark: dict[str, Any], reason: str
) -> None:
    assert select_engine(run(spark=spark)) == ("spark", reason)
    assert select_engine(run(spark=spark, engine="local")) == ("local", "the run requests it")


def test_a_program_inside_spark_stays_there_unless_the_run_says_local() -> None:
    assert select_engine(run(), "a Spark session is active") == ("spark", "a Spark session is active")
    assert select_engine(run(engine="local"), "a Spark session is active").engine == "local"


def test_another_engine_is_refused_and_the_engine_is_not_in_the_digests() -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml: engine: must be 'auto', 'local' or 'spark' \(found: 'duckdb'\)"):
        run(engine="duckdb")
    with pytest.raises(ConfigError, match="--engine 'duckdb': must be 'auto', 'local' or 'spark'"):
        parse({}, "run.yaml", engine="duckdb")
    assert run(engine="local").run_id == run(engine="spark").run_id == run().run_id
