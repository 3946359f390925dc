"""Turn the arguments of ``subreplay.api`` into a run, and answer it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date as Date
from os import PathLike, fsdecode, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from subreplay import failures
from subreplay.api.results import Explanation, Result
from subreplay.audit.explain.position import Position
from subreplay.config import run as config
from subreplay.config.run import RunConfig
from subreplay.engine.interface import Engine, Tables
from subreplay.errors import ConfigError
from subreplay.pipeline import story
from subreplay.pipeline.attempts import run_tables
from subreplay.pipeline.engines import choose_engine, is_frame, open_engine, open_frame_engine
from subreplay.pipeline.explain import explain_key
from subreplay.pipeline.input_tables import PassedTables
from subreplay.pipeline.trace import AuditTables, trace_key, trace_message
from subreplay.reports.report_folder import ReportFolder
from subreplay.reports.write import write_reports
from subreplay.rows.model.tables import INPUTS

if TYPE_CHECKING:
    from subreplay.engine.spark.session import DataFrame

Table: TypeAlias = "DataFrame | Mapping[str, Any] | None"
"""An input table: a frame, or where it is, as a mapping like that of ``traffic.messages`` in the run file."""
Section = Mapping[str, Any]
_FRAMES: Final = "the passed frames"  # replaces the folder of the input tables in error messages


class Run(TypedDict, total=False):
    """The settings of a run besides its tables: the sections of the run file, and the keys of ``subscription``."""

    subscription: str | Section  # its name, or the section
    topic: str | Section  # its name, or the section
    policy: str
    profile: str
    options: Section
    date: str | Date
    windows: Section
    require: Section
    tolerate: Section
    keys: Section
    plan: Section
    scenarios: Sequence[Section]
    report: Section
    output: Section
    traffic: Section


@dataclass(frozen=True)
class Question:
    """A checked question: the run, the input tables that are frames, and the name of the called function."""

    caller: str
    config: RunConfig
    frames: Mapping[str, DataFrame]
    passed: frozenset[str]  # the names of the input tables that exist

    @classmethod
    def build(
        cls,
        caller: str,
        tables: Mapping[str, Table],
        columns: Section | None,
        values: Section | None,
        out: str | PathLike[str] | None,
        run: Run,
    ) -> Question:
        raw = _sections(caller, run)
        traffic, mapped = dict(raw["traffic"]), {"columns": columns, "values": values}
        by_table = {part: _split_by_table(f"{caller}: {part}", mapping) for part, mapping in mapped.items()}
        frames: dict[str, DataFrame] = {}
        for name, table in tables.items():
            more = {part: mappings[name] for part, mappings in by_table.items() if name in mappings}
            if is_frame(table):
                _refuse_stream(caller, name, table)
                frames[name] = table
                more = {**traffic.get(name, {}), **more}
                traffic[name] = {"table": name, **more} if more else None
            elif isinstance(table, Mapping):
                traffic[name] = {**table, **more}
            elif table is not None:
                what = type(table).__name__  # type: ignore[unreachable]  # untyped callers may pass anything
                raise ConfigError(
                    f"{caller}: {name} is of type {what}; pass a pyspark DataFrame, or a mapping as in the run file"
                )
            elif more:
                raise ConfigError(
                    f"{caller}: {', '.join(more)} has an entry {name}, but that table is missing; pass {name}"
                )
        if frames or traffic:
            raw["traffic"] = {"path": _FRAMES, **traffic}
        else:
            del raw["traffic"]  # without a named table the run has none
        if out is not None:
            raw["output"] = {
                **raw["output"],
                "tables": f"{fspath(out)}/tables",
                "report": f"{fspath(out)}/report",
            }
        existing = frozenset(name for name in tables if name in frames or traffic.get(name))
        return cls(caller, config.parse(raw, caller), frames, existing)

    def engine(self) -> Engine:
        """Open the engine of the frames' session, or without frames the engine that fits the tables."""
        if self.frames:
            return open_frame_engine(self.frames)
        return open_engine(self.config, choose_engine(self.config))

    def tables(self, engine: Engine, prefix: str) -> Tables:
        """Return the result tables: written where the run says, or else kept by the engine."""
        return run_tables(engine, self.config, prefix, kept=not self._is_written)

    @property
    def _is_written(self) -> bool:
        return "tables" in self.config.output.model_fields_set

    def load_frames(self, engine: Engine) -> PassedTables | None:
        """Return the frames as input tables, or None if the run names every table."""
        return {name: engine.wrap_frame(frame) for name, frame in self.frames.items()} or None  # type: ignore[attr-defined]

    def answer(self, work: Callable[..., story.Result], prefix: str) -> Result:
        """Run an audit or a what-if, and write its report if the run names a folder for it."""
        with explain_failures():
            engine = self.engine()
            try:
                with engine.restore_settings():
                    tables = self.tables(engine, prefix)
                    found = work(engine, self.config, tables=tables, passed=self.load_frames(engine))
                    if "report" in self.config.output.model_fields_set:
                        folder = ReportFolder(self.config.output.report, self.config.spark.conf)
                        write_reports(found.report, folder.path)
                        folder.upload()
                        folder.remove_copy()
            except BaseException:
                engine.close()
                raise
        return Result(
            found.verdict, found.report, found.tables, engine, None if self._is_written else tables, self.explain
        )

    def explain(
        self, engine: Engine, written: Tables | None, key: str | bytes | None, message: str | None, last: int
    ) -> Explanation:
        """Explain a key or a message; ``written`` are the tables that an audit has kept."""
        if (key is None) == (message is None):
            raise ConfigError(f"{self.caller}: pass either key or message")
        if message is not None and not {"messages", "deliveries"} <= self.passed:
            raise ConfigError(f"{self.caller}: message needs messages and deliveries")
        with explain_failures(), engine.restore_settings():
            return Explanation(tuple(self._explain_lines(engine, written, key, message, last)))

    def _explain_lines(
        self, engine: Engine, written: Tables | None, key: str | bytes | None, message: str | None, last: int
    ) -> Iterator[str]:
        passed = self.load_frames(engine) if self.passed else None
        where = str(self.config.output.tables) if self._is_written else None
        found = AuditTables(written or self.tables(engine, ""), "these frames" if written is not None else where)
        if message is not None:
            yield from trace_message(engine, self.config, Position.parse(message, "message"), last, found, passed)
            return
        text = fsdecode(key or b"")
        yield from explain_key(self.config, text, lambda: engine, passed)
        if {"messages", "deliveries"} <= self.passed:
            yield ""
            yield from trace_key(engine, self.config, text, last, found, passed)


