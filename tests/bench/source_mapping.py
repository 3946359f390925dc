"""``python -m tests.bench.source_mapping [rows]``: how fast a source's columns become canonical rows, by preset.

Rates are by the second of processor time, so that they say the same on a busy machine.
"""

from __future__ import annotations

import base64
import sys
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

from subreplay.adapters.source.row_conversion import convert_batch
from subreplay.adapters.source.source_presets import build_plan
from tests.adapters.source.rows import TIMES, message_id, sources
from tests.bench import figures

ROWS = 1_000_000
BATCH = 1 << 16


def main(rows: int = ROWS) -> None:
    """Print rows/s of each preset, and of each shape of message ids."""
    for name, (section, batch) in sources(BATCH).items():
        timed(name, section, batch, rows)
    ids = [message_id(2230 + i // 50_000, i % 50_000, i % 4, i % 100, 100) for i in range(BATCH)]
    shapes: dict[str, list[Any]] = {
        "message ids as bytes": ids,
        "message ids as base64": [base64.b64encode(each).decode() for each in ids],
        "message ids as text": [f"{2230 + i // 50_000}:{i % 50_000}:{i % 4}:{i % 100}" for i in range(BATCH)],
    }
    for name, values in shapes.items():
        batch = pa.RecordBatch.from_pydict({"id": values, "at": pa.array(TIMES[:1].repeat(BATCH))})
        columns = {"message_id": "id", "publish_time": {"column": "at", "as": "epoch_ms"}}
        timed(name, {"columns": columns, "values": {"topic": "orders"}}, batch, rows)
    broken = pa.RecordBatch.from_pydict({"o": np.full(BATCH, -1), "at": TIMES[:1].repeat(BATCH)})
    columns = {"offset": "o", "timestamp": {"column": "at", "as": "epoch_ms"}}
    timed("every row rejected", {"columns": columns, "values": {"topic": "t", "partition": 0}}, broken, rows // 10)


def timed(name: str, section: dict[str, Any], batch: pa.RecordBatch, rows: int) -> None:
    """Print the rate of as many batches as have these rows."""
    plan, count = build_plan(section, batch.schema), -(-rows // batch.num_rows)
    path = "public/default/orders-partition-1/o+1+17.json" if "confluent" in name else "public/default/orders-1-17"
    path = "public/default/orders-partition-1/1.2.-1.json" if "pulsar" in name else path
    convert_batch(batch, plan, path)
    start = process_time()
    for _ in range(count):
        convert_batch(batch, plan, path)
    spent = process_time() - start
    figures.tell(f"mapping: {name}", seconds_a_million=spent / count / batch.num_rows * 1e6)
    print(f"{name:<32} {count * batch.num_rows / spent / 1e6:7.2f} M rows/s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
