"""What a run's tables hold, of what was counted of each."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit import input_statistics as statistics
from subreplay.audit.input_statistics import InputFacts, InputStatistics, find_all_lacking, input_statistics
from subreplay.audit.needs import Need
from subreplay.audit.passes.beginning import FirstServed
from subreplay.errors import InputError
from subreplay.rows.intake import NUMBERS
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import INPUTS
from subreplay.rows.scan import counts
from subreplay.rows.scan.members import list_members
from subreplay.semantics.timelines.membership import ServedInterval

AT = datetime(2023, 11, 14, 12, tzinfo=timezone.utc)
NS = int(AT.timestamp()) * 1_000_000_000
S = 1_000_000_000
POSITION = {"date": AT.date(), "topic": "t", "partition": 0, "ledger": 3, "entry": 0, "batch_index": -1}


def seconds(n: int) -> datetime:
    return AT + timedelta(seconds=n)


def message(**more: Any) -> dict[str, Any]:
    return POSITION | {"publish_time": AT, "key": b"k"} | more


def delivery(**more: Any) -> dict[str, Any]:
    whose = {"subscription": "s", "consumer": "c1", "seq": 0, "redelivery_count": 0, "source": "observed"}
    return POSITION | whose | {"delivered_at": seconds(1)} | more


def event(**more: Any) -> dict[str, Any]:
    whose = {"date": AT.date(), "subscription": "s", "topic": "t", "type": "Shared", "consumer": "c1", "event": "join"}
    return whose | {"at": AT, "seq": 0} | more


def rows_of(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema([field.with_nullable(True) for field in INPUTS[table]]))


def looked_at(
    messages: list[dict[str, Any]], deliveries: list[dict[str, Any]], events: list[dict[str, Any]], **facts: Any
) -> InputStatistics:
    rows = {"messages": rows_of("messages", messages), "deliveries": rows_of("deliveries", deliveries)}
    summaries = {
        name: counts.summarize_counts(name, [counts.count_rows(name, of, None)] if len(of) else [])
        for name, of in rows.items()
    }
    folded = list_members(pa.Table.from_batches([rows_of("membership", events)]))
    numbers = {"membership": pa.Table.from_pylist([{"valid": True, "count": len(events)}], NUMBERS)}
    return input_statistics(
        InputFacts("t", **facts), summaries, numbers, folded, None, ["messages", "membership", "deliveries"]
    )


def test_statistics_contain_extents_positions_and_consumers() -> None:
    messages = [message(), message(entry=1, publish_time=seconds(2)), message(partition=1, ledger=7, entry=4)]
    deliveries = [
        delivery(),
        delivery(consumer="c2", instance="i", delivered_at=seconds(3), redelivery_count=1),
        delivery(entry=1, delivered_at=seconds(4), acked_at=seconds(9)),
        delivery(entry=1, delivered_at=None, acked_at=seconds(20), ack_type="Commit"),
    ]
    found = looked_at(messages, deliveries, [event()], open_partitions=[5], ingest=2, copies=1)
    assert found.counts == [
        {"table": "messages", "valid": 4, "quarantined": 0},
        {"table": "membership", "valid": 1, "quarantined": 0},
        {"table": "deliveries", "valid": 4, "quarantined": 0},
        {"table": "ingest", "valid": 0, "quarantined": 2},
    ]
    assert found.extent == {"first": NS, "last": NS + 2 * S, "messages": 3, "deliveries": 4}
    assert [scope.partition for scope in found.events] == [0, 1, 5]
    assert found.lowest == {Scope("t", 0): (3, 0, -1), Scope("t", 1): (7, 4, -1)}
    assert found.served == {Scope("t", 0): FirstServed(NS + S, (3, 0, -1), NS + S, False)}
    assert found.unknown_consumers == {"c2": ServedInterval(NS + 3 * S, NS + 3 * S)}
    assert found.last_served == {"c2": NS + 3 * S, "c1": NS + 4 * S}
    assert (found.first, found.last, found.end) == (NS, NS + 4 * S, NS + 20 * S)
    assert (found.widest, found.plain, found.crowded, found.constant) == (1, True, False, False)
    assert found.lacking == {Need.RECEIPTS, Need.PRODUCERS, Need.DECISIONS, Need.CALLBACKS}
    assert (found.traffic, found.with_rejected, found.uncovered) == (8, ["ingest"], frozenset())


def test_tables_without_a_row_lack_what_rules_need() -> None:
    found = looked_at([], [], [], sampled=True)
    assert found.lacking >= {Need.MEMBERSHIP, Need.COMMITS, Need.EVERY_DELIVERY, Need.ACKNOWLEDGEMENTS}
    assert Need.SOME_MESSAGE in find_all_lacking(found)
    assert (found.first, found.last, found.end, found.plain, found.constant) == (UNKNOWN, UNKNOWN, UNKNOWN, True, False)
    assert found.extent == {"first": 0, "last": 0, "messages": 0, "deliveries": 0}


def test_a_membership_is_inferred_from_the_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    found = looked_at([message()], [delivery(), delivery(entry=1, delivered_at=seconds(2))], [], inferred=True)
    assert [(e.event, e.consumer, e.at.at) for e in found.events[Scope("t", 0)]] == [
        ("join", "c1", NS + S), ("leave", "c1", NS + 2 * S + 1)
    ]  # fmt: skip
    assert Need.EXACT_MEMBERSHIP in found.lacking
    monkeypatch.setattr(statistics, "MOST_EVENTS", 1)
    with pytest.raises(InputError, match="Add table membership"):
        looked_at([message()], [delivery()], [], inferred=True)


def test_a_join_behind_the_last_delivery_covers_nothing() -> None:
    found = looked_at([message()], [delivery()], [event(at=seconds(9), since=seconds(8))])
    assert found.uncovered == {Scope("t", 0)}
    assert Need.MEMBERSHIP in found.lacking
