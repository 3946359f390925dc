"""The run's configuration: read YAML, and validate it as frozen models.

``conf/default.yaml`` describes every key with its unit and legal values; a test compares it with these models. A run
file contains only the keys that differ from it. An unknown key is an error with a hint. Nothing in a file is evaluated
as code.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, WithJsonSchema, model_validator

from subreplay.audit.acts import Kind as ActKind
from subreplay.audit.acts import Reset
from subreplay.audit.routing import Routing, RoutingMode
from subreplay.audit.terms import Isolation, Terms
from subreplay.config import mistakes
from subreplay.config.alerts import Alerts
from subreplay.config.fields import (
    INT_31,
    INT_63,
    WRITTEN,
    Day,
    Duration,
    Folder,
    HashingScheme,
    Model,
    Moment,
    Name,
    PolicyName,
    ProfileName,
    SchemaName,
    parse_duration,
    to_nanoseconds,
)
from subreplay.config.kafka_names import translate_policy_options
from subreplay.config.plan import Plan
from subreplay.config.scenario import SCENARIOS, AnyScenario, EveryScenario
from subreplay.config.secrets import PLAIN, Secret, SecretLocation
from subreplay.config.subscriptions import SubscriptionEntry, Subscriptions
from subreplay.config.traffic import Traffic
from subreplay.config.yaml_text import Lines, read_yaml
from subreplay.errors import ConfigError
from subreplay.hashing.producer_routing import get_default_scheme
from subreplay.hashing.profiles import LATEST_PROFILES
from subreplay.rows.model.key_masking import KeyMasking
from subreplay.rows.model.segments import Segment
from subreplay.rows.model.subscription import InitialPosition
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy

MOST_SLIDES = 1_440  # a day by the minute

SHORTEST = 1_000  # µs, a window
MOST_SCENARIOS = 100

RECORDED: Final = "as recorded"  # the recorded subscription among the scenarios


class Subscription(Model):
    """The audited subscription and its policy."""

    name: Name = "sub"
    topic: str | None = None
    policy: PolicyName = "pulsar.key_shared.consistent_hash"
    profile: ProfileName = LATEST_PROFILES["pulsar"]
    options: dict[str, Any] = Field(default_factory=dict)
    isolation: Isolation | None = None

    def make_policy(self) -> Policy:
        return make_policy(self.policy, self.profile, **translate_policy_options(self.policy, self.options))


class ProducerRouting(Model):
    """How the topic's producers choose a partition. ``scheme`` None: the default of their system's Java client."""

    partitions: Annotated[int, Field(ge=1, le=100_000)]
    mode: RoutingMode = "RoundRobinPartition"
    scheme: HashingScheme | None = None


class DeadLetter(Model):
    """The dead letter policy of the subscription's consumers."""

    max_redeliveries: Annotated[int, Field(ge=1, le=INT_31)]
    topic: str | None = None


class ResetTo(Model):
    """The position from which messages are delivered again: a publish time, a Kafka offset, or a ledger and entry."""

    time: Moment | None = None
    offset: Annotated[int, Field(ge=0, le=INT_63)] | None = None
    ledger: Annotated[int, Field(ge=0, le=INT_63)] | None = None
    entry: Annotated[int, Field(ge=0, le=INT_63)] | None = None
    batch_index: Annotated[int, Field(ge=-1, le=INT_31)] = -1

    @model_validator(mode="after")
    def _one(self) -> ResetTo:
        if (self.ledger is None) != (self.entry is None):
            raise ValueError("a position is a ledger and an entry: {ledger: 5, entry: 120}")
        if sum(given is not None for given in (self.time, self.offset, self.ledger)) != 1:
            raise ValueError("write one of time, offset, or ledger and entry")
        return self


class DeclaredReset(Model):
    """An act of an operator or a client after which messages are delivered again, or skipped."""

    at: Moment
    kind: ActKind = "reset"
    to: ResetTo | Literal["earliest", "latest"] | None = None  # latest of kind skip, else earliest
    partition: Annotated[int, Field(ge=0, le=999_999)] | None = None
    by: Name | None = None

    @property
    def reset(self) -> Reset:
        """The reset for the rules, in ns."""
        at, to, to_time = to_nanoseconds(self.at), None, None
        if isinstance(self.to, ResetTo):
            to_time = None if self.to.time is None else to_nanoseconds(self.to.time)
            if self.to.offset is not None:
                to = (0, self.to.offset, -1)
            elif self.to.ledger is not None and self.to.entry is not None:
                to = (self.to.ledger, self.to.entry, self.to.batch_index)
        elif self.to == "latest" or (self.to is None and self.kind == "skip"):
            to_time = at
        return Reset(at, self.kind, to, to_time, self.partition, self.by)


