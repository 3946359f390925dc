"""What an explanation takes from judged rows is the same for few rows and for many, in one task or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit.codes import Code
from subreplay.audit.explain import lookup
from subreplay.audit.explain.lookup import (
    COUNTS,
    HOLDERS,
    POSITION,
    ROWS,
    WAITING,
    HolderFinder,
    KeyMessageFilter,
    KeyPartitionFinder,
    MessageLogFilter,
    Outline,
)
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.tables import LOG

Tasks = list[list[pa.RecordBatch]]


def with_defaults(schema: pa.Schema, n: int, **given: Any) -> pa.Table:
    """Rows in which a column is null, or zero where it must not be."""
    columns = []
    for field in schema:
        if field.name in given:
            columns.append(pa.array(given[field.name], field.type))
        elif field.nullable or pa.types.is_nested(field.type):
            columns.append(pa.nulls(n, field.type))
        elif pa.types.is_string(field.type):
            columns.append(pa.repeat("", n))
        else:
            columns.append(pa.repeat(pa.scalar(0).cast(field.type), n))
    return pa.table(columns, schema=schema)


def judged(n: int, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    at = random.integers(0, 200, n)
    nth = random.integers(0, 3, n)
    return with_defaults(
        ROWS,
        n,
        topic=["t"] * n,
        partition=random.integers(0, 2, n),
        ledger=[1] * n,
        entry=random.integers(0, 40, n),
        batch_index=[-1] * n,
        delivered=random.random(n) < 0.8,
        nth=nth,
        at=at,
        published=at - 3,
        seq=np.arange(n),
        slot=random.integers(0, 4, n),
        session=random.integers(0, 3, n),
        held_until=at + random.integers(0, 50, n),
        consumer=random.choice(["a", "b", "c"], n),
        codes=random.choice([0, Code.LOST.bit, Code.LATE.bit | Code.LOST.bit], n),
    )


def tasks(rows: pa.Table, count: int) -> Tasks:
    """Rows as several tasks have them, in batches of a few."""
    return [rows.take(np.arange(i, len(rows), count)).to_batches(max_chunksize=7) for i in range(count)]


def of_each(found: Iterable[Iterable[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch for batches in found for batch in batches], schema)


def mapped(step: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], of: Tasks) -> Iterator[Any]:
    return (step(batches) for batches in of)


@pytest.mark.parametrize("count", [1, 5])
def test_the_latest_rows_and_the_counts_are_those_of_all_tasks_together(count: int) -> None:
    rows = judged(300)
    found = [[*Outline(9)(batches)] for batches in tasks(rows, count)]
    latest = of_each([[batch for name, batch in each if name == "latest"] for each in found], ROWS)
    counts = of_each([[batch for name, batch in each if name == "counts"] for each in found], COUNTS)
    assert lookup.take_latest(latest, 9) == lookup.take_latest(rows, 9)
    times = [row["at"] if row["delivered"] else row["published"] for row in rows.to_pylist()]
    reported = [row["at"] if row["delivered"] else row["published"] for row in lookup.take_latest(rows, 9).to_pylist()]
    assert reported == sorted(times, reverse=True)[:9]
    (sums,) = lookup.add_counts(counts).to_pylist()
    assert sums["deliveries"] == sum(rows["delivered"].to_pylist())
    assert sums["redelivered"] == sum(nth > 0 for nth in rows["nth"].to_pylist())
    assert sums["LATE"] < sums["LOST"] == sum(codes > 0 for codes in rows["codes"].to_pylist())


def test_no_rows_have_no_latest_and_count_nothing() -> None:
    assert [*Outline(9)([])] == []
    assert set(lookup.add_counts(COUNTS.empty_table()).to_pylist()[0].values()) == {0}


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("by_slot", [True, False])
def test_the_holder_that_ended_last_is_that_of_all_tasks_together(count: int, by_slot: bool) -> None:
    rows = judged(400, seed=2)
    waiting = [
        {"topic": "t", "partition": entry % 2, "ledger": 1, "entry": entry, "batch_index": -1,
         "slot": entry % 4 if by_slot else None, "session": entry % 3, "before": 90 + entry, "since": 20 + entry,
         "until": 95 + entry}
        for entry in range(30, 0, -1)
    ]  # fmt: skip
    requested = pa.Table.from_pylist(waiting, WAITING)
    found = lookup.describe_waits(requested, of_each(mapped(HolderFinder(requested), tasks(rows, count)), HOLDERS))
    expected = [wait for row in waiting[::-1] if (wait := slow_wait(rows.to_pylist(), row)) is not None]
    assert 10 < len(expected) == len(found)
    assert [*found] == sorted(expected, key=lambda wait: (wait["partition"], wait["entry"]))


def slow_wait(rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any] | None:
    """One message after the other, one delivery after the other."""
    holders = [
        held
        for held in rows
        if held["delivered"]
        and held["partition"] == row["partition"]
        and held["session"] != row["session"]
        and row["slot"] in (None, held["slot"])
        and held["at"] < row["before"]
        and max(row["since"], held["at"]) < held["held_until"] <= row["until"]
    ]
    if not holders:
        return None
    last = min(holders, key=lambda held: (-held["held_until"], -held["at"], held["entry"], held["seq"]))
    return {name: row[name] for name in POSITION} | {
        "holder": {name: last[name] for name in POSITION[2:]},
        "consumer": last["consumer"],
        "since": max(row["since"], last["at"]),
        "until": last["held_until"],
        "of": len(holders),
    }


def test_the_log_of_messages_is_without_their_early_deliveries_and_commits() -> None:
    entries, kinds, times = [1, 1, 1, 1, 2, 3, 1], [0, 1, 1, 1, 0, 0, 2], [10, 12, 20, UNKNOWN, 11, 13, 30]
    log = with_defaults(
        LOG, 7, topic=["t"] * 7, entry=entries, kind=kinds, at=times, batch_index=[-1] * 7, partition=[0] * 7
    )
    positions = log.select(POSITION).take([0, 4])
    found = of_each([MessageLogFilter(positions, 15)(log.to_batches(max_chunksize=2))], LOG)
    assert [*zip(found["entry"].to_pylist(), found["at"].to_pylist(), strict=True)] == [
        (1, 10), (1, 20), (1, UNKNOWN), (2, 11),
    ]  # fmt: skip


def test_a_key_is_that_which_the_application_meant() -> None:
    log = with_defaults(
        LOG, 4, partition=[3, 1, 2, 0], key=[b"k", b"k", None, None], ordering_key=[None, b"o", b"k", None]
    )
    found = of_each([KeyPartitionFinder(b"k")(log.to_batches())], lookup.PARTITIONS)
    assert found["partition"].to_pylist() == [2, 3]
    messages = of_each([KeyMessageFilter((b"o", b"x"))(log.to_batches())], LOG)
    assert messages["partition"].to_pylist() == [1]
