"""A subscription of one consumer whose messages have large keys, each another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from subreplay.adapters.canonical import build_table, utc_date

TOPIC, START, SECOND = "persistent://public/default/t", 1_700_000_000_000_000, 1_000_000


def write(folder: Path, messages: int, size: int) -> Path:
    """Write tables of ``messages`` with keys of ``size`` bytes; returns the run file of their audit."""
    rows: dict[str, list[dict[str, Any]]] = {"messages": [], "deliveries": []}
    served = {"subscription": "sub", "consumer": "C1", "redelivery_count": 0, "source": "observed"}
    for entry in range(messages):
        at = START + entry * 1_000
        position = {
            "date": utc_date(at),
            "topic": TOPIC,
            "partition": -1,
            "ledger": 1,
            "entry": entry,
            "batch_index": -1,
        }
        key = f"{entry:09d}".encode() * (size // 9)
        published = {"key": key, "producer": "p", "sequence_id": entry, "publish_time": at, "size": 1}
        rows["messages"].append(position | published)
        rows["deliveries"].append(position | served | {"delivered_at": at + 100, "acked_at": at + 200, "seq": entry})
    joined = START - SECOND
    rows["membership"] = [
        {"date": utc_date(joined), "subscription": "sub", "topic": TOPIC, "partition": -1, "type": "Key_Shared",
         "consumer": "C1", "event": "join", "at": joined, "seq": 0}
    ]  # fmt: skip
    for name, of_table in rows.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(build_table(name, of_table), folder / name / "part.parquet")
    subscription = {"name": "sub", "topic": TOPIC, "policy": "pulsar.key_shared.auto_split"}
    run = {"traffic": {"path": str(folder), "format": "parquet"}, "subscription": subscription}
    (folder / "run.yaml").write_text(json.dumps(run))
    return folder / "run.yaml"