HashNumber = Annotated[int, Field(ge=0, le=65_535)]


class DeclaredSegment(Model):
    """A segment of a scalable topic: its upper 16 bits of hashes, first and last, and its parents."""

    id: Annotated[int, Field(ge=0, le=999_999)]
    hashes: tuple[HashNumber, HashNumber]
    buckets: Annotated[int, Field(ge=1, le=65_536)] = 1
    parents: tuple[int, ...] = ()
    created: Moment | None = None
    sealed: Moment | None = None

    @property
    def segment(self) -> Segment:
        """The segment for the rules, in ns."""
        created, sealed = (None if at is None else to_nanoseconds(at) for at in (self.created, self.sealed))
        return Segment(self.id, *self.hashes, self.buckets, self.parents, created or 0, sealed)


class Topic(Model):
    """Facts about the topic and its consumers that the log does not contain. A rule that needs a null value is not
    applicable."""

    delivery_tick: Duration = parse_duration("1s")
    stuck_after: Duration | None = parse_duration("1m")  # older names of those in liveness
    starved_after: Duration | None = parse_duration("2s")
    clock_skew: Duration = parse_duration("1s")
    ttl: Duration | None = None
    compacted: bool = False
    deduplication: bool | None = None
    routing: ProducerRouting | None = None
    dead_letter: DeadLetter | None = None
    initial_position: InitialPosition | None = None
    resets: tuple[DeclaredReset, ...] = ()
    segments: tuple[DeclaredSegment, ...] = ()
    batch_index_acks: bool | None = None
    persistent: bool | None = None

    def terms(self, scheme: str) -> Terms:
        """Build the terms for the rules, in ns. ``scheme`` is the default for producers whose scheme the run does not
        name."""
        routing = self.routing
        return Terms(
            tick=self.delivery_tick * 1_000,
            stuck_after=None if not self.stuck_after else self.stuck_after * 1_000,
            starved_after=None if not self.starved_after else self.starved_after * 1_000,
            clock_skew=self.clock_skew * 1_000,
            ttl=None if not self.ttl else self.ttl * 1_000,
            compacted=self.compacted,
            deduplication=self.deduplication,
            routing=None if routing is None else Routing(routing.partitions, routing.mode, routing.scheme or scheme),
            max_redeliveries=None if self.dead_letter is None else self.dead_letter.max_redeliveries,
            initial_position=self.initial_position,
            resets=tuple(declared.reset for declared in self.resets),
            segments=tuple(declared.segment for declared in self.segments),
            batch_index_acks=self.batch_index_acks,
            persistent=self.persistent,
        )


class Liveness(Model):
    """The waiting times that an audit reports, and the broker's limits of unacknowledged messages."""

    stalled_after: Duration | None = parse_duration("30s")
    stuck_after: Duration | None = parse_duration("30s")
    starved_after: Duration | None = parse_duration("2s")
    late_after: Duration | None = parse_duration("30s")
    max_unacked_per_consumer: Annotated[int, Field(ge=0, le=INT_31)] = 50_000
    max_unacked_per_subscription: Annotated[int, Field(ge=0, le=INT_31)] = 200_000

    def threshold(self, name: str, policy: str, topic: Topic) -> int | None:
        """Return a threshold in ns; None: the rule is off.

        A member of a Kafka group may take ``max.poll.interval.ms`` (5 min) between two polls. So a threshold that the
        run does not set is at least as long there.
        """
        value: int | None = getattr(self, name)
        if name not in self.model_fields_set:
            if name in topic.model_fields_set:
                value = getattr(topic, name)
            elif value and name != "starved_after" and policy.startswith("kafka."):
                value = max(value, _POLL_INTERVAL)
        return value * 1_000 if value else None


_POLL_INTERVAL: Final = parse_duration("5m")


class Windows(Model):
    """The windows of the result tables, which tumble or slide. Windows of a report tumble."""

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
        """The interval between the starts of two windows, µs."""
        return self.slide or self.width


