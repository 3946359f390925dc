"""With which secret tables were written: table ``runs`` holds a check value, so that another one is told, and not taken
for keys that nobody knows."""

from __future__ import annotations

from datetime import date as Date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.spark.sink import Sink, few_rows
from subreplay.errors import ConfigError

_CHECK: Final = "keys_check"
_SHOWN: Final = "keys_shown"


def noted(runs: pa.Table, config: RunConfig) -> pa.Table:
    """Table ``runs`` with how keys were written."""
    for name, value in ((_CHECK, config.keys.words.check), (_SHOWN, config.keys.show)):
        runs = runs.append_column(name, pa.repeat(pa.scalar(value), len(runs)))
    return runs


def require_same(sink: Sink, config: RunConfig, topic: str, night: Date) -> None:
    """Raise ``ConfigError`` where the audit of that night, from which a run goes on, had another secret."""
    mine = {"subscription": config.subscription.name, "topic": topic, "date": night.isoformat(), "kind": "audit"}
    runs = few_rows(sink, "runs", mine)
    if runs is not None and _others(runs, _CHECK, config.keys.words.check):
        raise ConfigError(
            f"keys.secret is not that of the audit of {night}, from which this one goes on: its keys cannot be told "
            f"again; use the same secret, or audit the nights in {config.output.tables} again with the new one"
        )


def require_as_shown(runs: pa.Table, config: RunConfig) -> None:
    """Raise ``ConfigError`` where the tables that these runs wrote tell keys otherwise than this one would."""
    if _others(runs, _CHECK, config.keys.words.check) or _others(runs, _SHOWN, config.keys.show):
        raise ConfigError(
            f"keys.secret or keys.show is not that of the audit that wrote {config.output.tables}: its keys cannot be "
            "told again; use the run file of that audit, or another output"
        )


def _others(runs: pa.Table, column: str, mine: str | bool) -> bool:
    """Whether a column tells of any run another value than mine."""
    return column in runs.column_names and bool(pc.any(pc.not_equal(runs[column], mine)).as_py())
