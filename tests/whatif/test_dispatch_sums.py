"""What the dispatch replay adds up, on rows written by hand, which come in several tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from subreplay.engine.interface import Dataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.whatif import dispatch_sums as sums
from subreplay.whatif import wait_sums
from subreplay.whatif.dispatch_replay import DELIVERY, PREDICTED, WAITED
from subreplay.whatif.dispatch_sums import SumReceived, SumReplay, WidenWindows, find_hottest_slots
from subreplay.whatif.replay_rows import CumulativeAcks, build_delivery_log
from subreplay.whatif.wait_sums import SumWaits, build_wait_rows


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with closing(LocalEngine(cores=2)) as opened:
        yield opened


def table(*given: dict[str, Any]) -> pa.Table:
    known = {"scenario": "s", "topic": "t", "partition": 0}
    return pa.Table.from_pylist([{**known, **row} for row in given], PREDICTED)


def summed(engine: LocalEngine, *given: dict[str, Any], **assumed: Any) -> dict[str, Dataset]:
    """What two tasks make of rows."""
    counting = SumReplay(("s",), **({"last_published": 0, "width": 10, "ticks": {"s": 0}} | assumed))
    parts = [table(*given[::2]), table(*given[1::2])]
    tasks = [engine.create_dataset(part).split(counting, counting.outputs) for part in parts]
    return {name: engine.concat([task[name] for task in tasks]) for name in tasks[0]}


def wait(consumer: str, start: int, end: int, hash_: int, partition: int = 0) -> dict[str, object]:
    return {"kind": WAITED, "consumer": consumer, "holder": "h", "at": start, "until": end, "hash": hash_, "entries": 1,
            "partition": partition}  # fmt: skip


def test_overlapping_waits_count_once(engine: LocalEngine) -> None:
    # c1 waits with three hashes, of two partitions: 0-10, 2-4 within it, 8-12 beyond it, 20-21; c2 from 11 to 14
    waited = summed(engine, wait("c1", 0, 10, 1), wait("c1", 2, 4, 2), wait("c1", 8, 12, 3, 1), wait("c1", 20, 21, 1),
                    wait("c2", 11, 14, 9))  # fmt: skip
    waits = engine.sort([waited["waits"]], wait_sums.WAITS)
    found = waits.split(SumWaits(10), {"longest": wait_sums.LONGEST, "counted": wait_sums.COUNTED})
    longest, counted = found["longest"].to_table(), found["counted"].to_table()
    by_holder = build_wait_rows(wait_sums.BY_HOLDER, longest, counted, 10)
    shown = ("consumer", "blocked", "stretches", "messages", "rank", "of")
    assert [tuple(r[name] for name in shown) for r in by_holder] == [("c1", 13, 4, 4, 1, 2), ("c2", 3, 1, 1, 2, 2)]
    assert {r["total"] for r in by_holder} == {15}  # somebody waited from 0 to 14, and from 20 to 21
    by_place = build_wait_rows(wait_sums.BY_PLACE, longest, counted, 10)
    assert {(r["consumer"], r["hash"]): r["blocked"] for r in by_place} == {
        ("c1", 1): 11, ("c1", 2): 2, ("c1", 3): 4, ("c2", 9): 3
    }  # fmt: skip


def test_late_messages_are_counted_within_the_last_window(engine: LocalEngine) -> None:
    def delivered(acked_at: int | None) -> dict[str, object]:
        return {
            "kind": DELIVERY,
            "outcome": "acked",
            "settled": acked_at is not None,
            "delivered_at": 1,
            "acked_at": acked_at,
        }

    # the last message is published at 13, in the window from 10 to 20
    found = summed(engine, *(delivered(at) for at in (9, 13, 14, 19, 20, None)), last_published=13)
    outcomes = sums.OUTCOMES.build_rows(found["outcomes"].to_table())
    assert [(r["settled"], r["rows"], r["last"], r["late"]) for r in outcomes] == [(False, 1, 1, 0), (True, 5, 20, 2)]


def test_latency_counts_from_the_due_time_to_the_application(engine: LocalEngine) -> None:
    def row(entry: int, due: int, received_at: int | None, **more: object) -> dict[str, object]:
        known = {"kind": DELIVERY, "ledger": 1, "entry": entry, "batch_index": -1, "at": 0, "due": due, "settled": True}
        return {**known, "received_at": received_at, "outcome": "acked", **more}

    given = [
        row(0, 0, 100), row(1, 50, 20), row(2, 50, 45),
        row(3, 0, 700, outcome="returned", settled=False), row(3, 0, 900),  # an application took it twice
        row(4, 0, None, outcome="pending", settled=False), row(5, 0, None, outcome="expired"),
    ]  # fmt: skip
    received = engine.sort([summed(engine, *given)["received"]], sums.RECEIVED)
    found = sums.LATENCIES.build_rows(received.map(SumReceived(("s",), {"s": 10}), sums.LATENCIES.schema).to_table())
    assert {r["event"] for r in found} == {"received"}
    assert sorted((r["most"], r["messages"]) for r in found if r["bucket"] is not None) == [(0, 2), (100, 1), (700, 1)]
    assert [r["messages"] for r in found if r["bucket"] is None] == [1]  # what expired is done with
    assert sum(r["delayed"] for r in found) == 2
    early = [(r["early"], r["early_least"], r["early_most"]) for r in found if r["early"]]
    assert early == [(1, 30, 30)]  # 5 are within a tick


def test_received_messages_are_counted_by_consumer_and_window(engine: LocalEngine) -> None:
    def row(consumer: str, received_at: int | None) -> dict[str, object]:
        return {"kind": DELIVERY, "consumer": consumer, "received_at": received_at, "redelivery_count": 0, "size": 7}

    found = summed(engine, row("a", 1), row("a", 9), row("a", 25), row("b", 3), row("c", None))["taken"]
    taken = sums.build_taken_rows(found.to_table())
    assert [(r["consumer"], r["messages"], r["bytes"]) for r in taken if r["window"] is None] == [
        ("a", 3, 21), ("b", 1, 7)
    ]  # fmt: skip
    assert [(r["window"], r["consumer"], r["messages"]) for r in taken if r["window"] is not None] == [
        (0, "a", 2), (0, "b", 1), (20, "a", 1)
    ]  # fmt: skip
    wider = WidenWindows(sums.choose_window_widths(10, {"s": 30}, 0, 1))
    wide = sums.build_taken_rows(found.map(wider, sums.TAKEN.schema).to_table())
    assert {(r["window"], r["width"]) for r in wide if r["window"] is not None} == {(0, 30)}


def test_the_busiest_consumer_slot_and_partition_after_the_last_publication(engine: LocalEngine) -> None:
    def row(consumer: str, slot: int, partition: int, received_at: int, acked_at: int) -> dict[str, object]:
        return {"kind": DELIVERY, "consumer": consumer, "slot": slot, "partition": partition, "outcome": "acked",
                "settled": True, "received_at": received_at, "acked_at": acked_at}  # fmt: skip

    found = summed(engine, row("a", 1, 0, 5, 40), row("b", 17, 1, 20, 35), row("b", 1, 1, 36, 50), row("a", 9, 0, 1, 9),
                   last_published=10)  # fmt: skip
    slots = engine.sort([found["slots"]], sums.SLOTS).map(find_hottest_slots, sums.DRAINS.schema)
    drains = sums.build_drain_rows(found["drains"].to_table(), slots.to_table())
    assert [(r["kind"], r["consumer"], r["slot"], r["partition"], r["messages"], r["busy"]) for r in drains] == [
        ("consumer", "a", None, None, 1, 30), ("hash", None, 1, None, 2, 44), ("partition", None, None, 0, 1, 30)
    ]  # fmt: skip


def test_the_audit_sees_predicted_deliveries_as_a_client_would_report_them() -> None:
    given = {"kind": DELIVERY, "ledger": 1, "entry": 2, "batch_index": -1, "redelivery_count": 0}
    rows = table(
        {**given, "consumer": "a", "delivered_at": 1_001, "received_at": 2_345, "acked_at": 3_456},
        {**given, "consumer": "b", "delivered_at": 1_002, "nacked_at": 4_321},
        {**given, "consumer": "c", "delivered_at": 1_003, "acked_at": 5_000},
        {**given},  # of no consumer
    )
    found = build_delivery_log(rows, CumulativeAcks(False, {"c": True})).to_pylist()
    assert [(r["at"], r["received_at"], r["acked_at"], r["nacked_at"], r["cumulative"]) for r in found] == [
        (1_001, 2_000, 3_456, None, False), (1_002, None, None, 4_321, None), (1_003, None, 5_000, None, True)
    ]  # fmt: skip