DEFAULT_SECRET: Final = SecretLocation(PLAIN, "subreplay")


class Keys(Model):
    """How keys appear in outputs."""

    show: bool = False
    secret: Secret = DEFAULT_SECRET

    @cached_property
    def words(self) -> KeyMasking:
        """How keys are written in this run. Raises ``ConfigError`` or ``EnvironmentFailed`` if the secret cannot be
        read."""
        return KeyMasking.from_secret(self.show, self.secret.value("keys.secret"))

    @property
    def guessable(self) -> bool:
        """Whether anyone who guesses a key can confirm the guess."""
        return not self.show and self.secret == DEFAULT_SECRET

    @property
    def readable(self) -> bool:
        """Whether anyone who reads the run file knows the secret."""
        return self.secret.kind == PLAIN and self.secret != DEFAULT_SECRET


class Schema(Model):
    """A schema of a catalog. Tables are written to it by name."""

    name: Annotated[SchemaName, Field(alias="schema")]

    def __str__(self) -> str:
        return self.name


Location = str | Schema
"""The location of tables: a folder, or a schema of a catalog."""


class Output(Model):
    """Where results are written: tables and report files. Relative paths start at the working directory."""

    tables: Annotated[
        Annotated[Folder, Tag("(folder)")] | Annotated[Schema, Tag("(schema)")],
        Discriminator(lambda given: "(schema)" if isinstance(given, (dict, Schema)) else "(folder)"),
    ] = "build/out"
    report: Folder = "build/report"
    metrics: Folder | None = None
    audited: Literal["all", "findings"] = "all"


Share = Annotated[float, Field(ge=0, le=1)]


class Require(Model):
    """The minimum data of a run. With less data, a run without findings proves nothing."""

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
    """The title of the report, and limits of its lists."""

    title: str = "Subscription audit"
    worst: Annotated[int, Field(ge=1, le=100)] = 8
    hot_keys: Annotated[int, Field(ge=0, le=1000)] = 10


_MEMORY: Final = r"^[1-9]\d{0,6}[kmgt]b?$"


def _check_memory(given: str) -> str:
    if not re.fullmatch(_MEMORY, given):
        raise ValueError("not a size of memory; write a whole number and one of k, m, g, t, e.g. 2g")
    return given


class Spark(Model):
    """The settings of a new Spark session."""

    master: str = "local[*]"
    remote: str | None = None
    shuffle_partitions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    driver_memory: (
        Annotated[str, AfterValidator(_check_memory), WithJsonSchema({"type": "string", "pattern": _MEMORY})] | None
    ) = None
    conf: dict[str, str] = Field(default_factory=dict)


EngineName = Literal["auto", "local", "spark"]


