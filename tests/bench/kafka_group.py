"""``python -m tests.bench.kafka_group``: how fast commits are decoded and lines of a broker's log are parsed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.coordinator_log.log_events import parse_lines
from tests.adapters.kafka_group import encoding as encode
from tests.bench import figures

ROWS = 1 << 16  # of a batch
OTHER = "[2026-11-20 10:00:00,123] INFO [UnifiedLog partition=orders-{i}, dir=/data] Rolled new log segment at {i}."
MINE = "[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: Stabilized group g{i} generation {i} with 3 members. (k.G)"


def commits(metadata: str = "") -> pa.Table:
    """A batch of commits of 50 groups."""
    pairs = [
        (encode.key(1, f"group-{i % 50}", "orders", partition=i % 64), encode.commit(3, i, 4, metadata, encode.AT))
        for i in range(ROWS)
    ]
    return encode.records(*pairs)


def lines(share: int) -> pa.Table:
    """A batch of a broker's log of which one line in ``share`` is about groups."""
    text = [(OTHER if i % share else MINE).format(i=i) for i in range(ROWS)]
    return pa.table({"file": ["server.log"] * ROWS, "line": pa.array(range(ROWS), pa.int64()), "text": text})


def timed(what: str, table: pa.Table, run: Callable[[pa.Table], object]) -> None:
    """Print the best of a few runs; the first compiles patterns."""
    best = 9e9
    for _ in range(5):
        start = time.perf_counter()
        run(table)
        best = min(best, time.perf_counter() - start)
    figures.tell(what, seconds_a_million=best / ROWS * 1e6)
    print(f"{what:<46} {ROWS / best / 1e6:6.2f} M rows/s {table.nbytes / best / 1e6:8.0f} MB/s")


def main() -> None:
    """Print all figures."""
    timed("commits", commits(), decode_records)
    timed("commits with 100 bytes of metadata", commits("m" * 100), decode_records)
    for share in (1, 100, 10_000):
        timed(f"log lines, one in {share:,} about groups", lines(share), parse_lines)


if __name__ == "__main__":
    main()
