"""The traffic profile in Python: load the traffic once, then evaluate one scenario after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from typing_extensions import Unpack

from subreplay.api.question import Question, Run, Section, Table, explain_failures
from subreplay.api.results import Comparison
from subreplay.config.run import RunConfig, parse
from subreplay.errors import ConfigError
from subreplay.pipeline import story
from subreplay.pipeline.scenario_evaluation import ScenarioEvaluator
from subreplay.pipeline.source import Source, read_traffic
from subreplay.reports.data import ScenarioView
from subreplay.rows.model.text_format import format_instant
from subreplay.whatif.message_assignment import TRAFFIC


@dataclass(frozen=True)
class ScenarioResult:
    """What a scenario would have done with the traffic.

    ``figures`` are those of the what-if report (``docs/reference/metrics.md`` defines them): shares, skew, moved keys
    and traffic, the hottest key and the ceiling. ``windows`` has the messages, bytes and keys of each consumer in each
    window, in rows of ``TRAFFIC``; ``window`` is its start in ns since the Unix epoch. ``width`` is the width of
    windows in ns.
    """

    figures: ScenarioView
    windows: pa.Table
    width: int


@dataclass(frozen=True, eq=False, repr=False)
class TrafficProfile:
    """The traffic of a topic, in memory and without readable keys.

    It has about 30 bytes for each message. An evaluation of 10 million messages takes about a tenth of a second.
    """

    _source: Source

    @classmethod
    def load(
        cls,
        messages: Table,
        membership: Table = None,
        *,
        columns: Section | None = None,
        values: Section | None = None,
        **run: Unpack[Run],
    ) -> TrafficProfile:
        """Read the messages once and keep their profile.

        ``membership`` is needed only for scenarios whose members are ``recorded``. Other arguments and errors are those
        of ``subreplay.whatif``. Raises ``InputError`` if there are more messages than one process can hold (16
        million).
        """
        tables = {"messages": messages, "membership": membership}
        question = Question.build("subreplay.TrafficProfile.load", tables, columns, values, None, run)
        with explain_failures():
            engine = question.engine()
            tables_out = question.tables(engine, "whatif_")
            source = read_traffic(engine, question.config, tables_out, question.load_frames(engine), every_topic=True)
            return cls(source)

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self._source.extent["messages"]

    def evaluate(self, scenario: Section) -> ScenarioResult:
        """Evaluate a scenario: a mapping with the keys of an entry of ``scenarios`` in the run file.

        The name may be missing. Dispatch is not replayed: every consumer counts as always having permits. Raises
        ``ConfigError`` for wrong keys or values.

        >>> profile.evaluate({"policy": "pulsar.failover", "members": [{"consumer": "c1"}]})  # doctest: +SKIP
        """
        config = self._parse([{"name": "scenario", **scenario}])
        found = self._evaluator.evaluate(config.scenarios[0])
        rows = [row for row in found.rows if row["level"] == "window"]
        return ScenarioResult(found.view, pa.Table.from_pylist(rows, TRAFFIC), found.width)

    def compare(self, scenarios: Sequence[Section]) -> Comparison:
        """Build the report of a what-if of these scenarios, including the dispatch replay of those that request it.

        A notebook shows it as a page. Raises ``ConfigError`` for wrong keys or values.
        """
        with explain_failures():
            return Comparison(story.compare(self._source, self._parse(list(scenarios))).report)

    def close(self) -> None:
        """Free the memory and the disk that the profile uses."""
        self._source.engine.close()

    def __enter__(self) -> TrafficProfile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self.messages

    def __repr__(self) -> str:
        first, last = (format_instant(self._source.extent[end]) for end in ("first", "last"))
        return f"{self.messages:,} messages of {self._source.inputs.topic}, from {first} to {last}"

    @cached_property
    def _evaluator(self) -> ScenarioEvaluator:
        return ScenarioEvaluator(self._source)

    def _parse(self, scenarios: list[Mapping[str, Any]]) -> RunConfig:
        """Return the run of this traffic with other scenarios."""
        if not scenarios:
            raise ConfigError("subreplay.TrafficProfile.compare: scenarios is empty; a what-if needs at least one")
        parsed = parse({"scenarios": [dict(scenario) for scenario in scenarios]}, "subreplay.TrafficProfile")
        return self._source.config.model_copy(update={"scenarios": parsed.scenarios})
