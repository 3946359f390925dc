"""Audits of small tables by the command itself: what a user meets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from subreplay.cli.main import main
from tests.support.history import SUBSCRIPTION, TOPIC, History

KEY_SHARED = {"policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}


class Audited(NamedTuple):
    """What an audit left: its exit code, its report, and the text and the page that show it."""

    code: int
    report: dict[str, Any]
    text: str
    page: str

    @property
    def status(self) -> dict[str, str]:
        """The status of each rule."""
        return {rule["code"]: rule["status"] for rule in self.report["codes"]}

    @property
    def notes(self) -> dict[str, str]:
        """Why a rule is not applicable or unknown."""
        return {rule["code"]: rule["note"] for rule in self.report["codes"]}


def audited(folder: Path, tables: History, *arguments: str, **run: Any) -> Audited:
    """Write the tables, run ``subreplay audit`` with the keys of a run file, read what it left."""
    written(folder, tables, **run)
    return reported(folder, "audit", *arguments)


def reported(folder: Path, command: str, *arguments: str) -> Audited:
    """Run a command over what was written, and read what it left."""
    code = main([command, "--config", str(folder / "run.yaml"), "--out", str(folder), *arguments])
    report, text, page = (folder / "report" / f"report.{form}" for form in ("json", "txt", "html"))
    said = " ".join(text.read_text(encoding="utf-8").split())
    return Audited(code, json.loads(report.read_text()), said, page.read_text(encoding="utf-8"))


def written(folder: Path, tables: History, **run: Any) -> Path:
    """The tables of a history, and a run file about them."""
    for name, table in tables.items():
        (folder / "in" / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "in" / name / "part.parquet")
    requested = {"name": SUBSCRIPTION, "topic": TOPIC, **KEY_SHARED} | run.pop("subscription", {})
    run_file = {"traffic": {"path": str(folder / "in"), "format": "parquet"}, "subscription": requested, **run}
    (folder / "run.yaml").write_text(yaml.safe_dump(run_file))
    return folder / "run.yaml"


def changed(tables: History, name: str, *rows: int, **values: Any) -> History:
    """The tables with some rows of one of them changed; of none given, all."""
    table = tables[name].to_pylist()
    for row in rows or range(len(table)):
        table[row] |= values
    return tables | {name: pa.Table.from_pylist(table, tables[name].schema)}
