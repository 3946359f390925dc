"""The Spark session of a whole test run: settings for tables of some rows, and a new one where it has died."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partialmethod
from typing import Any, Final

import typer
from py4j.java_gateway import JavaClass, JavaMember, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession

from subreplay.cli import main
from subreplay.cli.command import run_command
from subreplay.config.run import Spark
from subreplay.engine.spark import session as sessions

QUICK: Final = {
    # to compile queries costs more than to interpret them
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # so does to plan them anew after each of their stages; programs that tests start do both, test_local.py this
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}


class RunSession:
    """Hands out the session of a test run: small, local, with Delta. A session that has died is replaced."""

    def __init__(self, warehouse: str) -> None:
        self.options = Spark(
            master="local[2]", shuffle_partitions=2, conf=QUICK | {"spark.sql.warehouse.dir": warehouse}
        )
        self.session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        if self.session is None or not is_alive(self.session):
            self.session = sessions.open_session(self.options)
        return self.session

    def stop(self) -> None:
        if self.session is not None:
            self.session.stop()


def is_alive(session: SparkSession) -> bool:
    """Whether a session answers; one that does not is cleared away with its Java process, so that another opens."""
    try:
        return session.range(1).count() == 1
    except Exception:  # whatever py4j raises of a process that is gone
        gateway = SparkContext._gateway
        with suppress(Exception):
            session.stop()
        with suppress(Exception):
            gateway.proc.kill()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        type(session)._instantiatedSession = type(session)._activeSession = None
        return False


def hide_from_commands(patch: Any) -> None:
    """Let commands find no session, as those of a new program do: the one that they start is that of all tests. Until
    then Spark's functions are not there, either: who calls one without having asked for a session fails."""
    opened, hidden = sessions.open_session, list[SparkContext]()

    def run(app: typer.Typer, arguments: Sequence[str] | None) -> int:
        if SparkContext._active_spark_context is not None:
            hidden.append(SparkContext._active_spark_context)
            SparkContext._active_spark_context = None
        try:
            return run_command(app, arguments)
        finally:
            show()

    def show() -> None:
        if hidden:
            SparkContext._active_spark_context = hidden.pop()

    def open_session(options: Spark) -> SparkSession:
        show()
        return opened(options)

    patch.setattr(main, "run_command", run)
    active = sessions.find_active_session
    patch.setattr(
        sessions, "find_active_session", lambda: None if SparkContext._active_spark_context is None else active()
    )
    patch.setattr(sessions, "open_session", open_session)


def remember_names() -> None:
    """Of each name in Java pyspark asks again and again whether it is a class, or a method of one: in these tests a
    hundred and fifty thousand times, for which Java looks into all its jars. The answers stay."""
    for place in JVMView, JavaClass:
        place.__getattr__ = partialmethod(_found, place.__getattr__)  # type: ignore[method-assign]


def _found(place: JVMView | JavaClass, ask: Callable[[Any, str], object], name: str) -> object:
    found = ask(place, name)
    if isinstance(found, (JavaClass, JavaMember)):
        place.__dict__[name] = found
    return found
