"""A question of ``subreplay.api``: its arguments as a run, and how it is answered."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date as Date
from os import PathLike, fsdecode, fspath
from pathlib import Path
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
from subreplay.pipeline.engines import choose_engine, engine_of_frames, is_frame, open_engine
from subreplay.pipeline.explain import explain_key
from subreplay.pipeline.input_tables import Given
from subreplay.pipeline.trace import Written, trace_key, trace_message
from subreplay.reports.write import write_reports
from subreplay.rows.model.tables import INPUTS

if TYPE_CHECKING:
    from subreplay.engine.spark.session import DataFrame

Table: TypeAlias = "DataFrame | Mapping[str, Any] | None"
"""An input table: a frame, or where it is, as a mapping like that of ``traffic.messages`` in the run file."""
Section = Mapping[str, Any]
_FRAMES: Final = "the frames given"  # stands for the folder of the input tables in messages


class Run(TypedDict, total=False):
    """What a run may say besides its tables: the sections of the run file, and the parts of ``subscription`` by
    themselves."""

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
    scenarios: Sequence[Section]
    report: Section
    output: Section
    traffic: Section


@dataclass(frozen=True)
class Question:
    """A checked question: the run, its input tables as far as they are frames, and the function that was called."""

    caller: str
    config: RunConfig
    frames: Mapping[str, DataFrame]
    given: frozenset[str]  # tables that there are

    @classmethod
    def of(
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
        by_table = {part: _by_table(f"{caller}: {part}", given) for part, given in mapped.items()}
        frames: dict[str, DataFrame] = {}
        for name, table in tables.items():
            more = {part: given[name] for part, given in by_table.items() if name in given}
            if is_frame(table):
                frames[name] = _bounded(caller, name, table)
                more = {**traffic.get(name, {}), **more}
                traffic[name] = {"table": name, **more} if more else None
            elif isinstance(table, Mapping):
                traffic[name] = {**table, **more}
            elif table is not None:
                what = type(table).__name__  # type: ignore[unreachable]  # who is not typed may give anything
                raise ConfigError(
                    f"{caller}: {name}: give a pyspark DataFrame, or a mapping as in the run file, not {what}"
                )
            elif more:
                raise ConfigError(f"{caller}: {', '.join(more)}.{name}: there is no such table; give {name}")
        if frames or traffic:
            raw["traffic"] = {"path": _FRAMES, **traffic}
        else:
            del raw["traffic"]  # to name no table is to have none
        if out is not None:
            raw["output"] = {
                **raw["output"],
                "tables": f"{fspath(out)}/tables",
                "report": f"{fspath(out)}/report",
            }
        given = frozenset(name for name in tables if name in frames or traffic.get(name))
        return cls(caller, config.parse(raw, caller), frames, given)

    def engine(self) -> Engine:
        """That of the session of the frames; where there are none, the one that fits the tables."""
        if self.frames:
            return engine_of_frames(self.frames)
        return open_engine(self.config, choose_engine(self.config))

    def tables(self, engine: Engine, prefix: str) -> Tables:
        """Where the result tables go: where the run says, if it says so; else they are kept."""
        return run_tables(engine, self.config, prefix, kept=not self._is_written)

    @property
    def _is_written(self) -> bool:
        return "tables" in self.config.output.model_fields_set

    def given_to(self, engine: Engine) -> Given | None:
        """The frames as input tables; None where no table is a frame, and all are where the run says."""
        return {name: engine.of_frame(frame) for name, frame in self.frames.items()} or None  # type: ignore[attr-defined]

    def answered(self, ask: Callable[..., story.Result], prefix: str) -> Result:
        with _told():
            engine = self.engine()
            try:
                with engine.unchanged():
                    tables = self.tables(engine, prefix)
                    found = ask(engine, self.config, tables=tables, given=self.given_to(engine))
                    if "report" in self.config.output.model_fields_set:
                        write_reports(found.report, Path(self.config.output.report))
            except BaseException:
                engine.close()
                raise
        return Result(
            found.verdict, found.report, found.tables, engine, None if self._is_written else tables, self.explained
        )

    def explained(
        self, engine: Engine, written: Tables | None, key: str | bytes | None, message: str | None, last: int
    ) -> Explanation:
        """The life of a key or of a message; ``written`` are the tables that an audit has kept."""
        if (key is None) == (message is None):
            raise ConfigError(f"{self.caller}: give either key or message")
        if message is not None and not {"messages", "deliveries"} <= self.given:
            raise ConfigError(f"{self.caller}: message needs messages and deliveries")
        with _told(), engine.unchanged():
            return Explanation(tuple(self._lines(engine, written, key, message, last)))

    def _lines(
        self, engine: Engine, written: Tables | None, key: str | bytes | None, message: str | None, last: int
    ) -> Iterator[str]:
        given = self.given_to(engine) if self.given else None
        where = str(self.config.output.tables) if self._is_written else None
        found = Written(written or self.tables(engine, ""), "these frames" if written is not None else where)
        if message is not None:
            yield from trace_message(engine, self.config, Position.parse(message, "message"), last, found, given)
            return
        text = fsdecode(key or b"")
        yield from explain_key(self.config, text, lambda: engine, given)
        if {"messages", "deliveries"} <= self.given:
            yield ""
            yield from trace_key(engine, self.config, text, last, found, given)


def _sections(caller: str, run: Run) -> dict[str, Any]:
    """The arguments as sections of a run file. Raises ``ConfigError`` for a name that is none."""
    raw: dict[str, Any] = {name: value for name, value in run.items() if value is not None}
    for name in raw:
        if name not in Run.__annotations__:
            near = difflib.get_close_matches(name, Run.__annotations__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"legal here: {', '.join(Run.__annotations__)}"
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


def _by_table(key: str, given: Section | None) -> Section:
    """A mapping of columns, or constants, for each table; one that names no table is that of messages."""
    if not given:
        return {}
    if not isinstance(given, Mapping):
        what = type(given).__name__  # type: ignore[unreachable]  # who is not typed may give anything
        raise ConfigError(f"{key}: a mapping of names is needed, not {what}")
    return given if set(given) <= set(INPUTS) else {"messages": given}


def _bounded(caller: str, name: str, frame: DataFrame) -> DataFrame:
    if frame.isStreaming:
        raise ConfigError(f"{caller}: {name}: a stream never ends; give a table (spark.read)")
    return frame


@contextmanager
def _told() -> Iterator[None]:
    """What broke a run off, as an error that says what to do; where it came from is its cause."""
    try:
        yield
    except Exception as error:
        found = failures.explained(error)
        if found is None or found is error:
            raise
        raise found from error