def _sections(caller: str, run: Run) -> dict[str, Any]:
    """Return the arguments as sections of a run file; raises ``ConfigError`` for an unknown name."""
    raw: dict[str, Any] = {name: value for name, value in run.items() if value is not None}
    for name in raw:
        if name not in Run.__annotations__:
            near = difflib.get_close_matches(name, Run.__annotations__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"legal keys: {', '.join(Run.__annotations__)}"
            raise ConfigError(f"{caller}: unknown key {name}; {hint}")
    if isinstance(raw.get("subscription"), str):
        raw["subscription"] = {"name": raw["subscription"]}
    parts: dict[str, Any] = {name: raw.pop(name) for name in ("policy", "profile", "options") if name in raw}
    if isinstance(raw.get("topic"), str):
        parts["topic"] = raw.pop("topic")
    for name in ("subscription", "traffic", "output"):
        if not isinstance(raw.setdefault(name, {}), Mapping):
            raise ConfigError(f"{caller}: {name}: a mapping of keys is needed, not {type(raw[name]).__name__}")
    return raw | {"subscription": {**raw["subscription"], **parts}}


def _split_by_table(key: str, mapping: Section | None) -> Section:
    """Return a mapping of columns, or of constants, for each table; one that names no table belongs to messages."""
    if not mapping:
        return {}
    if not isinstance(mapping, Mapping):
        what = type(mapping).__name__  # type: ignore[unreachable]  # untyped callers may pass anything
        raise ConfigError(f"{key}: a mapping of names is needed, not {what}")
    return mapping if set(mapping) <= set(INPUTS) else {"messages": mapping}


def _refuse_stream(caller: str, name: str, frame: DataFrame) -> None:
    if frame.isStreaming:
        raise ConfigError(f"{caller}: {name} is a stream, which never ends; pass a table (spark.read)")


@contextmanager
def explain_failures() -> Iterator[None]:
    """Raise failures as errors that say what to do; the original error is the cause."""
    try:
        yield
    except Exception as error:
        found = failures.explain_failure(error)
        if found is None or found is error:
            raise
        raise found from error
