"""Few rows are judged on the driver, many by executors: both come to the same tables."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import Row, SparkSession

from subreplay.audit.passes import loads
from subreplay.audit.passes.loads import summed
from subreplay.cli.main import main
from subreplay.engine.spark import collect, lake
from subreplay.engine.spark.audit import judged_files, passes, told_files
from subreplay.engine.spark.read import direct
from subreplay.engine.spark.schemas import spark_schema
from subreplay.rows.model.columns import column
from subreplay.rows.model.tables import CHECKPOINT, JUDGED, LOAD, VIOLATIONS
from tests.support.days import audit, dates, over_days
from tests.support.quick_session import QUICK
from tests.support.recordings import ROOT

pytestmark = pytest.mark.spark
ADAPTIVE = "spark.sql.adaptive.enabled"
TABLES = (
    "audited", "violations", "assignments", "finding_counts", "violations_by_window", "withdrawn", "quarantine",
)  # fmt: skip


def test_few_rows_and_many_come_to_the_same_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording of several partitions, with findings, cut into two nights; the second goes on from the first, once
    as the few rows that it has, once as if all that it writes were many, once as if its deliveries alone were, and once
    as if the driver could read no table, so that all rows wait in files, and those with a finding do, too. Where all
    are many Spark plans anew after each stage, as it does for everybody but tests."""
    run_file = over_days("4.0.8/s5_failover_partitioned", 2, tmp_path)
    first, second = dates(2)
    assert audit(run_file, tmp_path / "one", first) in (0, 1)
    few_rows, here = collect.MOST_ROWS, direct.IN_PROCESS
    outs = {"few": (few_rows, here), "many": (-1, here), "of many": (150, here), "waiting": (150, 0)}
    taken_from_files = Mock(wraps=passes.sizes)
    monkeypatch.setattr(passes, "sizes", taken_from_files)
    codes = set()
    for out, (most, of_driver) in outs.items():
        shutil.copytree(tmp_path / "one", tmp_path / out)
        monkeypatch.setattr(collect, "MOST_ROWS", most)
        monkeypatch.setattr(direct, "IN_PROCESS", of_driver)
        monkeypatch.setattr(judged_files, "MOST_BYTES", -1)
        spark.conf.set(ADAPTIVE, out == "many")
        try:
            codes.add(audit(run_file, tmp_path / out, second))
        finally:
            spark.conf.set(ADAPTIVE, QUICK[ADAPTIVE])
        assert taken_from_files.called == (out == "waiting")
    (paths,), _ = taken_from_files.call_args
    assert {Path(path).name.partition("-")[0] for path in paths} == {"messages", "deliveries", "more"}
    assert not any(Path(path).exists() for path in paths)
    assert len(codes) == 1
    for name in TABLES:
        few, many, of_many, waiting = (rows(tmp_path / out / "tables" / name, second) for out in outs)
        assert few == many == of_many == waiting, name
        assert few or name in ("violations_by_window", "quarantine", "withdrawn")


@pytest.mark.parametrize(
    ("kept", "scenario", "otherwise"),
    [
        ("findings", "4.0.8/s7b_shared_dlq", (told_files, "MOST_FIRST", -1)),
        ("all", "4.0.8/s1f_key_shared_default_batching", (judged_files, "MOST_SUMS", -1)),
        ("findings", "3.2.3/s1f_key_shared_default_batching", (lake, "begin", lambda *_, **__: None)),
    ],
    ids=["too many first", "too many sums", "not on this machine, of slots that are not shown"],
)
def test_findings_that_wait_in_files_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str, scenario: str, otherwise: Any
) -> None:
    """Of many rows those with a finding: as a table of the driver; in files, of which tasks tell, where they would be
    too large for it; and by Spark where so are what tasks bring of them, or their sums, or where tasks cannot write the
    tables. Table ``audited`` keeps these alone, or every row, which tasks write."""
    assert main(["ingest", str(ROOT / scenario), "--to", str(tmp_path / "in")]) == 0
    run_file = tmp_path / "in/audit.yaml"
    told = run_file.read_text()
    if scenario.startswith("3.2.3"):  # a slot of so large a space all but names its key
        told = told.replace("pulsar.key_shared.auto_split", "pulsar.key_shared.consistent_hash")
        assert "consistent_hash" in told
    run_file.write_text(f"{told}\noutput: {{audited: {kept}}}\n")
    findings, found = judged_files.findings, {}
    large = (judged_files, "MOST_BYTES", -1)
    most = {"waiting": [], "large": [large], "larger": [large, otherwise]}
    by_tasks = Mock(wraps=told_files.tell)
    monkeypatch.setattr(told_files, "tell", by_tasks)

    def of(*asked: Any) -> pa.Table | judged_files.InFiles:
        rows = found[out] = findings(*asked)
        return rows

    codes = [main(["audit", "--config", str(run_file), "--out", str(tmp_path / "few")])]
    with monkeypatch.context() as changed:
        changed.setattr(loads, "MOST_WAITING", 0)  # what consumers were given is told anew of each batch
        codes.append(main(["audit", "--config", str(run_file), "--out", str(tmp_path / "told often")]))
    monkeypatch.setattr(judged_files, "findings", of)
    monkeypatch.setattr(collect, "MOST_ROWS", 150)
    monkeypatch.setattr(direct, "IN_PROCESS", 0)
    for out, limits in most.items():
        with monkeypatch.context() as changed:
            for limit in limits:
                changed.setattr(*limit)
            codes.append(main(["audit", "--config", str(run_file), "--out", str(tmp_path / out)]))
    assert isinstance(found["waiting"], pa.Table)
    assert found["large"].sums is not None
    assert (found["larger"].sums is None) == (kept == "all")
    assert by_tasks.call_count == (2 if otherwise[1] == "MOST_FIRST" else 1)
    assert len(set(codes)) == 1
    assert len({(tmp_path / out / "report/report.json").read_bytes() for out in ("few", "told often", *most)}) == 1
    for name in set(TABLES) - {"withdrawn"}:  # which nights have
        few, *others = (rows(tmp_path / out / "tables" / name) for out in ("few", *most))
        assert others == [few] * len(most), name
    few, *others = (given(DeltaTable(tmp_path / out / "tables/audited").to_pyarrow_table()) for out in ("few", *most))
    assert given(found["waiting"]) == few != []
    assert others == [few] * len(most)


