"""Dead letters: what a recording's dead letter topic lacks, found by an audit of its day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import yaml

from subreplay.adapters import ADAPTERS
from subreplay.audit.definitions.messages import find_late_dead_letters, find_missing_dead_letters
from subreplay.cli.main import main
from tests.support.recordings import Recording
from tests.support.tables import table_of


def test_an_audit_finds_what_the_definitions_of_dead_letters_say(tmp_path: Path) -> None:
    recording = Recording.load("3.2.3/s7b_shared_dlq")
    lost = recording.files["dlq"].pop(70)["properties"]["ORIGIN_MESSAGE_ID"].strip("()").split(",")
    folder = recording.save(tmp_path / "recording")
    assert main(["ingest", str(folder), "--to", str(tmp_path / "in")]) == 0
    run = yaml.safe_load((tmp_path / "in/audit.yaml").read_text())
    assert run["topic"]["dead_letter"]["max_redeliveries"] == 3
    config = ["--config", str(tmp_path / "in/audit.yaml"), "--date", "2026-11-21", "--out", str(tmp_path)]
    assert main(["audit", *config]) == 1

    of_dead_letters = pl.col("code").str.starts_with("DLQ")
    dlq = table_of(tmp_path, "violations").filter(of_dead_letters).to_dicts()
    tables = ADAPTERS["pulsar-recording"](folder).tables
    letters = [_letter(m) for m in tables["messages"].to_pylist() if m["origin"]]
    missing = find_missing_dead_letters(tables["deliveries"].to_pylist(), letters, 3)
    assert missing == {(int(lost[0]), int(lost[1]), -1): True}
    assert {_position(r): r["verdict"] == "invalid" for r in dlq if r["code"] == "DLQ_INCOMPLETE"} == missing
    behind = {_position(m): tuple(m[f"origin_{name}"] for name in POSITION) for m in letters}
    late = [behind[position] for position in find_late_dead_letters(letters)]
    assert sorted(_position(r) for r in dlq if r["code"] == "DLQ_ORDER") == sorted(late) != []
    counts = table_of(tmp_path, "finding_counts").filter(of_dead_letters).group_by("code").agg(pl.sum("count"))
    assert dict(counts.iter_rows()) == {"DLQ_INCOMPLETE": 1, "DLQ_ORDER": len(late)}


POSITION = ("ledger", "entry", "batch_index")


def _position(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in POSITION)


def _letter(message: dict[str, Any]) -> dict[str, Any]:
    origin = message["origin"]
    return message | {"topic": origin["topic"], "partition": origin["partition"]} | {
        f"origin_{name}": origin[name] for name in POSITION
    }  # fmt: skip
