"""What a night hands to the next: a million keys, each delivered once and acknowledged, and five thousand sessions, all
but one of them over; how large it is, how long it takes to write it and to go on from it."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pyarrow as pa

from subreplay.audit.checkpoint import CARRY
from subreplay.audit.context import Dispatcher
from subreplay.audit.judge import Judge
from subreplay.engine.local.row_groups import BATCH_ROWS
from subreplay.rows.model.columns import DAY, NEVER, UNKNOWN
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.rows.model.tables import LOG
from subreplay.rows.sorted_blocks import (
    BY_POSITION,
    BY_TIME,
    external_merge,
    shuffle_blocks,
    sorted_rows,
)
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from tests.bench import figures

SCOPE = Scope("persistent://bench/default/orders")
BEGIN = 20_000 * DAY
SECOND = 1_000_000_000


def main(keys: int = 1_000_000, sessions: int = 5_000) -> None:
    """Print it, with and without the keys that are closed."""
    first = _judge(BEGIN + DAY - 1, sessions)
    _daily_run(first, _log(1_000))  # compiles
    log = _log(keys)
    print(f"one night of {keys:,} keys and {sessions:,} sessions on one topic partition")
    for what, lookback in (("looked back at: all", NEVER), ("looked back at: nothing", 0)):
        began = time.perf_counter()
        carried = _daily_run(replace(first, lookback=lookback), log)
        took = time.perf_counter() - began
        size = sum(len(row["data"]) for row in carried["checkpoint"].to_pylist())
        began = time.perf_counter()
        _daily_run(replace(_judge(BEGIN + 2 * DAY - 1, sessions), lookback=lookback), carried)
        again = time.perf_counter() - began
        figures.tell(f"night {what}", seconds=took, bytes_a_key=size / keys)
        print(f"  {what:<24}{took:6.1f} s, hands on {size / 1e6:6.2f} MB, {size / keys:5.1f} bytes a key; "
              f"an empty night after it {again:5.1f} s")  # fmt: skip


def _judge(horizon: int, sessions: int) -> Judge:
    """Sessions one after the other, each with a queue, in the first seconds of the first day; the last stays."""
    events = []
    for number in range(sessions):
        at = [Instant(BEGIN + number * 1_000_000 + half) for half in (0, 500_000)]
        events.append(MembershipEvent(SCOPE, "join", f"c{number}", at[0], at[0], receiver_queue_size=1_000))
        if number < sessions - 1:
            events.append(MembershipEvent(SCOPE, "leave", f"c{number}", at[1], at[1]))
    timeline = Timeline.fold(make_policy("pulsar.key_shared.auto_split", "pulsar-4.0"), SCOPE, events)
    return Judge(timeline.policy, {SCOPE: Dispatcher.of(timeline)}, horizon=horizon)


def _log(keys: int) -> pa.Table:
    """Messages and their deliveries as ``LOG`` rows in order of position."""
    draw = np.random.default_rng(7)
    published = BEGIN + np.sort(draw.integers(100, 86_000, keys)) * SECOND
    delivered = published + draw.integers(1_000, 5_000, keys) * 1_000
    acked = delivered + draw.integers(1_000, 100_000, keys) * 1_000
    served = np.tile([False, True], keys)
    entry = np.repeat(np.arange(keys), 2)
    words = pa.array([f"order-{number:07}".encode() for number in draw.permutation(keys).tolist()])
    two = pa.array(entry)
    times = {"received_at": delivered + 500_000, "acked_at": acked}
    given = {
        "ledger": 100 + entry // 50_000, "entry": entry % 50_000, "kind": served.astype(np.int8),
        "at": np.where(served, delivered[entry], published[entry]), "judged": ~served,
        "key": words.take(two), "own_sequence_id": entry, "sequence_id": entry,
        **{name: pa.array(time[entry], mask=~served) for name, time in times.items()},
    }  # fmt: skip
    reported = {"topic": SCOPE.topic, "partition": -1, "batch_index": -1, "seq": 0, "before": False, "producer": "p",
            "consumer": "c4999", "redelivery_count": 0, "size": 1, "cumulative": False, "content": 0}  # fmt: skip
    return _table(given, reported, len(entry))


def _daily_run(judge: Judge, log: pa.Table) -> pa.Table:
    """Judge a log; what is handed on, as the ``LOG`` rows that the next night begins with."""
    blocks = sorted(shuffle_blocks(log.to_batches(BATCH_ROWS), BY_POSITION), key=lambda block: block.first_key)
    facts = sorted_rows(judge.by_position(external_merge(blocks, BY_POSITION)), BY_TIME)
    found = [b.column("checkpoint").drop_null() for b in judge.by_time(facts, judge.make_load_collector())]
    carried = pa.concat_arrays([some for some in found if len(some)])
    reported = {"topic": SCOPE.topic, "partition": -1, "batch_index": 0, "seq": 0, "kind": CARRY, "ledger": UNKNOWN,
            "entry": 0, "at": 0}  # fmt: skip
    return _table({"checkpoint": carried}, reported, len(carried))


def _table(given: dict[str, object], reported: dict[str, object], rows: int) -> pa.Table:
    columns = [
        pa.array(given[f.name], f.type) if f.name in given
        else pa.repeat(pa.scalar(reported[f.name], f.type), rows) if f.name in reported
        else pa.nulls(rows, f.type)
        for f in LOG
    ]  # fmt: skip
    return pa.table(columns, schema=LOG).combine_chunks()


if __name__ == "__main__":
    main()
