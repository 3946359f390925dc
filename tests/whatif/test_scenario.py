"""Recorded members in a scenario: who was missed is missed when it was recorded to be."""

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.semantics.timelines.group_timeline import GroupTimeline
from subreplay.whatif.scenario import (
    PlannedMember,
    build_planned_events,
    build_recorded_events,
    copy_to_partitions,
    find_silence,
)

SECOND = 1_000_000_000
DETECTED = make_policy("kafka.range", "kafka-4.0", session_timeout_us=0)  # as adapters of coordinators' records set it
STICKY = make_policy("kafka.sticky", "kafka-4.0", session_timeout_us=10_000_000, initial_rebalance_delay_us=0)


def event(kind, name, second, instance=None):
    at = Instant(second * SECOND, second)
    return MembershipEvent(Scope("t"), kind, name, at, at, instance_id=instance)


def changes(events):
    return [step.at.at // SECOND for step in GroupTimeline.fold(STICKY, Partitions.from_counts({"t": 4}), events).steps]


def test_a_coordinator_that_had_waited_does_not_wait_again():
    story = [event("join", "a", 1), event("join", "b", 2), event("crash", "b", 30), event("leave", "a", 40)]

    assert changes(build_recorded_events(story, find_silence(DETECTED, STICKY))) == [1, 2, 30, 40]
    assert changes(build_recorded_events(story, find_silence(STICKY, STICKY))) == [
        1,
        2,
        40,
    ]  # the instants are those of the crashes


def test_a_static_member_that_left_is_removed_when_it_was_recorded():
    story = [event("join", "a", 1, "i"), event("join", "b", 2), event("leave", "a", 30, "i")]

    assert changes(build_recorded_events(story, find_silence(DETECTED, STICKY))) == [1, 2, 30]


def test_no_member_falls_silent_before_it_joins():
    story = [event("join", "a", 1), event("join", "b", 25), event("crash", "b", 30)]

    assert [one.at.at // SECOND for one in build_recorded_events(story, 10 * SECOND)] == [1, 25, 25]


def test_only_groups_have_a_session_timeout():
    assert find_silence(make_policy("pulsar.failover", "pulsar-4.0"), STICKY) == 0
    assert find_silence(DETECTED, make_policy("pulsar.failover", "pulsar-4.0")) == 0


def test_members_with_equal_names_are_different_consumers():
    members = [PlannedMember("c", 0, 9), PlannedMember("c", 5, None), PlannedMember("d", 0, None)]
    events = build_planned_events(members, Scope("t"), 0)
    assert [(event.event, event.label) for event in events] == [
        ("join", "c"), ("join", "d"), ("join", "c (2)"), ("leave", "c")
    ]  # fmt: skip


def test_recorded_members_with_equal_names_are_different_consumers():
    joins = [MembershipEvent(Scope("t"), "join", "c", Instant(at), Instant(at)) for at in (0, 1)]
    assert [event.label for event in build_recorded_events(joins)] == ["c", "c (2)"]
    assert [event.label for event in build_recorded_events(joins[:1])] == ["c"]


def test_group_members_have_the_partitions_of_every_topic():
    events = {Scope(topic): (MembershipEvent(Scope(topic), "join", "c", Instant(0), Instant(0)),) for topic in "ab"}
    assert [*copy_to_partitions(events, 2)] == [Scope("a", 0), Scope("a", 1), Scope("b", 0), Scope("b", 1)]
