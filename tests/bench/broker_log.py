"""What reading a broker's log costs on one core: ``python -m tests.bench.broker_log [file …]`` prints a table.

``file`` is what a task does with a file: it reads a gigabyte of text from disk into numbered events. Beside it a bare
search for one substring in the same text, in turn with it, so that both meet the same machine. Times are of the
processor; the compiled loops are loaded before. Without files the excerpts of the tests are read, many times over.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from subreplay.adapters.base import Options
from subreplay.adapters.broker_log.line_events import parse_events
from subreplay.adapters.broker_log.numbered_events import LogFile, parse_blocks
from subreplay.adapters.input_files import read_line_batches
from tests.bench import figures
from tests.support.broker_log_rows import of_topic, rows, topics

EXCERPTS = Path(__file__).parents[1] / "data" / "broker_log"
ROUNDS = 3
FILE = 10**9
LEAST = 64 * 2**20  # bytes of text that are read


def main(*paths: str) -> None:
    files = [Path(path) for path in paths] or sorted(EXCERPTS.glob("*.log.gz"))
    once = pa.Table.from_batches([batch for path in files for batch in read_line_batches(path)])
    size = pc.sum(pc.binary_length(once["text"])).as_py()
    times = -(-LEAST // size)
    lines = pa.concat_tables([once] * times)
    text = lines["text"].cast(pa.string())
    found = parse_events(once).events
    path = Path(tempfile.mkdtemp()) / "broker.log"
    plain = b"".join(gzip.decompress(file.read_bytes()) for file in files)
    with path.open("wb") as file:
        for _ in range(-(-FILE // len(plain))):
            file.write(plain)
    log = LogFile(path, path.name, 0, 1, Options())
    partitions = [of_topic(found, *topic_partition) for topic_partition in topics(found)]
    works: dict[str, tuple[int, Callable[[], Any]]] = {
        "one substring": (size * times, lambda: pc.match_substring(text, "to pendingAcks in")),
        "events": (size * times, lambda: parse_events(lines)),
        "file": (path.stat().st_size, lambda: deque(parse_blocks(log), maxlen=0)),
        "rows": (size, lambda: [rows(of) for of in partitions]),
    }
    best: dict[str, float] = {}
    for turn in range(ROUNDS):
        for name, (_, work) in works.items():
            began = time.process_time()
            work()
            if turn:
                best[name] = min(best.get(name, float("inf")), time.process_time() - began)
    speeds = {name: size / best[name] / 1e6 for name, (size, _) in works.items()}
    print(f"{size * times / 1e6:,.0f} MB of {len(lines):,} lines, {len(found) * times:,} events")
    print(f"{'':16}{'MB/s':>8}{'of one substring':>18}")
    for name, speed in speeds.items():
        figures.tell(f"broker log, {name}", seconds_a_GB=1e3 / speed)
        print(f"{name:16}{speed:8.0f}{speed / speeds['one substring']:18.2f}")
    print(f"rows: {len(found) / best['rows']:,.0f} events/s")
    path.unlink()


if __name__ == "__main__":
    pa.set_cpu_count(1)
    main(*sys.argv[1:])
