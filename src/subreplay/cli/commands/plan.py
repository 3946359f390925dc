"""Command ``plan``: recommend a set-up, one question at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subreplay.cli.command import Command, log, open_engine_for, terminal
from subreplay.cli.runs import (
    ConfigOrMessages,
    Date,
    Engine,
    ExplainConfig,
    Full,
    Json,
    Messages,
    MessagesFormat,
    NoColor,
    Out,
    Quiet,
    Tables,
    Verbose,
    build_run_of_messages,
    load_run,
    print_explanation,
    write_report,
)

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig
    from subreplay.whatif.planning.questions.answer import Question

_ABOUT = "Recommend a set-up: each answer has a lower bound, the runner-up, and its assumptions."
plan_app = typer.Typer(no_args_is_help=True, help=_ABOUT, short_help=_ABOUT)

_QUESTIONS: dict[Question, str] = {
    "ranges": "Find the contiguous sticky ranges that give the busiest consumer the lightest worst window.",
    "consumers": "Find the fewest consumers that keep a utilisation, a latency, or a time to drain a backlog.",
    "partitions": "Show what another number of partitions does to balance, order and consumers.",
    "policy": "Compare balance, moves and order of every policy in one table.",
    "rollout": "Find the order and the number of consumers at a time for a restart or a scale-out.",
    "upgrade": "Show what other releases would do with the same members and traffic.",
    "static": "Show which rebalances static membership would have avoided in a Kafka group.",
    "capacity": "Show how busy the consumers are, by a configured or fitted service model.",
}

# typer evaluates annotations twice for each command, but these aliases once
Consumers = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="How many consumers there are or will be (plan.consumers).")
]
Policies = Annotated[list[str] | None, typer.Option(help="A policy to compare; may be repeated (plan.policies).")]
Window = Annotated[str | None, typer.Option(help="Width of a window, e.g. 1h (plan.window).")]
Service = Annotated[str | None, typer.Option(help="Time per message, e.g. 5ms, or fitted (plan.service).")]
Utilisation = Annotated[float | None, typer.Option(help="consumers: the highest utilisation (plan.sizing).")]
P99 = Annotated[str | None, typer.Option(help="consumers: the highest p99 latency, e.g. 2s (plan.sizing).")]
Backlog = Annotated[int | None, typer.Option(help="consumers: the backlog to drain, in messages (plan.sizing).")]
Within = Annotated[str | None, typer.Option(help="consumers: the time in which to drain it (plan.sizing).")]
Weights = Annotated[
    list[int] | None, typer.Option(help="ranges: weight of a consumer; repeat it (plan.ranges.weights).")
]
Counts = Annotated[
    list[int] | None, typer.Option(help="partitions: a number to try; may be repeated (plan.partitions.counts).")
]
To = Annotated[int | None, typer.Option("--to", help="rollout: the number of consumers to scale to (plan.rollout.to).")]


def _command(question: Question) -> Callable[..., int]:
    """Build the command of a question. All commands take the same options, each for one key of the run file."""

    def run_question(
        config_file: ConfigOrMessages = None,
        messages: Messages = None,
        consumers: Consumers = None,
        policy: Policies = None,
        window: Window = None,
        service: Service = None,
        utilisation: Utilisation = None,
        p99: P99 = None,
        backlog: Backlog = None,
        within: Within = None,
        weight: Weights = None,
        count: Counts = None,
        to: To = None,
        table_format: MessagesFormat = None,
        date: Date = None,
        tables: Tables = None,
        out_dir: Out = None,
        engine: Engine = None,
        explain_config: ExplainConfig = False,
        full: Full = False,
        no_color: NoColor = False,
        quiet: Quiet = False,
        verbose: Verbose = False,
        as_json: Json = False,
    ) -> int:
        terminal.configure(quiet=quiet, verbose=verbose, as_json=as_json, full=full, no_color=no_color)
        if (config_file is None) == (messages is None):
            raise typer.BadParameter("pass either --config or --messages")
        if messages is not None and explain_config:
            raise typer.BadParameter("--explain-config explains a run file; pass it with --config")
        overrides: dict[str, Any] = {
            "engine": engine,
            "plan.consumers": consumers,
            "plan.policies": policy or None,
            "plan.window": window,
            "plan.service": service if service in (None, "fitted") else {"model": "fixed", "time": service},
            "plan.sizing.utilisation": utilisation,
            "plan.sizing.p99": p99,
            "plan.sizing.backlog": backlog,
            "plan.sizing.within": within,
            "plan.ranges.weights": weight or None,
            "plan.partitions.counts": count or None,
            "plan.rollout.to": to,
        }
        if config_file is not None:
            run = load_run(config_file, date, tables, out_dir, not explain_config, **overrides)
            return print_explanation("plan", run) if explain_config else _run(question, run)
        run = build_run_of_messages(str(messages), table_format, (None, [], 1), date, out_dir, **overrides)
        return _run(question, run)

    run_question.__doc__ = _QUESTIONS[question]
    return run_question


for _question in _QUESTIONS:
    plan_app.command(_question, cls=Command)(_command(_question))


def _run(question: Question, run: RunConfig) -> int:
    log.open(run.output.report, run.spark.conf)
    with open_engine_for(run, meanwhile="subreplay.pipeline.story") as engine:
        from subreplay.pipeline import story

        result = story.plan(engine, run, [question], terminal.progress)
        plans = [asdict(view) for view in result.report.plans]
        return write_report("plan", run, result.verdict, result.report, plans=plans)
