"""Which engine runs the steps of a run, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from subreplay.adapters import ADAPTERS
from subreplay.adapters.source.text_files import is_text
from subreplay.config.live import LIVE
from subreplay.config.run import RunConfig, Schema
from subreplay.config.traffic import INFERRED, InputTable
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import INPUTS

_SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:")
_COLUMNAR: Final = ("delta", "parquet")


class Choice(NamedTuple):
    """An engine and the reason for it, in words that follow "because"."""

    engine: Literal["local", "spark"]
    reason: str


def choose(run: RunConfig, inside_spark: str | None = None) -> Choice:
    """The engine that a run requests, or of ``auto`` the local one where it can read and write every table of the run.
    ``inside_spark`` says why the program belongs to a Spark session already. Raises ``ConfigError`` where the local
    engine is requested for a table that only Spark reads or writes."""
    needed = next(_reasons(run), None)
    if run.engine == "local":
        if needed is not None:
            raise ConfigError(f"engine: local does not do: {needed}; set engine: spark")
        return Choice("local", "the run requests it")
    if run.engine == "spark":
        return Choice("spark", "the run requests it")
    if (why := needed or inside_spark or _cluster(run)) is not None:
        return Choice("spark", why)
    return Choice("local", "every table is a file or folder of this machine")


def _reasons(run: RunConfig) -> Iterator[str]:
    """Each table of a run that only Spark reads or writes, in words."""
    traffic = run.traffic
    given: dict[str, InputTable | None] = {name: getattr(traffic, name) for name in INPUTS}
    if not all(given.values()) and _SCHEME.match(traffic.path):
        yield f"traffic.path is in a store ({traffic.path})"
    for name, table in given.items():
        if table is not None and (why := _only_spark(table)) is not None:
            yield f"traffic.{name} is {why}"
    if traffic.profile is not None and _SCHEME.match(traffic.profile):
        yield f"traffic.profile is in a store ({traffic.profile})"
    if isinstance(run.output.tables, Schema):
        yield f"output.tables is a schema of a catalog ({run.output.tables})"
    elif _SCHEME.match(run.output.tables):
        yield f"output.tables is in a store ({run.output.tables})"


def _only_spark(table: InputTable) -> str | None:
    """Why only Spark reads a table, in words; None where the local engine does, too."""
    if table.from_ == INFERRED:
        return None
    if table.from_ in LIVE:
        return f"a live source ({table.location})"
    if table.table is not None:
        return f"a table of a catalog ({table.table})"
    if _SCHEME.match(str(table.path)):
        return f"in a store ({table.path})"
    if table.from_ in ADAPTERS or table.format in _COLUMNAR or is_text(table.format, table.texts):
        return None
    if table.format in ("csv", "json"):
        return f"{table.format} with options that only Spark knows ({', '.join(table.options)})"
    return f"in format {table.format}"


def _cluster(run: RunConfig) -> str | None:
    """What section ``spark`` says of a cluster, in words."""
    if run.spark.remote is not None:
        return f"spark.remote is set ({run.spark.remote})"
    if not run.spark.master.startswith("local"):
        return f"spark.master is a cluster ({run.spark.master})"
    store = run.spark.conf.get("spark.hadoop.fs.defaultFS")
    return None if store is None else f"spark.conf sets a default file system ({store})"
