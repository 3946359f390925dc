"""Windows of loads and violations, and keys of mixed batches: what is added up is what counting one by one finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from subreplay.audit import sums
from subreplay.audit.codes import Code
from subreplay.audit.passes import loads as loads_of_batches
from subreplay.audit.passes.loads import REPEATED, LoadCollector, Span
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.tables import LOAD, TIME

VIOLATIONS = pa.schema(
    {"verdict": pa.string(), "moment": TIME, "code": pa.string(), "consumer": pa.string(), "cause": pa.string()}
)


def starts(at: int, width: int, slide: int) -> Iterator[int]:
    """The windows that an instant lies in."""
    last = at - at % slide
    return (start for start in range(last, last - width, -slide))


def facts(rows: list[Any]) -> pa.Table:
    """What is added up of rows (delivered, at, consumer, key, size, nth, codes)."""
    delivered, at, consumer, key, size, nth, _ = map(list, zip(*rows, strict=True))
    columns = {"delivered": delivered, "at": at, "published": at, "consumer": consumer, "size": size, "nth": nth}
    columns |= {"key": pa.array(key, pa.string())}
    never = dict.fromkeys(("in_transition", "by_receipt"), [False] * len(rows)) | dict.fromkeys(
        REPEATED, [0] * len(rows)
    )
    reported = dict.fromkeys(("received", "acked"), [UNKNOWN] * len(rows)) | {
        "due": at,
        "batch_index": [-1] * len(rows),
    }
    return pa.table(columns | never | reported)


def codes(rows: list[Any]) -> Any:
    return np.array([row[6] for row in rows], np.int64)


def rows_of(table: pa.Table) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in table.to_pylist()}


@pytest.mark.parametrize(("width", "slide", "few"), [(40, 40, 1 << 10), (40, 10, 1 << 10), (40, 1, 0)])
def test_loads(width: int, slide: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads_of_batches, "_LEAST_COUNTERS", few)  # 0: more windows than there is room to count by
    rng = random.Random(7)
    bits = (0, Code.UNACKED.bit, Code.LOST.bit)
    rows = [
        (rng.random() < 0.9, rng.randrange(300), rng.choice("ab"), rng.choice(["k", "l", "m", None]), rng.randrange(9),
         rng.randrange(2), rng.choice(bits))
        for _ in range(120)
    ]  # fmt: skip
    expected = set()
    given = [row for row in rows if row[0]]
    for window, consumer in {(start, row[2]) for row in given for start in starts(row[1], width, slide)}:
        mine = [row for row in given if window <= row[1] < window + width and row[2] == consumer]
        expected.add(
            (window, consumer, len(mine), sum(row[4] for row in mine), sum(row[5] for row in mine),
             sum(row[6] == Code.UNACKED.bit for row in mine), len({row[3] for row in mine} - {None}))
        )  # fmt: skip
    counting = LoadCollector((Span(width, slide),), 1_000_000_000)
    rows.sort(key=lambda row: (not row[0], row[1]))  # as they are judged
    for part in (rows[:30], rows[30:50], rows[50 : len(given)], rows[len(given) :]):
        counting.add(facts(part), codes(part), np.ones(len(part), np.int64))
    mine = counting.compute_sum()
    assert rows_of(sums.sum_loads(mine, Span(width, slide))) == expected


def test_comparisons_of_selectors_are_added_up() -> None:
    counted = [{"selector": name, "outside": n, "at_owner": n // 2} for name, n in (("b", 7), ("a", 4), ("b", 2))]
    rows = [{field.name: row.get(field.name, 0 if not field.nullable else None) for field in LOAD} for row in counted]
    mine = pa.Table.from_pylist([*rows, rows[0] | {"selector": None}], pa.schema(list(LOAD)))
    expected = [{"selector": "a", "outside": 4, "at_owner": 2}, {"selector": "b", "outside": 9, "at_owner": 4}]
    assert sums.sum_fits(mine) == expected


def test_violations_that_fail_are_counted_by_window_code_consumer_and_cause() -> None:
    rng, second = random.Random(7), 1_000_000_000
    origin = datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = [
        (rng.choice(["valid", "invalid", "unknown"]), rng.randrange(20), rng.choice(["LOST", "SKIP"]),
         rng.choice(["a", None]), rng.choice(["unexplained", "epoch 1: a joined"]))
        for _ in range(80)
    ]  # fmt: skip
    expected: Counter[tuple[Any, ...]] = Counter()
    for verdict, at, *by in rows:
        if verdict != "valid":
            expected.update((start, *by) for start in starts(at, 6, 2))
    columns = [(verdict, origin + timedelta(seconds=at), *by) for verdict, at, *by in rows]
    found = pa.table([*map(list, zip(*columns, strict=True))], schema=VIOLATIONS)
    counted = sums.sum_violations(sums.count_panes(found, 2 * second), 6 * second, 2 * second).to_pylist()
    of_windows = {
        (round(row["window_start"].timestamp()), row["code"], row["consumer"], row["cause"], row["count"])
        for row in counted
    }
    assert of_windows == {(*by, count) for by, count in expected.items()}
    assert {row["window_end"] - row["window_start"] for row in counted} == {timedelta(seconds=6)}
    assert sum(row["count"] for row in counted if row["tumbling"]) == sum(verdict != "valid" for verdict, *_ in rows)


def test_keys_that_several_consumers_had_in_one_epoch_are_counted() -> None:
    rng = random.Random(7)
    kinds = pa.schema({"delivered": pa.bool_(), "key": pa.string(), "epoch": pa.int64(), "consumer": pa.string()})
    drawn = [
        (rng.random() < 0.7, rng.choice([f"k{n}" for n in range(30)] + [None]), rng.randrange(4), rng.choice("ab"))
        for _ in range(90)
    ]
    rows = pa.Table.from_pylist([dict(zip(kinds.names, row, strict=True)) for row in drawn], kinds)
    had: dict[Any, dict[int, set[str]]] = {}
    for delivered, key, epoch, consumer in drawn:
        if delivered and key is not None:
            had.setdefault(key, {}).setdefault(epoch, set()).add(consumer)
    scattered = sum(any(len(of_epoch) > 1 for of_epoch in epochs.values()) for epochs in had.values())
    assert 0 < scattered < len(had)
    assert sums.count_scattered_keys(rows) == (scattered, len(had))
