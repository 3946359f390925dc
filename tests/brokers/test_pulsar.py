"""A real Pulsar: its messages read live, its subscription from the broker's own log; a consumer is killed, and the
audit names who failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters import Options
from subreplay.audit.needs import Need
from subreplay.engine.spark.pulsar_source import connect, read_batches
from subreplay.rows.model.tables import MESSAGES
from tests.support import pulsar_broker
from tests.support.groups import audit_ingested
from tests.support.kafka_broker import until
from tests.support.pulsar_broker import Broker
from tests.support.source_reading import read_at_once

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.skipif(pulsar_broker.missing() is not None, reason=str(pulsar_broker.missing())),
]
TOPIC = "persistent://public/default/orders"
MINE = {"subscription": "billing", "topic": TOPIC}
RECORDS = [(f"key-{n % 20}", f"value {n}") for n in range(600)]


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Two consumers under Key_Shared got all records; one was killed with messages that it had not acknowledged."""
    with pulsar_broker.broker(tmp_path_factory.mktemp("pulsar")) as running:
        with running.polled(TOPIC):
            steady = running.consume(TOPIC, "billing", "steady")
            killed = running.consume(TOPIC, "billing", "killed", "slow")
            until(lambda: running.log.read_text().count(f"Created subscription on topic {TOPIC} / billing") == 2)
            running.produce(TOPIC, RECORDS[:300])
            until(lambda: len(running.said("killed")) > 10, killed)
            killed.kill()
            until(lambda: "[billing] [killed] Removed consumer" in running.log.read_text())
            running.produce(TOPIC, RECORDS[300:])
            until(lambda: running.backlog(TOPIC, "billing") == 0, steady)
            steady.terminate()  # closes
            steady.wait()
        yield running


def test_the_log_names_the_killed_consumer_and_receipts_agree(pulsar: Broker) -> None:
    client = connect({"service_url": pulsar.address})
    seen = pa.Table.from_batches(read_batches(client, TOPIC, None, time.time_ns() // 1_000_000))
    client.close()
    assert [key.decode() for key in seen["key"].to_pylist()] == [key for key, _ in RECORDS]
    reported = read_at_once("pulsar-broker-log", pulsar.log.parent, Options(**MINE))
    captured = read_at_once("capture", pulsar.folder / "captured", Options())
    messages = {"messages": pa.Table.from_pylist(seen.to_pylist(), MESSAGES)}
    by_log = audit_ingested(replace(reported, tables=reported.tables | messages), frozenset({Need.RECEIPTS}))
    receipts = {"deliveries": captured.tables["deliveries"]}
    by_receipts = audit_ingested(
        replace(reported, tables=reported.tables | messages | receipts, rejected=captured.rejected)
    )
    assert (by_log.rejected, by_log.failing) == (by_receipts.rejected, by_receipts.failing) == (0, {})

    assert {(row["consumer"], row["event"]) for row in reported.tables["membership"].to_pylist()} == {
        ("steady", "join"), ("killed", "join"), ("killed", "crash"), ("steady", "leave")
    }  # fmt: skip
    given = reported.tables["deliveries"].to_pylist()
    held = [row["entry"] for row in given if row["consumer"] == "killed" and row["acked_at"] is None]
    assert sorted(row["entry"] for row in given if row["consumer"] == "steady") == sorted(
        {row["entry"] for row in given} - {row["entry"] for row in given if row["consumer"] == "killed"} | set(held)
    )
    (cause,) = by_log.causes
    assert "killed disconnected" in cause
    assert by_log.causes[cause] == len(held) > 0
    assert set(by_receipts.causes) <= {cause}  # of the message that it had in hand, where it did


SCRIPT = """
import sys
from subreplay.cli.main import main

sys.exit(main(["audit", "--config", sys.argv[1]]))
"""


@pytest.mark.spark
def test_an_audit_by_run_file_reads_the_topic_live(pulsar: Broker, tmp_path: Path) -> None:
    reported = read_at_once("pulsar-broker-log", pulsar.log.parent, Options(**MINE))
    log = {"from": "pulsar-broker-log", "path": str(pulsar.log.parent), "options": MINE}
    receipts = {"from": "capture", "path": str(pulsar.folder / "captured")}
    live = {"from": "pulsar-live", "options": {"service_url": pulsar.address, "topic": TOPIC}}
    run = reported.run | {
        "traffic": {"messages": live, "membership": log, "deliveries": receipts},
        "scenarios": [],
        "output": {"tables": str(tmp_path / "tables"), "report": str(tmp_path / "report")},
    }
    (tmp_path / "audit.yaml").write_text(json.dumps(run))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "audit.yaml")]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert report["verdict"] == "valid"
    inputs = {row["table"]: row["valid"] for row in report["inputs"] if not row["quarantined"]}
    receipts_kept = inputs.pop("deliveries")
    assert inputs == {"messages": len(RECORDS), "membership": 4}
    assert receipts_kept - len(RECORDS) in (0, 1)  # what the killed one had in hand may be on the disk, and came again
    causes = {epoch["cause"] for one in report["range_maps"] for epoch in one["epochs"]}
    assert [cause for cause in causes if "killed disconnected" in cause]
