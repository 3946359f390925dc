"""Table ``runs`` says when a run started, how long it took, what it read and what it found."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story
from subreplay.rows.model.tables import TIME
from tests.support.fault_days import daily, write_days


def test_a_run_records_its_times_its_rows_and_what_it_found(tmp_path: Path) -> None:
    before = datetime.now(timezone.utc)
    with closing(LocalEngine(cores=1)) as engine:
        write_days(tmp_path / "in", 1, [0])
        result = story.audit(engine, daily(tmp_path, 0, "billing"))
        (run,) = result.tables["runs"].to_table().to_pylist()
        violations = result.tables["violations"].to_table()
        incidents = result.tables["incidents"].to_table()
    assert before <= run["started_at"] <= run["finished_at"] <= datetime.now(timezone.utc)
    length = run["finished_at"] - run["started_at"]
    assert run["duration_ms"] == length // timedelta(milliseconds=1)
    assert run["engine"] == "local"
    assert run["rows_read"] == sum(count.rows_in for count in result.report.inputs)
    assert run["findings"] == pc.sum(pc.equal(violations["verdict"], "invalid")).as_py() > 0
    assert run["incidents"] == len(incidents) > 0


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    where = {"subscription": "s", "topic": "t"}
    with closing(LocalEngine(cores=1)) as engine:
        tables = engine.open_tables(str(tmp_path))
        tables.put("runs", pa.table({"kind": ["audit"]}), {**where, "date": "2026-01-01"})
        tables.flush()
        day = datetime(2026, 1, 2, tzinfo=timezone.utc)
        later = pa.table({"kind": ["audit"], "started_at": pa.array([day], TIME), "findings": [3]})
        tables.put("runs", later, {**where, "date": "2026-01-02"})
        found = tables.find("runs")
        assert found is not None
        rows = sorted(found.to_table().to_pylist(), key=lambda row: row["date"])
    assert [(row["started_at"], row["findings"]) for row in rows] == [(None, None), (day, 3)]
