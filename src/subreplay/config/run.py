"""The run's configuration: YAML in, validated frozen models out.

Every key, its unit and its legal values stand in ``conf/default.yaml``, which a test holds equal to these models. A run
file names only what it changes. An unknown key is an error with a hint; nothing in a file is ever evaluated.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from subreplay.audit.routing import Routing, RoutingMode
from subreplay.audit.terms import Terms
from subreplay.config import mistakes
from subreplay.config.dispatch import Dispatch
from subreplay.config.fields import INT_31, WRITTEN, Day, Duration, Folder, Model, SchemaName, parse_duration
from subreplay.config.group_dispatch import GroupDispatch
from subreplay.config.kafka_names import OPTIONS as OPTIONS_OF_KAFKA
from subreplay.config.kafka_names import policy_options
from subreplay.config.plan import Plan
from subreplay.config.secrets import PLAIN, Kept, Secret
from subreplay.config.traffic import Traffic
from subreplay.config.yaml_text import Lines, read
from subreplay.errors import ConfigError
from subreplay.model.words import KeyWords
from subreplay.policies import make
from subreplay.policies.base import Policy
from subreplay.traffic import routing as traffic_routing
from subreplay.traffic.retention import Retention
from subreplay.traffic.routing import Keyless, Scheme

MOST_SLIDES = 1_440  # a day by the minute

SHORTEST = 1_000  # µs, a window
MOST_SCENARIOS = 100

RECORDED: Final = "as recorded"  # the recorded subscription among the scenarios
Name = Annotated[str, Field(min_length=1)]


class Subscription(Model):
    """The subscription under audit, and the policy it promised."""

    name: Name = "sub"
    topic: str | None = None
    policy: str = "pulsar.key_shared.consistent_hash"
    profile: str = "pulsar-4.0"
    options: dict[str, Any] = Field(default_factory=dict)

    def make_policy(self) -> Policy:
        return make(self.policy, self.profile, **policy_options(self.policy, self.options))


class ProducerRouting(Model):
    """How the topic's producers choose a partition."""

    partitions: Annotated[int, Field(ge=1, le=100_000)]
    mode: RoutingMode = "RoundRobinPartition"
    scheme: Literal["JavaStringHash", "Murmur3_32Hash"] = "JavaStringHash"


class DeadLetter(Model):
    """The dead letter policy of the subscription's consumers."""

    max_redeliveries: Annotated[int, Field(ge=1, le=INT_31)]
    topic: str | None = None


class Topic(Model):
    """What the log does not tell of the topic and its consumers; a rule that needs what is null is not applicable."""

    delivery_tick: Duration = parse_duration("1s")
    stuck_after: Duration | None = parse_duration("1m")
    starved_after: Duration | None = parse_duration("2s")
    clock_skew: Duration = parse_duration("1s")
    ttl: Duration | None = None
    compacted: bool = False
    deduplication: bool | None = None
    routing: ProducerRouting | None = None
    dead_letter: DeadLetter | None = None

    @property
    def terms(self) -> Terms:
        """For the rules, in ns."""
        routing = self.routing
        return Terms(
            tick=self.delivery_tick * 1_000,
            stuck_after=None if not self.stuck_after else self.stuck_after * 1_000,
            starved_after=None if not self.starved_after else self.starved_after * 1_000,
            clock_skew=self.clock_skew * 1_000,
            ttl=None if not self.ttl else self.ttl * 1_000,
            compacted=self.compacted,
            deduplication=self.deduplication,
            routing=None if routing is None else Routing(routing.partitions, routing.mode, routing.scheme),
            max_redeliveries=None if self.dead_letter is None else self.dead_letter.max_redeliveries,
        )


class Windows(Model):
    """Windows of the result tables, which tumble or slide; those of a report tumble."""

    width: Duration = parse_duration("1s")
    slide: Duration | None = None

    @model_validator(mode="after")
    def _whole(self) -> Windows:
        if self.width < SHORTEST:
            raise ValueError("width must be at least 1ms")
        if self.slide is not None and (self.slide <= 0 or self.width % self.slide):
            raise ValueError("slide must divide width: each window is a whole number of slides")
        if self.step < SHORTEST:
            raise ValueError("slide must be at least 1ms")
        if self.width > MOST_SLIDES * self.step:
            raise ValueError(f"slide must be at least a {MOST_SLIDES:,}th of width: so often everything is counted")
        return self

    @property
    def step(self) -> int:
        """From the start of a window to that of the next one, µs."""
        return self.slide or self.width


