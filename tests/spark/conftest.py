"""Commands find no session, as those of a new program do: the one that they start is that of all tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import typer
from pyspark import SparkContext
from pyspark.sql import SparkSession

from subreplay.cli import main
from subreplay.cli.command import run_command
from subreplay.config.run import Spark
from subreplay.engine.spark import session


@pytest.fixture(autouse=True, scope="module")
def a_command_starts_its_session() -> Iterator[None]:
    """Until then Spark's functions are not there, either: who calls one without having asked a session fails."""
    opened, hidden = session.open_session, list[SparkContext]()

    def run(app: typer.Typer, arguments: Sequence[str] | None) -> int:
        if SparkContext._active_spark_context is not None:
            hidden.append(SparkContext._active_spark_context)
            SparkContext._active_spark_context = None
        try:
            return run_command(app, arguments)
        finally:
            shown()

    def shown() -> None:
        if hidden:
            SparkContext._active_spark_context = hidden.pop()

    def open_session(options: Spark) -> SparkSession:
        shown()
        return opened(options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "run_command", run)
        patch.setattr(session, "is_there", lambda: SparkContext._active_spark_context is not None)
        patch.setattr(session, "open_session", open_session)
        yield
