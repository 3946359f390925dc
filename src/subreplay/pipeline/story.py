"""The sequence of a run: logs -> events -> timelines -> owners -> findings -> windows -> report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime

from subreplay.config.run import RunConfig
from subreplay.engine.interface import Dataset, Engine, Tables
from subreplay.pipeline import audit as stages
from subreplay.pipeline import whatif as scenarios
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.dispatch import describe_replays, replay_dispatch
from subreplay.pipeline.input_tables import PassedTables
from subreplay.pipeline.plan_questions import answer, build_finalists, build_plan_input
from subreplay.pipeline.run_times import read_clock
from subreplay.pipeline.source import Source, read_source, read_traffic, write_profile, write_tables
from subreplay.pipeline.sums import sum_audit
from subreplay.reports.assemble import report as assemble
from subreplay.reports.assemble import scenario_comparison
from subreplay.reports.assemble.audit_verdict import judge_audit, judge_replay
from subreplay.reports.assemble.dispatch_views import build_dispatch_view
from subreplay.reports.assemble.incidents import build_incidents
from subreplay.reports.assemble.plan_views import build_plan_view
from subreplay.reports.assemble.result_tables import build_result_tables
from subreplay.reports.data import EngineInfo, ReportData
from subreplay.reports.figures import DispatchFigures
from subreplay.reports.plan_data import PlanView
from subreplay.rows.model.rows import Verdict
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.planning.questions.answer import Question

Progress = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class Result:
    """The result of a run: the verdict, the data of the report, and this run's rows of every result table in
    ``tables``."""

    verdict: Verdict
    report: ReportData
    tables: Mapping[str, Dataset] = field(default_factory=dict)


def audit(
    engine: Engine,
    config: RunConfig,
    progress: Progress = nullcontext,
    tables: Tables | None = None,
    passed: PassedTables | None = None,
    shown_engine: EngineInfo | None = None,
) -> Result:
    """Check recorded deliveries against the guarantees of the subscription, and compare the scenarios of the run.

    Input tables may be passed as ``passed``. Without ``tables``, results are written where the run configures it.
    ``shown_engine`` is the engine in the report, if a task of that engine runs this audit on another engine.
    """
    started = read_clock()
    with progress("reading and checking the tables"):
        source = read_source(engine, config, tables or run_tables(engine, config), passed)
    with progress("folding the membership into epochs"):
        judge = stages.build_judge(source)
    with progress("judging every delivery"):
        judged = stages.judge(source, judge)
    with progress("explaining findings"):
        found = stages.explain(source, judge, judged)
    with progress("summing windows"):
        figures = sum_audit(source, judge, judged, found)
    with progress("replaying the traffic under the scenarios"):
        figures, plans = scenarios.assign(source, figures)
    replayed = _replay(source, plans, progress)
    dispatch = tuple(map(build_dispatch_view, replayed))
    outcome = judge_audit(figures, config)
    views = scenario_comparison.build_scenario_views(plans, figures, replayed)
    run = assemble.build_run_info(config, figures, "audit", shown_engine or describe_engine(engine))
    incidents = build_incidents(figures)
    report = assemble.build_report(run, figures, outcome, views, dispatch, incidents)
    with progress("writing the result tables"):
        write_tables(source, build_result_tables(figures, run, outcome, views, incidents), started)
    return Result(outcome.verdict, report, source.tables.written)


def whatif(
    engine: Engine,
    config: RunConfig,
    progress: Progress = nullcontext,
    tables: Tables | None = None,
    passed: PassedTables | None = None,
) -> Result:
    """Replay recorded traffic under every scenario of the run, and compare them side by side.

    ``tables`` and ``passed`` are those of ``audit``.
    """
    started = read_clock()
    with progress("reading and checking the tables"):
        written = tables or run_tables(engine, config, "whatif_")
        source = read_traffic(engine, config, written, passed, every_topic=True)
    return _compare(source, started, progress)


def plan(
    engine: Engine,
    config: RunConfig,
    questions: Sequence[Question],
    progress: Progress = nullcontext,
    tables: Tables | None = None,
    passed: PassedTables | None = None,
) -> Result:
    """Answer questions about the setup of a subscription, and replay the traffic under the finalists.

    ``tables`` and ``passed`` are those of ``audit``.
    """
    started = read_clock()
    with progress("reading and checking the tables"):
        source = read_traffic(engine, config, tables or run_tables(engine, config, "plan_"), passed)
    with progress("profiling the traffic"):
        replays = build_plan_input(source)
    with progress(f"planning {', '.join(questions)}"):
        answers = tuple(answer(replays, question) for question in questions)
    shown = config.model_copy(update={"scenarios": build_finalists(config, answers)})
    source = replace(source, config=shown, stored_profile=source.profiled)
    return _compare(source, started, progress, tuple(build_plan_view(found) for found in answers))


def compare(source: Source, config: RunConfig, progress: Progress = nullcontext) -> Result:
    """Compare the scenarios of another run over the traffic of a source, whose profile is kept."""
    return _compare(replace(source, config=config, stored_profile=source.profiled), read_clock(), progress)


def _compare(source: Source, started: datetime, progress: Progress, plans_made: tuple[PlanView, ...] = ()) -> Result:
    """Compare the scenarios of a run side by side."""
    config = source.config
    with progress("replaying the traffic under the scenarios"):
        figures, plans = scenarios.assign(source, scenarios.sum_traffic(source))
    judged = judge_replay(figures, config)
    replayed = () if judged.nothing else _replay(source, plans, progress)
    dispatch = tuple(map(build_dispatch_view, replayed))
    views = scenario_comparison.build_scenario_views(plans, figures, replayed)
    run = assemble.build_run_info(config, figures, "whatif", describe_engine(source.engine))
    report = assemble.build_report(run, figures, judged, views, dispatch, plans=plans_made)
    with progress("writing the result tables"):
        write_tables(source, build_result_tables(figures, run, judged, views), started)
    return Result(judged.verdict, report, source.tables.written)


def profile(
    engine: Engine, config: RunConfig, progress: Progress = nullcontext, passed: PassedTables | None = None
) -> dict[str, int]:
    """Write the traffic profile, which a what-if reads, and return the number of messages of each day."""
    with progress("writing the traffic profile"):
        return {str(row["date"]): row["messages"] for row in write_profile(engine, config, passed)}


def _replay(source: Source, plans: tuple[ScenarioPlan, ...], progress: Progress) -> tuple[DispatchFigures, ...]:
    replays = describe_replays(source, plans)
    if not replays:
        return ()
    with progress(f"replaying the dispatch, message by message: {replays}"):
        return replay_dispatch(source, plans)


def describe_engine(engine: Engine) -> EngineInfo:
    """Describe an engine for the report."""
    return EngineInfo(engine.name, engine.version, engine.cores)