DEFAULT_SECRET: Final = Kept(PLAIN, "subreplay")


class Keys(Model):
    """How keys appear in outputs."""

    show: bool = False
    secret: Secret = DEFAULT_SECRET

    @cached_property
    def words(self) -> KeyWords:
        """How keys are written in this run. Raises ``ConfigError`` or ``EnvironmentFailed`` where the secret is not at
        its place."""
        return KeyWords.of(self.show, self.secret.value("keys.secret"))

    @property
    def guessable(self) -> bool:
        """Whether anybody who guesses a key can check the guess."""
        return not self.show and self.secret == DEFAULT_SECRET

    @property
    def readable(self) -> bool:
        """Whether anybody who reads the run file has the secret."""
        return self.secret.kind == PLAIN and self.secret != DEFAULT_SECRET


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
    profile: str = "pulsar-4.0"
    options: dict[str, Any] = Field(default_factory=dict)
    members: Members = "recorded"
    partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    hashing: Scheme | None = None
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

    def routing(self, partitions: int, scheme: Scheme) -> traffic_routing.ProducerRouting | None:
        """How its producers choose partitions, None: as the recorded ones did. For what it does not say, there are
        ``partitions``, which Pulsar's producers choose by ``scheme``, and Kafka's by their default."""
        if not self.rerouted:
            return None
        kafka = self.policy.startswith("kafka.")
        return traffic_routing.ProducerRouting(
            self.partitions or partitions,
            self.hashing or ("murmur2" if kafka else scheme),
            self.keyless or ("sticky" if kafka else "round robin"),
        )

    @property
    def kept_by(self) -> Retention | None:
        """Its retention."""
        return None if self.retention is None else _limit(self.retention)

    def make_policy(self) -> Policy:
        return make(self.policy, self.profile, **policy_options(self.policy, self.options))


class Scenario(AnyScenario):
    """``dispatch`` is what its consumers are supposed to do; None asks only who owns each message."""

    dispatch: Dispatch | None = None


class GroupScenario(AnyScenario):
    """The same for a Kafka group; what its ``dispatch`` tells of the policy wins over ``options``."""

    dispatch: GroupDispatch | None = None

    def make_policy(self) -> Policy:
        told = {} if self.dispatch is None else self.dispatch.of_policy
        options = policy_options(self.policy, self.options)
        if twice := [name for name in OPTIONS_OF_KAFKA if OPTIONS_OF_KAFKA[name] in {*told} & {*options}]:
            raise ConfigError(f"{twice[0]} is given twice, in options and in dispatch: give it once")
        return make(self.policy, self.profile, **options, **told)


def _scenario_kind(given: Any) -> str:
    policy = given.get("policy") if isinstance(given, dict) else getattr(given, "policy", None)
    return "(kafka)" if str(policy).startswith("kafka.") else "(pulsar)"


SCENARIOS: dict[str, type[AnyScenario]] = {"(pulsar)": Scenario, "(kafka)": GroupScenario}
EveryScenario = Annotated[
    Annotated[Scenario, Tag("(pulsar)")] | Annotated[GroupScenario, Tag("(kafka)")], Discriminator(_scenario_kind)
]


class Schema(Model):
    """A schema of a catalog, into which tables go by their names."""

    name: Annotated[SchemaName, Field(alias="schema")]

    def __str__(self) -> str:
        return self.name


Place = str | Schema
"""Where tables are: a folder, or a schema of a catalog."""


class Output(Model):
    """Where results go: Delta tables, and the report's files. Relative paths are taken from the working directory."""

    tables: Annotated[
        Annotated[Folder, Tag("(folder)")] | Annotated[Schema, Tag("(schema)")],
        Discriminator(lambda given: "(schema)" if isinstance(given, (dict, Schema)) else "(folder)"),
    ] = "build/out"
    report: Folder = "build/report"
    audited: Literal["all", "findings"] = "all"


Share = Annotated[float, Field(ge=0, le=1)]


class Require(Model):
    """What a run must have looked at: with less, nothing that it did not find says anything."""

    deliveries: Annotated[int, Field(ge=0)] = 0
    messages: Annotated[int, Field(ge=0)] = 0
    share_judged: Share = 0.0
    quiet_days: Literal["valid", "unknown"] = "unknown"


class Tolerate(Model):
    """The share of each input table's rows that may be in quarantine."""

    messages: Share = 0.0
    membership: Share = 0.0
    deliveries: Share = 0.0
    dead_letters: Share = 0.0
    ingest: Share = 0.0


