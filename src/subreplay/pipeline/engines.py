"""Choose and open the engine of a run. pyspark is imported only if Spark is chosen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import TypeIs

from subreplay.config.engines import EngineChoice, select_engine
from subreplay.config.run import RunConfig, Spark
from subreplay.engine.interface import Engine
from subreplay.errors import ConfigError, EnvironmentFailed
from subreplay.failures import EXTRA

if TYPE_CHECKING:
    from subreplay.engine.spark.session import DataFrame, SparkSession

_SPARK_VARIABLES: Final = {
    "PYSPARK_GATEWAY_PORT": "spark-submit has started the program",
    "DATABRICKS_RUNTIME_VERSION": "the program runs on Databricks",
    "SPARK_REMOTE": "SPARK_REMOTE names a Spark Connect server",
}
"""Environment variables that show that the program belongs to Spark."""
_HADOOP_VARIABLES: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")


def choose_engine(run: RunConfig) -> EngineChoice:
    """Choose the engine of a run in this program.

    Raises ``ConfigError`` if the run requests an engine that cannot read its tables. Raises ``EnvironmentFailed`` if it
    needs Spark and pyspark is not installed.
    """
    choice = select_engine(run, find_spark_environment(os.environ))
    if choice.engine == "spark" and find_spec("pyspark") is None:
        raise EnvironmentFailed(
            f"this run needs Spark, because {choice.reason}, but pyspark is not installed. Install it: {EXTRA}"
        )
    return choice


def find_spark_environment(environment: Mapping[str, str]) -> str | None:
    """Explain why the program belongs to a Spark session; None if it does not."""
    if has_session_elsewhere():
        return "a Spark session of a cluster is active"
    if (why := next((why for name, why in _SPARK_VARIABLES.items() if environment.get(name)), None)) is not None:
        return why
    folders = [environment.get(name) for name in _HADOOP_VARIABLES]
    if home := environment.get("SPARK_HOME"):
        folders.append(f"{home}/conf")
    settings = [file for folder in folders if folder and (file := Path(folder, "core-site.xml")).exists()]
    return f"{settings[0]} may name another file system" if settings else None


def has_session_elsewhere() -> bool:
    """Return whether the thread, or else the program, has a Spark session for which paths are not local files."""
    if "pyspark.sql" not in sys.modules:
        return False
    from subreplay.engine.spark.local_paths import is_local
    from subreplay.engine.spark.session import find_active_session

    session = find_active_session()
    return session is not None and not is_local(session, "")


def is_frame(table: object) -> TypeIs[DataFrame]:
    """Return whether a table is a Spark DataFrame. pyspark is not imported for this."""
    if "pyspark.sql" not in sys.modules:
        return False
    from subreplay.engine.spark.session import DataFrame

    return isinstance(table, DataFrame)


def open_frame_engine(frames: Mapping[str, DataFrame]) -> Engine:
    """Open the engine with the session of the DataFrames."""
    from subreplay.engine.spark.engine import SparkEngine

    return SparkEngine(next(iter(frames.values())).sparkSession)


def open_engine(
    run: RunConfig,
    choice: EngineChoice,
    start: Callable[[Spark], SparkSession] | None = None,
    jobs: int | None = None,
) -> Engine:
    """Open the chosen engine. For Spark, ``start`` opens the session; by default the session fits the environment."""
    if jobs is not None and choice.engine != "local":
        raise ConfigError(
            f"--jobs {jobs}: this run needs Spark, because {choice.reason}; set spark.master to local[{jobs}]"
        )
    if choice.engine == "local":
        from subreplay.engine.local.engine import LocalEngine

        return LocalEngine(jobs)
    from subreplay.engine.spark.engine import SparkEngine
    from subreplay.engine.spark.session import open_session

    return SparkEngine((start or open_session)(run.spark))
