"""A nightly audit of the UTC day before, as a DAG of Airflow 3. Copy it into the folder of DAGs."""

from __future__ import annotations

import os
import subprocess
from datetime import datetime, timedelta, timezone

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

RUN_FILE = os.environ.get("SUBREPLAY_RUN_FILE", "/etc/subreplay/orders.yaml")
FINAL = {1: "the verdict is invalid", 2: "the input or the run file is wrong", 3: "the verdict is unknown"}


@dag(
    dag_id="subreplay_orders",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,  # a day continues from the one before
    tags=["subreplay"],
)
def subreplay_orders() -> None:
    @task(retries=2, retry_delay=timedelta(minutes=5), execution_timeout=timedelta(hours=2))
    def audit(day: str) -> None:
        """Audit the day before; fail without a retry if another try would end in the same way."""
        done = subprocess.run(["subreplay", "audit", "--config", RUN_FILE, "--day-before", day, "--quiet"], check=False)
        if done.returncode in FINAL:
            raise AirflowFailException(f"exit code {done.returncode}: {FINAL[done.returncode]}")
        done.check_returncode()

    audit("{{ (data_interval_end or run_after) | ds }}")  # type: ignore[misc]


subreplay_orders()
