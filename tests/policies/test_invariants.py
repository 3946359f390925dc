"""What holds for every policy under every profile, whatever joins and leaves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from tests.support.every_policy import EVERY, PROFILES, histories
from tests.support.joins import TOPIC, fold
from tests.support.properties import examples

OWN_RANGES = ("pulsar.key_shared.sticky", "pulsar.key_hash_range")  # consumers bring them, so slots may be left over
COVERING = [p for p in EVERY if p.values[0].routing != "any" and p.values[0].name not in OWN_RANGES]
KEEPING = [p for p in EVERY if p.values[0].routing == "slot"]
HALVING = [p for p in EVERY if p.values[0].name in ("pulsar.key_shared.auto_split", "pulsar.key_failover")]

SHARED_BY_PROFILES = examples(25)  # a policy has up to four, most of whose code is the same


@pytest.mark.parametrize("policy", EVERY)
@SHARED_BY_PROFILES
@given(histories)
def test_ranges_are_sorted_disjoint_inside_the_space_and_of_connected_consumers(policy, history):
    timeline = fold(policy, history)
    for epoch in range(len(timeline.epochs)):
        table = timeline.table(epoch)
        connected = {consumer.index for consumer in timeline.list_connected(epoch)}
        assert (table.starts <= table.ends).all()
        assert (table.starts[1:] > table.ends[:-1]).all()
        assert not len(table) or (policy.space[0] <= table.starts[0] and table.ends[-1] <= policy.space[1])
        assert set(table.slots_per_owner()) <= connected


@pytest.mark.parametrize("policy", COVERING)
@SHARED_BY_PROFILES
@given(histories)
def test_every_slot_has_an_owner_while_anyone_is_connected(policy, history):
    timeline = fold(policy, history)
    for epoch in range(len(timeline.epochs)):
        assert timeline.table(epoch).gaps(policy.space) == ([] if timeline.list_connected(epoch) else [policy.space])


@pytest.mark.parametrize("policy", EVERY)
@SHARED_BY_PROFILES
@given(histories)
def test_the_same_events_give_the_same_timeline(policy, history):
    once, again = fold(policy, history), fold(policy, history)
    assert [epoch.moves for epoch in once.epochs] == [epoch.moves for epoch in again.epochs]
    assert once.consumers == again.consumers


@pytest.mark.parametrize("policy", EVERY)
@SHARED_BY_PROFILES
@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_every_hash_has_a_slot_inside_the_space(policy, hashes):
    slots = policy.compute_slots(np.array(hashes, np.uint32))
    assert ((policy.space[0] <= slots) & (slots <= policy.space[1])).all()


@pytest.mark.parametrize("policy", KEEPING)
@SHARED_BY_PROFILES
@given(histories)
def test_only_the_consumer_that_joins_or_leaves_gains_or_loses_slots(policy, history):
    timeline = fold(policy, history)
    for epoch in timeline.epochs:
        for move in epoch.moves:
            sides = _members(timeline, move.before) ^ _members(timeline, move.after)
            assert sides & {consumer.index for consumer in (epoch.joined, *epoch.left) if consumer}


@pytest.mark.parametrize("policy", HALVING)
@SHARED_BY_PROFILES
@given(histories)
def test_a_join_or_leave_concerns_one_other_consumer_at_most(policy, history):
    timeline = fold(policy, history)
    for epoch in timeline.epochs:
        sides = {side for move in epoch.moves for side in (move.before, move.after)} - {NOBODY}
        assert len(sides - {consumer.index for consumer in (epoch.joined, *epoch.left) if consumer}) <= 1


@pytest.mark.parametrize("policy", HALVING)
@SHARED_BY_PROFILES
@given(st.integers(1, 40))
def test_joins_alone_leave_no_range_more_than_twice_as_wide_as_another(policy, count):
    timeline = fold(policy, " ".join(f"+c{number}" for number in range(count)))
    widths = timeline.table(count).slots_per_owner().values()
    assert max(widths) <= 2 * min(widths) + 1  # auto-split of 3.x and 4.x has one slot more at the lower end


def _members(timeline, code):
    """The consumers behind an owner's code: a group of the ring, one consumer, or nobody."""
    return set(timeline.index.groups[-2 - code]) if code < NOBODY else {code} - {NOBODY}


@pytest.mark.parametrize("policy", EVERY)
def test_a_leave_of_someone_not_connected_is_an_error_of_the_caller(policy):
    absent = fold(policy, "+a[0-9]").consumers[0]
    with pytest.raises(ValueError, match="is not connected"):
        policy.leave(policy.start(TOPIC), absent)


@pytest.mark.parametrize("name", ["pulsar.exclusive", "pulsar.failover"])
@pytest.mark.parametrize("profile", PROFILES)
@SHARED_BY_PROFILES
@given(history=histories)
def test_one_active_consumer_has_the_whole_space(name, profile, history):
    timeline = fold(make_policy(name, profile), history, Scope(TOPIC.topic, partition=3))
    assert all(len(timeline.table(epoch)) <= 1 for epoch in range(len(timeline.epochs)))
