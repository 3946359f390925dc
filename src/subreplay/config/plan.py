"""Section ``plan``: the assumptions of all plans, and the settings of each question."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from subreplay.config.dispatch import Service
from subreplay.config.fields import Duration, HashingScheme, Model, PolicyName, parse_duration

Count = Annotated[int, Field(ge=1, le=10_000)]
Part = Annotated[float, Field(gt=0, le=1)]
Above = Annotated[Duration, Field(ge=1)]


class PlanRanges(Model):
    """``weights``: the relative capacity of each consumer, in their order; None: all equal."""

    weights: Annotated[list[Annotated[int, Field(ge=1, le=1_000_000)]], Field(min_length=1)] | None = None


class PlanConsumers(Model):
    """The target: a utilisation in a share of the ``windows``, a p99 latency, or a backlog drained in a time."""

    utilisation: Annotated[float, Field(gt=0, le=10)] = 0.7
    windows: Part = 1.0
    p99: Above | None = None
    backlog: Annotated[int, Field(ge=1)] | None = None
    within: Above | None = None
    most: Annotated[int, Field(ge=1, le=1_000)] = 200

    @model_validator(mode="after")
    def _check_target(self) -> PlanConsumers:
        if self.p99 is not None and self.backlog is not None:
            raise ValueError("set p99 or backlog, not both")
        if (self.backlog is None) != (self.within is None):
            raise ValueError("backlog and within belong together; set both")
        return self


class PlanPartitions(Model):
    """``now`` None: the number of partitions of the traffic. ``scheme``: how producers hash keys."""

    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=100_000)], ...], Field(min_length=1)] = (5, 10, 24)
    now: Annotated[int, Field(ge=1, le=100_000)] | None = None
    scheme: HashingScheme | None = None


class PlanRollout(Model):
    """``to`` None: restart all consumers, each for ``away``; otherwise scale to that number."""

    to: Count | None = None
    away: Duration = parse_duration("30s")
    pause: Duration = parse_duration("1m")


class PlanStatic(Model):
    """Session timeouts to compare."""

    timeouts: Annotated[tuple[Above, ...], Field(min_length=1)] = tuple(
        parse_duration(text) for text in ("10s", "45s", "2m", "5m", "10m")
    )


class Plan(Model):
    """The assumptions of every question, and the settings of each."""

    window: Above = parse_duration("1m")
    measure: Literal["messages", "bytes"] = "messages"
    service: Service | Literal["fitted"] | None = None
    factor: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    consumers: Count = 4
    policies: list[PolicyName] = Field(default_factory=list)
    vary: Annotated[float, Field(ge=0, lt=1)] = 0.2
    ranges: PlanRanges = PlanRanges()
    sizing: PlanConsumers = PlanConsumers()
    partitions: PlanPartitions = PlanPartitions()
    rollout: PlanRollout = PlanRollout()
    static: PlanStatic = PlanStatic()
