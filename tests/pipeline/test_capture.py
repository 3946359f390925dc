"""What an application's consumer recorded of itself, from its process to a verdict."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import yaml

from subreplay import capture
from subreplay.cli.main import main
from tests.support import consumers as fakes


def test_what_a_consumer_captured_is_audited_by_its_receipts(tmp_path: Path) -> None:
    messages = deque(fakes.PulsarMessage(fakes.MessageId(5, n), f"k{n % 3}") for n in range(20))
    consumer = capture.wrap(fakes.PulsarConsumer(messages), tmp_path / "captured", subscription_type="Exclusive")
    for _ in range(20):
        consumer.acknowledge(consumer.receive())
    consumer.close()

    assert main(["ingest", str(tmp_path / "captured"), "--from", "capture", "--to", str(tmp_path / "in")]) == 0
    run_file = tmp_path / "in/audit.yaml"
    run = yaml.safe_load(run_file.read_text())
    run["subscription"]["policy"] = "pulsar.exclusive"
    run_file.write_text(yaml.safe_dump(run))
    assert main(["audit", "--config", str(run_file), "--out", str(tmp_path / "out")]) == 0

    report = json.loads((tmp_path / "out/report/report.json").read_text())
    facts = {fact["label"]: fact for fact in report["facts"]}
    assert facts["Deliveries"]["value"] == "20"
    assert {count["table"]: count["valid"] for count in report["inputs"]}["messages"] == 20
