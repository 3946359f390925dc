"""The fewest consumers that keep a limit: no fewer do, and the bound is never above what is found."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.planning.consumer_count import (
    NO_COUNT,
    DrainTime,
    LatencyLimit,
    Limit,
    PolicyCandidate,
    UtilisationLimit,
    find_consumer_count,
    find_scaling_limit,
)
from subreplay.whatif.planning.growing_membership import (
    build_key_membership,
    build_partition_membership,
    iterate_growth,
)
from subreplay.whatif.planning.loads import WorkLoads

ORDERS = Scope("persistent://t/ns/orders")
SHARED = PolicyCandidate("pulsar.shared", "message", None)
MOST = 12
SELECTORS = ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split")


def selector(name: str, hashes: np.ndarray) -> PolicyCandidate:
    return PolicyCandidate(
        name,
        "key",
        lambda first: iterate_growth(build_key_membership(make_policy(name, "pulsar-4.0"), hashes, ORDERS), first),
    )


@st.composite
def limits(draw: st.DrawFn) -> tuple[Limit, np.ndarray]:
    keys = draw(st.integers(1, 6))
    rows = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, keys - 1), st.integers(1, 9)), min_size=1))
    at, key, work = np.array(sorted(rows), np.int64).T
    hashes = np.array(draw(st.lists(st.integers(0, 2**32 - 1), min_size=keys, max_size=keys)), np.uint32)
    loads = WorkLoads.from_messages(key, at, work, keys, width=10)
    limit: Limit = draw(
        st.one_of(
            st.builds(UtilisationLimit, st.just(loads), st.floats(0.05, 2), st.sampled_from([0.5, 0.9, 1.0])),
            st.builds(
                LatencyLimit, st.just(at), st.just(key), st.just(work), st.integers(1, 60), st.sampled_from([0.5, 1])
            ),
            st.builds(
                DrainTime, st.just(loads), st.just(41), st.just(len(at)), st.integers(1, 50), st.integers(1, 200)
            ),
        )
    )
    return limit, hashes


@given(limits(), st.sampled_from(SELECTORS))
def test_no_fewer_consumers_keep_the_limit_and_the_bound_is_never_above_them(
    given: tuple[Limit, np.ndarray], name: str
) -> None:
    limit, hashes = given
    for candidate in (selector(name, hashes), SHARED):
        every = range(1, MOST + 1)
        owned = [None] * MOST if candidate.owners is None else list(islice(candidate.owners(1), MOST))
        keeping = [n for n in every if limit.measure(owned[n - 1], n) <= limit.most]
        found = find_consumer_count(limit, candidate, MOST)
        assert found.consumers == (keeping[0] if keeping else NO_COUNT)
        if keeping:
            assert 1 <= found.bound <= keeping[0]


def test_a_key_that_is_too_hot_for_one_consumer_is_too_hot_for_any_number() -> None:
    loads = WorkLoads.from_messages(np.array([0, 1]), np.array([0, 0]), np.array([80, 10]), things=2, width=100)
    candidate = selector(SELECTORS[0], np.array([1, 2], np.uint32))
    never = find_consumer_count(UtilisationLimit(loads, 0.7), candidate)
    assert (never.consumers, never.least) == (NO_COUNT, 0.8)
    assert find_consumer_count(UtilisationLimit(loads, 0.7), SHARED).consumers == 2
    assert find_consumer_count(UtilisationLimit(loads, 0.8), candidate).consumers > 0


def test_some_windows_may_be_too_busy_where_the_limit_says_so() -> None:
    loads = WorkLoads.from_messages(
        np.zeros(4, np.int64), np.array([0, 10, 20, 30]), np.array([9, 1, 1, 1]), things=1, width=10
    )
    assert find_consumer_count(UtilisationLimit(loads, 0.5, share=1.0), SHARED).consumers == 2
    assert find_consumer_count(UtilisationLimit(loads, 0.5, share=0.75), SHARED).consumers == 1


@pytest.mark.parametrize("policy", ["pulsar.failover", "kafka.range", "kafka.cooperative_sticky"])
def test_consumers_beyond_the_partitions_own_nothing(policy: str) -> None:
    profile = "kafka-4.0" if policy.startswith("kafka") else "pulsar-4.0"
    scopes = [Scope(ORDERS.topic, partition) for partition in range(3)]
    owners = [
        mine.tolist()
        for mine in islice(iterate_growth(build_partition_membership(make_policy(policy, profile), scopes)), 4)
    ]
    assert [len({*mine}) for mine in owners] == [1, 2, 3, 3]
    assert all(0 <= owner <= number for number, mine in enumerate(owners) for owner in mine)


def test_the_hottest_key_limits_scaling_once_the_fair_share_is_below_it() -> None:
    loads = WorkLoads.from_messages(
        np.array([7, 7, 3, 2, 1, 0]), np.zeros(6, np.int64), np.array([2, 2, 2, 2, 2, 2]), 8, 10
    )
    found = find_scaling_limit(loads)
    assert (found.thing, found.share, found.consumers) == (7, pytest.approx(1 / 3), 3)
