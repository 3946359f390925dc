"""Where the input tables of a run come from."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from subreplay.config.run import RunConfig
from subreplay.model.tables import INPUTS
from subreplay.spark import lake
from subreplay.spark.schemas import require


class Table(NamedTuple):
    """An input table in its canonical columns, and those of them that its source does not have."""

    frame: DataFrame
    absent: frozenset[str]


def table(spark: SparkSession, config: RunConfig, name: str) -> Table:
    """An input table of a run, all of it. Raises ``InputError`` where it, or a column, is missing."""
    traffic = config.traffic
    found = lake.read(spark, traffic.path, name, traffic.format)
    absent = frozenset(INPUTS[name].names) - set(found.columns)
    return Table(require(found, INPUTS[name], f"{traffic.path}/{name}"), absent)
