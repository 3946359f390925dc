"""A nightly audit of each UTC day, as a partitioned asset of Dagster: `dagster dev -f dagster_job.py`."""

import os
import subprocess

import dagster as dg

RUN_FILE = os.environ.get("SUBREPLAY_RUN_FILE", "/etc/subreplay/orders.yaml")
FINAL = {1: "the verdict is invalid", 2: "the input or the run file is wrong", 3: "the verdict is unknown"}

days = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="UTC")


@dg.asset(partitions_def=days, retry_policy=dg.RetryPolicy(max_retries=2, delay=300))
def orders_audit(context: dg.AssetExecutionContext) -> None:
    """Audit the day of the partition; fail without a retry if another try would end in the same way."""
    command = ["subreplay", "audit", "--config", RUN_FILE, "--date", context.partition_key, "--quiet"]
    done = subprocess.run(command, check=False)
    if done.returncode in FINAL:
        raise dg.Failure(f"exit code {done.returncode}: {FINAL[done.returncode]}", allow_retries=False)
    done.check_returncode()


audits = dg.define_asset_job("orders_audits", selection=[orders_audit], partitions_def=days)
defs = dg.Definitions(
    assets=[orders_audit],
    jobs=[audits],
    schedules=[dg.build_schedule_from_partitioned_job(audits, hour_of_day=2, minute_of_hour=30)],
)
