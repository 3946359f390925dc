"""What changed hands: net of one instant, between consumers of different names."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Instant
from subreplay.semantics.policies import make_policy
from subreplay.semantics.timelines.timeline import Timeline
from subreplay.whatif.handovers import Handover, group_changes
from subreplay.whatif.handovers import find_handovers as as_columns
from tests.support.joins import TOPIC, events, fold

AUTO_SPLIT = make_policy("pulsar.key_shared.auto_split", "pulsar-4.0")
CONSISTENT = make_policy("pulsar.key_shared.consistent_hash", "pulsar-4.0", points=5)
HALF, QUARTER = 32_769, 16_385  # a bound of this profile is inside the lower range


def find_handovers(timeline: Timeline) -> tuple[Handover, ...]:
    return tuple(as_columns(timeline).iterate_rows())


def at_once(history: str, *together: int) -> Timeline:
    """The events of a history, of which those numbered (from 1) happen at the instant of the first of them."""
    story = events(history)
    first = story[together[0] - 1].at.at if together else 0
    moved = [replace(e, at=Instant(first, i), since=Instant(first, i)) if i in together else e
             for i, e in enumerate(story, start=1)]  # fmt: skip
    return Timeline.fold(AUTO_SPLIT, TOPIC, moved)


def test_a_new_consumer_takes_half_of_the_range_of_another():
    assert find_handovers(fold(AUTO_SPLIT, "+A +B +C")) == (Handover(2, "A", "B", HALF), Handover(3, "B", "C", QUARTER))


def test_joins_of_one_instant_are_one_change_and_what_is_owned_first_is_not_a_move():
    timeline = at_once("+A +B +C", 1, 2, 3)
    assert find_handovers(timeline) == ()
    assert [[epoch.index for epoch in change] for change in group_changes(timeline)] == [[1, 2, 3]]


def test_only_the_final_owner_of_a_change_counts():
    # B and C join at once: C has a part that B had for no time at all
    assert find_handovers(at_once("+A +B +C", 2, 3)) == (
        Handover(3, "A", "B", HALF - QUARTER), Handover(3, "A", "C", QUARTER)
    )  # fmt: skip


def test_a_consumer_that_rejoins_at_the_same_instant_causes_no_handover():
    assert find_handovers(at_once("+A -A +A", 2, 3)) == ()


@pytest.mark.parametrize("policy", [AUTO_SPLIT, CONSISTENT], ids=lambda policy: policy.name)
@given(story=st.lists(st.sampled_from(["+A", "+B", "+C", "+D", "-A", "-B", "-C", "-D"]), max_size=12))
def test_handovers_equal_the_epoch_moves_summed_by_name(policy, story):
    timeline = fold(policy, " ".join(story))
    expected: dict[tuple[int, str, str], int] = {}
    for epoch in timeline.epochs:
        for move in epoch.moves:
            if min(move.before, move.after) > NOBODY:
                names = timeline.consumers[move.before].name, timeline.consumers[move.after].name
                key = (epoch.index, *names)
                expected[key] = expected.get(key, 0) + move.end - move.start + 1
    expected = {key: slots for key, slots in expected.items() if key[1] != key[2]}
    assert {(h.epoch, h.before, h.after): h.slots for h in find_handovers(timeline)} == expected
