"""The fold of a policy over joins and leaves, and its vectorised look-ups against the plain ones."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import InputError
from subreplay.rows.model.range_table import Move
from subreplay.rows.model.rows import Instant, MembershipEvent
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import BEGINNING, MAX_UNCOMPILED_LOOKUPS, Timeline
from tests.support.every_policy import EVERY, histories
from tests.support.joins import TOPIC, events, fold, owner
from tests.support.properties import examples

AUTO_SPLIT = make_policy("pulsar.key_shared.auto_split", "documented")


def test_one_event_opens_one_epoch_and_closes_the_one_before():
    timeline = fold(AUTO_SPLIT, "+A +B -A")
    assert [(epoch.start, epoch.end) for epoch in timeline.epochs] == [
        (BEGINNING, Instant(10)),
        (Instant(10), Instant(20)),
        (Instant(20), Instant(30)),
        (Instant(30), None),
    ]
    assert [epoch.since for epoch in timeline.epochs[1:]] == [Instant(7), Instant(17), Instant(27)]


def test_an_epoch_records_joins_leaves_and_moves():
    first, second, third = fold(AUTO_SPLIT, "+A +B -A").epochs[1:]
    assert (first.joined.name, second.joined.name, third.joined) == ("A", "B", None)
    assert [consumer.name for consumer in third.left] == ["A"]
    assert second.moves == (Move(0, 32767, 0, 1),)
    assert third.moves == (Move(32768, 65535, 0, 1),)


def test_a_consumer_that_comes_back_is_a_new_one():
    timeline = fold(AUTO_SPLIT, "+A -A +A")
    assert [(consumer.index, consumer.name) for consumer in timeline.consumers] == [(0, "A"), (1, "A")]


def test_a_leave_takes_the_oldest_consumer_of_that_name():
    timeline = fold(AUTO_SPLIT, "+A +A +B -A")
    assert [consumer.index for consumer in timeline.list_connected(4)] == [1, 2]


def test_a_leave_of_someone_unknown_opens_no_epoch_and_is_remembered():
    timeline = fold(AUTO_SPLIT, "+A -B")
    assert len(timeline.epochs) == 2
    assert [event.consumer for event in timeline.orphans] == ["B"]


def test_slots_before_between_and_behind_all_ranges_have_no_owner():
    timeline = fold(make_policy("pulsar.key_shared.sticky", "pulsar-4.0"), "+A[10-20] +B[40-40] -B")
    slots = np.array([-1, 0, 9, 10, 20, 21, 39, 40, 41, 65535])
    after_join, after_leave = (
        timeline.find_owners(slots, np.zeros(10, np.uint32), np.full(10, epoch, np.int32)).tolist() for epoch in (2, 3)
    )
    assert after_join == [-1, -1, -1, 0, 0, -1, -1, 1, -1, -1]
    assert after_leave == [-1, -1, -1, 0, 0, -1, -1, -1, -1, -1]


def test_a_crash_is_a_leave():
    assert fold(AUTO_SPLIT, "+A +B !A").list_connected(3) == fold(AUTO_SPLIT, "+A +B -A").list_connected(3)


def test_a_rejected_join_opens_an_epoch_in_which_nothing_changed():
    rejection = fold(make_policy("pulsar.exclusive", "pulsar-4.0"), "+A +B").epochs[2]
    assert (rejection.joined, rejection.moves, str(rejection.rejected)) == (
        None,
        (),
        "Exclusive consumer is already connected",
    )


def test_without_events_nobody_owns_anything():
    timeline = Timeline.fold(AUTO_SPLIT, TOPIC, [])
    assert owner(timeline, 5) is None
    assert timeline.list_connected(0) == ()
    assert timeline.find_epochs(np.array([-5, 5]), np.array([0, 0])).tolist() == [0, 0]


def test_events_out_of_order_are_refused():
    with pytest.raises(InputError, match="not in order"):
        Timeline.fold(AUTO_SPLIT, TOPIC, reversed(events("+A +B")))


def test_a_timeline_travels_to_an_executor_and_answers_the_same():
    timeline = fold(make_policy("pulsar.key_shared.consistent_hash", "pulsar-3.2"), "+A +A +B -A")
    there = pickle.loads(pickle.dumps(timeline))  # noqa: S301 - our own bytes
    assert [epoch.moves for epoch in there.epochs] == [epoch.moves for epoch in timeline.epochs]
    assert [owner(there, hash_) for hash_ in range(0, 2**31, 2**25)] == [
        owner(timeline, hash_) for hash_ in range(0, 2**31, 2**25)
    ]


def test_a_rejection_travels_too():
    timeline = fold(make_policy("pulsar.exclusive", "pulsar-4.0"), "+A +B")
    there = pickle.loads(pickle.dumps(timeline))  # noqa: S301 - our own bytes
    assert (there.epochs[2].rejected.kind, str(there.epochs[2].rejected)) == (
        "ConsumerBusyException",
        "Exclusive consumer is already connected",
    )


def test_while_a_change_is_under_way_both_epochs_are_possible():
    timeline = fold(AUTO_SPLIT, "+A +B")  # B asks at 17 and is in at 20
    at = np.array([16, 17, 19, 20])
    assert timeline.find_epochs(at, at * 0).tolist() == [1, 1, 1, 2]
    assert timeline.find_last_candidates(at, at * 0).tolist() == [1, 2, 2, 2]


def test_a_change_cannot_be_over_before_the_one_before_it_began():
    slow, quick = (
        MembershipEvent(TOPIC, "join", "slow", Instant(20), Instant(15)),
        MembershipEvent(TOPIC, "join", "quick", Instant(21), Instant(1)),
    )
    timeline = Timeline.fold(AUTO_SPLIT, TOPIC, [slow, quick])
    at = np.array([5, 15, 20])
    assert timeline.find_last_candidates(at, at * 0).tolist() == [0, 2, 2]


instants = st.tuples(st.integers(-3, 6), st.integers(-2, 4))


@given(st.lists(instants, max_size=8).map(sorted), st.lists(st.integers(0, 5), min_size=8), st.lists(instants))
def test_epochs_of_instants_are_found_in_exact_order_of_time_then_sequence(starts, waits, requested):
    joins = [
        MembershipEvent(TOPIC, "join", "A", Instant(*start), Instant(start[0] - wait, start[1]))
        for start, wait in zip(starts, waits, strict=False)
    ]
    timeline = Timeline.fold(make_policy("pulsar.failover", "documented"), TOPIC, joins)
    at, seq = np.array(requested, np.int64).reshape(-1, 2).T

    begun = [[epoch.start <= Instant(*instant) for epoch in timeline.epochs] for instant in requested]
    assert timeline.find_epochs(at, seq).tolist() == [row.count(True) - 1 for row in begun]

    reached = [[epoch.since <= Instant(*instant) for epoch in timeline.epochs] for instant in requested]
    assert timeline.find_last_candidates(at, seq).tolist() == [[*row, False].index(False) - 1 for row in reached]


@pytest.mark.parametrize("policy", EVERY)
@examples(25)  # of each of a policy's profiles
@given(history=histories, hashes=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=10))
def test_the_owner_in_an_epoch_is_the_one_of_that_steps_own_table(policy, history, hashes):
    timeline = fold(policy, history)
    given_hashes = np.array(hashes, np.uint32)
    slots = policy.compute_slots(given_hashes)
    state = policy.start(TOPIC)
    for epoch in timeline.epochs:
        for consumer in epoch.left:
            state = policy.leave(state, consumer)
        if epoch.joined:
            state = policy.join(state, epoch.joined)
        expected = state.table.owners_of(slots, given_hashes).tolist()
        epochs = np.full(len(slots), epoch.index, np.int32)
        assert timeline.find_owners(slots, given_hashes, epochs).tolist() == expected
        many = (
            np.tile(requested, MAX_UNCOMPILED_LOOKUPS + 1) for requested in (slots, given_hashes, epochs)
        )  # by compiled code
        assert timeline.find_owners(*many).tolist() == expected * (MAX_UNCOMPILED_LOOKUPS + 1)
        assert timeline.table(epoch.index).rows() == state.table.merged().rows()


@pytest.mark.parametrize("selector", ["auto_split", "consistent_hash", "sticky"])
def test_of_a_thousand_consumers_that_join_one_by_one_a_timeline_stays_small(selector):
    history = " ".join(f"+consumer-{i}[{60 * i}-{60 * i + 40}]" for i in range(1000))
    timeline = fold(make_policy(f"pulsar.key_shared.{selector}", "pulsar-3.2"), history)

    assert len(timeline.list_connected(1000)) == 1000
    assert len(pickle.dumps(timeline)) < 32 * 2**20
