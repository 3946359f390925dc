"""Evaluate scenarios one by one over traffic that stays in memory, with the figures of a what-if."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from subreplay.config.run import RunConfig
from subreplay.config.scenario import AnyScenario
from subreplay.pipeline import whatif
from subreplay.pipeline.plan_inputs import require_profile
from subreplay.pipeline.source import Source
from subreplay.reports.assemble.scenario_comparison import build_scenario_views
from subreplay.reports.data import ScenarioView
from subreplay.reports.figures import Figures, Row
from subreplay.whatif.message_assignment import MessageAssigner, RoutedEvaluators, ScenarioPlan
from subreplay.whatif.traffic.evaluation_counts import Extent


@dataclass(frozen=True)
class EvaluatedScenario:
    """The result of one scenario: its view, its plan, and its rows of ``message_assignment.TRAFFIC``.

    ``width`` is that of its windows, in ns.
    """

    view: ScenarioView
    plan: ScenarioPlan
    rows: Sequence[Row]
    width: int


@dataclass(frozen=True, eq=False)
class ScenarioEvaluator:
    """Evaluates scenarios over the traffic of a run. Their figures are those of ``subreplay whatif``.

    Raises ``InputError`` if the traffic is too large for this process.
    """

    source: Source
    _latest: list[RoutedEvaluators] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        require_profile(self.source)

    @cached_property
    def figures(self) -> Figures:
        """The figures of the recorded subscription, which those of scenarios refer to."""
        source = replace(
            self.source,
            config=self.source.config.model_copy(update={"scenarios": []}),
            stored_profile=self.source.profiled,
        )
        return whatif.assign(source, whatif.sum_traffic(source))[0]

    def evaluate(self, scenario: AnyScenario, config: RunConfig | None = None) -> EvaluatedScenario:
        """Evaluate a scenario, without its dispatch replay. ``config`` may set other windows than the source."""
        width = self.source.width if config is None else replace(self.source, config=config).width
        plan = whatif.build_scenario_plan(self.source, scenario)
        evaluators = self._choose_evaluators(width)
        rows = list(MessageAssigner((plan,), evaluators.extent).evaluate_rows(evaluators))
        view = build_scenario_views((plan,), replace(self.figures, width=width, traffic=rows))[0]
        return EvaluatedScenario(view, plan, rows, width)

    def _choose_evaluators(self, width: int) -> RoutedEvaluators:
        """Return the evaluators for windows of this width (ns). Those of the latest width are kept."""
        if not self._latest or self._latest[0].extent.width != width:
            extent = Extent(self.source.extent["first"], self.source.extent["last"], width)
            self._latest[:] = [RoutedEvaluators(require_profile(self.source), extent)]
        return self._latest[0]
