"""Sums that are added up in an exchange are those that the driver adds up."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit import sums, window_sums
from subreplay.audit.explaining import FindingCounting
from subreplay.audit.passes.loads import ALL_TIME, LOADS_OF_RUN, Span
from subreplay.engine.interface import Dataset, NewRows, Tables
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import window_sums as pipeline
from subreplay.rows import groups
from subreplay.rows.model.tables import VIOLATIONS
from tests.audit.test_sums import ORIGIN

SPAN = Span(60, 20)
Row = dict[str, Any]


@pytest.fixture(autouse=True, params=[4, 1 << 17])
def few_buffered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_PENDING", request.param)


def dealt(engine: LocalEngine, rows: pa.Table) -> Dataset:
    return engine.concat([engine.create_dataset(rows.slice(begin, 23)) for begin in range(0, len(rows), 23)])


def written(tables: Tables, new: NewRows) -> pa.Table:
    tables.commit(new)
    found = tables.find(new.name)
    assert found is not None
    return found.select(new.columns.names).to_table()


def plain(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


def loads(draws: Random) -> pa.Table:
    rows = []
    for _ in range(200):
        span, pane = draws.choice([SPAN, SPAN, ALL_TIME, Span(20, 20)]), 20 * draws.randrange(-3, 12)
        of: Row = {"width": span.width, "slide": span.slide, "pane": pane, "consumer": draws.choice(["c1", "c2", None])}
        counted = dict.fromkeys(("messages", "bytes", "keys", "redelivered", "unacked"), draws.randrange(1, 9))
        rows.append(of | {"first": pane - 20 * draws.randrange(3)} | counted)
    return pa.Table.from_pylist(rows, LOADS_OF_RUN)


def test_loads_of_many_windows_are_assigned_as_by_the_driver(tmp_path: Path) -> None:
    given, intervals = loads(Random(1)), [(-60, 70, 2), (50, 400, 3)]
    expected = sums.sum_loads(given, SPAN)
    with LocalEngine(1) as engine:
        tables = engine.open_tables(str(tmp_path))
        new = tables.begin_write("assignments", window_sums.ASSIGNMENTS, {"subscription": "s"})
        pipeline.write_assignments(engine, dealt(engine, given), SPAN, intervals, new)
        assert plain(written(tables, new)) == plain(sums.make_assignments(expected, intervals, SPAN.width))
        assert pipeline.sum_loads_by_window(dealt(engine, given), SPAN).equals(expected)


def test_many_findings_are_counted_by_window_as_by_the_driver(tmp_path: Path) -> None:
    draws = Random(2)

    def drawn(**of: Any) -> list[Row]:
        about = {name: [*values] for name, values in of.items()}
        return [{n: draws.choice(v) for n, v in about.items()} | {"count": draws.randrange(1, 5)} for _ in range(150)]

    whose = {"consumer": ["c1", "c2", None], "code": ["LOST", "SKIP"]}
    counts = [pa.Table.from_pylist(drawn(window=range(0, 300, 60), excuse=[0, 3], **whose), sums.COUNTS) for _ in "ab"]
    panes = pa.Table.from_pylist(drawn(pane=range(0, 200, 20), cause=["x", "y"], **whose), sums.PANES)
    every = [sums.make_count_adder() for _ in counts]
    for adding, each in zip(every, counts, strict=True):
        adding.add(each)
    expected = pa.concat_tables([adding.compute_sum() for adding in every])
    of_panes = sums.make_pane_adder()
    of_panes.add(panes)
    with LocalEngine(1) as engine:
        tables = engine.open_tables(str(tmp_path))
        new = tables.begin_write("finding_counts", sums.COUNTS, {"subscription": "s"})
        coarser = pipeline.write_finding_counts(engine, [dealt(engine, each) for each in counts], 120, new)
        assert plain(written(tables, new)) == plain(expected)
        assert sums.widen_counts(pa.concat_tables(coarser), 120) == sums.widen_counts(expected, 120)
        new = tables.begin_write("violations_by_window", window_sums.VIOLATIONS_BY_WINDOW, {"subscription": "s"})
        pipeline.write_violations_by_window(engine, [dealt(engine, panes)], SPAN, new)
        assert plain(written(tables, new)) == plain(sums.sum_violations(of_panes.compute_sum(), *SPAN))


@pytest.mark.parametrize("most", [0, 1_000])
def test_the_findings_of_a_report_are_the_same_however_many_there_are(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_FIRST", most)
    draws, counting = Random(3), FindingCounting(SPAN, 10_000_000_000, 2, 20)
    said = {
        "date": ORIGIN.date(),
        "subscription": "s",
        "slot": 0,
        "epoch": 0,
        "witness": [],
        "explanation": "",
        "cause": "",
    }
    place = {"topic": "t", "partition": 0, "ledger": 1, "batch_index": -1}
    rows = [
        said | place | {"entry": entry, "code": draws.choice(["LOST", "SKIP", "STUCK"]), "moment": entry * 1_000_000}
        | {"at": entry * 1_000_000, "verdict": draws.choice(["valid", "invalid"]), "consumer": draws.choice(["a", "b"])}
        for entry in range(300)
    ]  # fmt: skip
    found = pa.Table.from_pylist(rows, VIOLATIONS)
    with LocalEngine(1) as engine:
        first = pipeline.select_first_findings(engine, [dealt(engine, found)], counting)
    assert len(first) < len(found)
    assert sums.select_worst(first, 2, counting.width, 20) == sums.select_worst(found, 2, counting.width, 20)