class Report(Model):
    """What the reports show of much."""

    title: str = "Subscription audit"
    worst: Annotated[int, Field(ge=1, le=100)] = 8
    hot_keys: Annotated[int, Field(ge=0, le=1000)] = 10


def _memory(given: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,6}[kmgt]b?", given):
        raise ValueError("not a size of memory; write a whole number and one of k, m, g, t, e.g. 2g")
    return given


class Spark(Model):
    """How a session is made where none is active."""

    master: str = "local[*]"
    remote: str | None = None
    shuffle_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    driver_memory: Annotated[str, AfterValidator(_memory)] | None = None
    conf: dict[str, str] = Field(default_factory=dict)


class RunConfig(Model):
    """One run."""

    traffic: Traffic = Traffic()
    subscription: Subscription = Subscription()
    topic: Topic = Topic()
    date: Day | None = None
    windows: Windows = Windows()
    require: Require = Require()
    tolerate: Tolerate = Tolerate()
    keys: Keys = Keys()
    scenarios: list[EveryScenario] = Field(default_factory=list, max_length=MOST_SCENARIOS)
    plan: Plan = Plan()
    output: Output = Output()
    report: Report = Report()
    spark: Spark = Spark()

    @model_validator(mode="after")
    def _distinct(self) -> RunConfig:
        names = [s.name for s in self.scenarios]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"scenario names must differ; twice: {', '.join(twice)}")
        if RECORDED in names:
            raise ValueError(f"scenario name {RECORDED!r} is that of the recorded subscription itself; choose another")
        return self

    @property
    def digest(self) -> str:
        """A digest of what is asked of the data, not of where it is, how keys are shown or how Spark runs; of a plan
        are that its finalists, which are scenarios."""
        return self._digest({"output", "spark", "traffic", "keys", "plan"})

    @property
    def judged(self) -> str:
        """A digest of what decides how deliveries are judged, which windows, scenarios and the report's words do not.
        Of which subscription, topic and day they are stands in every row that an audit writes."""
        beside = {"output", "spark", "traffic", "keys", "windows", "scenarios", "plan", "report", "date"}
        return self._digest({**dict.fromkeys(beside, True), "subscription": {"name", "topic"}})

    def _digest(self, left_out: Any) -> str:
        deciding = self.model_dump(mode="json", exclude=left_out)
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def run_id(self) -> str:
        """The same for a re-run. It begins with what tells whether another run judges deliveries alike."""
        return f"{self.judged}-{self.digest}-{self.date or 'all'}"


def load(path: Path, **overrides: Any) -> RunConfig:
    """Read a run file; ``overrides`` (dotted names) win over it. Raises ``ConfigError`` naming file, key and remedy."""
    document = read(path)
    return parse(document.values, str(path), document.lines, **overrides)


def parse(raw: Any, source: str, lines: Lines | None = None, /, **overrides: Any) -> RunConfig:
    """Validate a mapping as a run; builds every policy once, so that a bad option is found now, not in the middle.
    ``lines`` are those of ``source`` in which its keys stand."""
    lines = lines or {}
    if raw is not None and not isinstance(raw, dict):
        raise ConfigError(f"{source}: a run is a mapping of keys, not {type(raw).__name__}")
    merged = dict(raw or {})
    given = {name: value for name, value in overrides.items() if value is not None}
    for name, value in given.items():
        merged = _overridden(merged, name, value)
    try:
        config = RunConfig.model_validate(merged, context=WRITTEN)
    except ValidationError as error:
        told = [
            mistakes.sentence(source, lines, e, given, RunConfig, SCENARIOS) for e in error.errors(include_url=False)
        ]
        raise ConfigError("\n".join(dict.fromkeys(told))) from error
    _check_policy(source, lines, ("subscription",), config.subscription)
    for i, scenario in enumerate(config.scenarios):
        _check_policy(source, lines, ("scenarios", i), scenario)
    return config


def _overridden(raw: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """``raw`` with one dotted name set; a section that is no mapping is left for the validation to name."""
    head, _, rest = name.partition(".")
    if not rest:
        return raw | {head: value}
    section = raw.get(head) if raw.get(head) is not None else {}
    return raw | {head: _overridden(section, rest, value) if isinstance(section, dict) else section}


def _check_policy(source: str, lines: Lines, path: tuple[str | int, ...], part: Subscription | AnyScenario) -> None:
    try:
        part.make_policy()
    except ConfigError as error:
        where = mistakes.place(source, lines, path)
        raise ConfigError(f"{where}: {'.'.join(map(str, path))}: {error}") from error
