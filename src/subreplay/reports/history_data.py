"""The results of the daily runs of several subscriptions: verdicts by day, rules by day, and what began and ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HISTORY_VERSION: Final = "1.0"
NO_RUN: Final = "none"
"""The verdict of a day without a run."""


@dataclass(frozen=True, slots=True)
class DayResult:
    """The result of one day. ``findings`` fail the run; None if there is no run or its table does not count them."""

    date: str
    verdict: str = NO_RUN  # valid, unknown, invalid, none
    findings: int | None = None


@dataclass(frozen=True, slots=True)
class RuleHistory:
    """The findings of one rule on each day. A day's verdict is what the findings do to the verdict of its run."""

    code: str
    title: str
    days: tuple[DayResult, ...]

    @property
    def findings(self) -> int:
        """The findings of all days."""
        return sum(day.findings or 0 for day in self.days)

    def count_days(self) -> int:
        """Count the days with findings."""
        return sum(day.verdict != NO_RUN for day in self.days)


@dataclass(frozen=True, slots=True)
class Episode:
    """Rules of one incident that failed in consecutive runs.

    ``from_first_run`` means that the first run of the history reports them, so they may have begun earlier. ``ended``
    is empty if they still fail in the last run.
    """

    subscription: str
    topic: str
    codes: tuple[str, ...]
    verdict: str  # the worst: unknown, invalid
    began: str
    from_first_run: bool
    ended: str
    findings: int
    title: str  # of the incident with which it began, or of the rule


@dataclass(frozen=True, slots=True)
class SubscriptionHistory:
    """The daily runs of one subscription on one topic."""

    subscription: str
    topic: str
    days: tuple[DayResult, ...]
    rules: tuple[RuleHistory, ...]  # those with findings

    @property
    def latest(self) -> DayResult:
        """The result of the latest run."""
        return next(day for day in reversed(self.days) if day.verdict != NO_RUN)

    @property
    def findings(self) -> int:
        """The findings of all days."""
        return sum(day.findings or 0 for day in self.days)

    def count_days(self, verdict: str) -> int:
        """Count the days with a verdict."""
        return sum(day.verdict == verdict for day in self.days)


@dataclass(frozen=True, slots=True)
class History:
    """The daily runs from day ``first`` to ``last``; the worst subscriptions and the latest changes come first."""

    schema_version: str
    first: str
    last: str
    subscriptions: tuple[SubscriptionHistory, ...]
    episodes: tuple[Episode, ...]
