"""Turn section ``plan`` of a run into questions, and their answers into scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from subreplay.config.dispatch import Service
from subreplay.config.kafka_names import translate_policy_options
from subreplay.config.plan import Plan
from subreplay.config.run import RunConfig
from subreplay.config.scenario import AnyScenario, get_scenario_kind
from subreplay.errors import ConfigError, InputError, NoMatchingRows
from subreplay.hashing.producer_routing import get_default_scheme
from subreplay.hashing.profiles import LATEST_PROFILES, get_latest_profile
from subreplay.pipeline import plan_inputs
from subreplay.pipeline.source import Source
from subreplay.rows.model.partitioner_text import build_statements, unexplained
from subreplay.rows.model.partitioners import Partitioners
from subreplay.semantics.policies import make_policy
from subreplay.simulation.pulsar.service_model import Empirical
from subreplay.simulation.pulsar.service_model import Service as ServiceModel
from subreplay.whatif.planning.capacity import ServiceFit, compute_mean_work
from subreplay.whatif.planning.planning_traffic import PlanTraffic
from subreplay.whatif.planning.questions.answer import (
    Finalist,
    PlanAnswer,
    Question,
    Setup,
    Unit,
    build_permanent_members,
)
from subreplay.whatif.planning.questions.change_questions import (
    Events,
    RolloutRequest,
    answer_rollout,
    answer_static,
    answer_upgrade,
)
from subreplay.whatif.planning.questions.layout_questions import (
    RecordedRouting,
    answer_partitions,
    answer_policy,
    answer_ranges,
)
from subreplay.whatif.planning.questions.policy_loads import name_consumers
from subreplay.whatif.planning.questions.size_questions import SizingTarget, answer_capacity, answer_consumers
from subreplay.whatif.scenario import build_planned_events, build_recorded_events
from subreplay.whatif.traffic.traffic_profile import NO_KEY, TrafficProfile

US = 1_000  # ns
PULSAR = ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split", "pulsar.failover", "pulsar.shared")
KAFKA = ("kafka.range", "kafka.roundrobin", "kafka.sticky", "kafka.cooperative_sticky", "kafka.uniform", "kafka.share")
"""What is compared where the run names nothing."""


@dataclass(frozen=True)
class PlanInput:
    """A run with its traffic and members.

    ``fitted`` fits a service model to its recorded deliveries. ``partitioners`` is how the producers choose partitions,
    as the messages show it.
    """

    config: RunConfig
    profile: TrafficProfile
    events: Events
    fitted: Callable[[], ServiceFit]
    partitioners: Partitioners | None = None

    @property
    def plan(self) -> Plan:
        return self.config.plan

    @cached_property
    def fit(self) -> ServiceFit | None:
        """The fitted service model, if the run requests one."""
        section = self.plan.service
        wanted = section == "fitted" or (isinstance(section, Service) and section.model == "recorded")
        return self.fitted() if wanted else None

    @cached_property
    def service(self) -> ServiceModel | None:
        """The time that the application takes for a message; None if unknown."""
        if self.fit is not None:
            return self.fit.service
        section = self.plan.service
        return section.service(Empirical((0.0,))) if isinstance(section, Service) else None

    @cached_property
    def traffic(self) -> PlanTraffic:
        """The traffic in the unit of the run: in work if its service time is known, else in messages or bytes."""
        if self.service is not None:
            return self.worked
        many = np.ones(len(self.profile), np.int64) if self.plan.measure == "messages" else self.profile.size
        return PlanTraffic(self.profile, many, self.plan.window * US)

    @property
    def unit(self) -> Unit:
        """The unit of ``traffic``."""
        return "ns" if self.service is not None else self.plan.measure

    @cached_property
    def worked(self) -> PlanTraffic:
        """The traffic in ns of work. Raises ``ConfigError`` if the service time is unknown."""
        if self.service is None:
            raise ConfigError(
                "plan.service: this question needs the time that the application takes for a message. Set a "
                "model such as {model: fixed, time: 5ms}, or fitted if deliveries were recorded."
            )
        work = compute_mean_work(self.service, self.profile.size, self.plan.factor)
        return PlanTraffic(self.profile, work, self.plan.window * US)

    @property
    def setup(self) -> Setup:
        """The subscription of the run."""
        own = self.config.subscription
        return Setup(own.policy, own.profile, translate_policy_options(own.policy, own.options))

    @property
    def setups(self) -> tuple[Setup, ...]:
        """The policies to compare, each under the run's profile, or under the latest profile if the policy does not
        have that one."""
        kafka = self.setup.policy.startswith("kafka.")
        named = self.plan.policies or (KAFKA if kafka else PULSAR)
        keyed = bool((self.profile.runs.sticky != NO_KEY).any())
        found = []
        for name in dict.fromkeys(named):
            if name == self.setup.policy:
                found.append(self.setup)
                continue
            try:
                make_policy(name, self.setup.profile)
                found.append(Setup(name, self.setup.profile))
            except ConfigError:
                found.append(Setup(name, get_latest_profile(name)))
                make_policy(name, found[-1].profile)
        return tuple(one for one in found if keyed or self.plan.policies or "key_shared" not in one.policy)


def build_plan_input(source: Source) -> PlanInput:
    """Build the input of the questions. Raises ``NoMatchingRows`` if there are no messages."""
    if not source.extent["messages"]:
        raise NoMatchingRows(
            "plan: the input has no messages, so there is nothing to plan. Check the input paths and the time range."
        )
    profile = plan_inputs.require_profile(source)
    return PlanInput(
        source.config, profile, source.events, lambda: plan_inputs.fit_recorded_service(source), source.partitioners
    )


def answer(inputs: PlanInput, question: Question) -> PlanAnswer:
    """Answer one question. Raises ``ConfigError`` or ``InputError`` if something that it needs is missing."""
    return _ANSWERS[question](inputs)


def _answer_ranges(inputs: PlanInput) -> PlanAnswer:
    if not (inputs.profile.runs.sticky != NO_KEY).any():
        raise InputError("plan ranges: the messages do not record their keys, so nothing decides a slot")
    weights = inputs.plan.ranges.weights or (1,) * inputs.plan.consumers
    profile = (
        inputs.setup.profile if inputs.setup.profile.startswith(("pulsar", "documented")) else LATEST_PROFILES["pulsar"]
    )
    return answer_ranges(inputs.traffic, inputs.unit, profile, tuple(weights))


def _answer_consumers(inputs: PlanInput) -> PlanAnswer:
    section, traffic = inputs.plan.sizing, inputs.worked
    if section.p99 is not None:
        wanted = SizingTarget("latency", section.p99 * US, 0.99)
    elif section.backlog is not None:
        wanted = SizingTarget("drain", (section.within or 0) * US, backlog=section.backlog)
    else:
        wanted = SizingTarget("utilisation", section.utilisation, section.windows)
    service = inputs.service
    assert service is not None
    ordered = inputs.config.subscription.make_policy().ordered
    return answer_consumers(
        traffic, service, inputs.plan.factor, inputs.setups, wanted, section.most, inputs.plan.vary, ordered
    )


def _answer_partitions(inputs: PlanInput) -> PlanAnswer:
    section = inputs.plan.partitions
    return answer_partitions(
        inputs.traffic, inputs.unit, section.counts, inputs.plan.consumers, _choose_routing(inputs), section.now
    )


def _choose_routing(inputs: PlanInput) -> RecordedRouting:
    """Choose how the producers map keys to partitions: from the run, else from the messages, else the default of their
    system."""
    declared, default = inputs.config.topic.routing, get_default_scheme(inputs.setup.policy)
    assumed = inputs.plan.partitions.scheme or (None if declared is None else declared.scheme)
    found = inputs.partitioners
    if found is None:
        return RecordedRouting(assumed or default)
    parts = () if assumed else found.parts
    scheme = assumed or (parts[0].way.scheme if parts else default)
    evidence = [one.sentence for one in build_statements(found, assumed, default)]
    evidence += filter(None, [unexplained(found, scheme)])
    return RecordedRouting(scheme, parts, tuple(f"{line[0].upper()}{line[1:]}." for line in evidence))


def _answer_rollout(inputs: PlanInput) -> PlanAnswer:
    section = inputs.plan.rollout
    return answer_rollout(
        inputs.traffic,
        inputs.setup,
        RolloutRequest(inputs.plan.consumers, section.to, section.away * US, section.pause * US),
    )


def _answer_upgrade(inputs: PlanInput) -> PlanAnswer:
    is_recorded = any(inputs.events.values())
    events = {scope: build_recorded_events(mine) for scope, mine in inputs.events.items()}
    if not is_recorded:
        members = build_permanent_members(name_consumers(inputs.plan.consumers))
        events = {scope: build_planned_events(members, scope, 0) for scope in inputs.profile.scopes}
    return answer_upgrade(inputs.traffic, inputs.setup, events, is_recorded)


_ANSWERS: dict[Question, Callable[[PlanInput], PlanAnswer]] = {
    "ranges": _answer_ranges,
    "consumers": _answer_consumers,
    "partitions": _answer_partitions,
    "policy": lambda inputs: answer_policy(inputs.traffic, inputs.setups, inputs.plan.consumers),
    "rollout": _answer_rollout,
    "upgrade": _answer_upgrade,
    "static": lambda inputs: answer_static(
        inputs.setup, inputs.events, [timeout * US for timeout in inputs.plan.static.timeouts]
    ),
    "capacity": lambda inputs: answer_capacity(inputs.worked, inputs.setup, inputs.plan.consumers, inputs.fit),
}


def build_finalists(config: RunConfig, answers: Sequence[PlanAnswer]) -> list[AnyScenario]:
    """Build scenarios from the finalists of all answers. They include a dispatch replay if the run has a service
    model."""
    found: dict[str, AnyScenario] = {}
    for one in answers:
        for finalist in one.finalists:
            name = finalist.name if len(answers) == 1 else f"{one.question}: {finalist.name}"
            found.setdefault(name, _build_scenario(config, name, finalist))
    return list(found.values())


def _build_scenario(config: RunConfig, name: str, finalist: Finalist) -> AnyScenario:
    setup = finalist.setup
    section: dict[str, Any] = {"name": name, "policy": setup.policy, "profile": setup.profile}
    own = config.subscription
    if setup.policy == own.policy:
        section["options"] = own.options
    if finalist.members is not None:
        section["members"] = list(_list_members(finalist))
    if config.plan.service is not None:
        service = {"model": "recorded"} if config.plan.service == "fitted" else config.plan.service.model_dump()
        section["dispatch"] = {"consumers": {"service": service, "factor": config.plan.factor}}
    return get_scenario_kind(setup.policy).model_validate(section)


def _list_members(finalist: Finalist) -> Iterable[dict[str, Any]]:
    for member in finalist.members or ():
        yield {
            "consumer": member.consumer,
            "join": member.join // US,
            "leave": None if member.leave is None else member.leave // US,
            "ranges": None if member.ranges is None else list(member.ranges),
            "restart": None if member.restart is None else member.restart // US,
        }
