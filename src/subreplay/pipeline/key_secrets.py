"""Check that tables were written with the same secret.

Table ``runs`` stores a check value. So a different secret is reported, and its digests are not taken for unknown keys.
"""

from __future__ import annotations

from datetime import date as Date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Tables
from subreplay.errors import ConfigError
from subreplay.rows.conditions import field

_CHECK: Final = "keys_check"
_SHOWN: Final = "keys_shown"


def add_key_columns(runs: pa.Table, config: RunConfig) -> pa.Table:
    """Add the columns of table ``runs`` that record how keys were written."""
    for name, value in ((_CHECK, config.keys.words.check), (_SHOWN, config.keys.show)):
        runs = runs.append_column(name, pa.repeat(pa.scalar(value), len(runs)))
    return runs


def require_same_secret(tables: Tables, config: RunConfig, topic: str, day: Date) -> None:
    """Raise ``ConfigError`` if the audit of the day from which a run continues used another secret."""
    found = tables.find("runs")
    if found is None:
        return
    mine = (field("subscription") == config.subscription.name) & (field("topic") == topic)
    runs = found.where(mine & (field("date") == day) & (field("kind") == "audit")).to_table()
    if _has_other_value(runs, _CHECK, config.keys.words.check):
        raise ConfigError(
            f"keys.secret differs from the audit of {day}, from which this run continues, so its keys cannot be "
            f"recognised. Use the same secret, or audit all days in {config.output.tables} again with the new secret."
        )


def require_same_display(runs: pa.Table, config: RunConfig) -> None:
    """Raise ``ConfigError`` if the tables of these runs show keys in another way than this run."""
    if _has_other_value(runs, _CHECK, config.keys.words.check) or _has_other_value(runs, _SHOWN, config.keys.show):
        raise ConfigError(
            f"keys.secret or keys.show differs from the audit that wrote {config.output.tables}, so its keys cannot be "
            "recognised. Use the run file of that audit, or another output."
        )


def _has_other_value(runs: pa.Table, column: str, mine: str | bool) -> bool:
    """Return whether a column has another value in any run."""
    return column in runs.column_names and bool(pc.any(pc.not_equal(runs[column], mine)).as_py())
