"""Every recording in ``tests/data`` is ingested and audited by the command, from its files to its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subreplay.cli.main import main

pytestmark = pytest.mark.long
DATA = Path(__file__).parents[1] / "data"
RECORDINGS = {
    "kafka-recording": ("kafka_groups/*/", "kafka_recordings/*/", "kafka_share_groups/*/", "kafka_share_recordings/*/"),
    "pulsar-recording": ("recordings/*/*/", "recordings-with-logs/*/*/"),
}
CASES = [
    pytest.param(adapter, path.relative_to(DATA), id=str(path.relative_to(DATA)))
    for adapter, patterns in RECORDINGS.items()
    for pattern in patterns
    for path in sorted(DATA.glob(pattern))
]
FAILING = {"k44_grow_latest": {"LOST", "KEY_TWO_PARTITIONS"}, "s1f_key_shared_default_batching": {"MIXED_BATCH"}}


@pytest.mark.parametrize(("adapter", "recording"), CASES)
def test_a_recording_is_audited_by_the_command(tmp_path: Path, adapter: str, recording: Path) -> None:
    ingest = ["ingest", str(DATA / recording), "--from", adapter, "--to", str(tmp_path / "in"), "--quiet"]
    audit = ["audit", "--config", str(tmp_path / "in/audit.yaml"), "--out", str(tmp_path / "out"), "--quiet"]
    failing = FAILING.get(recording.name, set())
    assert (main(ingest), main(audit)) == (0, 1 if failing else 0)
    report = json.loads((tmp_path / "out/report/report.json").read_text())
    assert {rule["code"] for rule in report["codes"] if rule["verdict"] == "invalid" and rule["count"]} == failing
