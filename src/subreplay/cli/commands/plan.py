"""Command ``plan``: which set-up to take, question by question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from subreplay.cli.command import Command, log, opened, terminal
from subreplay.cli.runs import (
    ConfigOrMessages,
    Date,
    Engine,
    Json,
    Messages,
    MessagesFormat,
    Out,
    Quiet,
    Tables,
    Verbose,
    load,
    of_messages,
    reported,
)

if TYPE_CHECKING:
    from subreplay.config.run import RunConfig
    from subreplay.whatif.planning.questions.answer import Question

_ABOUT = "Which set-up to take: answers with a lower bound, the runner-up, and what was assumed."
plan_app = typer.Typer(no_args_is_help=True, help=_ABOUT, short_help=_ABOUT)

_ASKS: dict[Question, str] = {
    "ranges": "Sticky ranges that make the busiest consumer's worst window as light as contiguous ranges can.",
    "consumers": "The fewest consumers that keep a utilisation, a latency, or a time to drain a backlog.",
    "partitions": "What another number of partitions does to balance, order and consumers.",
    "policy": "Balance, moves and order of every policy in one table, and which are best in something.",
    "rollout": "In which order and how many at a time to restart or to add consumers.",
    "upgrade": "What other releases would do with the same members and traffic.",
    "static": "Which rebalances static membership would have spared a Kafka group.",
    "capacity": "How busy consumers are, by a service model that is given or fitted.",
}

# typer evaluates an annotation twice for each command: these are evaluated once
Consumers = Annotated[
    int | None, typer.Option(min=1, max=10_000, help="How many there are or are planned (plan.consumers).")
]
Policies = Annotated[list[str] | None, typer.Option(help="A policy to compare; may be repeated (plan.policies).")]
Window = Annotated[str | None, typer.Option(help="Width of a window, e.g. 1h (plan.window).")]
Service = Annotated[str | None, typer.Option(help="Time for a message, e.g. 5ms, or fitted (plan.service).")]
Utilisation = Annotated[float | None, typer.Option(help="consumers: at most this (plan.sizing).")]
P99 = Annotated[str | None, typer.Option(help="consumers: latency of 99 of 100, e.g. 2s (plan.sizing).")]
Backlog = Annotated[int | None, typer.Option(help="consumers: messages to drain (plan.sizing).")]
Within = Annotated[str | None, typer.Option(help="consumers: ... within this time (plan.sizing).")]
Weights = Annotated[list[int] | None, typer.Option(help="ranges: of each consumer, repeated (plan.ranges.weights).")]
Counts = Annotated[
    list[int] | None, typer.Option(help="partitions: a number to try, repeated (plan.partitions.counts).")
]
To = Annotated[int | None, typer.Option("--to", help="rollout: scale to so many (plan.rollout.to).")]


def _command(question: Question) -> Callable[..., int]:
    """The command of a question. All take the same options; each says which keys of the run file they are."""

    def ask(
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
        quiet: Quiet = False,
        verbose: Verbose = False,
        as_json: Json = False,
    ) -> int:
        terminal.speak(quiet=quiet, verbose=verbose, as_json=as_json)
        if (config_file is None) == (messages is None):
            raise typer.BadParameter("give either --config or --messages")
        said: dict[str, Any] = {
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
            return _run(question, load(config_file, date, tables, out_dir, **said))
        return _run(question, of_messages(str(messages), table_format, (None, [], 1), date, out_dir, **said))

    ask.__doc__ = _ASKS[question]
    return ask


for _question in _ASKS:
    plan_app.command(_question, cls=Command)(_command(_question))


def _run(question: Question, run: RunConfig) -> int:
    log.open(Path(run.output.report))
    with opened(run, meanwhile="subreplay.pipeline.story") as engine:
        from subreplay.pipeline import story

        result = story.plan(engine, run, [question], terminal.progress)
        plans = [asdict(view) for view in result.report.plans]
        return reported("plan", run, result.verdict, result.report, plans=plans)
