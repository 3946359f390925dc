"""Section ``scenarios``: what a what-if asks, each with its policy, profile and members."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from subreplay.config.dispatch import Dispatch
from subreplay.config.fields import INT_31, Duration, HashingScheme, Model, Name, parse_duration
from subreplay.config.group_dispatch import GroupDispatch
from subreplay.config.kafka_names import INITIAL_DELAY, policy_options
from subreplay.config.kafka_names import OPTIONS as OPTIONS_OF_KAFKA
from subreplay.errors import ConfigError
from subreplay.hashing.profiles import LATEST_PROFILES, get_rule
from subreplay.semantics.policies import list_option_names, make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.simulation.kafka.simulation_parameters import SIMULATED
from subreplay.whatif.traffic.producer_rerouting import Keyless, ProducerRouting
from subreplay.whatif.traffic.retention import Retention

Slot = Annotated[int, Field(ge=0, le=INT_31)]


class Member(Model):
    """A consumer of a scenario; times count from the first message of the traffic."""

    consumer: Name
    join: Duration = 0
    leave: Duration | None = None
    priority: Annotated[int, Field(ge=0, le=INT_31)] = 0
    ranges: list[tuple[Slot, Slot]] | None = None
    instance_id: str | None = None
    rack: str | None = None
    crash: Duration | None = None
    restart: Duration | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Member:
        if self.leave is not None and self.leave <= self.join:
            raise ValueError(f"{self.consumer} leaves before it joins")
        if self.crash is not None and self.crash <= self.join:
            raise ValueError(f"{self.consumer} crashes before it joins")
        if self.leave is not None and self.crash is not None:
            raise ValueError(f"{self.consumer} leaves and crashes; give one of the two")
        if self.restart is not None and self.leave is None and self.crash is None:
            raise ValueError(f"{self.consumer} restarts but neither leaves nor crashes; say when it does")
        return self


def _word(given: Any) -> Any:
    if given != "recorded":
        raise ValueError("must be recorded, or a list of consumers")
    return given


# Told apart by their shape, so that a mistake in a list is not also reported as a wrong word.
_Recorded = Annotated[Literal["recorded"], BeforeValidator(_word), Tag("(word)")]
_Listed = Annotated[list[Member], Field(min_length=1), Tag("(list)")]
Members = Annotated[_Recorded | _Listed, Discriminator(lambda given: "(list)" if isinstance(given, list) else "(word)")]


_BYTES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
                 "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip


def _limit(given: str) -> Retention:
    size = re.fullmatch(rf"(\d+(?:\.\d+)?) *({'|'.join(_BYTES)})", given)
    if size:
        return Retention(size=round(float(size[1]) * _BYTES[size[2]]))
    return Retention(time=parse_duration(given, written=True) * 1_000)


def _retention(given: str) -> str:
    try:
        _limit(given)
    except ValueError as error:
        raise ValueError(f"neither a duration, as 7d, nor a size, as 100GB (units: {', '.join(_BYTES)})") from error
    return given


class AnyScenario(Model):
    """One answer to "what if": a policy, a profile and a timeline of members (``recorded``: as it was)."""

    name: Name
    policy: str
    profile: str = LATEST_PROFILES["pulsar"]
    options: dict[str, Any] = Field(default_factory=dict)
    members: Members = "recorded"
    partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    hashing: HashingScheme | None = None
    keyless: Keyless | None = None
    retention: Annotated[str, AfterValidator(_retention)] | None = None

    @model_validator(mode="after")
    def _without_time(self) -> AnyScenario:
        if self.rerouted and getattr(self, "dispatch", None) is not None:
            raise ValueError("partitions, hashing and keyless cannot be asked together with dispatch")
        return self

    @property
    def rerouted(self) -> bool:
        """Whether its producers choose other partitions than the recorded ones did."""
        return any(asked is not None for asked in (self.partitions, self.hashing, self.keyless))

    def routing(self, partitions: int, scheme: str) -> ProducerRouting | None:
        """How its producers choose partitions, None: as the recorded ones did. For what it does not say, there are
        ``partitions``, which producers choose by ``scheme``."""
        if not self.rerouted:
            return None
        kafka = self.policy.startswith("kafka.")
        return ProducerRouting(
            self.partitions or partitions,
            self.hashing or scheme,
            self.keyless or ("sticky" if kafka else "round robin"),
        )

    @property
    def kept_by(self) -> Retention | None:
        """Its retention."""
        return None if self.retention is None else _limit(self.retention)

    def make_policy(self) -> Policy:
        return make_policy(self.policy, self.profile, **policy_options(self.policy, self.options))


class Scenario(AnyScenario, defer_build=False):
    """``dispatch`` is what its consumers are assumed to do; None asks only who owns each message."""

    dispatch: Dispatch | None = None


class GroupScenario(AnyScenario, defer_build=False):
    """The same for a Kafka group; what its ``dispatch`` tells of the policy wins over ``options``."""

    dispatch: GroupDispatch | None = None

    def make_policy(self) -> Policy:
        told: dict[str, int] = {}
        if self.dispatch is not None:
            get_rule("the simulation of a group (dispatch)", SIMULATED, self.profile)
            told = self.dispatch.of_policy
        options = policy_options(self.policy, self.options)
        if twice := [name for name in OPTIONS_OF_KAFKA if OPTIONS_OF_KAFKA[name] in {*told} & {*options}]:
            raise ConfigError(f"{twice[0]} is given twice, in options and in dispatch: give it once")
        delay = OPTIONS_OF_KAFKA[INITIAL_DELAY]
        if self.members != "recorded" and delay in list_option_names(self.policy):
            told.setdefault(delay, options.pop(delay, 0))  # its members are there before the first message
        return make_policy(self.policy, self.profile, **options, **told)


def _scenario_kind(given: Any) -> str:
    policy = given.get("policy") if isinstance(given, dict) else getattr(given, "policy", None)
    return "(kafka)" if str(policy).startswith("kafka.") else "(pulsar)"


SCENARIOS: dict[str, type[AnyScenario]] = {"(pulsar)": Scenario, "(kafka)": GroupScenario}
EveryScenario = Annotated[
    Annotated[Scenario, Tag("(pulsar)")] | Annotated[GroupScenario, Tag("(kafka)")], Discriminator(_scenario_kind)
]
