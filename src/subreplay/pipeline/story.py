"""The story of a run: logs -> events -> timelines -> owners -> findings -> windows -> report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace

from subreplay.config.run import RunConfig
from subreplay.engine.spark.audit import stages as audit_stages
from subreplay.engine.spark.audit.summing import sum_audit
from subreplay.engine.spark.dispatch.stage import dispatch_asked, replay_dispatch
from subreplay.engine.spark.read.source import Source, read, read_traffic, write_profile, write_tables
from subreplay.engine.spark.read.traffic import Frames
from subreplay.engine.spark.session import DataFrame, SparkSession
from subreplay.engine.spark.sink import OnDisk, Sink
from subreplay.engine.spark.whatif import stages as whatif_stages
from subreplay.pipeline.plan_questions import answer, finalists, given
from subreplay.reports.assemble import compare
from subreplay.reports.assemble import report as assemble
from subreplay.reports.assemble.dispatch import dispatch_view
from subreplay.reports.assemble.plans import plan_view
from subreplay.reports.assemble.result_tables import result_tables
from subreplay.reports.assemble.verdict import judgement, replayable
from subreplay.reports.data import ReportData
from subreplay.reports.figures import DispatchFigures
from subreplay.reports.plan_data import PlanView
from subreplay.rows.model.rows import Verdict
from subreplay.whatif.assign import Plan
from subreplay.whatif.planning.questions.answer import Question

Progress = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True)
class Result:
    """What a run found: the report is still to be rendered; ``tables`` are its rows of every result table, which the
    sink has."""

    verdict: Verdict
    report: ReportData
    tables: Mapping[str, DataFrame] = field(default_factory=dict)


def audit(
    spark: SparkSession,
    config: RunConfig,
    progress: Progress = nullcontext,
    sink: Sink | None = None,
    frames: Frames | None = None,
) -> Result:
    """Check recorded deliveries against every promise of the subscription; scenarios in the run are compared beside
    it. Input tables may be given as ``frames``; without a ``sink``, results go where the run says."""
    with progress("reading and checking the tables"):
        source = read(spark, config, sink or OnDisk(spark, config.output.tables), frames)
    with closing(source.inputs.reads), source.sink.open():
        return _audited(source, progress)


def _audited(source: Source, progress: Progress) -> Result:
    config = source.config
    with progress("folding the membership into epochs"):
        judge = audit_stages.fold(source)
    with progress("judging every delivery"):
        judged = audit_stages.judge(source, judge)
    with progress("putting findings into words"):
        found = audit_stages.explain(source, judge, judged)
    with progress("summing windows"):
        figures = sum_audit(source, judge, judged, found)
    with progress("replaying the traffic under the scenarios"):
        figures, plans = whatif_stages.assign(source, figures)
    replayed = _replayed(source, plans, progress)
    dispatch = tuple(map(dispatch_view, replayed))
    found_out = judgement(figures, config)
    views = compare.scenario_views(plans, figures, replayed)
    run = assemble.run_info(config, figures, "audit", source.spark.version)
    report = assemble.report(run, figures, found_out, views, dispatch)
    with progress("writing the result tables"):
        write_tables(source, result_tables(figures, run, found_out, views))
    return Result(found_out.verdict, report, source.sink.written)


def whatif(
    spark: SparkSession,
    config: RunConfig,
    progress: Progress = nullcontext,
    sink: Sink | None = None,
    frames: Frames | None = None,
) -> Result:
    """Replay recorded traffic under every scenario of the run and compare them side by side; ``sink`` and ``frames``
    as above."""
    with progress("reading and checking the tables"):
        source = read_traffic(
            spark, config, sink or OnDisk(spark, config.output.tables, "whatif_"), frames, every_topic=True
        )
    with closing(source.inputs.reads), source.sink.open():
        return _compare(source, progress)


def plan(
    spark: SparkSession,
    config: RunConfig,
    questions: Sequence[Question],
    progress: Progress = nullcontext,
    sink: Sink | None = None,
    frames: Frames | None = None,
) -> Result:
    """Answer questions about how to set a subscription up, and replay the traffic under the finalists; ``sink`` and
    ``frames`` as above."""
    with progress("reading and checking the tables"):
        source = read_traffic(spark, config, sink or OnDisk(spark, config.output.tables, "plan_"), frames)
    with closing(source.inputs.reads), source.sink.open():
        with progress("profiling the traffic"):
            asked = given(source)
        with progress(f"planning {', '.join(questions)}"):
            answers = tuple(answer(asked, question) for question in questions)
        shown = config.model_copy(update={"scenarios": finalists(config, answers)})
        source = replace(source, config=shown, stored_profile=source.profiled)
        return _compare(source, progress, tuple(plan_view(found) for found in answers))


def _compare(source: Source, progress: Progress, plans_made: tuple[PlanView, ...] = ()) -> Result:
    """The scenarios of a run side by side."""
    config = source.config
    with progress("replaying the traffic under the scenarios"):
        figures, plans = whatif_stages.assign(source, whatif_stages.sum_traffic(source))
    judged = replayable(figures, config)
    replayed = () if judged.nothing else _replayed(source, plans, progress)
    dispatch = tuple(map(dispatch_view, replayed))
    views = compare.scenario_views(plans, figures, replayed)
    run = assemble.run_info(config, figures, "whatif", source.spark.version)
    report = replace(assemble.report(run, figures, judged, views, dispatch), plans=plans_made)
    with progress("writing the result tables"):
        write_tables(source, result_tables(figures, run, judged, views))
    return Result(judged.verdict, report, source.sink.written)


def profile(spark: SparkSession, config: RunConfig, progress: Progress = nullcontext) -> dict[str, int]:
    """Write the traffic's profile, which a what-if reads; returns how many messages it has of each day."""
    with progress("writing the traffic's profile"):
        return {str(row["date"]): row["messages"] for row in write_profile(spark, config)}


def _replayed(source: Source, plans: tuple[Plan, ...], progress: Progress) -> tuple[DispatchFigures, ...]:
    asked = dispatch_asked(source, plans)
    if not asked:
        return ()
    with progress(f"replaying the dispatch, message by message: {asked}"):
        return replay_dispatch(source, plans)
