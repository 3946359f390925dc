"""A session that is started when somebody asks it for something that only Spark knows.

Some thousand rows in files of this machine the driver reads, judges and writes by itself, in less time than Java takes
to start. Whatever needs Spark after all, as a table of a store or of many rows, gets it at its first question.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock
from typing import Any, Final, cast

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from subreplay.config.run import Spark

_DECIDED_ELSEWHERE: Final = {
    "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION",
}  # fmt: skip
"""Variables of the environment by which a session has settings that no run file tells."""
_MISSING: Final = object()


def can_wait(options: Spark) -> bool:
    """Whether all is told of a session before it is there: it will be one of this machine, of the Spark that this
    Python has, and nobody but the run file sets anything."""
    defaults = Path(pyspark.__file__).with_name("conf") / "spark-defaults.conf"
    elsewhere = options.remote or is_remote() or _DECIDED_ELSEWHERE & set(os.environ) or defaults.exists()
    return options.master.startswith("local") and not elsewhere


def on_demand(options: Spark, start: Callable[[], SparkSession]) -> SparkSession:
    """What stands for the session that ``start`` will make of ``options``. Raises what ``start`` raises, at the first
    question that it does not answer itself."""
    return cast(SparkSession, _OnDemand({"spark.master": options.master, **options.conf}, start))


def started(spark: SparkSession) -> SparkSession:
    """The session itself, which is there from now on: Spark's functions of columns ask no session, and need one."""
    return spark.session if isinstance(spark, _OnDemand) else spark


class _OnDemand:
    """Answers as the session does, which it starts once."""

    def __init__(self, settings: Mapping[str, str], start: Callable[[], SparkSession]) -> None:
        self._start, self._lock = start, RLock()
        self._session: SparkSession | None = None
        self._settings = _Settings(settings, self)

    @property
    def session(self) -> SparkSession:
        """The session, started now if nobody has asked before; whoever else asks waits for it."""
        with self._lock:
            if self._session is None:
                started = self._start()
                for name, value in self._settings.given.items():
                    started.conf.set(name, value)
                self._session = started
            return self._session

    @property
    def conf(self) -> Any:
        return self._settings if self._session is None else self._session.conf

    @property
    def version(self) -> str:
        """The release of Spark."""
        return pyspark.__version__ if self._session is None else self._session.version

    def interruptAll(self) -> list[str]:
        """As Spark calls it: what is not there does nothing that could be broken off."""
        return [] if self._session is None else self._session.interruptAll()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)


class _Settings:
    """The settings of a session that is not there yet, as far as anybody has told them."""

    def __init__(self, told: Mapping[str, str], of: _OnDemand) -> None:
        self._told, self._of = dict(told), of
        self.given: dict[str, str] = {}

    def get(self, name: str, default: Any = _MISSING) -> Any:
        """As Spark's: of what nobody has set, the default, and only where none is given Spark's own."""
        if name in self._told:
            return self._told[name]
        return self._of.session.conf.get(name) if default is _MISSING else default

    def set(self, name: str, value: str) -> None:
        """What the session is told when it is there."""
        self._told[name] = self.given[name] = value
