"""Audit, what-if and explain over frames or files, from Python.

Input tables are pyspark frames in the canonical columns (``subreplay.rows.model.tables``), or frames in any columns
with a mapping, or mappings that name files as in the run file. Other arguments have the names of the run file
(``conf/default.yaml``), and wrong ones raise the errors of a run file. The frames' session is used and left unchanged;
without a frame the run chooses its engine. Nothing is written unless you request it.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from typing_extensions import Unpack

from subreplay.api.question import Question, Run, Section, Table, explain_failures
from subreplay.api.results import Comparison, Explanation, Inspected, Result
from subreplay.api.traffic_profile import ScenarioResult, TrafficProfile
from subreplay.config.run import RunConfig, parse
from subreplay.engine.interface import Engine
from subreplay.errors import ConfigError
from subreplay.pipeline import story
from subreplay.pipeline.engines import choose_engine, open_engine
from subreplay.pipeline.history import read_history
from subreplay.pipeline.inspection import build_inspection_run, build_run_file, build_source, inspect_source
from subreplay.reports.history_data import History
from subreplay.whatif.planning.questions.answer import QUESTIONS
from subreplay.whatif.planning.questions.answer import Question as PlanQuestion

__all__ = [
    "Comparison",
    "Explanation",
    "Inspected",
    "Result",
    "Run",
    "ScenarioResult",
    "Table",
    "TrafficProfile",
    "audit",
    "explain",
    "history",
    "inspect",
    "plan",
    "profile",
    "whatif",
]


def audit(
    messages: Table,
    deliveries: Table,
    membership: Table = None,
    *,
    columns: Section | None = None,
    values: Section | None = None,
    out: str | PathLike[str] | None = None,
    **run: Unpack[Run],
) -> Result:
    """Check whether the subscription kept its delivery guarantees.

    Without a ``membership`` it is inferred from the deliveries: a consumer that received a message was a member. Rules
    that need exact joins and leaves do not apply then, and the verdict is at best unknown.

    :param columns: the source column of each canonical column, as ``traffic.messages.columns`` of the run file: for
        each table, ``{"messages": {"key": "order_id"}, "deliveries": {…}}``, or for messages, ``{"key": "order_id"}``.
    :param values: constants for canonical columns, in the same form.
    :param out: a folder for the tables (``out``/tables) and the report (``out``/report). By default nothing is written.
    :param run: ``policy``, ``profile`` and ``options`` of the subscription; ``subscription`` and ``topic``, each a name
        or the section of that name; and the other sections of the run file: ``date``, ``windows``, ``require``,
        ``tolerate``, ``keys``, ``scenarios``, ``report``, ``output``, ``traffic``.

    Raises ``ConfigError`` for wrong arguments and ``InputError`` for unusable tables, both naming the key;
    ``NoMatchingRows`` if the tables contain no row of the run, ``EnvironmentFailed`` if Spark failed.
    """
    members = membership if membership is not None else {"from": "deliveries"}
    tables = {"messages": messages, "membership": members, "deliveries": deliveries}
    question = Question.build("subreplay.audit", tables, columns, values, out, run)
    return question.answer(story.audit, "")


def whatif(
    messages: Table,
    deliveries: Table = None,
    membership: Table = None,
    *,
    columns: Section | None = None,
    values: Section | None = None,
    out: str | PathLike[str] | None = None,
    **run: Unpack[Run],
) -> Result:
    """Replay the traffic under each of ``scenarios`` and compare them side by side.

    Only scenarios whose members are ``recorded`` need a ``membership``; only those with recorded service times need
    ``deliveries``. Arguments and errors are those of ``audit``.
    """
    tables = {"messages": messages, "membership": membership, "deliveries": deliveries}
    question = Question.build("subreplay.whatif", tables, columns, values, out, run)
    if not question.config.scenarios:
        raise ConfigError("subreplay.whatif: scenarios is empty; a what-if needs at least one")
    return question.answer(story.whatif, "whatif_")


def plan(
    question: PlanQuestion,
    messages: Table,
    deliveries: Table = None,
    membership: Table = None,
    *,
    columns: Section | None = None,
    values: Section | None = None,
    out: str | PathLike[str] | None = None,
    **run: Unpack[Run],
) -> Result:
    """Recommend a set-up, as ``subreplay plan`` does: ``result.report.plans`` has the answer with its lower bound.

    :param question: ``ranges``, ``consumers``, ``partitions``, ``policy``, ``rollout``, ``upgrade``, ``static`` or
        ``capacity``. Section ``plan`` of the run has the settings of each.

    ``deliveries`` are needed only to fit a service time. Other arguments and errors are those of ``audit``.
    """
    if question not in QUESTIONS:
        raise ConfigError(f"subreplay.plan: unknown question {question!r}; choose one of {', '.join(QUESTIONS)}")
    tables = {"messages": messages, "membership": membership, "deliveries": deliveries}
    request = Question.build("subreplay.plan", tables, columns, values, out, run)

    def work(engine: Engine, config: RunConfig, **options: Any) -> story.Result:
        return story.plan(engine, config, [question], **options)

    return request.answer(work, "plan_")


def profile(
    messages: Table,
    *,
    to: str | PathLike[str],
    columns: Section | None = None,
    values: Section | None = None,
    **run: Unpack[Run],
) -> dict[str, int]:
    """Write the traffic profile below the folder ``to``, as ``subreplay profile`` does.

    Returns the number of messages of each day (``YYYY-MM-DD``). A what-if whose run names the folder in
    ``traffic.profile`` starts from it. Other arguments and errors are those of ``audit``.
    """
    run["traffic"] = {**run.get("traffic", {}), "profile": str(to)}
    question = Question.build("subreplay.profile", {"messages": messages}, columns, values, None, run)
    with explain_failures(), question.engine() as engine:
        return story.profile(engine, question.config, passed=question.load_frames(engine))


def inspect(location: str | PathLike[str], *, format: str | None = None) -> Inspected:
    """Recognise the format of messages, as ``subreplay inspect`` does.

    Returns a run file to start from, and what it leaves open. Raises ``InputError`` if the format is unknown or the
    path does not exist; pass ``format`` (``csv``, ``json``, ``parquet``, …) then.
    """
    with explain_failures():
        source = build_source(str(location), format)
        run = build_inspection_run(source)
        with open_engine(run, choose_engine(run)) as engine:
            found = inspect_source(engine, source)
    answer = found.answer
    return Inspected(build_run_file(found), found.candidate.name, tuple(answer.assumed), tuple(answer.open))


def explain(
    messages: Table = None,
    deliveries: Table = None,
    membership: Table = None,
    *,
    key: str | bytes | None = None,
    message: str | None = None,
    last: int = 50,
    columns: Section | None = None,
    values: Section | None = None,
    **run: Unpack[Run],
) -> Explanation:
    """Explain a key or a message (``TOPIC:LEDGER:ENTRY``, in a batch ``TOPIC:LEDGER:ENTRY:BATCH_INDEX``).

    For a key, the explanation begins with its bytes, hash and slot, and its owner in each epoch. With ``deliveries`` it
    continues with the latest ``last`` rows about its messages and all findings about them. Without any table it uses
    the members of ``scenarios``. Other arguments and errors are those of ``audit``. Findings of an earlier audit are
    included by ``Result.explain``, or if ``output`` names the tables of that audit.
    """
    tables = {"messages": messages, "membership": membership, "deliveries": deliveries}
    if deliveries is not None and membership is None:
        tables["membership"] = {"from": "deliveries"}
    question = Question.build("subreplay.explain", tables, columns, values, None, run)
    with question.engine() as engine:
        return question.explain(engine, None, key, message, last)


def history(tables: str | PathLike[str] | Section, *, days: int = 30, subscription: str | None = None) -> History:
    """Return the verdict of each day, and which failures began and ended, from the result tables of daily runs.

    :param tables: the folder of the tables, or ``{"schema": NAME}``, as ``output.tables`` of the run file.
    :param days: how many days, up to the latest run.
    :param subscription: only this subscription.

    Raises ``InputError`` if there is no daily run.
    """
    place = dict(tables) if isinstance(tables, Mapping) else str(tables)
    config = parse({"output": {"tables": place}}, "subreplay.history")
    with open_engine(config, choose_engine(config)) as engine:
        return read_history(engine, config, days, subscription)
