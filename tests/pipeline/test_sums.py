"""What an audit counts is the same whether the driver adds it up, where it is little, or an exchange does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.config.run import parse
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story, window_sums
from subreplay.pipeline.attempts import ATTEMPT
from subreplay.reports.json_report import to_json
from tests.support.recordings import ROOT, ingested

SUMMED = {"loads", "assignments", "violations_by_window", "finding_counts", "violations"}


def audit(folder: Path) -> tuple[dict[str, list[str]], str]:
    """The rows of each table, and the report, of a recording in which each tenth delivery goes to another consumer."""
    recording = ingested(ROOT / "4.0.8/s1_key_shared_autosplit")
    consumers = recording.tables["deliveries"]["consumer"].to_pylist()
    consumers[10::10] = consumers[:-10:10]
    place = recording.tables["deliveries"].schema.get_field_index("consumer")
    field = recording.tables["deliveries"].schema.field(place)
    deliveries = recording.tables["deliveries"].set_column(place, field, [consumers])
    for name, rows in {**recording.tables, "deliveries": deliveries}.items():
        (folder / "in" / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, folder / "in" / name / "part.parquet")
    raw: dict[str, Any] = {
        **recording.run,
        "traffic": {"path": f"{folder}/in", "format": "parquet"},
        "output": {"tables": f"{folder}/tables", "report": f"{folder}/report"},
        "windows": {"width": "2s", "slide": "500ms"},
    }
    with closing(LocalEngine(cores=2)) as engine:
        found = story.audit(engine, parse(raw, "run.yaml"))
        tables: dict[str, pa.Table] = {name: found.tables[name].to_table().drop([ATTEMPT]) for name in SUMMED}
    return {name: sorted(map(str, rows.to_pylist())) for name, rows in tables.items()}, to_json(found.report)


def test_many_sums_are_added_up_by_an_exchange(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, report = audit(tmp_path_factory.mktemp("few"))
    assert all(tables.values())
    monkeypatch.setattr(window_sums, "MOST_COUNTS", 0)
    monkeypatch.setattr(window_sums, "MOST_FIRST", 0)
    by_exchange, same_report = audit(tmp_path_factory.mktemp("many"))
    for name in SUMMED - {"loads"}:
        assert by_exchange[name] == tables[name]
    assert same_report == report
