"""Audits as programs of their own, several at once or killed, and what a reader finds in the tables that they write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from subreplay.config.run import load
from subreplay.engine.interface import Engine
from subreplay.pipeline.attempts import ATTEMPT, RUNS, run_tables
from tests.support.recordings import ROOT, ingested
from tests.support.tables import OF_ONE_ENGINE, OF_ONE_RUN

SOURCE = Path(__file__).parents[2] / "src"
VERDICTS = (0, 1)
"""The exit codes of a run that has reached its end."""


def write_inputs(folder: Path, *subscriptions: str, **sections: Any) -> list[Path]:
    """Write a recording of 4,000 messages as tables in which each of the subscriptions consumed all of them; returns
    the run file of each."""
    recording = ingested(ROOT / "4.0.8/s1_key_shared_autosplit")
    for name, rows in recording.tables.items():
        (folder / "in" / name).mkdir(parents=True)
        for each in subscriptions if "subscription" in rows.schema.names else (None,):
            copy = rows if each is None else _with_subscription(rows, each)
            pq.write_table(copy, folder / "in" / name / f"{each}.parquet")
    return [_run_file(folder, recording.run, each, sections) for each in subscriptions]


def _with_subscription(rows: pa.Table, name: str) -> pa.Table:
    place = rows.schema.get_field_index("subscription")
    column = rows.schema.field(place)
    return rows.set_column(place, column, pa.repeat(pa.scalar(name, column.type), len(rows)))


def _run_file(folder: Path, recorded: Mapping[str, Any], subscription: str, sections: Mapping[str, Any]) -> Path:
    run = {
        "subscription": {**recorded["subscription"], "name": subscription},
        "traffic": {"path": f"{folder}/in", "format": "parquet"},
        **sections,
    }
    path = folder / f"{subscription}.yaml"
    path.write_text(yaml.safe_dump(run), encoding="utf-8")
    return path


def start_audit(
    run_file: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start an audit in a process group of its own. ``before``: a command that runs it."""
    command = [sys.executable, "-m", "subreplay", "audit", "--config", str(run_file), *options]
    return subprocess.Popen(
        [*before, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "PYSPARK_PYTHON": sys.executable} | dict(environment or {}),
        start_new_session=True,
    )


def wait_for(audit: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str]:
    """The exit code of an audit, and what it said."""
    said = audit.communicate(timeout=seconds)[1]
    return audit.returncode, said


def read_run(engine: Engine, run_file: Path, out: Path) -> dict[str, list[str]]:
    """The rows that a reader finds in each output table of a subscription, see ``whole_run``."""
    config = load(run_file, **{"output.tables": f"{out}/tables"})
    tables = run_tables(engine, config)
    found = {folder.name: tables.find(folder.name) for folder in (out / "tables").iterdir()}
    return whole_run(
        {name: rows.to_table() for name, rows in found.items() if rows is not None}, config.subscription.name
    )


def whole_run(tables: Mapping[str, pa.Table], subscription: str) -> dict[str, list[str]]:
    """The rows of a subscription in each table, in order, without their attempt and the versions of the engine. Fails
    unless all of them are of the attempt that table ``runs`` names."""
    mine = {name: rows.filter(pc.equal(rows["subscription"], subscription)) for name, rows in tables.items()}
    (attempt,) = mine[RUNS][ATTEMPT].to_pylist()
    assert {each for rows in mine.values() for each in rows[ATTEMPT].to_pylist()} == {attempt}
    return {name: _as_texts(rows) for name, rows in mine.items()}


def _as_texts(rows: pa.Table) -> list[str]:
    """Rows in order, with their columns in order: of a new table the engine chooses where the partitions' are."""
    return sorted(map(str, rows.select(sorted({*rows.column_names} - OF_ONE_RUN - OF_ONE_ENGINE)).to_pylist()))
