"""Reports to render: ``small`` (all sections, readable), ``large`` (as big as they come), ``hostile``, ``bare``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from subreplay.reports.data import Band, EpochView, RangeMap, ReportData
from tests.reports.made_reports import SLOTS, at, poisoned, replayed, report, us

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(scope="session")
def small() -> ReportData:
    """Three consumers, five epochs."""
    return report(consumers=3, epochs=5, points=4, windows=12, seconds=60)


@pytest.fixture(scope="session")
def dispatched(small: ReportData) -> ReportData:
    """A what-if whose scenarios' dispatch was replayed; nothing was recorded."""
    return replayed(
        replace(
            small,
            run=replace(small.run, kind="whatif"),
            codes=(),
            findings_over_time=(),
            detail="",
            incidents=(),
            timeline=None,
            coverage=None,
        )
    )


@pytest.fixture(scope="session")
def large() -> ReportData:
    """Ten consumers, thirty epochs of a thousand bands, an hour in ten-second windows."""
    return replace(report(consumers=10, epochs=30, points=100, windows=360, seconds=3600), moves_left_out=14)


@pytest.fixture(scope="session")
def failover() -> ReportData:
    """A partitioned topic on Failover: one row of the map for each partition."""
    data = report(consumers=3, epochs=5, points=4, windows=12, seconds=60)
    owners = [("A", "B", "A"), ("B", "B", None), ("A", "C", "C"), ("B", "C", "C")]
    causes = ("epoch 1: first consumer", "epoch 2: C joined at 12:00:20", "epoch 3: B left at 12:00:40")
    maps = tuple(
        RangeMap(f"partition {p}", "partition", 0, SLOTS - 1, tuple(
            EpochView(i, at(20 * i), at(20 * i + 20), us(20 * i), us(20 * i + 20), causes[i], ("A", "B", "C"),
                      (Band(0, SLOTS - 1, who),), 0, ())
            for i, who in enumerate(row)), 0)
        for p, row in enumerate(owners)
    )  # fmt: skip
    run = replace(data.run, policy="pulsar.failover", partitions=4)
    return replace(data, run=run, range_maps=maps)


@pytest.fixture(scope="session")
def hostile(small: ReportData) -> ReportData:
    """Names, keys and sentences that try to break out of the page or to steer the terminal."""
    return poisoned(replayed(small))


@pytest.fixture(scope="session")
def bare(small: ReportData) -> ReportData:
    """A valid run with nothing in any list."""
    return replace(
        small, verdict="valid", headline="Every promise was kept.", inputs=(), facts=(), range_maps=(), load=(),
        totals=(), moves=(), hot_keys=(), codes=(), findings_over_time=(), scenarios=(), cannot_tell=(), detail="",
        incidents=(), timeline=None, coverage=None,
    )  # fmt: skip


@pytest.fixture
def snapshot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare with a stored text; ``SUBREPLAY_SNAPSHOTS=write`` in the environment rewrites it."""

    def check(name: str, text: str) -> None:
        path = SNAPSHOTS / name
        if os.environ.get("SUBREPLAY_SNAPSHOTS") == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check
