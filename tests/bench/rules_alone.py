"""The rules by themselves: ``python -m tests.bench.rules_alone FOLDER`` audits a folder without an engine, a process
a core, and prints what it found as JSON.

Measured is what an audit does between the scan and its output: rows in order of time, as Arrow batches in memory,
are cut, sorted, merged, and judged by position and by time; every rule is on, and loads are added up.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from subreplay.audit.codes import Code
from subreplay.audit.context import Dispatcher
from subreplay.audit.judge import Judge
from subreplay.audit.passes.loads import Span
from subreplay.engine.local.row_groups import BATCH_ROWS
from subreplay.rows.model.columns import Ints
from subreplay.rows.model.tables import LOG
from subreplay.rows.sorted_blocks import (
    BY_POSITION,
    BY_TIME,
    external_merge,
    shuffle_blocks,
    sorted_rows,
)
from tests.bench import day

PROCESSES = 2
MINUTE = 60 * 10**9


def main(folder: Path) -> dict[str, Any]:
    """Seconds of the process that took longest, and findings by code."""
    shares = [range(day.PARTITIONS)[number::PROCESSES] for number in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES) as pool:
        found = list(pool.map(_audited, [folder] * PROCESSES, shares))
    codes = np.concatenate([codes for _, codes in found])
    counts = {code.name: int(np.count_nonzero(codes & code.bit)) for code in Code}
    return {"seconds": max(seconds for seconds, _ in found), "counts": {c: n for c, n in counts.items() if n}}


def _audited(folder: Path, partitions: Iterable[int]) -> tuple[float, Ints]:
    seconds, found = 0.0, []
    for number, partition in enumerate(partitions):
        judge, rows = judge_of(partition), log_of(folder, partition)
        if not number:
            codes_of(judge, [some[:1] for some in rows])
        began = time.perf_counter()
        found.append(codes_of(judge, rows))
        seconds += time.perf_counter() - began
    return seconds, np.concatenate(found)


def codes_of(judge: Judge, rows: list[list[pa.RecordBatch]]) -> Ints:
    """The findings of a topic partition, of each delivery that has any."""
    blocks = sorted(
        chain.from_iterable(shuffle_blocks(some, BY_POSITION) for some in rows), key=lambda block: block.first_key
    )
    facts = sorted_rows(judge.by_position(external_merge(blocks, BY_POSITION)), BY_TIME)
    judged = pa.Table.from_batches(judge.by_time(facts, judge.make_load_collector()))
    return judged["codes"].to_numpy()


def judge_of(partition: int) -> Judge:
    members = day.timeline(partition)
    spans = (Span(MINUTE, MINUTE), Span(6 * MINUTE, 6 * MINUTE))
    return Judge(members.policy, {members.scope: Dispatcher.of(members)}, spans=spans, findings_only=True)


def log_of(folder: Path, partition: int) -> list[list[pa.RecordBatch]]:
    """Messages and deliveries of a topic partition, as a scan of the local engine gives them."""
    messages, deliveries = (
        pq.read_table(folder / name, filters=[("partition", "=", partition)]) for name in ("messages", "deliveries")
    )
    number = messages["sequence_id"]
    stored = _rows(messages, {"kind": 0, "seq": 0, "judged": True, "before": False, "content": number},
                   {"at": "publish_time"}) | {"own_sequence_id": number}  # fmt: skip
    served = _rows(deliveries, {"kind": 1, "before": False, "cumulative": False},
                   {"at": "delivered_at", "received_at": "received_at", "acked_at": "acked_at",
                    "nacked_at": "nacked_at"})  # fmt: skip
    return [pa.table(rows).combine_chunks().to_batches(BATCH_ROWS) for rows in (stored, served)]


def _rows(table: pa.Table, given: dict[str, Any], times: dict[str, str]) -> dict[str, pa.Array]:
    """Those columns of ``LOG`` that a table has: its own, given ones, and times in ns."""
    found = {}
    for field in LOG:
        name = field.name
        if name in times:
            found[name] = pc.multiply(table[times[name]].cast(pa.int64()), 1_000)
        elif name in given:
            value = given[name]
            found[name] = value if isinstance(value, pa.ChunkedArray) else pa.repeat(value, table.num_rows)
        elif name in table.column_names:
            found[name] = table[name]
        else:
            continue
        found[name] = found[name].cast(field.type)
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
