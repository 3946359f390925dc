"""What few questions ask of whole tables is what plain loops over all rows find, however these are dealt out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.canonical import build_table
from subreplay.audit import sums
from subreplay.audit.clock_lags import TimeCorrection
from subreplay.audit.clocks import LAGS, QUANTILES, ClockShift
from subreplay.engine.interface import Dataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import measurements
from subreplay.rows import groups
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.tables import AUDITED, LOG

Row = dict[str, Any]
AUDITED_COLUMNS = (
    "delivered", "consumer", "nth", "published", "due", "at", "received", "by_receipt", "acked", "key", "epoch",
)  # fmt: skip


@pytest.fixture(params=[3, 1 << 17])
def few_buffered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_PENDING", request.param)


def dealt(engine: LocalEngine, rows: pa.Table, size: int = 37) -> Dataset:
    return engine.concat([engine.create_dataset(rows.slice(begin, size)) for begin in range(0, len(rows), size)])


def judged(draws: Random) -> list[Row]:
    rows = []
    for _ in range(400):
        at = draws.randrange(1_000)
        consumer = draws.choice(["c1", "c2", "c2", "c3", None])
        times = {"published": draws.choice([0, 5]), "due": draws.randrange(900), "at": at}
        ends = {name: draws.choice([UNKNOWN, at + draws.randrange(-50, 400)]) for name in ("received", "acked")}
        said = {"delivered": draws.random() < 0.9, "nth": draws.randrange(2), "by_receipt": draws.random() < 0.3}
        of = {"key": draws.choice([None, *map(str, range(60))]), "epoch": draws.randrange(3), "consumer": consumer}
        rows.append(times | ends | said | of | ({"acked": UNKNOWN} if consumer == "c3" else {}))
    return rows


def as_audited(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([AUDITED.field(name) for name in AUDITED_COLUMNS]))


@pytest.mark.parametrize("seed", range(3))
def test_quantiles_of_lags_are_their_nearest_ranks(seed: int, few_buffered: None) -> None:
    rows = judged(Random(seed))
    lags: dict[str, dict[str, list[int]]] = defaultdict(lambda: {name: [] for name in LAGS})
    for row in rows:
        if row["delivered"] and row["consumer"]:
            mine = lags[row["consumer"]]
            if row["nth"] == 0 and row["published"] > 0:
                mine["dispatch"].append(row["at"] - row["due"])
            if row["received"] != UNKNOWN and not row["by_receipt"]:
                mine["receipt"].append(row["received"] - row["at"])
            if row["acked"] != UNKNOWN:
                mine["end"].append(row["acked"] - row["at"])
    with LocalEngine(1) as engine:
        found = measurements.measure_lags(engine, dealt(engine, as_audited(rows)))
    assert [row["consumer"] for row in found] == sorted(lags)
    for row in found:
        for name, values in lags[row["consumer"]].items():
            nearest = [sorted(values)[math.ceil(q * len(values)) - 1] for q in QUANTILES] if values else None
            assert row[name] == {"count": len(values), "lags": nearest}


def test_keys_that_were_scattered_are_counted_as_at_once(few_buffered: None) -> None:
    rows = as_audited(judged(Random(7)))
    with LocalEngine(1) as engine:
        found = measurements.count_scattered_keys(engine, dealt(engine, rows))
    assert found == sums.count_scattered_keys(rows)
    assert 0 < found[0] <= found[1] == 60


@pytest.mark.parametrize("few", [1, 7, 1_000])
def test_the_hottest_keys_are_those_with_the_most_messages(few: int, few_buffered: None) -> None:
    draws = Random(few)
    keys = [
        draws.choice([None, *(b"k%d" % min(draws.randrange(40), draws.randrange(40)) for _ in range(3))])
        for _ in range(500)
    ]
    ordering = [draws.choice([None, None, b"o1", b"o2"]) for _ in keys]
    count = Counter(o or k for o, k in zip(ordering, keys, strict=True) if o or k)
    with LocalEngine(1) as engine:
        rows = dealt(
            engine, pa.table({"key": pa.array(keys, pa.binary()), "ordering_key": pa.array(ordering, pa.binary())})
        )
        found = measurements.find_hottest_keys(engine, rows, few)
    assert found == sorted(count.items(), key=lambda of: (-of[1], of[0]))[:few]


def test_deliveries_are_sampled_with_the_sizes_of_their_messages() -> None:
    draws = Random(3)
    positions = [{"topic": "t", "partition": n % 3, "ledger": 1, "entry": n, "batch_index": -1} for n in range(1_000)]
    messages = [at | {"size": n, "publish_time": 0, "date": 0} for n, at in enumerate(positions) if n % 10]
    deliveries = [
        at | {"consumer": "c", "received_at": n, "acked_at": draws.choice([None, n + 5]), "acked_nanos": 7, "seq": n}
        | {"date": 0, "subscription": "s", "redelivery_count": 0, "source": "observed"}
        for n, at in enumerate(positions)
    ]  # fmt: skip
    size = {row["entry"]: row["size"] for row in messages}
    with LocalEngine(1) as engine:
        tables = dealt(engine, build_table("messages", messages)), dealt(engine, build_table("deliveries", deliveries))
        every, some, again = (measurements.sample_deliveries(engine, *tables, most) for most in (1_000, 100, 100))
    assert every.to_pylist() == [
        {"consumer": "c", "received_at": n * 1_000, "acked_at": row["acked_at"] and row["acked_at"] * 1_000 + 7}
        | {"size": size.get(n)}
        for n, row in enumerate(deliveries)
    ]
    assert some.equals(again)
    assert 50 < len(some) < 200
    assert {*map(str, some.to_pylist())} < {*map(str, every.to_pylist())}


def test_times_are_corrected_by_the_clock_that_wrote_them() -> None:
    shifts = (ClockShift("c1", 10, LAGS["dispatch"]), ClockShift("c2", -3, LAGS["end"]))
    of = dict.fromkeys(("ledger", "entry", "batch_index", "kind", "seq", "partition"), 0) | {"topic": "t"}
    given = [
        {"consumer": "c1", "at": 100, "received_at": 110, "acked_at": None, "nacked_at": 130},
        {"consumer": "c1", "at": UNKNOWN, "received_at": None, "acked_at": 120, "nacked_at": None},
        {"consumer": "c2", "at": 100, "received_at": 110, "acked_at": 120, "nacked_at": 130},
        {"consumer": "c2", "at": 100, "received_at": 100, "acked_at": 120, "nacked_at": None, "by_receipt": True},
        {"consumer": "c1", "at": 100, "received_at": 100, "acked_at": None, "nacked_at": None, "by_receipt": True},
        {"consumer": None, "at": 100, "received_at": None, "acked_at": None, "nacked_at": None},
    ]  # fmt: skip
    rows = pa.Table.from_pylist([of | row for row in given], LOG)
    (batch,) = TimeCorrection(shifts)(rows.to_batches())
    assert batch.schema == LOG
    names = ("at", "received_at", "acked_at", "nacked_at")
    assert [tuple(row[name] for name in names) for row in batch.to_pylist()] == [
        (90, 100, None, 120), (UNKNOWN, None, 110, None), (100, 110, 123, 133), (100, 100, 123, None),
        (90, 90, None, None), (100, None, None, None),
    ]  # fmt: skip
    assert [*TimeCorrection(())(rows.slice(5).to_batches())] == rows.slice(5).to_batches()
