"""Infer the selector of a Key_Shared subscription and the profile of its hash ring from polled hash ranges.

Auto-split assigns one range to each consumer, and the last range ends one past the last slot. A hash ring assigns about
100 ranges to each consumer. So the ring of every known profile is computed for the consumers of a poll, and compared
with the polled ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from subreplay.adapters.pulsar_policies import InferredSelector
from subreplay.adapters.pulsar_stats.polled_membership import RangePeriod
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0
from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.pulsar.key_auto_split import AutoSplitPolicy
from subreplay.semantics.policies.pulsar.key_consistent_hash import RULES, ConsistentHashPolicy

_MIN_MATCH: Final = 0.9
"""The least share of ranges that must match a profile's ring; consumers that left earlier may have moved some."""
_MAX_POINTS: Final = 10_000


def infer_selectors(periods: Iterable[RangePeriod]) -> Iterator[InferredSelector]:
    """Yield the selector of each subscription of one topic partition whose ranges show it."""
    by_subscription: dict[str, list[RangePeriod]] = defaultdict(list)
    for each in periods:
        if each.mode != "STICKY" and each.ranges:
            by_subscription[each.session.subscription].append(each)
    for subscription, of in sorted(by_subscription.items()):
        shown = _select_largest_group(of)
        if (found := _match_auto_split(shown) or _match_ring(shown)) is not None:
            yield found._replace(subscription=subscription, topic=shown[0].session.topic)


def _select_largest_group(periods: Sequence[RangePeriod]) -> list[RangePeriod]:
    """Return the ranges in the first poll with the most consumers, in the order in which these connected."""
    steps = sorted([(each.first, 0) for each in periods] + [(each.last, 1) for each in periods])
    most, count, at = 0, 0, steps[0][0]
    for time, ends in steps:
        count += -1 if ends else 1
        if count > most:
            most, at = count, time
    return sorted((h for h in periods if h.first <= at <= h.last), key=lambda h: h.session.seen.since)


def _match_auto_split(shown: Sequence[RangePeriod]) -> InferredSelector | None:
    ranges = sorted(each.ranges[0] for each in shown)
    starts = [0, *(end + 1 for _, end in ranges)]
    if any(len(each.ranges) > 1 for each in shown) or starts != [*(start for start, _ in ranges), HASH_RANGE + 1]:
        return None
    profile = PULSAR_3_2 if shown[0].session.seen.draining is None else PULSAR_4_0
    return InferredSelector(AutoSplitPolicy.name, profile, None, len(shown), exact=True)


def _match_ring(shown: Sequence[RangePeriod]) -> InferredSelector | None:
    """Return the ring that matches the ranges best; if none matches well enough, the nearest one by its size."""
    ends = {i: {end for _, end in each.ranges} for i, each in enumerate(shown)}
    if all(len(of) == 1 for of in ends.values()) and min(each.ranges[0][0] for each in shown) != 1:
        return None  # one whole range for each consumer: they may be sticky
    every = sum(map(len, ends.values()))
    scores: dict[tuple[str, int], float] = {}
    for profile in (each for each in RULES if each != DOCUMENTED):
        for points in sorted({100, min(_MAX_POINTS, max(map(len, ends.values())))}, reverse=True):
            policy = ConsistentHashPolicy(profile, points=points)
            state = policy.start(Scope(shown[0].session.topic))
            for i, each in enumerate(shown):
                state = policy.join(state, Consumer(i, each.session.seen.name))
            listed = policy.list_reported_ranges(state)
            both = sum(len(of & {end for _, end in listed.get(i, ())}) for i, of in ends.items())
            scores[profile, points] = both / max(every, sum(len({end for _, end in of}) for of in listed.values()))
    best = max(scores, key=lambda each: scores[each])
    if scores[best] >= _MIN_MATCH:
        return InferredSelector(ConsistentHashPolicy.name, best[0], best[1], len(shown), exact=True)
    beyond = max(map(max, ends.values())) > HASH_RANGE
    return InferredSelector(
        ConsistentHashPolicy.name, PULSAR_3_2 if beyond else PULSAR_4_0, None, len(shown), exact=False
    )
