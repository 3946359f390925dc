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
import pyspark.sql.functions as F
import pytest
from pyspark.sql import SparkSession

from subreplay.adapters import ADAPTERS
from subreplay.columns import UNKNOWN
from subreplay.config import Keys
from subreplay.model import Scope
from subreplay.policies import make
from subreplay.rules.judge import Dispatcher, Judge
from subreplay.spark import lake, topic_findings
from subreplay.tables import LOG
from tests.support import days
from tests.support.days import DAY, dates, drawn_out, save
from tests.support.history import START, STEP, SUBSCRIPTION, history
from tests.support.joins import fold
from tests.support.recordings import ROOT

pytestmark = pytest.mark.spark
DAYS = 3
DATES = dates(DAYS)
COMMAND = "import sys; from subreplay.cli import main; sys.exit(main(sys.argv[1:]))"
AS_OF_THE_END = ("UNSEEN", "UNACKED", "UNROUTABLE", "STUCK")


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stuck consumer of 3.2.3, whose hours last days: what it holds crosses midnight."""
    folder = tmp_path_factory.mktemp("month")
    ingested = ADAPTERS["pulsar-recording"](ROOT / "3.2.3/s1b_key_shared_stuck")
    begin = pc.min(ingested.tables["membership"]["at"].cast(pa.int64())).as_py()
    end = pc.max(ingested.tables["deliveries"]["delivered_at"].cast(pa.int64())).as_py()
    tables = drawn_out(ingested.tables, begin, (DAYS * DAY - 1) // (end - begin + 1))
    name = tables["deliveries"]["subscription"][0].as_py()
    save(tables, folder, subscription=ingested.run["subscription"] | {"name": name})
    return folder


def audit(folder: Path, out: Path, date: str | None = None) -> int:
    return days.audit(folder / "audit.yaml", out, date)


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
        assert audit(month, out, date) in (0, 1)
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


def test_a_message_that_waits_for_days_does_not_end_the_nightly_audit(spark: SparkSession, tmp_path: Path) -> None:
    """A step of the story is half an hour: the last of three messages is delivered three days after the others."""
    tables = drawn_out(
        history("a1 a2 n3+190", "+C1 a1>C1 a2>C1 a1! a2! ~150 n3>C1 n3!"), START, 1800 * 1_000_000 // STEP
    )
    policy = {"name": SUBSCRIPTION, "policy": "pulsar.shared", "profile": "pulsar-4.0"}
    run = save(tables, tmp_path, subscription=policy)
    told = {}
    for date in dates(6)[2:]:
        assert days.audit(run, tmp_path / "out", date) == 0
        for table in (tmp_path / "out/tables").iterdir():
            rows = spark.read.format("delta").load(str(table))
            told[table.name] = sorted({str(row.date) for row in rows.select("date").distinct().collect()})
        assert all(found[-1:] in ([], [date]) for found in told.values()), told
    assert told["audited"] == told["runs"] == dates(6)[2:]


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
    assert audit(month, nightly, DATES[1]) in (0, 1)
    assert {name: contents(spark, nightly, name) for name in names} == before


def test_a_day_without_messages_and_deliveries_ends_what_was_open(
    spark: SparkSession, month: Path, nightly: Path
) -> None:
    assert audit(month, nightly, "2026-09-24") in (0, 1)
    assert open_at_the_end(spark, nightly, DATES[-1])  # acknowledged after midnight
    assert not open_at_the_end(spark, nightly, "2026-09-24")
    report = json.loads((nightly / "report/report.json").read_text())
    facts = {fact["label"]: fact["value"] for fact in report["facts"]}
    assert (facts["Goes on from the audit of"], facts["Messages in the log"]) == (DATES[-1], "0")
    assert audit(month, month / "nothing before", "2026-09-24") == 2


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
