"""Airflow and Dagster load and run what the documentation gives them; a verdict fails without another try."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "assets" / "deploy"
SCHEDULERS = Path(os.environ.get("SUBREPLAY_SCHEDULERS", ROOT / "build" / "schedulers"))
"""Folder with an environment of each scheduler, whose packages do not go together with those of the tests."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (SCHEDULERS / "dagster").exists(),
        reason=f"Airflow and Dagster are not in {SCHEDULERS}: make schedulers installs them",
    ),
]

MATERIALIZE = """
import runpy, sys
import dagster
found = runpy.run_path(sys.argv[1])
dagster.Definitions.validate_loadable(found["defs"])
assert [each.cron_schedule for each in found["defs"].schedules] == ["30 2 * * *"]
done = dagster.materialize([found["orders_audit"]], partition_key="2026-11-21", raise_on_error=False)
print("success", done.success, sum(event.event_type_value == "STEP_UP_FOR_RETRY" for event in done.all_events))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment with a command ``subreplay`` that notes how it is called and exits with a given code."""
    command = tmp_path / "bin" / "subreplay"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\nexit "$CODE"\n')
    command.chmod(0o755)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return outside | {"PATH": f"{command.parent}:{os.environ['PATH']}", "DAGSTER_HOME": "", "CODE": "0"}


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize(("code", "ending", "tries"), [(0, "success", 1), (1, "failed", 1)])
def test_airflow_runs_the_dag(code: int, ending: str, tries: int, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    shutil.copy(DEPLOY / "airflow_dag.py", tmp_path / "airflow" / "dags")
    environment |= {
        "AIRFLOW_HOME": f"{tmp_path}/airflow",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "CODE": str(code),
        "PATH": f"{environment['PATH']}:{SCHEDULERS}/apache-airflow/bin",
    }

    def airflow(*words: str) -> str:
        command = [f"{SCHEDULERS}/apache-airflow/bin/airflow", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        return done.stdout + done.stderr

    airflow("db", "migrate")
    airflow("dags", "reserialize")
    assert "No data found" in airflow("dags", "list-import-errors")
    said = airflow("dags", "test", "subreplay_orders", "2026-11-22T02:30:00+00:00")
    assert f"new_state={ending}" in said, said[-3000:]
    assert calls(tmp_path) == ["audit --config /etc/subreplay/orders.yaml --day-before 2026-11-22 --quiet"] * tries


@pytest.mark.parametrize(("code", "said"), [(0, "success True 0"), (3, "success False 0")])
def test_dagster_materializes_the_asset(code: int, said: str, environment: dict[str, str], tmp_path: Path) -> None:
    del environment["DAGSTER_HOME"]
    command = [f"{SCHEDULERS}/dagster/bin/python", "-c", MATERIALIZE, str(DEPLOY / "dagster_job.py")]
    done = subprocess.run(
        command, env=environment | {"CODE": str(code)}, capture_output=True, text=True, timeout=300, check=False
    )
    assert said in done.stdout, done.stderr[-3000:]
    assert calls(tmp_path) == ["audit --config /etc/subreplay/orders.yaml --date 2026-11-21 --quiet"]
