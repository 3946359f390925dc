"""A command opens the engine that its run needs, and imports nothing of Spark for the local one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from subreplay.cli import command
from subreplay.config.run import RunConfig, parse
from subreplay.engine.local.engine import LocalEngine
from subreplay.errors import EnvironmentFailed
from subreplay.pipeline import engines

_LOCAL = """
import sys
from subreplay.cli.command import open_engine_for
from subreplay.config.run import RunConfig
with open_engine_for(RunConfig()) as engine:
    print(engine.name, engine.cores > 0, "pyspark" in sys.modules)
"""


@pytest.mark.long
def test_files_of_this_machine_need_no_pyspark() -> None:
    outside = {name: value for name, value in os.environ.items() if "SPARK" not in name}
    ended = subprocess.run([sys.executable, "-c", _LOCAL], env=outside, capture_output=True, text=True, check=True)
    assert ended.stdout == "local True False\n"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, None),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "spark-submit has started the program"),
        ({"DATABRICKS_RUNTIME_VERSION": "17"}, "the program runs on Databricks"),
        ({"SPARK_REMOTE": "sc://host"}, "SPARK_REMOTE names a Spark Connect server"),
    ],
)
def test_the_environment_shows_that_a_program_is_inside_spark(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reason: str | None
) -> None:
    monkeypatch.setattr(engines, "has_session_elsewhere", lambda: False)
    assert engines.find_spark_environment(environment) == reason


def test_settings_of_hadoop_may_name_another_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engines, "has_session_elsewhere", lambda: False)
    assert engines.find_spark_environment({"HADOOP_CONF_DIR": str(tmp_path)}) is None
    settings = tmp_path / "core-site.xml"
    settings.write_text("<configuration/>")
    assert (
        engines.find_spark_environment({"HADOOP_CONF_DIR": str(tmp_path)}) == f"{settings} may name another file system"
    )


def test_a_run_that_needs_spark_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    monkeypatch.setattr(engines, "find_spark_environment", lambda environment: None)
    assert engines.choose_engine(RunConfig()).engine == "local"
    with pytest.raises(EnvironmentFailed) as error:
        engines.choose_engine(parse({"traffic": {"path": "s3a://lake"}}, "run.yaml"))
    assert str(error.value) == (
        "this run needs Spark, because traffic.path is in a store (s3a://lake), but pyspark is not installed. Install "
        "it: pip install 'subreplay[spark]'"
    )


def test_an_interruption_of_the_command_reaches_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[Any] = []
    monkeypatch.setattr(LocalEngine, "interrupt", lambda engine: interrupted.append(engine))
    with command.interruption.handle_signals(), closing(command.open_engine_for(RunConfig(engine="local"))) as engine:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupted[0] is engine
