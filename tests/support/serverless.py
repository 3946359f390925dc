"""A double of a serverless session of Databricks: it refuses what the platform's documentation says that it refuses.

Settings: "Configure Spark properties for serverless notebooks and jobs" lists those that can be changed. All others
raise CONFIG_NOT_AVAILABLE, also when they are read with a default (databricks-sdk-py, issue 1112). Calls: "Serverless
compute limitations" names caches, RDDs and global temporary views. It also names the Spark context, but pyspark's own
classic session needs one. The tests of Spark Connect run without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.conf import RuntimeConfig

ALLOWED: Final = {
    "spark.databricks.execution.timeout",
    "spark.sql.ansi.enabled",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
}
"""The settings that the documentation lists."""
_REFUSED_CALLS: Final = (
    "cache",
    "persist",
    "unpersist",
    "checkpoint",
    "localCheckpoint",
    "createGlobalTempView",
    "rdd",
)


@dataclass
class Refusals:
    """What was refused, in order."""

    settings: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


def make_serverless(session: SparkSession, patch: pytest.MonkeyPatch) -> Refusals:
    """Let a session refuse what serverless compute refuses until the patch ends; it is not active, as in a job."""
    refusals = Refusals()

    def guard(name: str) -> None:
        allowed: Callable[..., Any] = getattr(RuntimeConfig, name)

        def call(self: RuntimeConfig, key: str, *given: Any) -> Any:
            if key not in ALLOWED:
                refusals.settings.append(key)
                raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {key} is not available. SQLSTATE: 42K0I")
            return allowed(self, key, *given)

        patch.setattr(RuntimeConfig, name, call)

    def refuse(name: str) -> Callable[..., Any]:
        def call(self: DataFrame, *_: Any, **__: Any) -> Any:
            refusals.calls.append(name)
            raise AnalysisException(f"[NOT_SUPPORTED_WITH_SERVERLESS] {name} is not supported on serverless compute.")

        return call

    for name in ("get", "set", "unset"):
        guard(name)
    for name in _REFUSED_CALLS:
        found = refuse(name)
        patch.setattr(DataFrame, name, property(found) if name == "rdd" else found)
    patch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: None))
    patch.setattr(SparkSession.Builder, "getOrCreate", lambda _: session)
    patch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.2")
    return refusals
