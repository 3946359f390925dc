import pytest

from subreplay.errors import ConfigError
from subreplay.semantics.policies.kafka.assignor import GroupMember, Owners, Partitions
from subreplay.semantics.policies.kafka.cooperative_sticky import CooperativeStickyAssignor, find_revoked
from tests.policies.kafka.groups import claiming, members, shares, topics

COOPERATIVE = CooperativeStickyAssignor("kafka-4.0")
SIX = topics("t*6")


def since(generation: int, *group: GroupMember) -> tuple[GroupMember, ...]:
    """The members with what they own as of that generation."""
    return tuple(
        member._replace(generation=generation, claim=member.claim._replace(generation=generation)) for member in group
    )


def dead_lettered(partitions: Partitions, group: tuple[GroupMember, ...], owners: Owners) -> dict[str, str]:
    return {
        member.member_id: " ".join(f"{t}p{p}" for t, p in partitions.list_names(lost))
        for member, lost in zip(group, find_revoked(group, owners), strict=True)
    }


def test_a_moving_partition_has_no_owner_until_it_is_revoked():
    group = claiming(members("A:t B:t C:t"), SIX, {"A": "tp0 tp2 tp4", "B": "tp1 tp3 tp5"})
    first = shares(COOPERATIVE, SIX, group)
    assert first == {"A": "tp0 tp2", "B": "tp1 tp3", "C": ""}
    assert dead_lettered(SIX, group, COOPERATIVE.assign(SIX, group)) == {"A": "tp4", "B": "tp5", "C": ""}

    followup = claiming(group, SIX, first)
    assert shares(COOPERATIVE, SIX, followup) == {"A": "tp0 tp2", "B": "tp1 tp3", "C": "tp4 tp5"}
    assert dead_lettered(SIX, followup, COOPERATIVE.assign(SIX, followup)) == {"A": "", "B": "", "C": ""}


def test_what_a_member_that_left_had_is_handed_on_at_once():
    group = claiming(members("A:t C:t"), SIX, {"A": "tp0 tp2", "C": "tp4 tp5"})
    assert shares(COOPERATIVE, SIX, group) == {"A": "tp0 tp1 tp2", "C": "tp3 tp4 tp5"}


def test_unequal_members_wait_for_what_others_own_too():
    partitions = topics("t0*4 t1*1")
    group = claiming(members("A:t0,t1 B:t0"), partitions, {"A": "t0p0 t0p1 t0p2 t0p3"})
    assert shares(COOPERATIVE, partitions, group) == {"A": "t0p2 t0p3 t1p0", "B": ""}
    assert dead_lettered(partitions, group, COOPERATIVE.assign(partitions, group)) == {"A": "t0p0 t0p1", "B": ""}


def test_what_two_equal_members_own_as_of_one_generation_waits_even_for_one_of_them():
    group = since(3, *claiming(members("A:t B:t"), SIX, {"A": "tp0 tp1 tp2", "B": "tp2 tp3"}))
    assert shares(COOPERATIVE, SIX, group) == {"A": "tp0 tp1", "B": "tp3 tp4 tp5"}  # p2 is for A

    unequal = since(3, *claiming(members("A:t B:t,u"), SIX, {"A": "tp0 tp1 tp2", "B": "tp2 tp3"}))
    assert shares(COOPERATIVE, SIX, unequal) == {"A": "tp0 tp1 tp4", "B": "tp2 tp3 tp5"}


def test_a_partition_outside_its_owners_rack_is_revoked_first():
    partitions = topics("t*2", racks={"t": ["r1", "r2"]})
    group = claiming(members("A%r1:t B%r2:t"), partitions, {"A": "tp1", "B": ""})
    assert shares(COOPERATIVE, partitions, group) == {"A": "tp0", "B": ""}


@pytest.mark.parametrize("profile", ["kafka-2.3", "documented"])
def test_a_profile_that_kafka_cooperative_sticky_does_not_have_is_refused(profile):
    with pytest.raises(ConfigError, match=rf"kafka\.cooperative_sticky has no profile '{profile}'"):
        CooperativeStickyAssignor(profile)


def test_without_members_nothing_has_an_owner():
    assert COOPERATIVE.assign(SIX, ()).tolist() == [-1] * 6
