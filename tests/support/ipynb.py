"""A notebook in Databricks' source format as an ``.ipynb`` file: the same cells, without any output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEAD = "# Databricks notebook source\n"
BETWEEN = "# COMMAND ----------\n"
_MAGIC = "# MAGIC"


def cells(source: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each cell; those of MAGIC lines are Markdown."""
    for cell in source.removeprefix(HEAD).split(BETWEEN):
        if _MAGIC in cell:
            lines = [line.removeprefix(_MAGIC).removeprefix(" ") for line in cell.strip().splitlines()]
            yield "markdown", "\n".join(lines).removeprefix("%md\n")
        else:
            yield "code", cell.strip("\n")


def as_ipynb(path: Path) -> str:
    """The text of the notebook's file."""
    found: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(path.read_text(encoding="utf-8"))):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        found.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
