"""Known upstream faults that the findings of a report look like: matched once, over the findings in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

from subreplay.audit.explain.incidents import Circumstance, Incident, RunCircumstances, find_matching_incidents
from subreplay.reports.figures import Figures, Row
from subreplay.reports.finding_data import IncidentView

DEFAULT_CONSUMER_LIMIT, DEFAULT_SUBSCRIPTION_LIMIT = (
    50_000,
    200_000,
)  # maxUnackedMessagesPerConsumer and -PerSubscription, by default


@dataclass(frozen=True)
class IncidentMatcher:
    """The tickets as they fit to a run."""

    figures: Figures

    def find_incidents(self, row: Row) -> tuple[Incident, ...]:
        """The tickets that a finding looks like."""
        return find_matching_incidents(self._setting, row)

    @cached_property
    def _setting(self) -> RunCircumstances:
        terms, connected, plan = self.figures.terms, self.figures.connected, self.figures.plan
        epochs = [epoch for timeline in plan.timelines.values() for epoch in timeline.epochs]
        holds = {
            Circumstance.SEVERAL_CONSUMERS: any(interval.consumers > 1 for interval in connected),
            Circumstance.EVERYBODY_LEFT: any(one.end < other.start for one, other in pairwise(connected)),
            Circumstance.CONSUMER_LEFT: any(epoch.left for epoch in epochs),
            Circumstance.EQUAL_NAMES: any(epoch.joined is not None and epoch.joined.alias for epoch in epochs),
            Circumstance.STRICT_DELAYS: terms.tick == 0,
            Circumstance.COMPACTED: terms.compacted,
            Circumstance.DEDUPLICATION: bool(terms.deduplication),
            Circumstance.DEAD_LETTERS: terms.max_redeliveries is not None,
            Circumstance.UNACKED_LIMIT: (terms.max_unacked_per_consumer or DEFAULT_CONSUMER_LIMIT)
            < DEFAULT_CONSUMER_LIMIT
            or (terms.max_unacked_per_subscription or DEFAULT_SUBSCRIPTION_LIMIT) < DEFAULT_SUBSCRIPTION_LIMIT,
        }
        policy = plan.policy
        return RunCircumstances(policy.name, policy.profile, frozenset(name for name, true in holds.items() if true))


def build_incident_views(looks_like: Iterable[Sequence[Incident]]) -> tuple[IncidentView, ...]:
    """What a report shows of the tickets that the findings of one rule look like; those that ask most of a finding
    first, then those of most findings."""
    counted = Counter(chain.from_iterable(looks_like))
    return tuple(
        IncidentView(one.ticket, one.url, one.title, one.sentence, one.releases, one.advice, findings)
        for one, findings in sorted(
            counted.items(), key=lambda item: (-item[0].condition_count, -item[1], item[0].ticket)
        )
    )
