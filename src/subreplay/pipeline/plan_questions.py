"""From section ``plan`` of a run to its questions, and from their answers to scenarios that show them at work."""

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
from subreplay.config.scenario import AnyScenario, GroupScenario, Scenario
from subreplay.errors import ConfigError, InputError, NoMatchingRows
from subreplay.hashing.producer_routing import get_default_scheme
from subreplay.hashing.profiles import LATEST_PROFILES, get_latest_profile
from subreplay.pipeline import plans
from subreplay.pipeline.source import Source
from subreplay.rows.model.partitioner_words import sentences, unexplained
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
KAFKA = ("kafka.range", "kafka.roundrobin", "kafka.sticky", "kafka.cooperative_sticky", "kafka.uniform")
"""What is compared where the run names nothing."""


@dataclass(frozen=True)
class Given:
    """A run with its traffic and its members; ``fitted`` makes a service model of its recorded deliveries, and
    ``partitioners`` are what the messages show of how producers choose partitions."""

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
        """The model that was fitted, where the run asks for one."""
        asked = self.plan.service
        wanted = asked == "fitted" or (isinstance(asked, Service) and asked.model == "recorded")
        return self.fitted() if wanted else None

    @cached_property
    def service(self) -> ServiceModel | None:
        """How long the application works on a message; None: not known."""
        if self.fit is not None:
            return self.fit.service
        asked = self.plan.service
        return asked.service(Empirical((0.0,))) if isinstance(asked, Service) else None

    @cached_property
    def traffic(self) -> PlanTraffic:
        """The traffic as the run measures it: in work where that is known, else in messages or bytes."""
        if self.service is not None:
            return self.worked
        many = np.ones(len(self.profile), np.int64) if self.plan.measure == "messages" else self.profile.size
        return PlanTraffic(self.profile, many, self.plan.window * US)

    @property
    def unit(self) -> Unit:
        """That of ``traffic``."""
        return "ns" if self.service is not None else self.plan.measure

    @cached_property
    def worked(self) -> PlanTraffic:
        """The traffic in ns of work. Raises ``ConfigError`` where nobody tells how long a message takes."""
        if self.service is None:
            raise ConfigError(
                "plan.service: how long the application works on a message decides this; give a model such as "
                "{model: fixed, time: 5ms}, or fitted where deliveries were recorded"
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
        """The policies to compare, each under the run's profile, or where it does not have that, under the latest."""
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


def given_of(source: Source) -> Given:
    """What questions are asked of. Raises ``NothingThere`` where there are no messages."""
    if not source.extent["messages"]:
        raise NoMatchingRows(
            "plan: the input has no messages, so there is nothing to plan. Check the input paths and the time range."
        )
    profile = plans.profile(source)
    return Given(source.config, profile, source.events, lambda: plans.fitted(source), source.partitioners)


def answer(given: Given, question: Question) -> PlanAnswer:
    """The answer to one question. Raises ``ConfigError`` or ``InputError`` where something that it needs is missing."""
    return _ANSWERS[question](given)


def _ranges(given: Given) -> PlanAnswer:
    if not (given.profile.runs.sticky != NO_KEY).any():
        raise InputError("plan ranges: the messages do not record their keys, so nothing decides a slot")
    weights = given.plan.ranges.weights or (1,) * given.plan.consumers
    profile = (
        given.setup.profile if given.setup.profile.startswith(("pulsar", "documented")) else LATEST_PROFILES["pulsar"]
    )
    return answer_ranges(given.traffic, given.unit, profile, tuple(weights))


def _consumers(given: Given) -> PlanAnswer:
    asked, traffic = given.plan.sizing, given.worked
    if asked.p99 is not None:
        wanted = SizingTarget("latency", asked.p99 * US, 0.99)
    elif asked.backlog is not None:
        wanted = SizingTarget("drain", (asked.within or 0) * US, backlog=asked.backlog)
    else:
        wanted = SizingTarget("utilisation", asked.utilisation, asked.windows)
    service = given.service
    assert service is not None
    ordered = given.config.subscription.make_policy().ordered
    return answer_consumers(
        traffic, service, given.plan.factor, given.setups, wanted, asked.most, given.plan.vary, ordered
    )


def _partitions(given: Given) -> PlanAnswer:
    asked = given.plan.partitions
    return answer_partitions(given.traffic, given.unit, asked.counts, given.plan.consumers, _routed(given), asked.now)


def _routed(given: Given) -> RecordedRouting:
    """How the producers choose partitions: as the run says, else as the messages show, else as their system's do."""
    declared, default = given.config.topic.routing, get_default_scheme(given.setup.policy)
    assumed = given.plan.partitions.scheme or (None if declared is None else declared.scheme)
    found = given.partitioners
    if found is None:
        return RecordedRouting(assumed or default)
    parts = () if assumed else found.parts
    scheme = assumed or (parts[0].way.scheme if parts else default)
    evidence = [one.sentence for one in sentences(found, assumed, default)]
    evidence += filter(None, [unexplained(found, scheme)])
    return RecordedRouting(scheme, parts, tuple(f"{line[0].upper()}{line[1:]}." for line in evidence))


def _rollout(given: Given) -> PlanAnswer:
    asked = given.plan.rollout
    return answer_rollout(
        given.traffic, given.setup, RolloutRequest(given.plan.consumers, asked.to, asked.away * US, asked.pause * US)
    )


def _upgrade(given: Given) -> PlanAnswer:
    told = any(given.events.values())
    events = {scope: build_recorded_events(mine) for scope, mine in given.events.items()}
    if not told:
        members = build_permanent_members(name_consumers(given.plan.consumers))
        events = {scope: build_planned_events(members, scope, 0) for scope in given.profile.scopes}
    return answer_upgrade(given.traffic, given.setup, events, told)


_ANSWERS: dict[Question, Callable[[Given], PlanAnswer]] = {
    "ranges": _ranges,
    "consumers": _consumers,
    "partitions": _partitions,
    "policy": lambda given: answer_policy(given.traffic, given.setups, given.plan.consumers),
    "rollout": _rollout,
    "upgrade": _upgrade,
    "static": lambda given: answer_static(
        given.setup, given.events, [timeout * US for timeout in given.plan.static.timeouts]
    ),
    "capacity": lambda given: answer_capacity(given.worked, given.setup, given.plan.consumers, given.fit),
}


def finalists(config: RunConfig, answers: Sequence[PlanAnswer]) -> list[AnyScenario]:
    """The finalists of all answers as scenarios, which are replayed in time where the run has a service model."""
    found: dict[str, AnyScenario] = {}
    for one in answers:
        for finalist in one.finalists:
            name = finalist.name if len(answers) == 1 else f"{one.question}: {finalist.name}"
            found.setdefault(name, _scenario(config, name, finalist))
    return list(found.values())


def _scenario(config: RunConfig, name: str, finalist: Finalist) -> AnyScenario:
    setup = finalist.setup
    kafka = setup.policy.startswith("kafka.")
    section: dict[str, Any] = {"name": name, "policy": setup.policy, "profile": setup.profile}
    own = config.subscription
    if setup.policy == own.policy:
        section["options"] = own.options
    if finalist.members is not None:
        section["members"] = list(_members(finalist))
    if config.plan.service is not None:
        service = {"model": "recorded"} if config.plan.service == "fitted" else config.plan.service.model_dump()
        section["dispatch"] = {"consumers": {"service": service, "factor": config.plan.factor}}
    return (GroupScenario if kafka else Scenario).model_validate(section)


def _members(finalist: Finalist) -> Iterable[dict[str, Any]]:
    for member in finalist.members or ():
        yield {
            "consumer": member.consumer,
            "join": member.join // US,
            "leave": None if member.leave is None else member.leave // US,
            "ranges": None if member.ranges is None else list(member.ranges),
            "restart": None if member.restart is None else member.restart // US,
        }
