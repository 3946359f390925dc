"""With which secret tables were written: table ``runs`` holds a check value, so that another one is told, and not taken
for keys that nobody knows."""

from __future__ import annotations

from datetime import date as Date
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as F
from pyspark.sql import DataFrame

from subreplay.config.run import RunConfig
from subreplay.errors import ConfigError
from subreplay.spark.sink import Sink

_CHECK: Final = "keys_check"
_SHOWN: Final = "keys_shown"


def noted(runs: pa.Table, config: RunConfig) -> pa.Table:
    """Table ``runs`` with how keys were written."""
    for name, value in ((_CHECK, config.keys.words.check), (_SHOWN, config.keys.show)):
        runs = runs.append_column(name, pa.repeat(pa.scalar(value), len(runs)))
    return runs


def require_same(sink: Sink, config: RunConfig, topic: str, night: Date) -> None:
    """Raise ``ConfigError`` where the audit of that night, from which a run goes on, had another secret."""
    runs = sink.find("runs")
    if runs is None or _CHECK not in runs.columns:
        return
    mine = (F.col("subscription") == config.subscription.name) & (F.col("topic") == topic)
    same_night = (F.col("date") == F.lit(night)) & (F.col("kind") == "audit")
    if _others(runs.where(mine & same_night), config):
        raise ConfigError(
            f"keys.secret is not that of the audit of {night}, from which this one goes on: its keys cannot be told "
            f"again; use the same secret, or audit the nights in {config.output.tables} again with the new one"
        )


def require_as_shown(runs: DataFrame, config: RunConfig) -> None:
    """Raise ``ConfigError`` where the tables that these runs wrote tell keys otherwise than this one would."""
    if _CHECK not in runs.columns:
        return
    if _others(runs, config) or not runs.where(F.col(_SHOWN) != F.lit(config.keys.show)).isEmpty():
        raise ConfigError(
            f"keys.secret or keys.show is not that of the audit that wrote {config.output.tables}: its keys cannot be "
            "told again; use the run file of that audit, or another output"
        )


def _others(runs: DataFrame, config: RunConfig) -> bool:
    return not runs.where(F.col(_CHECK) != F.lit(config.keys.words.check)).isEmpty()
