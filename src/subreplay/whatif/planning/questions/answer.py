"""What every answer says: what to take, what it achieves, what nothing can beat, and what was assumed."""

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
    """A policy by name, under a profile and with options."""

    policy: str
    profile: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunnerUp:
    """The next best, and what it achieves."""

    name: str
    value: float


@dataclass(frozen=True)
class Finalist:
    """What is replayed over the same traffic, to see the plan at work; members None: as recorded."""

    name: str
    setup: Setup
    members: tuple[PlannedMember, ...] | None


@dataclass(frozen=True)
class Answer:
    """An answer: of ``value`` and ``bound`` the smaller is the better; None where there is nothing to measure.

    ``measured`` says what they are. ``found`` are all the figures behind them, as the question's own data; ``fragile``
    says how the plan does where it was not made for.
    """

    question: Question
    best: str
    measured: str
    value: float | None
    unit: Unit
    bound: float | None
    runner_up: RunnerUp | None
    assumed: tuple[str, ...]
    found: Any
    finalists: tuple[Finalist, ...] = ()
    fragile: Any = None

    @property
    def gap(self) -> float | None:
        """How far the answer is above its bound, as a part of the bound; None where one of them is not known, or the
        bound is 0 and the answer is not."""
        if self.value is None or self.bound is None:
            return None
        if self.value == self.bound:
            return 0.0
        return self.value / self.bound - 1 if self.bound else None


def stay(names: tuple[str, ...]) -> tuple[PlannedMember, ...]:
    """Consumers that are there all the time."""
    return tuple(PlannedMember(name, 0, None) for name in names)
