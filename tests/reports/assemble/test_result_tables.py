"""Result tables hold all there is, however much of it a report shows; figures that some rows do not have are null."""

from __future__ import annotations

import json
from dataclasses import replace

from subreplay import __version__
from subreplay.config.run import RECORDED, RunConfig
from subreplay.reports.assemble import report as assemble
from subreplay.reports.assemble.audit_verdict import RunJudgement
from subreplay.reports.assemble.result_tables import _build_view_table, build_result_tables
from subreplay.reports.data import EngineInfo, ReportData, ScenarioView
from subreplay.reports.figures import Figures
from subreplay.rows.model.rows import Verdict
from subreplay.semantics.policies import make_policy
from subreplay.whatif.message_assignment import ScenarioPlan
from tests.support.joins import TOPIC, fold


def test_a_figure_that_a_scenario_does_not_have_is_null(small: ReportData) -> None:
    shared = replace(small.scenarios[0], traffic_moved=None, slots_moved=None)
    rows = _build_view_table(ScenarioView, (small.scenarios[0], shared)).to_pylist()
    assert [row["traffic_moved"] for row in rows] == [small.scenarios[0].traffic_moved, None]
    assert [row["slots_moved"] for row in rows] == [0.35, None]


def test_every_move_is_in_the_table_though_a_report_shows_some() -> None:
    policy = make_policy("pulsar.key_shared.auto_split", "pulsar-4.0")
    timeline = fold(policy, " ".join(f"+c{number}" for number in range(100)))
    extent = {"first": 0, "last": 1_000_000, "messages": 0}
    figures = Figures(TOPIC.topic, (), extent, 1_000, ScenarioPlan(RECORDED, policy, {TOPIC: timeline}), ())
    run = assemble.build_run_info(RunConfig(), figures, "audit", EngineInfo("spark", "4.1"))
    shown = assemble.build_report(run, figures, RunJudgement(Verdict.VALID), ())
    tables = build_result_tables(figures, run, RunJudgement(Verdict.VALID), ())
    assert tables["moves"].num_rows == 99  # each newcomer splits the largest range
    assert len(shown.moves) + shown.moves_left_out == 99
    assert shown.moves_left_out > 0


def test_a_run_names_its_engine_with_version_and_cores() -> None:
    words = [EngineInfo(*of).words for of in (("local", "0.9.0", 2), ("spark", "4.1.1", 1), ("spark", "4.1.1", 0))]
    assert words == ["local 0.9.0 on 2 cores", "Spark 4.1.1 on 1 core", "Spark 4.1.1"]
    policy = make_policy("pulsar.key_shared.auto_split", "pulsar-4.0")
    plan = ScenarioPlan(RECORDED, policy, {TOPIC: fold(policy, "+c1")})
    figures = Figures(TOPIC.topic, (), {"first": 0, "last": 1_000_000, "messages": 0}, 1_000, plan, ())
    run = assemble.build_run_info(RunConfig(), figures, "audit", EngineInfo("local", "0.9.0", 2))
    table = build_result_tables(figures, run, RunJudgement(Verdict.VALID), ())["runs"]
    assert json.loads(table["versions"][0].as_py()) == {"subreplay": __version__, "local": "0.9.0"}
    assert table["engine"].to_pylist() == ["local"]
