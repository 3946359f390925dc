"""Key_Failover: rows P-KF-1 to P-KF-4, and how load is measured."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.slot_traffic import COUNTS, RecentWindows, SlotTraffic
from tests.support.every_policy import histories
from tests.support.joins import TOPIC, events, fold, shares

LOWER, UPPER = 1000, 60000  # slots of either half


def measured(history, messages, window_us=1, **options):
    """Key_Failover that measures ``messages``, pairs of time (ns; event i is at 10 * i) and slot."""
    policy = make_policy("pulsar.key_failover", "documented", window_us=window_us, **options)
    windows = policy.list_windows(events(history))
    times, slots = np.array(messages, np.int64).reshape(-1, 2).T
    return policy.with_traffic({TOPIC: SlotTraffic.from_counts(windows, windows.count_messages(times, slots))})


@pytest.mark.row("P-KF-1")
@given(histories)
def test_p_kf_1_every_consumer_has_one_range_and_together_they_have_all(history):
    timeline = fold(make_policy("pulsar.key_failover", "documented"), history)
    for epoch in range(len(timeline.epochs)):
        table = timeline.table(epoch)
        assert sorted(table.owners) == sorted(consumer.index for consumer in timeline.list_connected(epoch))
        assert table.gaps((0, 65535)) == ([] if len(table) else [(0, 65535)])


@pytest.mark.row("P-KF-1")
def test_p_kf_1_without_any_traffic_ranges_stay_even():
    timeline = fold(make_policy("pulsar.key_failover", "documented"), "+A +B +C +D +E +F +G +H")
    assert set(timeline.table(8).slots_per_owner().values()) == {8192}


@pytest.mark.row("P-KF-2")
def test_p_kf_2_a_newcomer_takes_the_upper_half_of_the_busiest_consumers_range():
    history = "+A +B +C"
    for slot, halved in ((LOWER, "A"), (UPPER, "B")):
        before = shares(fold(measured(history, [(25, slot)]), history), 2)
        after = shares(fold(measured(history, [(25, slot)]), history), 3)
        ((first, last),) = before[halved]
        assert after[halved] == [(first, (first + last) // 2)]
        assert after["C"] == [((first + last) // 2 + 1, last)]


@pytest.mark.row("P-KF-2")
def test_p_kf_2_only_the_window_before_the_join_counts_and_its_length_is_an_option():
    history = "+A +B" + " -X" * 200 + " +C"  # C joins at 2030 ns
    messages = [(25, UPPER), (26, UPPER), (1500, LOWER), (2030, UPPER), (2030, UPPER)]
    for window_us, halved in ((1, "A"), (3, "B")):
        timeline = fold(measured(history, messages, window_us), history)
        (move,) = timeline.epochs[3].moves
        assert timeline.consumers[move.before].name == halved


@pytest.mark.row("P-KF-2")
def test_p_kf_2_a_range_of_one_slot_cannot_be_halved_so_the_next_busiest_gives_way():
    history = "+A +B +C +D"
    busy = [(at, 3) for at in (15, 25, 35)]  # slot 3 of four: B's upper quarter is the busiest, however narrow
    timeline = fold(measured(history, busy, range_size=4), history)
    assert shares(timeline, 3) == {"A": [(0, 1)], "B": [(2, 2)], "C": [(3, 3)]}
    assert shares(timeline, 4) == {"A": [(0, 0)], "D": [(1, 1)], "B": [(2, 2)], "C": [(3, 3)]}


def test_a_newcomer_is_refused_when_every_range_is_one_slot():
    timeline = fold(make_policy("pulsar.key_failover", "documented", range_size=2), "+A +B +C")
    assert str(timeline.epochs[3].rejected) == "No range can be halved for a new consumer, assigned consumers 2"


@pytest.mark.row("P-KF-2")
def test_p_kf_2_of_equally_busy_consumers_the_widest_then_the_lowest_range_is_halved():
    timeline = fold(make_policy("pulsar.key_failover", "documented"), "+A +B +C +D")
    assert timeline.epochs[3].moves[0].before == 0  # A before B, both have half
    assert timeline.epochs[4].moves[0].before == 1  # B is wider than A and C


@pytest.mark.row("P-KF-3")
@pytest.mark.parametrize(("busy", "heir"), [(LOWER, "C"), (UPPER, "A")])
def test_p_kf_3_a_leavers_range_goes_to_the_less_busy_neighbour_on_either_side(busy, heir):
    history = "+A +B +C -B"
    timeline = fold(measured(history, [(25, UPPER), (35, busy)]), history)
    assert shares(timeline, 3) == {"A": [(0, 32767)], "B": [(32768, 49151)], "C": [(49152, 65535)]}
    assert {move.after for move in timeline.epochs[4].moves} == {"ABC".index(heir)}


@pytest.mark.row("P-KF-3")
def test_p_kf_3_the_narrower_then_the_lower_of_equally_busy_neighbours_inherits():
    narrower = fold(
        make_policy("pulsar.key_failover", "documented"), "+A +B +C -C"
    )  # A has a quarter, B the upper half
    assert shares(narrower) == {"A": [(0, 32767)], "B": [(32768, 65535)]}
    lower = fold(make_policy("pulsar.key_failover", "documented"), "+A +B +C +D -C -B")
    assert shares(lower) == {"A": [(0, 32767)], "D": [(32768, 65535)]}


@pytest.mark.row("P-KF-4")
def test_p_kf_4_the_worked_timeline():
    history = "+C1 +C2 +C3 -C1 -C2"
    timeline = fold(measured(history, [(25, LOWER), (25, UPPER), (26, UPPER)]), history)  # at T2 C2 is busier

    assert shares(timeline, 1) == {"C1": [(0, 65535)]}
    assert shares(timeline, 2) == {"C1": [(0, 32767)], "C2": [(32768, 65535)]}
    assert shares(timeline, 3) == {"C1": [(0, 32767)], "C2": [(32768, 49151)], "C3": [(49152, 65535)]}
    assert shares(timeline, 4) == {"C2": [(0, 49151)], "C3": [(49152, 65535)]}
    assert shares(timeline, 5) == {"C3": [(0, 65535)]}


def test_priority_has_no_effect():
    policy = make_policy("pulsar.key_failover", "documented")
    assert shares(fold(policy, "+A@2 +B@0 +C@1")) == shares(fold(policy, "+A +B +C"))


def test_another_topics_traffic_is_not_this_ones():
    history = "+A +B +C"
    policy = measured(history, [(25, UPPER)])
    elsewhere = policy.with_traffic({scope: traffic for scope, traffic in policy.traffic.items() if scope != TOPIC})
    assert fold(elsewhere, history).epochs[3].moves[0].before == 0


messages = st.lists(st.tuples(st.integers(-1500, 200), st.integers(0, 65535)), max_size=40)


@given(histories, messages)
def test_loads_are_the_messages_of_each_range_in_the_window(history, given_messages):
    story = events(history)
    windows = RecentWindows.from_ends((event.at.at for event in story), 1000)
    times, slots = np.array(given_messages, np.int64).reshape(-1, 2).T
    half = len(times) // 2  # counted by two workers
    counts = pa.concat_tables(
        [windows.count_messages(times[:half], slots[:half]), windows.count_messages(times[half:], slots[half:])]
    )
    traffic = SlotTraffic.from_counts(windows, counts)
    starts = [0, 100, 30000]
    for event in story:
        recent = [slot for time, slot in given_messages if event.at.at - 1000 <= time < event.at.at]
        bounds = [*starts, 65536]
        expected = [sum(low <= slot < high for slot in recent) for low, high in pairwise(bounds)]
        assert traffic.compute_loads(event.at.at, np.array(starts)).tolist() == expected


def test_traffic_of_other_events_is_an_error_and_not_a_load_of_0():
    traffic = SlotTraffic.from_counts(RecentWindows.from_ends([10], 5), COUNTS.empty_table())
    assert traffic.compute_loads(10, np.array([0])).tolist() == [0]
    with pytest.raises(ValueError, match="no traffic was counted for an event at 11"):
        traffic.compute_loads(11, np.array([0]))


@given(histories, messages)
def test_only_the_halved_or_the_leaving_consumers_slots_move(history, given_messages):
    timeline = fold(measured(history, given_messages), history)
    for epoch in timeline.epochs:
        one = {consumer.index for consumer in (epoch.joined, *epoch.left) if consumer}
        for move in epoch.moves:
            assert {move.before, move.after} & one
        assert len(epoch.moves) <= 1
