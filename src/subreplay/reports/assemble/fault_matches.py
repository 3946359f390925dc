"""Match the described findings of a report to known upstream faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise

from subreplay.audit.explain.upstream_faults import Circumstance, RunCircumstances, UpstreamFault, find_matching_faults
from subreplay.reports.figures import Figures, Row
from subreplay.reports.finding_data import KnownFault

# Defaults of maxUnackedMessagesPerConsumer and maxUnackedMessagesPerSubscription.
DEFAULT_CONSUMER_LIMIT, DEFAULT_SUBSCRIPTION_LIMIT = 50_000, 200_000


@dataclass(frozen=True)
class FaultMatcher:
    """Matches findings of one run to known upstream faults."""

    figures: Figures

    def find_faults(self, row: Row) -> tuple[UpstreamFault, ...]:
        """Find the known faults that match a finding."""
        return find_matching_faults(self._setting, row)

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


def build_known_faults(matches: Iterable[Sequence[UpstreamFault]]) -> tuple[KnownFault, ...]:
    """Build the known faults of one rule: the most specific first, then those with the most findings."""
    counted = Counter(chain.from_iterable(matches))
    return tuple(
        KnownFault(one.ticket, one.url, one.title, one.sentence, one.releases, one.advice, findings)
        for one, findings in sorted(
            counted.items(), key=lambda item: (-item[0].condition_count, -item[1], item[0].ticket)
        )
    )
