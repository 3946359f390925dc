"""Logs of Delta tables, commit by commit, as its protocol writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def committed(table: Path, *commits: list[dict[str, Any]], first: int = 0) -> None:
    """Write commits from version ``first`` on."""
    (table / "_delta_log").mkdir(exist_ok=True)
    for version, actions in enumerate(commits, first):
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (table / "_delta_log" / f"{version:020}.json").write_text(text)


def add(name: str, **more: Any) -> dict[str, Any]:
    return {"add": {"path": name, "partitionValues": {}, "dataChange": True, **more}}


def remove(name: str) -> dict[str, Any]:
    return {"remove": {"path": name, "dataChange": True}}
