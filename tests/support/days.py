"""Histories and recordings drawn out over days, and written as the input tables of audits of one date."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from subreplay.cli.main import main
from subreplay.rows.model.tables import TIME
from tests.support.recordings import ROOT, ingested

Tables = dict[str, pa.Table]
DAY = 86_400_000_000
FIRST = 1_790_000_000_000_000 // DAY * DAY  # a midnight, µs
OF_TABLE = {"messages": "publish_time", "membership": "at", "deliveries": "delivered_at"}


def dates(days: int) -> list[str]:
    """The first days, as they are told on the command line."""
    return [(date(1970, 1, 1) + timedelta(days=FIRST // DAY + i)).isoformat() for i in range(days)]


def drawn_out(tables: Tables, begin: int, factor: int) -> Tables:
    """The same tables on a slower clock, which stands at midnight at ``begin`` (µs); each row at its own date."""
    return {name: _dated(name, _slowed(rows, begin, factor)) for name, rows in tables.items()}


def _slowed(rows: pa.Table, begin: int, factor: int) -> pa.Table:
    """Fractions of a microsecond become whole ones."""
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


def _dated(name: str, rows: pa.Table) -> pa.Table:
    known = pc.coalesce(rows[OF_TABLE[name]], rows["acked_at"]) if name == "deliveries" else rows[OF_TABLE[name]]
    index = rows.schema.get_field_index("date")
    return rows.set_column(index, rows.schema.field("date"), known.cast(pa.date32()))


def save(tables: Tables, folder: Path, lookback_days: int = 1, **run: Any) -> Path:
    """Write tables and the run file of their audit; returns the run file."""
    for name, rows in tables.items():
        (folder / "in" / name).mkdir(parents=True)
        pq.write_table(rows, folder / "in" / name / "part.parquet")
    # on a slower clock all waits are long
    patient = dict.fromkeys(("stalled_after", "stuck_after", "late_after"))
    reported = {"traffic": {"path": str(folder / "in"), "format": "parquet", "lookback_days": lookback_days}}
    reported |= {"liveness": patient, **run}
    (folder / "audit.yaml").write_text(yaml.safe_dump(reported))
    return folder / "audit.yaml"


def over_days(name: str, days: int, folder: Path) -> Path:
    """A recording drawn out over whole days, as the input tables of an audit in ``folder``; returns the run file."""
    recorded = ingested(ROOT / name)
    begin = pc.min(recorded.tables["membership"]["at"].cast(pa.int64())).as_py()
    end = pc.max(recorded.tables["deliveries"]["delivered_at"].cast(pa.int64())).as_py()
    tables = drawn_out(recorded.tables, begin, (days * DAY - 1) // (end - begin + 1))
    subscription = tables["deliveries"]["subscription"][0].as_py()
    return save(tables, folder, subscription=recorded.run["subscription"] | {"name": subscription})


def audit(run: Path, out: Path, day: str | None = None) -> int:
    """The exit code of an audit of one date, or of all."""
    return main(["audit", "--config", str(run), "--out", str(out), *(["--date", day] if day else [])])