def test_few_rows_and_many_are_explained_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A message that others held back, and a key that changed owners, as an audit has judged them, and judged now."""
    assert main(["ingest", str(ROOT / "4.0.8/s1_key_shared_autosplit"), "--to", str(tmp_path / "in")]) == 0
    config = ["--config", str(tmp_path / "in/audit.yaml")]
    assert main(["audit", *config, "--out", str(tmp_path / "out")]) in (0, 1)
    message = f"{table(spark, tmp_path).topic}:5:760"
    by_message, by_key = ["--message", message], ["--key", "Order-8505596", "--last", "3"]
    for out, asked in (("out", by_message), ("nowhere", by_message), ("out", by_key)):
        told = []
        for most in (collect.MOST_ROWS, -1):
            with monkeypatch.context() as changed:
                changed.setattr(collect, "MOST_ROWS", most)
                capsys.readouterr()
                assert main(["explain", *config, "--out", str(tmp_path / out), *asked]) == 0
                told.append(capsys.readouterr().out)
        assert told[0] == told[1]
        assert "held back by" in told[0] or asked is by_key


def table(spark: SparkSession, folder: Path) -> Row:
    """A message that was ingested."""
    row = spark.read.format("delta").load(str(folder / "in/messages")).first()
    assert row is not None
    return row


def rows(path: Path, day: str | None = None) -> list[str]:
    """All rows of a table, or of a day in it; what is added up of several partitions at a time may be cut otherwise."""
    table = DeltaTable(path).to_pyarrow_table()
    if day is not None:
        table = table.filter(pc.equal(table["date"], date.fromisoformat(day)))
    if "load" in table.column_names:
        table = table.filter(table["load"].is_null())
    return sorted(str(row) for row in table.select(sorted(table.column_names)).to_pylist())


def given(judged: pa.Table) -> list[str]:
    """What judged rows tell of consumers in all."""
    judged = judged.filter(judged["load"].is_valid())
    rows = pa.Table.from_struct_array(judged["load"])
    loads = pa.StructArray.from_arrays([column(rows, f.name).cast(f.type) for f in LOAD], fields=list(LOAD))
    of_all = judged.select(["topic", "partition", "published"]).append_column("load", loads)
    return sorted(map(str, summed([of_all])["load"].to_pylist()))


def test_a_struct_that_is_not_there_stays_null(spark: SparkSession) -> None:
    """Arrow would cast no row without a struct to one whose fields must be there."""
    schema = pa.schema([pa.field("checkpoint", CHECKPOINT), pa.field("times", pa.list_(pa.int64()))])
    one = {"name": "n", "width": 1, "rows": 2, "part": 0, "data": b"x"}
    frame = collect.of_batches(
        spark, pa.Table.from_pylist([{"checkpoint": one, "times": [1]}, {}], schema).to_batches(), schema
    )
    strict = spark.createDataFrame([(tuple(one.values()), [1]), (None, None)], spark_schema(schema))
    for given in frame.where("true"), strict:
        assert [row.checkpoint and row.checkpoint.data for row in collect.local(given).collect()] == [b"x", None]


def test_no_row_is_lost_behind_a_batch_without_rows(spark: SparkSession) -> None:
    schema = pa.schema([pa.field("n", pa.int64())])
    rows = pa.table({"n": pa.chunked_array([[], [1], [], [2, 3], []], pa.int64())})
    for given in (collect.of_rows(spark, rows, schema), lake.of_arrow(spark, rows)):
        assert sorted(row.n for row in given.collect()) == [1, 2, 3]


def test_no_batch_at_all_is_a_frame_without_rows(spark: SparkSession) -> None:
    for schema in (VIOLATIONS, JUDGED):
        assert collect.local(collect.of_batches(spark, [], schema)).columns == schema.names


@pytest.mark.parametrize(("rows", "widest", "fits"), [(10, 10, True), (50_001, 1, False), (100, 1_000_000, False)])
def test_what_may_come_to_the_driver_is_bounded_in_rows_and_bytes(rows: int, widest: int, fits: bool) -> None:
    assert collect.fits(rows, widest) is fits
