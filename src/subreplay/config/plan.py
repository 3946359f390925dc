"""Section ``plan``: what plans take for given, and what each question asks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from subreplay.config.dispatch import Service
from subreplay.config.fields import Duration, HashingScheme, Model, parse_duration

Count = Annotated[int, Field(ge=1, le=10_000)]
Part = Annotated[float, Field(gt=0, le=1)]
Above = Annotated[Duration, Field(ge=1)]


class PlanRanges(Model):
    """``weights``: how much each consumer can do beside the others, in their order; None: all the same."""

    weights: Annotated[list[Annotated[int, Field(ge=1, le=1_000_000)]], Field(min_length=1)] | None = None


class PlanConsumers(Model):
    """What is to be kept: a utilisation in a share of the ``windows``, or the latency of 99 of 100 messages, or that a
    backlog is gone ``within`` a time."""

    utilisation: Annotated[float, Field(gt=0, le=10)] = 0.7
    windows: Part = 1.0
    p99: Above | None = None
    backlog: Annotated[int, Field(ge=1)] | None = None
    within: Above | None = None
    most: Annotated[int, Field(ge=1, le=1_000)] = 200

    @model_validator(mode="after")
    def _one(self) -> PlanConsumers:
        if self.p99 is not None and self.backlog is not None:
            raise ValueError("ask for p99 or for a backlog, not for both at once")
        if (self.backlog is None) != (self.within is None):
            raise ValueError("backlog and within belong together: so many messages, gone within a time")
        return self


class PlanPartitions(Model):
    """``now`` None: as many as the traffic has. ``scheme``: how producers hash keys."""

    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=100_000)], ...], Field(min_length=1)] = (5, 10, 24)
    now: Annotated[int, Field(ge=1, le=100_000)] | None = None
    scheme: HashingScheme | None = None


class PlanRollout(Model):
    """``to`` None: restart all consumers, each away for ``away``; else bring them to that number."""

    to: Count | None = None
    away: Duration = parse_duration("30s")
    pause: Duration = parse_duration("1m")


class PlanStatic(Model):
    """Session timeouts to compare."""

    timeouts: Annotated[tuple[Above, ...], Field(min_length=1)] = tuple(
        parse_duration(text) for text in ("10s", "45s", "2m", "5m", "10m")
    )


class Plan(Model):
    """What every question takes for given, and what each asks."""

    window: Above = parse_duration("1m")
    measure: Literal["messages", "bytes"] = "messages"
    service: Service | Literal["fitted"] | None = None
    factor: Annotated[float, Field(gt=0, le=1_000_000)] = 1.0
    consumers: Count = 4
    policies: list[str] = Field(default_factory=list)
    vary: Annotated[float, Field(ge=0, lt=1)] = 0.2
    ranges: PlanRanges = PlanRanges()
    sizing: PlanConsumers = PlanConsumers()
    partitions: PlanPartitions = PlanPartitions()
    rollout: PlanRollout = PlanRollout()
    static: PlanStatic = PlanStatic()
