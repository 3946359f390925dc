"""Copies of ``__consumer_offsets``: ``python -m tests.bench.group_copies [million commits]`` prints seconds and memory.

Some groups commit to partitions of a topic in turn, each commit for three records. The copies are read by one process
that holds all of it, and by the local engine as streams, each up to the counts of what it gives; memory is that of all
processes together. Beside it a tenth of the commits: what is held by streams does not grow with the copies.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from subreplay.adapters import Options
from tests.adapters.kafka_group import encoding as encode
from tests.bench import figures
from tests.bench.audit import measured
from tests.support.source_reading import read_at_once

GROUPS, PARTITIONS, FILE = 20, 64, 1 << 19
VALUE = np.dtype([("version", ">i2"), ("offset", ">i8"), ("epoch", ">i4"), ("metadata", ">i2"), ("at", ">i8")])
"""A commit of version 3 with empty metadata."""


def write(folder: Path, commits: int) -> None:
    """Copies in files of ``FILE`` records each; a group's member owns all partitions."""
    folder.mkdir()
    keys = [encode.key(1, f"g{i // PARTITIONS}", "t", partition=i % PARTITIONS) for i in range(GROUPS * PARTITIONS)]
    begin = [(encode.key(2, f"g{i}"), encode.classic_group(3, 3, generation())) for i in range(GROUPS)]
    pq.write_table(table(begin, 0), folder / "0.parquet")
    for number, first in enumerate(range(0, commits, FILE)):
        n = np.arange(first, min(first + FILE, commits))
        value = np.zeros(len(n), VALUE)
        value["version"], value["offset"], value["at"] = 3, n // len(keys) * 3, encode.AT + n
        key = pa.array(keys, pa.binary()).take(pa.array(n % len(keys)))
        values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(VALUE.itemsize), len(n), [None, pa.py_buffer(value)])
        group = n % len(keys) // PARTITIONS
        columns = {"partition": group % 8, "offset": n + GROUPS, "timestamp": (encode.AT + n) * 1_000}
        pq.write_table(records(key, values.cast(pa.binary()), **columns), folder / f"{number + 1}.parquet")


def generation() -> dict[str, Any]:
    member = {"member_id": "m", "instance_id": None, "client_id": "c", "client_host": "/h", "rebalance_timeout_ms": 1,
              "session_timeout_ms": 1, "topics": ["t"], "owned": [], "owned_generation": None, "rack": None,
              "user_data": None, "assignment": [{"topic": "t", "partition": p} for p in range(PARTITIONS)]}  # fmt: skip
    return {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "m", "state_since": encode.AT,
            "members": [member]}  # fmt: skip


def table(pairs: list[tuple[bytes, bytes]], first: int) -> pa.Table:
    key, value = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
    n = np.arange(first, first + len(pairs))
    return records(key, value, partition=n % 8, offset=n, timestamp=np.full(len(n), encode.AT * 1_000))


def records(key: pa.Array, value: pa.Array, **numbers: Any) -> pa.Table:
    types = {"partition": pa.int32(), "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    reported = {name: pa.array(np.asarray(numbers[name], np.int64)).cast(kind) for name, kind in types.items()}
    return pa.table({"key": key, "value": value, **reported})


def whole(folder: Path) -> dict[str, Any]:
    began = time.perf_counter()
    found = read_at_once("kafka-group", folder, Options())
    return {"seconds": time.perf_counter() - began, "deliveries": len(found.tables["deliveries"])}


def streamed(folder: Path) -> dict[str, Any]:
    from subreplay.engine.local.engine import LocalEngine
    from subreplay.pipeline import adapter_sources

    began = time.perf_counter()
    with LocalEngine() as engine:
        read = adapter_sources.read(engine, "kafka-group", folder, Options())
        return {"seconds": time.perf_counter() - began, "deliveries": read.summary.rows["deliveries"]}


def main(millions: float = 5) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{'':32}{'seconds':>9}{'MiB':>9}{'deliveries':>14}")
        for commits in (round(millions * 1e5), round(millions * 1e6)):
            folder = Path(scratch) / str(commits)
            write(folder, commits)
            for way in ("whole", "streamed"):
                found, peak = measured("tests.bench.group_copies", way, str(folder))
                print(f"{f'{commits:,} commits, {way}':32}{found['seconds']:9.1f}{peak:9,.0f}{found['deliveries']:14,}")
                figures.tell(f"{commits:,} commits of groups, {way}", seconds=found["seconds"], MiB=peak)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps({"whole": whole, "streamed": streamed}[sys.argv[1]](Path(sys.argv[2]))))
    else:
        main(*map(float, sys.argv[1:]))
