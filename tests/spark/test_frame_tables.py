"""Tables on disk: exactly a run's rows are replaced, under any name, however many runs write at once."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pyspark.sql.functions as F
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from subreplay.engine import delta_files
from subreplay.engine.rows_with_values import add_values
from subreplay.engine.spark import frame_tables
from subreplay.engine.spark.schemas import spark_schema
from subreplay.errors import EnvironmentFailed, InputError
from subreplay.rows.model.tables import INPUTS

pytestmark = pytest.mark.spark
RUN = {"subscription": "sub", "topic": "t", "date": "2026-11-21"}


def replaced(spark: SparkSession, rows: int, root: str, name: str, form: str, **where: str) -> None:
    """As Spark writes a table."""
    frame_tables.replace_rows(spark.range(rows), root, name, form, **where)


def put(spark: SparkSession, rows: int, root: str, name: str, form: str, **where: str) -> None:
    """As rows that the driver has are written on a disk of this machine."""
    delta_files.replace_rows(f"{root}/{name}", name, pa.table({"id": pa.array(range(rows), pa.int64())}), where)


DELTA_4_0 = pyspark.__version__.startswith("4.0.")
"""It makes paths of names, whatever a table is set to: a name may be no longer than a file's."""

writers = pytest.mark.parametrize("write", [replaced, put])


def read(spark: SparkSession, root: Path) -> list[dict[str, Any]]:
    """The rows, in some order, which Spark and delta-rs read alike."""
    rows = [row.asDict() for row in frame_tables.read_table(spark, str(root), "found", "delta").collect()]
    of_delta_rs = DeltaTable(root / "found").to_pyarrow_table().to_pylist()
    assert sorted(map(sorted, map(_named, rows))) == sorted(map(sorted, map(_named, of_delta_rs)))
    return rows


def _named(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in row.items()]


def test_rows_get_the_date_of_their_run(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever day they are of: else the second write of the same date would find rows it may not replace."""
    dated = spark.range(2).withColumn("date", F.lit("2026-11-18").cast("date"))
    for _ in range(2):
        frame_tables.replace_rows(dated, str(tmp_path), "found", "delta", **RUN)
    assert [str(row["date"]) for row in read(spark, tmp_path)] == ["2026-11-21"] * 2


@writers
def test_any_name_is_found_again_and_replaces_nothing_else(spark: SparkSession, tmp_path: Path, write: Any) -> None:
    names = ["a'b", "../..", "a=b/c", "%2F", "a\\b", "\n", "x" * (200 if DELTA_4_0 else 300)]
    for name in (*names, names[0]):
        write(spark, 1, str(tmp_path), "found", "delta", **RUN | {"subscription": name})
    assert sorted(row["subscription"] for row in read(spark, tmp_path)) == sorted(names)


@writers
@pytest.mark.parametrize("name", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_name_that_stands_for_null_is_refused(spark: SparkSession, tmp_path: Path, name: str, write: Any) -> None:
    with pytest.raises(InputError, match="Choose another"):
        write(spark, 1, str(tmp_path), "found", "delta", **RUN | {"subscription": name})


@writers
def test_a_table_with_another_layout_is_reported_and_not_changed(
    spark: SparkSession, tmp_path: Path, write: Any
) -> None:
    earlier = spark.range(3).withColumns(
        {n: F.lit(v).cast("date" if n == "date" else "string") for n, v in RUN.items()}
    )
    earlier.write.format("delta").partitionBy("date").save(str(tmp_path / "found"))
    with pytest.raises(InputError, match=r"found: another version .* set another output\.tables"):
        write(spark, 1, str(tmp_path), "found", "delta", **RUN)
    assert len(read(spark, tmp_path)) == 3


def test_both_ways_of_writing_leave_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    """Whichever comes first; types, nulls and instants are kept, whatever the time zone that rows were made in."""
    when = pa.array([1_700_000_000_000_000, None], pa.timestamp("us", "America/New_York"))
    nested = pa.array(
        [{"at": 1, "why": ["a", None]}, None], pa.struct([("at", when.type), ("why", pa.list_(pa.string()))])
    )
    rows = pa.table({"n": pa.array([1, None], pa.int32()), "key": [b"k", None], "when": when, "nested": nested})
    at_first, later = tmp_path / "at first", tmp_path / "later"
    runs = [RUN | {"date": day} for day in ("2026-11-20", "2026-11-21")]
    for where in runs:
        frame_tables.replace_rows(frame_tables.create_frame(spark, rows), str(at_first), "found", "delta", **where)
        delta_files.replace_rows(f"{at_first}/found", "found", rows, where)
        delta_files.replace_rows(f"{later}/found", "found", rows, where)
        frame_tables.replace_rows(frame_tables.create_frame(spark, rows), str(later), "found", "delta", **where)
    assert "delta-rs" in (later / "found/_delta_log" / f"{0:020}.json").read_text()
    given = [frame_tables.create_frame(spark, add_values(rows, where)) for where in runs]
    expected = sorted(str(row) for of_day in given for row in of_day.collect())
    for root in (at_first, later):
        found = frame_tables.read_table(spark, str(root), "found", "delta")
        assert found.schema == given[0].schema
        assert sorted(map(str, found.collect())) == expected


@writers
def test_eight_runs_at_once_make_one_table_and_write_it_again(spark: SparkSession, tmp_path: Path, write: Any) -> None:
    runs = [
        {"subscription": s, "topic": t, "date": d}
        for s, t, d in product(("s1", "s2"), ("t1", "t2"), ("2026-11-20", "2026-11-21"))
    ]
    for rows in (3, 2):  # the table is new, then there
        failed = at_once(spark, tmp_path, runs, rows, write)
        assert not failed
        found = Counter((row["subscription"], row["topic"], str(row["date"])) for row in read(spark, tmp_path))
        assert found == {tuple(run.values()): rows for run in runs}


@writers
def test_of_two_runs_of_the_same_at_once_one_wins(spark: SparkSession, tmp_path: Path, write: Any) -> None:
    write(spark, 1, str(tmp_path), "found", "delta", **RUN)
    failed = at_once(spark, tmp_path, [RUN] * 4, 5, write)
    assert len(failed) < 4
    assert all(
        isinstance(error, EnvironmentFailed) and "another run is writing the same" in str(error) for error in failed
    )
    assert len(read(spark, tmp_path)) == 5


def test_a_conflict_with_another_run_is_found_in_sparks_error() -> None:
    def save() -> None:
        raise RuntimeError("[TASK_WRITE_FAILED] of a task: [DELTA_CONCURRENT_APPEND] another run")

    with pytest.raises(EnvironmentFailed, match="another run is writing the same"):
        frame_tables._save_with_retries(save, "found")


def test_the_schemas_of_all_tables_fit_spark() -> None:
    for schema in INPUTS.values():
        assert [field.name for field in spark_schema(schema)] == schema.names


def at_once(spark: SparkSession, root: Path, runs: list[dict[str, str]], rows: int, write: Any) -> list[Exception]:
    """What went wrong when all of them wrote at the same time, each in a session of its own."""
    failed: list[Exception] = []
    ready = threading.Barrier(len(runs))

    def run(where: dict[str, str]) -> None:
        session = spark.newSession()
        ready.wait()
        try:
            write(session, rows, str(root), "found", "delta", **where)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(where,)) for where in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.createDataFrame([], "id long")  # the active session is that which made the latest frame, of all threads
    return failed