class RunConfig(Model, defer_build=False):
    """The configuration of one run."""

    traffic: Traffic = Traffic()
    subscription: Subscription = Subscription()
    subscriptions: Subscriptions | None = None
    topic: Topic = Topic()
    liveness: Liveness = Liveness()
    date: Day | None = None
    windows: Windows = Windows()
    require: Require = Require()
    tolerate: Tolerate = Tolerate()
    keys: Keys = Keys()
    scenarios: list[EveryScenario] = Field(default_factory=list, max_length=MOST_SCENARIOS)
    plan: Plan = Plan()
    output: Output = Output()
    report: Report = Report()
    alerts: Alerts = Alerts()
    engine: EngineName = "auto"
    spark: Spark = Spark()

    @model_validator(mode="after")
    def _distinct(self) -> RunConfig:
        names = [s.name for s in self.scenarios]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"scenario names must differ; twice: {', '.join(twice)}")
        if RECORDED in names:
            raise ValueError(f"scenario name {RECORDED!r} is that of the recorded subscription itself; choose another")
        both = [f"subscription.{key}" for key in ("name", "topic") if key in self.subscription.model_fields_set]
        if self.subscriptions is not None and both:
            raise ValueError(
                f"{both[0]} names one subscription, and subscriptions several; write the name as an entry of "
                "subscriptions, or remove subscriptions"
            )
        return self

    def of_entry(self, entry: SubscriptionEntry, name: str, topic: str) -> RunConfig:
        """Build the run of one subscription that an entry of ``subscriptions`` matches, as if a run file named it.

        Raises ``ConfigError`` if its policy, profile and options do not fit together.
        """
        subscription = self.subscription.model_copy(update={**entry.changes, "name": name, "topic": topic})
        subscription.make_policy()
        liveness = self.liveness.model_copy(update=entry.thresholds)
        return self.model_copy(update={"subscription": subscription, "liveness": liveness, "subscriptions": None})

    @property
    def terms(self) -> Terms:
        """The terms for the rules, in ns."""
        of = self.subscription.policy, self.topic
        return replace(
            self.topic.terms(get_default_scheme(self.subscription.policy)),
            stalled_after=self.liveness.threshold("stalled_after", *of),
            stuck_after=self.liveness.threshold("stuck_after", *of),
            starved_after=self.liveness.threshold("starved_after", *of),
            late_after=self.liveness.threshold("late_after", *of),
            max_unacked_per_consumer=self.liveness.max_unacked_per_consumer or None,
            max_unacked_per_subscription=self.liveness.max_unacked_per_subscription or None,
            isolation=self.subscription.isolation,
        )

    @property
    def digest(self) -> str:
        """A digest of the settings that decide the result. It excludes locations, the display of keys, and the engine.

        The settings of a plan are included through its finalists, which are scenarios.
        """
        return self._digest({"output", "engine", "spark", "traffic", "keys", "plan", "subscriptions", "alerts"})

    @property
    def judged(self) -> str:
        """A digest of the settings that decide how deliveries are judged. It excludes windows, scenarios and the
        report's settings.

        Every row that an audit writes contains its subscription, topic and day, so these are excluded too.
        """
        beside = {
            "output",
            "engine",
            "spark",
            "traffic",
            "keys",
            "windows",
            "scenarios",
            "plan",
            "report",
            "date",
            "subscriptions",
            "alerts",
        }
        return self._digest({**dict.fromkeys(beside, True), "subscription": {"name", "topic"}, "topic": {"resets"}})

    def _digest(self, left_out: Any) -> str:
        deciding = self.model_dump(mode="json", exclude=left_out)
        return hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def run_id(self) -> str:
        """The id of the run, equal for a repeated run. It begins with the digest that decides the judging."""
        return f"{self.judged}-{self.digest}-{self.date or 'all'}"


def load(path: Path, **overrides: Any) -> RunConfig:
    """Read a run file. ``overrides`` (dotted names) take precedence. Raises ``ConfigError`` with file, key and
    remedy."""
    document = read_yaml(path)
    return parse(document.values, str(path), document.lines, **overrides)


def parse(raw: Any, source: str, lines: Lines | None = None, /, **overrides: Any) -> RunConfig:
    """Validate a mapping as a run. Every policy is built once, so that a wrong option is found immediately.

    ``lines`` are the line numbers of the keys in ``source``.
    """
    lines = lines or {}
    if raw is not None and not isinstance(raw, dict):
        raise ConfigError(f"{source}: a run is a mapping of keys, not {type(raw).__name__}")
    merged = dict(raw or {})
    given = {name: value for name, value in overrides.items() if value is not None}
    for name, value in given.items():
        merged = _override(merged, name, value)
    try:
        config = RunConfig.model_validate(merged, context=WRITTEN)
    except ValidationError as error:
        messages = [
            mistakes.describe_error(source, lines, e, given, RunConfig, SCENARIOS)
            for e in error.errors(include_url=False)
        ]
        raise ConfigError("\n".join(dict.fromkeys(messages))) from error
    _check_policy(source, lines, ("subscription",), config.subscription)
    for i, scenario in enumerate(config.scenarios):
        _check_policy(source, lines, ("scenarios", i), scenario)
    for i, entry in enumerate(config.subscriptions or ()):
        merged_entry = config.subscription.model_copy(update=entry.changes)
        _check_policy(source, lines, ("subscriptions", i), merged_entry)
    return config


def _override(raw: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Set one dotted name in ``raw``. A section that is not a mapping is left unchanged for the validation."""
    head, _, rest = name.partition(".")
    if not rest:
        return raw | {head: value}
    section = raw.get(head) if raw.get(head) is not None else {}
    return raw | {head: _override(section, rest, value) if isinstance(section, dict) else section}


def _check_policy(source: str, lines: Lines, path: tuple[str | int, ...], part: Subscription | AnyScenario) -> None:
    try:
        part.make_policy()
    except ConfigError as error:
        where = mistakes.find_location(source, lines, path)
        raise ConfigError(f"{where}: {'.'.join(map(str, path))}: {error}") from error
