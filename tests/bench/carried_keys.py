"""What a daily run costs that continues from one with many active keys: ``python -m tests.bench.carried_keys [keys]``.

A first day has one message of each key. A second day has a tenth of the messages, and is audited with the state of the
first day and without it. Memory is that of all processes together.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import date as Date
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from tests.bench import day, figures
from tests.bench.audit import measured

FIRST: Final = Date(1970, 1, 1) + timedelta(days=20_000)
SECOND_DAY: Final = FIRST + timedelta(days=1)


def audit(tables: str, written: str, date: str) -> dict[str, float]:
    """Audit a day, and return its seconds."""
    from subreplay.config import run as config
    from subreplay.engine.local.engine import LocalEngine
    from subreplay.pipeline import story

    requested = {
        "traffic": {"path": tables},
        "windows": {"width": "1m"},
        "output": {"tables": written, "report": f"{written}/report", "audited": "findings"},
    }
    run = config.parse(requested, "benchmark", date=date)
    began = time.perf_counter()
    with LocalEngine() as engine:
        story.audit(engine, run)
    return {"seconds": time.perf_counter() - began}


def main(keys: int = 10_000_000) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tables = Path(scratch, "tables")
        _write(Path(scratch), tables, keys)
        rows = {
            "first day": ("found", FIRST),
            "second day, with the state": ("found", SECOND_DAY),
            "second day, without": ("other", SECOND_DAY),
        }
        print(f"{'daily run':30}{'seconds':>9}{'MiB':>7}   {keys:,} keys")
        for row, (written, date) in rows.items():
            ran = measured("tests.bench.carried_keys", str(tables), f"{scratch}/{written}", date.isoformat())
            print(f"{row:30}{ran.found['seconds']:9.1f}{ran.peak:7.0f}", flush=True)
            figures.tell(f"carried keys, {row}", seconds=ran.found["seconds"], MiB=ran.peak)
        state = DeltaTable(f"{scratch}/found/state").get_add_actions(flatten=True)
        stored = dict(zip(state["partition.date"].to_pylist(), state["size_bytes"].to_pylist(), strict=True))
        for date, size in sorted(stored.items()):
            print(f"state of {date}: {size / 1e6:.1f} MB, {size / keys:.1f} bytes a key")


def _write(scratch: Path, tables: Path, keys: int) -> None:
    """Write the tables of both days, partitioned by date."""
    for number, deliveries in enumerate((keys, keys // 10)):
        day.write(folder := scratch / f"day{number}", deliveries, different=keys)
        for name in ("messages", "membership", "deliveries"):
            if number == 0 or name != "membership":
                rows = day.later(pq.read_table(folder / name), number)
                write_deltalake(str(tables / name), rows, partition_by=["date"], mode="append")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(audit(*sys.argv[1:4])))
    else:
        main(*map(int, sys.argv[1:]))
