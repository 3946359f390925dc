"""Result tables have the figures of the report, those that some rows do not have as null."""

from __future__ import annotations

from dataclasses import replace

from subreplay.reports.data import ReportData, ScenarioView
from subreplay.reports.result_tables import _of_views


def test_a_figure_that_a_scenario_does_not_have_is_null(small: ReportData) -> None:
    shared = replace(small.scenarios[0], traffic_moved=None, slots_moved=None)
    rows = _of_views(ScenarioView, (small.scenarios[0], shared)).to_pylist()
    assert [row["traffic_moved"] for row in rows] == [small.scenarios[0].traffic_moved, None]
    assert [row["slots_moved"] for row in rows] == [0.35, None]
