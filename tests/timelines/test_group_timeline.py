"""A consumer group's generations: when they happen, what they move, and each partition's timeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.rows.model.range_table import NOBODY
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import ASSIGNORS, make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions, derive_topic_ids
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.whatif.scenario import build_plan, find_group_events
from tests.support.properties import examples

SECOND = 1_000_000_000
TOPIC = Scope("t0")


def partitions_of(**counts):
    return Partitions.from_counts(counts, topic_ids=derive_topic_ids(counts))


TWO_TOPICS = partitions_of(t0=3, t1=3)


def story(text, instances=()):
    """``0+C0 5-C0 9*C1``: seconds, then who joins (+), leaves (-) or crashes (*)."""
    kinds = {"+": "join", "-": "leave", "*": "crash"}
    for seq, word in enumerate(text.split()):
        sign = next(c for c in word if c in kinds)
        second, name = word.split(sign)
        at = Instant(int(second) * SECOND, seq)
        yield MembershipEvent(TOPIC, kinds[sign], name, at, at, instance_id=dict(instances).get(name))


def fold(text, name="kafka.roundrobin", partitions=TWO_TOPICS, instances=(), **options):
    options = {"initial_rebalance_delay_us": 0} | options
    return GroupTimeline.fold(make_policy(name, "kafka-4.0", **options), partitions, story(text, instances))


def owners(group, step=-1):
    """Owners of all partitions after a step, by name of the join: C0 is the first to join."""
    return group.owners(range(len(group.partitions)))[step].tolist()


def when(group):
    return [step.at.at / SECOND for step in group.steps]


def test_a_group_waits_three_seconds_for_its_first_members_and_for_more_while_they_come():
    group = fold("0+a 2+b 5+c 20+d", initial_rebalance_delay_us=3_000_000)

    assert when(group) == [9, 20]  # nobody came between 6 and 9
    assert [len(step.events) for step in group.steps] == [3, 1]


def test_the_server_side_protocol_does_not_wait():
    group = fold("0+a 2+b", "kafka.server_range", initial_rebalance_delay_us=3_000_000)

    assert when(group) == [0, 2]


def test_a_crash_is_noticed_when_the_session_times_out():
    group = fold("0+a 0+b 10*a", session_timeout_us=45_000_000)

    assert when(group) == [0, 55]
    assert set(owners(group)) == {1}


def test_events_of_one_instant_are_one_generation():
    group = fold("0+a 0+b 0+c 5-a 5-b")

    assert [step.generation for step in group.steps] == [1, 2]
    assert set(owners(group)) == {2}


@pytest.mark.row("K-STATIC-1")
def test_k_static_1_new_member_ids_can_move_everything():
    group = fold("0+C0 0+C1 0+C2 9-C0 9-C1 9-C2 9+C5 9+C3 9+C4")

    # joins: C0 C1 C2 are 0 1 2; C5 C3 C4 are 3 4 5. C3: t0p0 t1p0, C4: t0p1 t1p1, C5: t0p2 t1p2
    assert owners(group) == [4, 5, 3, 4, 5, 3]


@pytest.mark.row("K-STATIC-2")
def test_k_static_2_static_members_that_restart_in_time_keep_everything_without_a_rebalance():
    instances = {"C0": "I0", "C1": "I1", "C2": "I2", "C5": "I0", "C3": "I1", "C4": "I2"}
    group = fold("0+C0 0+C1 0+C2 9-C0 9-C1 9-C2 12+C5 13+C3 14+C4", instances=instances)

    assert [step.generation for step in group.steps] == [1, 1, 1, 1]
    assert owners(group, 0) == [0, 1, 2, 0, 1, 2]
    assert owners(group) == [3, 4, 5, 3, 4, 5]  # I0: t0p0 t1p0, and so on


def test_a_static_member_that_stays_away_is_evicted_after_the_session_timeout():
    group = fold("0+C0 0+C1 9-C0", instances={"C0": "I0", "C1": "I1"}, session_timeout_us=10_000_000)

    assert when(group) == [0, 19]
    assert set(owners(group)) == {1}


def test_a_cooperative_group_hands_over_in_a_second_rebalance():
    group = fold("0+C0 9+C1", "kafka.cooperative_sticky")

    assert [step.generation for step in group.steps] == [1, 2, 3]
    assert owners(group, 1).count(NOBODY) == 3
    assert sorted(owners(group)) == [0, 0, 0, 1, 1, 1]


def test_the_timeline_of_a_partition_follows_its_group():
    group = fold("0+C0 9+C1 18-C0", "kafka.cooperative_sticky")
    moving = Scope("t0", owners(group, 2).index(1))
    timeline = group.timelines([moving])[moving]
    at = np.array([0, 8, 9, 18]) * SECOND
    epochs = timeline.find_epochs(at, np.full(4, 1000))
    owner = timeline.find_owners(np.zeros(4, np.int64), np.zeros(4, np.uint32), epochs)

    assert owner.tolist() == [0, 0, 1, 1]
    assert [epoch.cause.event for epoch in timeline.epochs[1:]] == ["join", "join", "rebalance", "leave"]


def test_two_members_of_one_name_are_two_members():
    group = fold("0+C 0+C 9-C")

    assert sorted(owners(group, 0)) == [0, 0, 0, 1, 1, 1]
    assert set(owners(group)) == {1}


def test_a_consumer_of_several_partitions_joins_the_group_once():
    events = {Scope("t", p): tuple(story("0+a 0+b 5-a")) for p in range(4)}

    assert [event.consumer for event in find_group_events(events)] == ["a", "b", "a"]
    timelines = build_plan("x", make_policy("kafka.range", "kafka-4.0"), events).timelines
    assert {len(timeline.epochs) for timeline in timelines.values()} == {4}


@pytest.mark.parametrize("name", [assignor.name for assignor in ASSIGNORS])
@examples(25)
@given(st.data())
def test_every_partition_has_one_owner_among_the_members_that_are_there(name, data):
    here, words, second = [], [], 0
    for n in range(data.draw(st.integers(1, 12))):
        second += 10
        if here and data.draw(st.booleans()):
            words.append(f"{second}-{here.pop(data.draw(st.integers(0, len(here) - 1)))}")
        else:
            here.append(f"m{n}")
            words.append(f"{second}+m{n}")
    counts = {f"t{i}": data.draw(st.integers(1, 7)) for i in range(3)}
    joined = [word.split("+")[1] for word in words if "+" in word]
    group, again = (fold(" ".join(words), name, partitions_of(**counts)) for _ in range(2))

    final = owners(group)
    assert final == owners(again)
    assert {joined[owner] for owner in final if owner != NOBODY} <= set(here)
    assert (NOBODY in final) == (not here)
    if here and name not in ("kafka.range", "kafka.server_range"):
        held = [final.count(joined.index(member)) for member in here]
        assert max(held) - min(held) <= 1


@pytest.mark.parametrize("name", ["kafka.sticky", "kafka.cooperative_sticky", "kafka.uniform"])
@given(joins=st.integers(1, 9), partitions=st.integers(1, 40))
def test_a_join_moves_no_more_than_the_newcomer_gets(name, joins, partitions):
    group = fold(" ".join(f"{i}+m{i}" for i in range(joins)), name, partitions_of(t=partitions))
    table = group.owners(range(partitions))
    last = {step.events[0].at: row for step, row in zip(group.steps, table, strict=True)}
    for before, after in zip(list(last.values())[:-1], list(last.values())[1:], strict=True):
        moved = (before != after).sum()
        assert moved <= -(-partitions // len(set(after.tolist()) - {NOBODY})) or NOBODY in after


def test_a_group_that_nobody_joined_leaves_every_partition_without_an_owner():
    (timeline,) = fold("").timelines([TOPIC]).values()

    assert len(timeline.epochs) == 1
    assert timeline.consumers == ()
    assert timeline.find_owners(np.array([7]), np.array([7], np.uint32), np.array([0], np.int32)).tolist() == [NOBODY]


def test_partitions_share_what_happened_and_differ_in_what_they_passed_on():
    group = fold("0+a 1+b 2-a", partitions=partitions_of(t0=2))
    one, other = group.timelines([Scope("t0", 0), Scope("t0", 1)]).values()

    assert [e.cause.consumer for e in one.epochs[1:]] == ["a", "b", "a"]
    assert one.epochs[2] is other.epochs[2] or one.epochs[2].moves != other.epochs[2].moves
    assert [(m.before, m.after) for e in one.epochs for m in e.moves] == [(NOBODY, 0), (0, 1)]
