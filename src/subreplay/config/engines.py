"""Select the engine of a run, and say why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from subreplay.adapters import ADAPTERS
from subreplay.adapters.source.text_files import is_text_format
from subreplay.config.live import LIVE
from subreplay.config.run import RunConfig, Schema
from subreplay.config.traffic import INFERRED, InputTable
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import INPUTS

_SCHEME: Final = re.compile(r"[a-zA-Z][\w+.-]*:")
_COLUMNAR: Final = ("delta", "parquet")


class EngineChoice(NamedTuple):
    """An engine and the reason for it, as words that follow "because"."""

    engine: Literal["local", "spark"]
    reason: str


def select_engine(run: RunConfig, inside_spark: str | None = None) -> EngineChoice:
    """Return the engine that a run requests; ``auto`` is local if that engine can read and write every table.

    ``inside_spark`` says why the program already belongs to a Spark session. Raises ``ConfigError`` if the run requests
    the local engine for a table that only Spark can read or write.
    """
    needed = next(_find_spark_tables(run), None)
    if run.engine == "local":
        if needed is not None:
            raise ConfigError(f"engine: local cannot run this, because {needed}; set engine: spark")
        return EngineChoice("local", "the run requests it")
    if run.engine == "spark":
        return EngineChoice("spark", "the run requests it")
    if (why := needed or inside_spark or _describe_cluster(run)) is not None:
        return EngineChoice("spark", why)
    return EngineChoice("local", "every table is a file or folder of this machine")


def _find_spark_tables(run: RunConfig) -> Iterator[str]:
    """Describe each table of a run that only Spark can read or write."""
    traffic = run.traffic
    tables: dict[str, InputTable | None] = {name: getattr(traffic, name) for name in INPUTS}
    if not all(tables.values()) and _SCHEME.match(traffic.path):
        yield f"traffic.path is in a store ({traffic.path})"
    for name, table in tables.items():
        if table is not None and (why := _explain_need_of_spark(table)) is not None:
            yield f"traffic.{name} is {why}"
    if traffic.profile is not None and _SCHEME.match(traffic.profile):
        yield f"traffic.profile is in a store ({traffic.profile})"
    if isinstance(run.output.tables, Schema):
        yield f"output.tables is a schema of a catalog ({run.output.tables})"
    elif _SCHEME.match(run.output.tables):
        yield f"output.tables is in a store ({run.output.tables})"


def _explain_need_of_spark(table: InputTable) -> str | None:
    """Say why only Spark can read a table; None if the local engine can read it, too."""
    if table.from_ == INFERRED:
        return None
    if table.from_ in LIVE:
        return f"a live source ({table.location})"
    if table.table is not None:
        return f"a table of a catalog ({table.table})"
    if _SCHEME.match(str(table.path)):
        return f"in a store ({table.path})"
    if table.from_ in ADAPTERS or table.format in _COLUMNAR or is_text_format(table.format, table.text_options):
        return None
    if table.format in ("csv", "json"):
        return f"{table.format} with options that only Spark supports ({', '.join(table.options)})"
    return f"in format {table.format}"


def _describe_cluster(run: RunConfig) -> str | None:
    """Describe the cluster of section ``spark``; None if it names none."""
    if run.spark.remote is not None:
        return f"spark.remote is set ({run.spark.remote})"
    if not run.spark.master.startswith("local"):
        return f"spark.master is a cluster ({run.spark.master})"
    store = run.spark.conf.get("spark.hadoop.fs.defaultFS")
    return None if store is None else f"spark.conf sets a default file system ({store})"
