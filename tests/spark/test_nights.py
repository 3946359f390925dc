"""Nightly runs on Spark: a recording drawn out over several days, audited day by day and at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark.sql.functions as F
import pytest
import yaml
from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS
from subreplay.cli import main
from subreplay.columns import UNKNOWN
from subreplay.config import Keys
from subreplay.model import Scope
from subreplay.policies import make
from subreplay.rules.judge import Dispatcher, Judge
from subreplay.spark import lake, topic_findings
from subreplay.tables import LOG, TIME
from tests.support.joins import fold
from tests.support.recordings import ROOT

pytestmark = pytest.mark.spark
DAYS = 3
FIRST = 1_790_000_000_000_000 // 86_400_000_000 * 86_400_000_000  # a midnight, µs
DATES = ["2026-09-21", "2026-09-22", "2026-09-23"]
COMMAND = "import sys; from subreplay.cli import main; sys.exit(main(sys.argv[1:]))"
AS_OF_THE_END = ("UNSEEN", "UNACKED", "UNROUTABLE", "STUCK")


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stuck consumer of 3.2.3, whose hours last days: what it holds crosses midnight."""
    folder = tmp_path_factory.mktemp("month")
    ingested = ADAPTERS["pulsar-recording"](ROOT / "3.2.3/s1b_key_shared_stuck")
    begin = pc.min(ingested.tables["membership"]["at"].cast(pa.int64())).as_py()
    end = pc.max(ingested.tables["deliveries"]["delivered_at"].cast(pa.int64())).as_py()
    factor = (DAYS * 86_400_000_000 - 1) // (end - begin + 1)
    for name, rows in ingested.tables.items():
        drawn = _drawn_out(rows, begin, factor)
        day = {"messages": "publish_time", "membership": "at", "deliveries": "delivered_at"}[name]
        known = pc.coalesce(drawn[day], drawn["acked_at"]) if name == "deliveries" else drawn[day]
        place = drawn.schema.get_field_index("date")
        drawn = drawn.set_column(place, drawn.schema.field("date"), known.cast(pa.date32()))
        (folder / "in" / name).mkdir(parents=True)
        pq.write_table(drawn, folder / "in" / name / "part.parquet")
    run = {"traffic": {"path": str(folder / "in"), "format": "parquet"}, "subscription": ingested.run["subscription"]}
    run["subscription"] |= {"name": drawn["subscription"][0].as_py()}
    (folder / "audit.yaml").write_text(yaml.safe_dump(run))
    return folder


def _drawn_out(rows: pa.Table, begin: int, factor: int) -> pa.Table:
    """The same rows on a slower clock, on which fractions of a microsecond become whole ones."""
    for i, of in enumerate(rows.schema):
        if of.type == TIME:
            micros = pc.multiply(pc.subtract(rows[of.name].cast(pa.int64()), begin), factor)
            beyond = of.name.removesuffix("_at") + "_nanos"
            if beyond in rows.column_names:
                finer = pc.divide(pc.multiply(rows[beyond].cast(pa.int64()), factor), 1000)
                micros = pc.add(micros, pc.fill_null(finer, 0))
            rows = rows.set_column(i, of, pc.add(micros, FIRST).cast(TIME))
    for i, of in enumerate(rows.schema):
        if of.name.endswith("_nanos"):
            rows = rows.set_column(i, of, pa.nulls(rows.num_rows, of.type))
    return rows


def audit(folder: Path, out: Path, *more: str) -> int:
    return main(["audit", "--config", str(folder / "audit.yaml"), "--out", str(out), *more])


def counts(spark: SparkSession, out: Path) -> dict[str, int]:
    rows = spark.read.format("delta").load(str(out / "tables/finding_counts"))
    return {r.code: r["n"] for r in rows.groupBy("code").agg(F.sum("count").alias("n")).collect()}


def contents(spark: SparkSession, out: Path, name: str) -> list[str]:
    rows = spark.read.format("delta").load(str(out / "tables" / name))
    return sorted(repr(row.asDict(True)) for row in rows.collect())


@pytest.fixture(scope="module")
def nightly(spark: SparkSession, month: Path) -> Path:
    out = month / "nightly"
    for date in DATES:
        assert audit(month, out, "--date", date) in (0, 1)
    return out


