"""The parts of every answer: the recommended setup, what it achieves, the lower bound, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from subreplay.whatif.scenario import PlannedMember

Question = Literal["ranges", "consumers", "partitions", "policy", "rollout", "upgrade", "static", "capacity"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
Unit = Literal["consumers", "messages", "bytes", "ns", "share", "times", "rebalances"]


@dataclass(frozen=True)
class Setup:
    """A policy by name, with a profile and options."""

    policy: str
    profile: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunnerUp:
    """The second best choice, and what it achieves."""

    name: str
    value: float


@dataclass(frozen=True)
class Finalist:
    """A setup that is replayed over the same traffic to check the plan. ``members`` None: as recorded."""

    name: str
    setup: Setup
    members: tuple[PlannedMember, ...] | None


@dataclass(frozen=True)
class PlanAnswer:
    """The answer to a planning question.

    Smaller is better for ``value`` and ``bound``; they are None if there is nothing to measure. ``measured`` says what
    they are. ``figures`` has all figures behind them, in the type of the question. ``sensitivity`` says how the plan
    does under conditions that it was not made for.
    """

    question: Question
    best: str
    measured: str
    value: float | None
    unit: Unit
    bound: float | None
    runner_up: RunnerUp | None
    assumed: tuple[str, ...]
    figures: Any
    finalists: tuple[Finalist, ...] = ()
    sensitivity: Any = None

    @property
    def gap(self) -> float | None:
        """How far the answer is above its bound, as a part of the bound.

        None if one of them is not known, or if the bound is 0 and the answer is not.
        """
        if self.value is None or self.bound is None:
            return None
        if self.value == self.bound:
            return 0.0
        return self.value / self.bound - 1 if self.bound else None


def build_permanent_members(names: tuple[str, ...]) -> tuple[PlannedMember, ...]:
    """Return consumers that are connected all the time."""
    return tuple(PlannedMember(name, 0, None) for name in names)
