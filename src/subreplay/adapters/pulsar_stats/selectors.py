"""Which selector a Key_Shared subscription has, and of which release its ring is, by the hash ranges that polls show.

Auto-split gives each consumer one range, and the last range ends one past the last slot. A ring gives each consumer
about 100. So the ring of every known profile is computed for the consumers of a poll, and compared with what it shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from subreplay.adapters.pulsar_policies import Selector
from subreplay.adapters.pulsar_stats.membership import Held
from subreplay.hashing.profiles import DOCUMENTED, PULSAR_3_2, PULSAR_4_0
from subreplay.hashing.slots import HASH_RANGE
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies.pulsar.key_auto_split import AutoSplitPolicy
from subreplay.semantics.policies.pulsar.key_consistent_hash import RULES, ConsistentHashPolicy

_SURE: Final = 0.9
"""So much of the ranges is as a profile's ring has them; members that came and went before may have moved some."""
_MOST_POINTS: Final = 10_000


def selectors(held: Iterable[Held]) -> Iterator[Selector]:
    """The selector of each subscription of one topic partition whose ranges tell it."""
    by_subscription: dict[str, list[Held]] = defaultdict(list)
    for each in held:
        if each.mode != "STICKY" and each.ranges:
            by_subscription[each.session.subscription].append(each)
    for subscription, of in sorted(by_subscription.items()):
        shown = _at_once(of)
        if (found := _auto_split(shown) or _ring(shown)) is not None:
            yield found._replace(subscription=subscription, topic=shown[0].session.topic)


def _at_once(held: Sequence[Held]) -> list[Held]:
    """The ranges of the first poll with the most consumers, in the order in which these connected."""
    steps = sorted([(each.first, 0) for each in held] + [(each.last, 1) for each in held])
    most, count, at = 0, 0, steps[0][0]
    for time, ends in steps:
        count += -1 if ends else 1
        if count > most:
            most, at = count, time
    return sorted((h for h in held if h.first <= at <= h.last), key=lambda h: h.session.seen.since)


def _auto_split(shown: Sequence[Held]) -> Selector | None:
    ranges = sorted(each.ranges[0] for each in shown)
    starts = [0, *(end + 1 for _, end in ranges)]
    if any(len(each.ranges) > 1 for each in shown) or starts != [*(start for start, _ in ranges), HASH_RANGE + 1]:
        return None
    profile = PULSAR_3_2 if shown[0].session.seen.draining is None else PULSAR_4_0
    return Selector(AutoSplitPolicy.name, profile, None, len(shown), exact=True)


def _ring(shown: Sequence[Held]) -> Selector | None:
    """The ring that has most of the ranges; where none has enough, the nearest one by its size."""
    ends = {i: {end for _, end in each.ranges} for i, each in enumerate(shown)}
    if all(len(of) == 1 for of in ends.values()) and min(each.ranges[0][0] for each in shown) != 1:
        return None  # whole ranges: they may be sticky
    every = sum(map(len, ends.values()))
    scores: dict[tuple[str, int], float] = {}
    for profile in (each for each in RULES if each != DOCUMENTED):
        for points in sorted({100, min(_MOST_POINTS, max(map(len, ends.values())))}, reverse=True):
            policy = ConsistentHashPolicy(profile, points=points)
            state = policy.start(Scope(shown[0].session.topic))
            for i, each in enumerate(shown):
                state = policy.join(state, Consumer(i, each.session.seen.name))
            listed = policy.list_reported_ranges(state)
            both = sum(len(of & {end for _, end in listed.get(i, ())}) for i, of in ends.items())
            scores[profile, points] = both / max(every, sum(len({end for _, end in of}) for of in listed.values()))
    best = max(scores, key=lambda each: scores[each])
    if scores[best] >= _SURE:
        return Selector(ConsistentHashPolicy.name, best[0], best[1], len(shown), exact=True)
    beyond = max(map(max, ends.values())) > HASH_RANGE
    return Selector(ConsistentHashPolicy.name, PULSAR_3_2 if beyond else PULSAR_4_0, None, len(shown), exact=False)
