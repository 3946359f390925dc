"""Logs of Delta tables, commit by commit, as its protocol writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
SCHEMA = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": MAPPED}]}


def begun(configuration: dict[str, str] | None = None, **protocol: Any) -> list[dict[str, Any]]:
    """What the first commit of a table has."""
    about = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(SCHEMA)}
    about |= {"partitionColumns": [], "configuration": configuration or {}, "createdTime": 0}
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2} | protocol}, {"metaData": about}]


def committed(table: Path, *commits: list[dict[str, Any]], first: int = 0) -> None:
    """Write commits from version ``first`` on."""
    (table / "_delta_log").mkdir(exist_ok=True)
    for version, actions in enumerate(commits, first):
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (table / "_delta_log" / f"{version:020}.json").write_text(text)


def add(name: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True, **more}}


def remove(name: str) -> dict[str, Any]:
    return {"remove": {"path": name, "dataChange": True}}
