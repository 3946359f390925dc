"""An even share is one over the consumers connected; a whole is never more skewed than its worst window."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import make_policy
from subreplay.whatif.fair_share import Connected, connected, even_share, even_shares, most_connected
from tests.support.joins import fold

SHARED = make_policy("pulsar.shared", "pulsar-4.0")
MICRO = 1_000


def test_intervals_tell_how_many_were_connected_and_when():
    timeline = fold(SHARED, "+A +B -A +C")  # at 10, 20, 30 and 40 µs
    assert connected([timeline], 50 * MICRO) == (
        Connected(10, 20, 1), Connected(20, 30, 2), Connected(30, 40, 1), Connected(40, 50 * MICRO, 2)
    )  # fmt: skip


def test_a_consumer_of_many_partitions_is_counted_once_and_its_later_joins_make_no_interval():
    timelines = [fold(SHARED, "+A +B") for _ in range(100)]
    assert connected(timelines, 50) == (Connected(10, 20, 1), Connected(20, 50, 2))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), max_size=20), st.integers(0, 60), st.integers(0, 60))
def test_the_most_connected_is_that_of_all_intervals_that_overlap(parts, start, end):
    intervals, at = [], 0
    for length, consumers in parts:
        if consumers:
            intervals.append(Connected(at, at + length, consumers))
        at += length
    expected = max((i.consumers for i in intervals if i.start < end and start < i.end), default=0)
    assert most_connected(intervals, start, end) == expected


def test_the_even_share_by_hand():
    # two consumers in the first window, four in the second; 100 and 300 messages
    intervals = (Connected(0, 60, 2), Connected(60, 120, 4))
    shares = even_shares(intervals, (0, 60, 120), 60)
    assert shares == {0: 1 / 2, 60: 1 / 4, 120: 1}
    assert even_share(shares, {0: 100, 60: 300}) == pytest.approx((100 / 2 + 300 / 4) / 400)
    assert even_share(shares, {}) == 0


windows = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(0, 90), min_size=1, max_size=5).filter(any)), min_size=1
)


@given(windows)
def test_no_consumer_is_more_skewed_in_the_whole_than_in_its_worst_window(found):
    sums = {start: sum(given) for start, (_, given) in enumerate(found)}
    even = {start: 1 / consumers for start, (consumers, _) in enumerate(found)}
    whole = even_share(even, sums)
    for who in range(5):
        mine = {start: given[who] if who < len(given) else 0 for start, (_, given) in enumerate(found)}
        worst = max(mine[start] / sums[start] / even[start] for start in sums)
        assert sum(mine.values()) / sum(sums.values()) / whole <= worst + 1e-9
