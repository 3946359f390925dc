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
    NEVER_ENOUGH,
    Candidate,
    Drain,
    Latency,
    Limit,
    Utilisation,
    ceiling,
    fewest,
)
from subreplay.whatif.planning.growing_membership import growing, of_keys, of_partitions
from subreplay.whatif.planning.loads import Loads

ORDERS = Scope("persistent://t/ns/orders")
SHARED = Candidate("pulsar.shared", "message", None)
MOST = 12
SELECTORS = ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split")


def selector(name: str, hashes: np.ndarray) -> Candidate:
    return Candidate(
        name, "key", lambda first: growing(of_keys(make_policy(name, "pulsar-4.0"), hashes, ORDERS), first)
    )


@st.composite
def limits(draw: st.DrawFn) -> tuple[Limit, np.ndarray]:
    keys = draw(st.integers(1, 6))
    rows = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, keys - 1), st.integers(1, 9)), min_size=1))
    at, key, work = np.array(sorted(rows), np.int64).T
    hashes = np.array(draw(st.lists(st.integers(0, 2**32 - 1), min_size=keys, max_size=keys)), np.uint32)
    loads = Loads.of(key, at, work, keys, width=10)
    limit: Limit = draw(
        st.one_of(
            st.builds(Utilisation, st.just(loads), st.floats(0.05, 2), st.sampled_from([0.5, 0.9, 1.0])),
            st.builds(Latency, st.just(at), st.just(key), st.just(work), st.integers(1, 60), st.sampled_from([0.5, 1])),
            st.builds(Drain, st.just(loads), st.just(41), st.just(len(at)), st.integers(1, 50), st.integers(1, 200)),
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
        keeping = [n for n in every if limit.measured(owned[n - 1], n) <= limit.most]
        found = fewest(limit, candidate, MOST)
        assert found.consumers == (keeping[0] if keeping else NEVER_ENOUGH)
        if keeping:
            assert 1 <= found.bound <= keeping[0]


def test_a_key_that_is_too_hot_for_one_consumer_is_too_hot_for_any_number() -> None:
    loads = Loads.of(np.array([0, 1]), np.array([0, 0]), np.array([80, 10]), things=2, width=100)
    candidate = selector(SELECTORS[0], np.array([1, 2], np.uint32))
    never = fewest(Utilisation(loads, 0.7), candidate)
    assert (never.consumers, never.least) == (NEVER_ENOUGH, 0.8)
    assert fewest(Utilisation(loads, 0.7), SHARED).consumers == 2
    assert fewest(Utilisation(loads, 0.8), candidate).consumers > 0


def test_some_windows_may_be_too_busy_where_the_limit_says_so() -> None:
    loads = Loads.of(np.zeros(4, np.int64), np.array([0, 10, 20, 30]), np.array([9, 1, 1, 1]), things=1, width=10)
    assert fewest(Utilisation(loads, 0.5, share=1.0), SHARED).consumers == 2
    assert fewest(Utilisation(loads, 0.5, share=0.75), SHARED).consumers == 1


@pytest.mark.parametrize("policy", ["pulsar.failover", "kafka.range", "kafka.cooperative_sticky"])
def test_a_partition_has_one_owner_and_further_consumers_have_none(policy: str) -> None:
    profile = "kafka-4.0" if policy.startswith("kafka") else "pulsar-4.0"
    scopes = [Scope(ORDERS.topic, partition) for partition in range(3)]
    owners = [mine.tolist() for mine in islice(growing(of_partitions(make_policy(policy, profile), scopes)), 4)]
    assert [len({*mine}) for mine in owners] == [1, 2, 3, 3]
    assert all(0 <= owner <= number for number, mine in enumerate(owners) for owner in mine)


def test_the_hottest_key_is_the_limit_from_where_an_even_share_is_no_more_than_it_brings() -> None:
    loads = Loads.of(np.array([7, 7, 3, 2, 1, 0]), np.zeros(6, np.int64), np.array([2, 2, 2, 2, 2, 2]), 8, 10)
    found = ceiling(loads)
    assert (found.thing, found.share, found.consumers) == (7, pytest.approx(1 / 3), 3)
