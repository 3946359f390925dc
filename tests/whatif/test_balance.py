"""An even share is one over the consumers connected; a whole is never more skewed than its worst window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import make_policy
from subreplay.whatif.fair_share import (
    ConnectedInterval,
    compute_fair_share,
    compute_fair_shares,
    count_most_connected,
    find_connected_intervals,
)
from tests.support.joins import fold

SHARED = make_policy("pulsar.shared", "pulsar-4.0")
MICRO = 1_000


def test_intervals_count_connected_consumers_over_time():
    timeline = fold(SHARED, "+A +B -A +C")  # at 10, 20, 30 and 40 µs
    assert find_connected_intervals([timeline], 50 * MICRO) == (
        ConnectedInterval(10, 20, 1),
        ConnectedInterval(20, 30, 2),
        ConnectedInterval(30, 40, 1),
        ConnectedInterval(40, 50 * MICRO, 2),
    )


def test_a_consumer_of_many_partitions_is_counted_once():
    timelines = [fold(SHARED, "+A +B") for _ in range(100)]
    assert find_connected_intervals(timelines, 50) == (ConnectedInterval(10, 20, 1), ConnectedInterval(20, 50, 2))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_the_maximum_connected_covers_all_overlapping_intervals(parts, start, end):
    intervals, at = [], 0
    for length, consumers in parts:
        if consumers:
            intervals.append(ConnectedInterval(at, at + length, consumers))
        at += length
    expected = max((i.consumers for i in intervals if i.start < end and start < i.end), default=0)
    assert count_most_connected(intervals, start, end) == expected


def test_fair_share_matches_a_hand_computed_example():
    # two consumers in the first window, four in the second; 100 and 300 messages
    intervals = (ConnectedInterval(0, 60, 2), ConnectedInterval(60, 120, 4))
    shares = compute_fair_shares(intervals, (0, 60, 120), 60)
    assert shares == {0: 1 / 2, 60: 1 / 4, 120: 1}
    assert compute_fair_share(shares, {0: 100, 60: 300}) == pytest.approx((100 / 2 + 300 / 4) / 400)
    assert compute_fair_share(shares, {}) == 0


windows = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(0, 90), min_size=1, max_size=5).filter(any)), min_size=1
)


@given(windows)
def test_total_skew_is_never_above_the_worst_window(found):
    sums = {start: sum(given) for start, (_, given) in enumerate(found)}
    even = {start: 1 / consumers for start, (consumers, _) in enumerate(found)}
    whole = compute_fair_share(even, sums)
    for who in range(5):
        mine = {start: given[who] if who < len(given) else 0 for start, (_, given) in enumerate(found)}
        worst = max(mine[start] / sums[start] / even[start] for start in sums)
        assert sum(mine.values()) / sum(sums.values()) / whole <= worst + 1e-9