def test_nightly_runs_find_what_one_run_finds(spark: SparkSession, month: Path, nightly: Path) -> None:
    assert audit(month, month / "whole") in (0, 1)
    by_night, at_once = counts(spark, nightly), counts(spark, month / "whole")
    lasting = {code for code in by_night | at_once if code not in AS_OF_THE_END}
    assert {c: by_night.get(c) for c in lasting} == {c: at_once.get(c) for c in lasting}
    assert "REDELIVERED" in lasting
    received = spark.read.parquet(str(month / "in/deliveries")).where("delivered_at IS NOT NULL").count()
    facts = {fact["label"]: fact["value"] for fact in json.loads((nightly / "report/report.json").read_text())["facts"]}
    assert facts["Goes on from the audit of"] == DATES[1]
    for out in (nightly, month / "whole"):
        audited = spark.read.format("delta").load(str(out / "tables/audited")).where("carried IS NULL")
        assert audited.where("delivered").count() == received


def test_a_killed_night_run_again_leaves_the_same_tables(spark: SparkSession, month: Path, nightly: Path) -> None:
    names = ("audited", "violations", "assignments", "finding_counts", "runs")
    before = {name: contents(spark, nightly, name) for name in names}
    run = [sys.executable, "-c", COMMAND, "audit", "--config", str(month / "audit.yaml"), "--out", str(nightly)]
    killed = subprocess.Popen([*run, "--date", DATES[1]], start_new_session=True, stdout=subprocess.DEVNULL)
    versions = _versions(nightly)
    while _versions(nightly) == versions and killed.poll() is None:  # until the first table is written
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert audit(month, nightly, "--date", DATES[1]) in (0, 1)
    assert {name: contents(spark, nightly, name) for name in names} == before


def test_a_day_without_messages_and_deliveries_ends_what_was_open(
    spark: SparkSession, month: Path, nightly: Path
) -> None:
    assert audit(month, nightly, "--date", "2026-09-24") in (0, 1)
    assert open_at_the_end(spark, nightly, DATES[-1])  # acknowledged after midnight
    assert not open_at_the_end(spark, nightly, "2026-09-24")
    report = json.loads((nightly / "report/report.json").read_text())
    facts = {fact["label"]: fact["value"] for fact in report["facts"]}
    assert (facts["Goes on from the audit of"], facts["Messages in the log"]) == (DATES[-1], "0")
    assert audit(month, month / "nothing before", "--date", "2026-09-24") == 2


def open_at_the_end(spark: SparkSession, out: Path, date: str) -> bool:
    """Whether a night hands on positions that are open."""
    audited = spark.read.format("delta").load(str(out / "tables/audited")).where("carried.name = 'open'")
    rows = audited.where(F.col("date") == date).select("carried.data").collect()
    assert rows  # it hands on its state
    return any(len(row.data) > 0 for row in rows)


def _versions(out: Path) -> Any:
    return sorted(path.name for path in (out / "tables").glob("*/_delta_log/*.json"))


def test_a_key_in_two_partitions_and_a_gap_are_told_by_the_first_night_that_sees_them(spark: SparkSession) -> None:
    sticky = make("pulsar.key_shared.sticky", "pulsar-4.0")
    dispatchers = {Scope("t", i): Dispatcher.of(fold(sticky, "+C1[0-65535] -C1 +C2[0-9]")) for i in range(2)}
    judge = Judge(sticky, dispatchers, receipts=True)
    gap = dispatchers[Scope("t", 0)].timeline.epochs[-1].start.at

    def told(keys: str, *known: tuple[str, int], since: int = UNKNOWN) -> list[tuple[str, int]]:
        """Keys by partition; a capital: of an earlier day."""
        rows = [
            {"topic": "t", "partition": place, "ledger": 5, "entry": entry, "batch_index": -1, "kind": 0, "at": entry,
             "seq": 0, "key": key.lower().encode(), "producer": "p", "before": key.isupper()}
            for place, of_one in enumerate(keys.split()) for entry, key in enumerate(of_one)
        ]  # fmt: skip
        log = lake.of_arrow(spark, pa.Table.from_pylist(rows, LOG))
        earlier = spark.createDataFrame(list(known), "key string, partition int") if known else None
        found = topic_findings.found(log, judge, "sub", Keys(show=True), earlier, since).to_pylist()
        return sorted((row["key"] or row["code"], row["partition"]) for row in found)

    gaps = [("STICKY_GAP", -1)] * 2  # the same timeline stands for both partitions
    assert told("kkl k") == [*gaps, ("k", 1)]
    assert told("K kkl", since=gap + 1) == [("k", 1)]
    assert told("Kk Kkk", since=gap) == gaps
    assert told("k kk", ("k", 0), since=gap + 1) == [("k", 1)]
