"""A real Kafka: its messages read live, its group from ``__consumer_offsets`` and the coordinator's log, and what
consumers recorded of themselves; one is killed, and the audit names who failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from subreplay.capture.file_format import CaptureEvent
from tests.support import kafka_broker
from tests.support.captured import rows
from tests.support.kafka_broker import Broker, until

pytestmark = [
    pytest.mark.brokers,
    pytest.mark.spark,
    pytest.mark.skipif(kafka_broker.missing() is not None, reason=str(kafka_broker.missing())),
]
RECORDS = [(f"key-{n % 20}", f"value {n}") for n in range(300)]

SCRIPT = """
import sys
import yaml
from pathlib import Path
from pyspark.sql import SparkSession
from subreplay.adapters import ADAPTERS, Options
from subreplay.cli.main import main
from tests.support.source_reading import read_at_once

address, folder, captured = sys.argv[1:]
assert main(["inspect", "orders", "--kafka", address, "--to", f"{folder}/run.yaml"]) == 0
spark = SparkSession.getActiveSession()
spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
offsets = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
offsets.option("subscribe", "__consumer_offsets").load().write.parquet(f"{folder}/groups/offsets")
run = yaml.safe_load(Path(f"{folder}/run.yaml").read_text())
group = {"from": "kafka-group", "path": f"{folder}/groups", "options": {"subscription": "billing", "topic": "orders"}}
run["traffic"] |= {"membership": group, "deliveries": {"from": "capture", "path": captured}}
told = read_at_once("kafka-group", Path(f"{folder}/groups"), Options(subscription="billing", topic="orders"))
assert len(told.tables["deliveries"]) > 0  # by commits
run["subscription"] = told.run["subscription"]
run |= {"scenarios": [], "spark": {}, "output": {"tables": f"{folder}/tables", "report": f"{folder}/report"}}
Path(f"{folder}/audit.yaml").write_text(yaml.safe_dump(run))
sys.exit(main(["audit", "--config", f"{folder}/audit.yaml"]))
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with kafka_broker.broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


def receipts(kafka: Broker) -> list[dict[str, Any]]:
    return [row for row in rows(kafka.folder / "captured") if row["event"] == CaptureEvent.RECEIVE.value]


def test_a_cluster_is_read_live_and_a_killed_consumer_is_the_cause(kafka: Broker, tmp_path: Path) -> None:
    kafka.create("orders", 3)
    steady, killed = (kafka.consume("orders", "billing", client) for client in ("steady", "killed"))
    until(lambda: "with 2 members" in kafka.log.read_text())
    kafka.produce("orders", RECORDS)
    until(lambda: kafka.said("steady") + kafka.said("killed") >= len(RECORDS), steady)
    until(lambda: kafka.said("killed") > 0)
    until(lambda: len(receipts(kafka)) == len(RECORDS))  # so that killing loses none
    killed.kill()
    until(lambda: "killed-" in kafka.log.read_text().partition("has failed, removing it")[0][-200:])
    kafka.produce("orders", RECORDS)
    until(lambda: kafka.said("steady") + kafka.said("killed") >= 2 * len(RECORDS), steady)
    steady.terminate()  # commits, and leaves
    steady.wait()

    (tmp_path / "groups").mkdir()
    (tmp_path / "groups/server.log").write_text(kafka.log.read_text())
    jars = ",".join(str(jar) for jar in sorted((kafka_broker.BROKERS / "spark").glob("*.jar")))
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}
    command = [sys.executable, "-c", SCRIPT, kafka.address, str(tmp_path), str(kafka.folder / "captured")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert f"messages: {2 * len(RECORDS)} rows = {2 * len(RECORDS)} valid + 0 quarantined" in ran.stdout
    report = json.loads((tmp_path / "report/report.json").read_text())
    assert {row["table"]: (row["valid"] > 0, row["quarantined"]) for row in report["inputs"]} == {
        "messages": (True, 0), "membership": (True, 0), "deliveries": (True, 0)
    }  # fmt: skip
    assert report["verdict"] == "valid"
    causes = {epoch["cause"] for one in report["range_maps"] for epoch in one["epochs"]}
    (crash,) = (cause for cause in causes if "disconnected" in cause)
    assert "killed-" in crash
    moved = [move for move in report["moves"] if "disconnected" in move["cause"]]
    assert all(move["before"].startswith("killed-") and move["after"].startswith("steady-") for move in moved)
    assert moved
