"""Hold the traffic of one run, and answer for a state of the page: figures, charts, plans, the report, the run file."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from subreplay.config.dispatch import Service as ServiceSection
from subreplay.config.fields import format_duration, parse_duration
from subreplay.config.run import RunConfig
from subreplay.config.scenario import AnyScenario
from subreplay.errors import ConfigError, SubreplayError
from subreplay.hashing.producer_routing import SCHEMES
from subreplay.hashing.profiles import KEYLESS, get_latest_profile
from subreplay.pipeline import story
from subreplay.pipeline.plan_inputs import require_profile
from subreplay.pipeline.plan_questions import answer, build_finalists, build_plan_input
from subreplay.pipeline.scenario_evaluation import EvaluatedScenario, ScenarioEvaluator
from subreplay.pipeline.source import Source
from subreplay.reports.assemble.plan_views import build_plan_view
from subreplay.reports.data import ScenarioView
from subreplay.reports.formatting import format_count, format_percent, natural_sort_key
from subreplay.reports.json_report import list_view_figures
from subreplay.reports.metrics import METRICS
from subreplay.reports.page import palette
from subreplay.reports.page.html import to_html
from subreplay.rows.model.text_format import format_instant
from subreplay.semantics.policies import REGISTRY, make_policy
from subreplay.semantics.policies.pulsar.key_sticky import StickyPolicy
from subreplay.simulation.pulsar.service_model import Empirical, Fixed, LogNormal, PerByte
from subreplay.studio.drawing import (
    Service,
    Utilisation,
    build_figure_rows,
    build_palette,
    draw_card,
    draw_detail,
    measure_utilisation,
)
from subreplay.studio.state import MOST_CONSUMERS, MOST_SETUPS, StudioRun
from subreplay.whatif.message_assignment import find_slot_and_owner
from subreplay.whatif.planning.capacity import compute_mean_work
from subreplay.whatif.planning.questions.answer import QUESTIONS, Question
from subreplay.whatif.planning.questions.policy_loads import name_consumers

MOST_KEPT: Final = 24
"""Evaluated set-ups that are kept, so that a change of one of six evaluates only that one."""
WINDOWS: Final = 60
"""The windows of a run that names none. More windows are possible and take longer."""
HOT_KEYS: Final = 10
PRODUCERS: Final = ("partitions", "hashing", "keyless")
_WIDTHS: Final = (
    "10ms", "100ms", "500ms", "1s", "5s", "10s", "30s", "1m", "5m", "10m", "15m", "30m", "1h", "2h", "6h", "1d", "7d",
)  # fmt: skip


@dataclass
class Workbench:
    """Answers for states of the page over the traffic of ``source``.

    One thread evaluates at a time; another one may plan or build the report meanwhile.
    """

    run: StudioRun
    source: Source
    is_sample: bool = False
    _kept: OrderedDict[str, EvaluatedScenario] = field(default_factory=OrderedDict, init=False, repr=False)

    @cached_property
    def evaluator(self) -> ScenarioEvaluator:
        return ScenarioEvaluator(self.source)

    def describe(self) -> dict[str, Any]:
        """Describe the traffic, what the page offers, and the first state."""
        extent, profile = self.source.extent, require_profile(self.source)
        hot = profile.find_hottest(1)
        span = max(extent["last"] - extent["first"], 1)
        return {
            "is_sample": self.is_sample,
            "title": (self.run.sections.get("report") or {}).get("title") or "Studio",
            "topic": self.source.inputs.topic,
            "messages": format_count(extent["messages"]),
            "keys": format_count(len(profile.keys)),
            "hottest": format_percent(hot[0].messages / len(profile)) if hot else "",
            "first": format_instant(extent["first"]),
            "last": format_instant(extent["last"]),
            "span_us": span // 1_000,
            "recorded_partitions": max(len(profile.scopes), 1),
            "recorded_names": self._list_recorded_names(),
            "can_replay": self.source.config.traffic.messages is not None or bool(self.source.inputs.tables),
            "policies": _list_policies(),
            "schemes": list(SCHEMES),
            "widths": [width for width in _WIDTHS if self._is_usable(width)],
            "metrics": {**METRICS, **_MORE_METRICS},
            "most": {"consumers": MOST_CONSUMERS, "setups": MOST_SETUPS},
            "patterns": palette.draw_patterns(palette.TOKENS),
            "state": self.build_first_state(),
        }

    def _list_recorded_names(self) -> list[str]:
        """List the recorded consumers by name."""
        events = [event for of_scope in self.source.events.values() for event in of_scope]
        return sorted({event.consumer for event in events if event.event == "join"}, key=natural_sort_key)

    def build_first_state(self) -> dict[str, Any]:
        """Return the state that the page begins with: the scenarios of the run, or its policy with four consumers."""
        config = self.source.config
        scenarios = [dict(one) for one in self.run.sections.get("scenarios") or ()][:MOST_SETUPS]
        if not scenarios:
            own = config.subscription
            recorded = bool(self._list_recorded_names())
            members = "recorded" if recorded else [{"consumer": name} for name in name_consumers(4)]
            setup = {"policy": own.policy, "profile": own.profile, "members": members}
            scenarios = [{"name": "today", **setup}]
        windows = dict(self.run.sections.get("windows") or {"width": self._choose_width()})
        return {"scenarios": scenarios, "windows": windows, "plan": dict(self.run.sections.get("plan") or {})}

    def _choose_width(self) -> str:
        return next((width for width in _WIDTHS if self._is_usable(width)), _WIDTHS[-1])

    def _is_usable(self, width: str) -> bool:
        """Return whether the traffic has at most ``WINDOWS`` windows of this width, and more than one."""
        windows = (self.source.extent["last"] - self.source.extent["first"]) / (parse_duration(width) * 1_000)
        return 1 < windows <= WINDOWS or (windows <= 1 and width == _WIDTHS[0])

    def evaluate(self, state: Mapping[str, Any], selected: int, baseline: int) -> dict[str, Any]:
        """Return the figures of all set-ups of a state, and the charts of the selected one.

        Raises ``ConfigError`` if the state is wrong. A set-up that cannot be evaluated has an error instead.
        """
        config = self.run.parse(state)
        selected, baseline = (max(0, min(index, len(config.scenarios) - 1)) for index in (selected, baseline))
        found: list[EvaluatedScenario | SubreplayError] = []
        for scenario in config.scenarios:
            try:
                found.append(self._evaluate_setup(scenario, config))
            except SubreplayError as error:
                found.append(error)
        service = read_service(config)
        views = [one.view if isinstance(one, EvaluatedScenario) else None for one in found]
        busy = [
            measure_utilisation(one, service) if service is not None and isinstance(one, EvaluatedScenario) else None
            for one in found
        ]
        colours = build_palette(view for view in views if view is not None)
        cards = [
            {
                "name": scenario.name,
                "error": str(one) if isinstance(one, SubreplayError) else "",
                "chart": "" if view is None else draw_card(view, colours),
                "note": "" if view is None else "; ".join(filter(None, (view.note, view.unowned_why))),
                "figures": None if view is None else _list_figures(view, use),
            }
            for scenario, one, view, use in zip(config.scenarios, found, views, busy, strict=True)
        ]
        chosen = found[selected]
        detail: dict[str, Any] = {"charts": {}, "hot_keys": [], "consumers": []}
        if isinstance(chosen, EvaluatedScenario):
            detail = {
                "charts": draw_detail(chosen, busy[selected], self.source.extent, colours),
                "hot_keys": self._list_hot_keys(chosen),
                "consumers": [
                    [one.consumer, colours.find_token(one.consumer), format_count(one.messages),
                     format_count(one.keys), format_percent(one.share), one.note]
                    for one in chosen.view.per_consumer
                ],
            }  # fmt: skip
        rows = [asdict(row) for row in build_figure_rows(views, busy, baseline)]
        return {"cards": cards, "rows": rows, "detail": detail, "selected": selected, "baseline": baseline}

    def _evaluate_setup(self, scenario: AnyScenario, config: RunConfig) -> EvaluatedScenario:
        """Evaluate a set-up, or return the kept result of an equal one."""
        bare = scenario.model_copy(update={"dispatch": None}) if hasattr(scenario, "dispatch") else scenario
        key = json.dumps([bare.model_dump(mode="json"), config.windows.width], sort_keys=True)
        found = self._kept.pop(key, None) or self.evaluator.evaluate(bare, config)
        self._kept[key] = found
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    def _list_hot_keys(self, found: EvaluatedScenario) -> list[list[str]]:
        """List the hottest keys, each with its share and its owner at the end of the traffic."""
        profile, rows = require_profile(self.source), []
        one = next(iter(found.plan.timelines.values())) if len(found.plan.timelines) == 1 else None
        for key in profile.find_hottest(HOT_KEYS):
            owner = ""
            if one is not None and found.plan.policy.routing == "slot":
                owner = find_slot_and_owner(one, key.hash, self.source.extent["last"])[1] or "none"
            rows.append([key.word, format_count(key.messages), format_percent(key.messages / len(profile)), owner])
        return rows

    def plan(self, state: Mapping[str, Any], selected: int, question: str) -> dict[str, Any]:
        """Answer a planning question about the selected set-up. ``setups`` can replace it.

        Raises ``ConfigError`` or ``InputError`` if something that the question needs is missing.
        """
        if question not in QUESTIONS:
            raise ConfigError(f"plan: unknown question {question!r}; choose one of {', '.join(QUESTIONS)}")
        chosen: Question = question
        config = self.run.parse(state)
        setup = config.scenarios[max(0, min(selected, len(config.scenarios) - 1))]
        own = config.subscription.model_copy(
            update={"policy": setup.policy, "profile": setup.profile, "options": setup.options}
        )
        count = len(setup.members) if isinstance(setup.members, list) else config.plan.consumers
        width = replace(self.source, config=config).width // 1_000
        weights = config.plan.ranges.weights
        fitted = None if weights is None else [*weights, *[1] * count][:count]
        ranges = config.plan.ranges.model_copy(update={"weights": fitted})
        plan = config.plan.model_copy(
            update={"consumers": count, "policies": [setup.policy], "window": width, "ranges": ranges}
            | ({"partitions": config.plan.partitions.model_copy(update={"counts": (setup.partitions,)})}
               if setup.partitions and chosen == "partitions" else {})
        )  # fmt: skip
        config = config.model_copy(update={"subscription": own, "plan": plan})
        source = replace(self.source, config=config, stored_profile=self.source.profiled)
        found = answer(build_plan_input(source), chosen)
        finalists = build_finalists(
            config.model_copy(update={"plan": plan.model_copy(update={"service": None})}), [found]
        )
        view = build_plan_view(found)
        return {
            "question": question,
            "choice": view.choice or view.best,
            "reason": view.reason,
            "price": view.price,
            "bound": view.bound_meaning,
            "assumed": list(view.assumed),
            "setups": [write_section(scenario, setup) for scenario in finalists if scenario.members != "recorded"][:1],
        }

    def build_page(self, state: Mapping[str, Any]) -> str:
        """Return the report of a what-if of this state, as one page. Dispatch is not replayed for it."""
        config = self.run.parse(state)
        bare = [
            scenario.model_copy(update={"dispatch": None}) if hasattr(scenario, "dispatch") else scenario
            for scenario in config.scenarios
        ]
        return to_html(story.compare(self.source, config.model_copy(update={"scenarios": bare})).report)


def read_service(config: RunConfig) -> Service | None:
    """Return the service time of section ``plan``; None if it names none, or one that must be measured first."""
    section = config.plan.service
    if not isinstance(section, ServiceSection) or section.model == "recorded":
        return None
    model, limit = section.service(Empirical((0.0,))), config.plan.sizing.utilisation
    factor = config.plan.factor
    if isinstance(model, PerByte):
        return Service(model.ns * factor, model.ns_per_byte * factor, limit)
    assert isinstance(model, (Fixed, LogNormal))
    return Service(float(compute_mean_work(model, np.zeros(1, np.int64), factor)[0]), 0.0, limit)


def write_section(scenario: AnyScenario, like: AnyScenario) -> dict[str, Any]:
    """Write a scenario as an entry of ``scenarios`` in a run file. Options, producers and retention are of ``like``."""
    kept = like.model_dump(mode="json", exclude_unset=True, include={"options", *PRODUCERS, "retention"})
    found: dict[str, Any] = {"name": like.name, "policy": scenario.policy, "profile": scenario.profile, **kept}
    if scenario.members == "recorded":
        return found | {"members": "recorded"}
    members = []
    for member in scenario.members:
        section: dict[str, Any] = {"consumer": member.consumer}
        for name in ("join", "leave", "crash", "restart"):
            if value := getattr(member, name):
                section[name] = format_duration(value)
        if ranges := getattr(member, "ranges", None):
            section["ranges"] = [list(one) for one in ranges]
        members.append(section)
    return found | {"members": members}


def _list_figures(view: ScenarioView, use: Utilisation | None) -> dict[str, Any]:
    """List the numbers of a set-up, which are those of ``subreplay whatif --json``."""
    return list_view_figures(view) | {"utilisation": None if use is None else use.most}


def _list_policies() -> list[dict[str, Any]]:
    """List every policy, with the releases that have it, the latest first."""
    listed = []
    for name in REGISTRY:
        profiles = [latest := get_latest_profile(name)]
        for profile in (one for one in KEYLESS if one != latest):
            try:
                make_policy(name, profile)
            except SubreplayError:
                continue
            profiles.append(profile)
        listed.append({"name": name, "profiles": profiles, "has_ranges": name == StickyPolicy.name})
    return listed


_MORE_METRICS: Final = {
    "utilisation": "The work of the busiest consumer in its busiest window, divided by the width of the window. Each "
    "window counts only its own work, not the backlog before it.",
    "keys rerouted": "Keys whose messages go to another partition than the recorded one. Their order is not kept "
    "across the change.",
    "traffic rerouted": "The fraction of all messages that go to another partition than the recorded one.",
    "hottest key": "The fraction of all messages that have the most frequent key. One consumer gets all of them.",
}
