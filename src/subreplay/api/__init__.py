"""The three questions, asked of frames: was every promise kept, what else could it have been, what happened to this?

Input tables are pyspark frames in the canonical columns (``subreplay.rows.model.tables``), or in any columns with a
mapping beside them; or mappings that name files, as in the run file. Everything else is named as in the run file
(``conf/default.yaml``), and wrong arguments are reported as those of a run file are. The session is that of the frames,
and stays as it was; without a frame the run chooses its engine. Nothing is written unless it is requested.
"""

from __future__ import annotations

from os import PathLike

from typing_extensions import Unpack

from subreplay.api.question import Question, Run, Section, Table
from subreplay.api.results import Explanation, Result
from subreplay.errors import ConfigError
from subreplay.pipeline import story

__all__ = ["Explanation", "Result", "Run", "Table", "audit", "explain", "whatif"]


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
    """Check recorded deliveries against every promise of the subscription.

    Without a ``membership`` it is inferred: who was given something, was there. Rules that need exact joins and leaves
    do not look then, and the verdict is at best unknown.

    :param columns: our columns by name, and theirs, as ``traffic.messages.columns`` of the run file: of each table,
        ``{"messages": {"key": "order_id"}, "deliveries": {…}}``, or of messages alone, ``{"key": "order_id"}``.
    :param values: our columns by name, and constants, likewise.
    :param out: a folder for the tables (``out``/tables) and the report (``out``/report). Nothing is written without.
    :param run: ``policy``, ``profile`` and ``options`` of the subscription; ``subscription`` and ``topic``, each a name
        or the section of that name; and the other sections of the run file: ``date``, ``windows``, ``require``,
        ``tolerate``, ``keys``, ``scenarios``, ``report``, ``output``, ``traffic``.

    Raises ``ConfigError`` for wrong arguments and ``InputError`` for unusable tables, both naming the key;
    ``NothingThere`` where there is nothing of what was asked for, ``EnvironmentFailed`` where Spark failed.
    """
    given = membership if membership is not None else {"from": "deliveries"}
    tables = {"messages": messages, "membership": given, "deliveries": deliveries}
    question = Question.of("subreplay.audit", tables, columns, values, out, run)
    return question.answered(story.audit, "")


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
    """Replay the traffic under every one of ``scenarios`` and compare them side by side.

    A ``membership`` is needed only by scenarios whose members are ``recorded``, ``deliveries`` only by those with the
    service times of recorded ones. Arguments, and what is raised, are those of ``audit``.
    """
    tables = {"messages": messages, "membership": membership, "deliveries": deliveries}
    question = Question.of("subreplay.whatif", tables, columns, values, out, run)
    if not question.config.scenarios:
        raise ConfigError("subreplay.whatif: scenarios is empty; a what-if needs at least one")
    return question.answered(story.whatif, "whatif_")


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
    """The life of a key or of a message (``TOPIC:LEDGER:ENTRY``, in a batch ``TOPIC:LEDGER:ENTRY:BATCH_INDEX``).

    Of a key, first its bytes, hash and slot, and its owner in each epoch; then, where ``deliveries`` are given, what
    happened to its messages, the latest ``last`` rows of it, with all findings about them. Without any table, the
    members that ``scenarios`` invent are explained. Other arguments, and what is raised, are those of ``audit``. An
    audit's own findings are told by ``Result.explain``, and where ``output`` names the tables that one wrote.
    """
    tables = {"messages": messages, "membership": membership, "deliveries": deliveries}
    if deliveries is not None and membership is None:
        tables["membership"] = {"from": "deliveries"}
    question = Question.of("subreplay.explain", tables, columns, values, None, run)
    with question.engine() as engine:
        return question.explained(engine, None, key, message, last)
