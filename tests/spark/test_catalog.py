"""Tables by name, in a schema of a catalog: written, found by the next night and by explain, replaced by a re-run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark.sql.functions as F
import pytest
import yaml
from pyspark.sql import SparkSession

from subreplay.cli.main import main
from subreplay.config.run import Schema
from subreplay.engine.spark import frame_tables
from subreplay.errors import EnvironmentFailed
from subreplay.rows.model.table_descriptions import describe_column, describe_table
from tests.support.days import dates, drawn_out, save
from tests.support.history import START, STEP, SUBSCRIPTION, history

pytestmark = pytest.mark.spark
AUDITS = Schema(schema="spark_catalog.audits_of_ours")
KEYED = {"name": SUBSCRIPTION, "policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}


@pytest.fixture
def audits(spark: SparkSession) -> Iterator[Schema]:
    spark.sql("CREATE SCHEMA spark_catalog.audits_of_ours")
    yield AUDITS
    spark.sql("DROP SCHEMA spark_catalog.audits_of_ours CASCADE")


def test_a_run_replaces_its_own_rows_of_a_named_table(spark: SparkSession, audits: Schema) -> None:
    for name, rows in (("a", 3), ("b'", 2), ("a", 1)):
        frame_tables.replace_rows(
            spark.range(rows), audits, "found", "delta", subscription=name, topic="t", date="2026-11-21"
        )
    found = frame_tables.read_table(spark, audits, "found", "delta")
    assert {row.subscription: row["count"] for row in found.groupBy("subscription").count().collect()} == {
        "a": 1,
        "b'": 2,
    }
    frame_tables.replace_rows(
        spark.range(1).withColumn("more", F.lit(1)), audits, "found", "delta", subscription="c", topic="t"
    )
    assert "more" in frame_tables.read_table(spark, audits, "found", "delta").columns  # a later version may add columns
    assert frame_tables.find_table(spark, audits, "nowhere") is None


def test_runs_that_make_a_named_table_at_once_all_write_it(spark: SparkSession, audits: Schema) -> None:
    ready, failed = threading.Barrier(6), []

    def run(number: int) -> None:
        frame = spark.newSession().range(number + 1)
        ready.wait()
        try:
            frame_tables.replace_rows(
                frame, audits, "found", "delta", subscription="s", topic=f"t{number}", date="2026-11-21"
            )
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = frame_tables.read_table(spark, audits, "found", "delta").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in found} == {f"t{number}": number + 1 for number in range(6)}


def test_files_in_the_place_of_a_new_table_are_reported(
    spark: SparkSession, audits: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_tables, "ATTEMPTS", 1)
    warehouse = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:"))
    left = warehouse / "audits_of_ours.db/found/left.parquet"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    with pytest.raises(EnvironmentFailed, match=r"found: the folder of this new table contains files.*Delete them"):
        frame_tables.replace_rows(
            spark.range(1), audits, "found", "delta", subscription="s", topic="t", date="2026-11-21"
        )


def test_daily_runs_continue_from_one_another_and_explain_reads_them(
    audits: Schema, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the first day left open, the second one gets; input and output are tables of the catalog."""
    story = drawn_out(history("a1 a2 n3+550", "+C1 a1>C1 a2>C1 a1! a2! ~450 n3>C1 n3!"), START, 600_000_000 // STEP)
    run = yaml.safe_load(save(story, tmp_path, subscription=KEYED).read_text())
    for name in ("messages", "membership", "deliveries"):
        spark.read.parquet(f"{tmp_path}/in/{name}").write.saveAsTable(f"audits_of_ours.{name}")
        run["traffic"][name] = {"table": f"spark_catalog.audits_of_ours.{name}"}
    run["output"] = {"tables": {"schema": audits.name}, "report": str(tmp_path / "report")}
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run))
    first, *_, last = dates(6)
    for date in (first, last):
        assert main(["audit", "--config", str(path), "--date", date]) in (0, 3)
    facts = json.loads((tmp_path / "report/report.json").read_text())["facts"]
    assert ("Continues from the audit of", first) in [(fact["label"], fact["value"]) for fact in facts]
    runs = frame_tables.read_table(spark, audits, "runs", "delta")
    assert sorted(str(row.date) for row in runs.collect()) == [first, last]
    killed = spark.table("audits_of_ours.audited").withColumn("attempt", F.lit("of a run that was killed"))
    killed.writeTo("audits_of_ours.audited").append()
    shown = {row.attempt for row in spark.table("audits_of_ours.latest_audited").collect()}
    assert shown
    assert shown <= {row.attempt for row in runs.collect()}
    assert [str(row.date) for row in spark.table("audits_of_ours.latest_runs").collect()] == [last]
    last_run = spark.table("audits_of_ours.incidents").where(F.col("date") == F.lit(last).cast("date"))
    ongoing = {row.title for row in last_run.where("ongoing AND verdict <> 'valid'").collect()}
    assert {row.title for row in spark.table("audits_of_ours.open_incidents").collect()} == ongoing
    for name in ("violations", "incidents", "runs", "audited"):
        comments = {column.name: column.description for column in spark.catalog.listColumns(f"audits_of_ours.{name}")}
        assert comments == {column: describe_column(name, column) for column in comments}
        assert spark.catalog.getTable(f"audits_of_ours.{name}").description == describe_table(name)
    capsys.readouterr()
    message = frame_tables.read_table(spark, audits, "messages", "delta").orderBy("publish_time").first()
    reported = f"{message.topic}:{message.ledger}:{message.entry}"
    assert main(["explain", "--config", str(path), "--date", first, "--message", reported]) == 0
    assert f"judged by the audit that wrote {audits}" in capsys.readouterr().out
    assert main(["explain", "--config", str(path), "--date", first, "--key", "never seen"]) == 0
    assert f"no message of this key on {first} in spark_catalog.audits_of_ours.messages, " in capsys.readouterr().out


def test_old_runs_are_removed_from_tables_of_a_catalog(
    spark: SparkSession, audits: Schema, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ages = {"20200101T000000Z-a": "2020-01-01", "20200102T000000Z-b": "2020-01-02"}
    for attempt, date in ages.items():
        where = {"subscription": "s", "topic": "t", "date": date}
        for part in range(2):
            rows = spark.range(1).withColumn("code", F.lit(f"part {part}"))
            frame_tables.replace_rows(rows, audits, "violations", "delta", **where, attempt=attempt)
        run = spark.range(1).select(F.lit("audit").alias("kind"), F.lit(attempt).alias("attempt"))
        frame_tables.replace_rows(run, audits, "runs", "delta", **where)
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"output": {"tables": {"schema": audits.name}}}))
    for verb, options in (("would remove", ["--dry-run"]), ("removed", [])):
        assert main(["vacuum", "--config", str(path), "--keep", "90d", *options]) == 0
        assert f"{verb}: 1 of 2 runs and 0 unfinished attempts, from 2 tables" in capsys.readouterr().out
    for name in ("runs", "violations"):
        left = frame_tables.read_table(spark, audits, name, "delta").collect()
        assert [row.attempt for row in left] == ["20200102T000000Z-b"]


def test_a_missing_schema_is_reported_before_anything_is_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    for name in ("nowhere", "no_catalog.nowhere"):
        path.write_text(yaml.safe_dump({"output": {"tables": {"schema": name}, "report": str(tmp_path / "report")}}))
        assert main(["audit", "--config", str(path)]) == 2
        assert (
            f"output.tables: the schema {name} does not exist. Create it (CREATE SCHEMA {name})"
            in capsys.readouterr().err
        )
