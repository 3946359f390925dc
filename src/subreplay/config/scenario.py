"""Section ``scenarios``: the set-ups that a what-if compares, each with its policy, profile and members."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from subreplay.config.dispatch import Dispatch
from subreplay.config.fields import (
    DURATION_PATTERN,
    INT_31,
    Duration,
    HashingScheme,
    Model,
    Name,
    PolicyName,
    ProfileName,
    parse_duration,
)
from subreplay.config.group_dispatch import GroupDispatch
from subreplay.config.kafka_names import INITIAL_DELAY, translate_policy_options
from subreplay.config.kafka_names import OPTIONS as OPTIONS_OF_KAFKA
from subreplay.config.share_dispatch import ShareDispatch
from subreplay.errors import ConfigError
from subreplay.hashing.profiles import LATEST_PROFILES, get_rule
from subreplay.semantics.policies import list_option_names, make_policy
from subreplay.semantics.policies.base import Policy
from subreplay.semantics.policies.kafka.share import ShareGroupPolicy, is_share_group
from subreplay.simulation.kafka.simulation_parameters import SIMULATED
from subreplay.whatif.traffic.producer_rerouting import Keyless, PartitionRouting
from subreplay.whatif.traffic.retention import Retention

Slot = Annotated[int, Field(ge=0, le=INT_31)]


class Member(Model):
    """A consumer of a scenario. Times count from the first message of the traffic."""

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
    def _check_order(self) -> Member:
        if self.leave is not None and self.leave <= self.join:
            raise ValueError(f"{self.consumer} leaves before it joins")
        if self.crash is not None and self.crash <= self.join:
            raise ValueError(f"{self.consumer} crashes before it joins")
        if self.leave is not None and self.crash is not None:
            raise ValueError(f"{self.consumer} leaves and crashes; keep one of the two")
        if self.restart is not None and self.leave is None and self.crash is None:
            raise ValueError(f"{self.consumer} restarts but neither leaves nor crashes; set leave or crash")
        return self


def _require_recorded(value: Any) -> Any:
    if value != "recorded":
        raise ValueError("must be recorded, or a list of consumers")
    return value


# The shape of the value selects the type, so that an error in a list is not also reported as a wrong word.
_Recorded = Annotated[Literal["recorded"], BeforeValidator(_require_recorded), Tag("(word)")]
_Listed = Annotated[list[Member], Field(min_length=1), Tag("(list)")]
Members = Annotated[_Recorded | _Listed, Discriminator(lambda value: "(list)" if isinstance(value, list) else "(word)")]


_BYTES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
                 "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip


_SIZE: Final = rf"(\d+(?:\.\d+)?) *({'|'.join(_BYTES)})"
_RETENTION: Final = rf"{DURATION_PATTERN}|^{_SIZE}$"


def _parse_retention(text: str) -> Retention:
    size = re.fullmatch(_SIZE, text)
    if size:
        return Retention(size=round(float(size[1]) * _BYTES[size[2]]))
    return Retention(time=parse_duration(text, written=True) * 1_000)


def _check_retention(text: str) -> str:
    try:
        _parse_retention(text)
    except ValueError as error:
        units = ", ".join(_BYTES)
        raise ValueError(f"neither a duration such as 7d nor a size such as 100GB (units: {units})") from error
    return text


class AnyScenario(Model):
    """A set-up to compare: a policy, a profile and a timeline of members (``recorded``: the recorded members)."""

    name: Name
    policy: PolicyName
    profile: ProfileName = LATEST_PROFILES["pulsar"]
    options: dict[str, Any] = Field(default_factory=dict)
    members: Members = "recorded"
    partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    hashing: HashingScheme | None = None
    keyless: Keyless | None = None
    retention: (
        Annotated[str, AfterValidator(_check_retention), WithJsonSchema({"type": "string", "pattern": _RETENTION})]
        | None
    ) = None

    @property
    def is_rerouted(self) -> bool:
        """Whether its producers choose other partitions than the recorded ones did."""
        return any(setting is not None for setting in (self.partitions, self.hashing, self.keyless))

    def routing(self, partitions: int, scheme: str) -> PartitionRouting | None:
        """Return how its producers choose partitions; None if they choose as the recorded ones did.

        ``partitions`` and ``scheme`` apply where the scenario sets no number of partitions and no hashing scheme.
        """
        if not self.is_rerouted:
            return None
        kafka = self.policy.startswith("kafka.")
        return PartitionRouting(
            self.partitions or partitions,
            self.hashing or scheme,
            self.keyless or ("sticky" if kafka else "round robin"),
        )

    @property
    def retention_limit(self) -> Retention | None:
        """Its retention as a time or a size."""
        return None if self.retention is None else _parse_retention(self.retention)

    def make_policy(self) -> Policy:
        return make_policy(self.policy, self.profile, **translate_policy_options(self.policy, self.options))


class Scenario(AnyScenario, defer_build=False):
    """A scenario of Pulsar. ``dispatch`` sets assumptions about its consumers; None computes only the owners."""

    dispatch: Dispatch | None = None


class GroupScenario(AnyScenario, defer_build=False):
    """A scenario of a Kafka group. Policy settings in ``dispatch`` take precedence over ``options``."""

    dispatch: GroupDispatch | None = None

    def make_policy(self) -> Policy:
        settings: dict[str, int] = {}
        if self.dispatch is not None:
            get_rule("the simulation of a group (dispatch)", SIMULATED, self.profile)
            settings = self.dispatch.policy_settings
        options = translate_policy_options(self.policy, self.options)
        if twice := [name for name in OPTIONS_OF_KAFKA if OPTIONS_OF_KAFKA[name] in {*settings} & {*options}]:
            raise ConfigError(f"{twice[0]} appears in options and in dispatch; set it once")
        delay = OPTIONS_OF_KAFKA[INITIAL_DELAY]
        if self.members != "recorded" and delay in list_option_names(self.policy):
            settings.setdefault(delay, options.pop(delay, 0))  # its members join before the first message
        return make_policy(self.policy, self.profile, **options, **settings)


class ShareScenario(AnyScenario, defer_build=False):
    """A scenario of a Kafka share group."""

    dispatch: ShareDispatch | None = None

    def make_policy(self) -> ShareGroupPolicy:
        policy = super().make_policy()
        assert is_share_group(policy)
        return policy


def _detect_kind(value: Any) -> str:
    policy = str(value.get("policy") if isinstance(value, dict) else getattr(value, "policy", None))
    if policy == ShareGroupPolicy.name:
        return "(share)"
    return "(kafka)" if policy.startswith("kafka.") else "(pulsar)"


def get_scenario_kind(policy: str) -> type[AnyScenario]:
    """Return the kind of scenario that has a policy."""
    return SCENARIOS[_detect_kind({"policy": policy})]


SCENARIOS: dict[str, type[AnyScenario]] = {
    "(pulsar)": Scenario,
    "(kafka)": GroupScenario,
    "(share)": ShareScenario,
}
EveryScenario = Annotated[
    Annotated[Scenario, Tag("(pulsar)")]
    | Annotated[GroupScenario, Tag("(kafka)")]
    | Annotated[ShareScenario, Tag("(share)")],
    Discriminator(_detect_kind),
]
