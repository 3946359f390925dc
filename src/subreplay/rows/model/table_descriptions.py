"""What each table and column means, from ``table_descriptions.yaml``: comments of tables, and the pages of the docs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa
import yaml


@cache
def read_descriptions() -> Mapping[str, Any]:
    """Read the descriptions: ``common`` columns, and ``tables`` with ``row`` and ``columns``."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # where yaml has it, ten times as fast
    text = (files("subreplay.rows.model") / "table_descriptions.yaml").read_text(encoding="utf-8")
    found: Mapping[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506  both loaders are safe
    return found


def describe_table(table: str) -> str | None:
    """Describe one row of a table; None for a table that is not described."""
    found = read_descriptions()["tables"].get(table)
    return None if found is None else f"One row is {found['row']}."


def describe_column(table: str, column: str) -> str | None:
    """Describe a column; None for one that is not described. A table may describe a common column in its own way."""
    found = read_descriptions()
    if table not in found["tables"]:
        return None
    described: str | None = found["tables"][table]["columns"].get(column, found["common"].get(column))
    return described


def comment_columns(table: str, schema: pa.Schema) -> pa.Schema:
    """Add the description of each column as metadata ``comment``, where Delta and Spark keep it."""
    described = ((column, describe_column(table, column.name)) for column in schema)
    return pa.schema(
        [column if text is None else column.with_metadata({"comment": text}) for column, text in described]
    )
