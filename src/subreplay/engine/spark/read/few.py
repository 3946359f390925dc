"""Few rows of tables that Spark has to read, as of a catalog, a store or a notebook's frames: they come to the driver
once, into files of this machine, and are read from there on.

Spark takes a moment for each question, however few rows it is about, and an audit had some twenty.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from subreplay.config.run import RunConfig
from subreplay.engine.spark import collect
from subreplay.engine.spark.collect import Rows, fits, most_rows
from subreplay.engine.spark.lazy_session import started
from subreplay.engine.spark.read import checkpoint
from subreplay.engine.spark.read.checkpoint import HandedOn
from subreplay.engine.spark.read.inputs import Inputs, asked_for
from subreplay.engine.spark.read.log import key_bytes
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan import files
from subreplay.rows.scan.files import Files


def brought(inputs: Inputs, config: RunConfig, before: HandedOn | None, *, messages_only: bool = False) -> Inputs:
    """The same with the tables of which a run reads few rows, none of them rejected by its source, in files of this
    machine; ``messages_only``: it reads nothing of other days."""
    names = [name for name in INPUTS if name not in inputs.files]
    if not names:
        return inputs
    spark = started(inputs.ingest.spark)  # which the conditions need
    near = {} if messages_only or config.date is None else checkpoint.of_other_days(config, inputs, before)
    read = {name: _read(inputs, config, name, near.get(name)) for name in names}
    frames = {name: rows for name, rows in read.items() if rows is not None}
    if not frames:
        return inputs
    sizes = collect.rows(reduce(DataFrame.unionAll, [_size(name, rows) for name, rows in frames.items()]))
    few = _few(sizes)
    try:
        folder = Path(inputs.reads.folder(spark))
    except OSError:  # there is no place for files
        return inputs
    with collect.together() as start:
        found = {name: start(_file, frames[name], most, name, folder / f"few-{name}.parquet") for name, most in few}
    held = {name: file.result() for name, file in found.items()}
    return inputs.having_brought(config, {name: file for name, file in held.items() if file is not None})


def _few(sizes: Rows) -> list[tuple[str, int]]:
    """The tables that come, and how many rows of each at most; messages and deliveries only together."""
    mine = [size for size in sizes if not size["rejected"] and fits(size["rows"], size["widest"])]
    log = [size for size in sizes if size["name"] != "membership"]
    if not fits(sum(size["rows"] for size in log), max((size["widest"] for size in log), default=0)):
        mine = [size for size in mine if size not in log]
    return [(size["name"], most_rows(size["widest"])) for size in mine]


def _read(inputs: Inputs, config: RunConfig, name: str, near: Column | None) -> DataFrame | None:
    """The rows of a table that a run reads, those ``near`` its date among them; None where Python would make them once
    more for that, as those of other days or of a group's other topics."""
    if name == "membership" and "group" in inputs.valid:
        mine = asked_for(name, config, inputs.topic_asked) | asked_for("group", config, inputs.topic_asked)
    elif near is None:
        return inputs.checked[name].drop("valid")
    else:
        mine = asked_for(name, config, inputs.topic_asked) | near
    return None if name in inputs.converted else inputs.tables[name].where(mine)


def _size(name: str, rows: DataFrame) -> DataFrame:
    """How many rows there are, bytes of the longest keys of one, and how many their source has rejected."""
    bytes_of_each = key_bytes() if name == "messages" else F.lit(0)
    rejected = F.count("rejected") if "rejected" in rows.columns else F.lit(0).cast("long")
    return rows.agg(
        F.lit(name).alias("name"),
        F.count("*").alias("rows"),
        F.coalesce(F.max(bytes_of_each), F.lit(0)).alias("widest"),
        rejected.alias("rejected"),
    )


def _file(rows: DataFrame, most: int, name: str, path: Path) -> Files | None:
    """Rows as a table in a new file; None where they cannot be read from it, as a text that is none, or are more than
    they were."""
    try:
        there = collect.rows_of(rows.select(*INPUTS[name].names).limit(most + 1))
        there.validate(full=True)
        pq.write_table(there, path)
    except (pa.ArrowException, OSError):
        return None
    return files.opened(str(path), "parquet", name) if len(there) <= most else None
