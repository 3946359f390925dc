"""What holds for the sticky assignors whatever the topics, members and claims."""

from collections.abc import Sequence
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.semantics.policies.kafka.assignor import UNASSIGNED, GroupMember, MemberClaim, Owners, Partitions
from subreplay.semantics.policies.kafka.cooperative_sticky import CooperativeStickyAssignor, find_revoked
from subreplay.semantics.policies.kafka.sticky import StickyAssignor

Drawn = tuple[Partitions, tuple[GroupMember, ...]]

COOPERATIVE = CooperativeStickyAssignor("kafka-4.0")
EAGER = pytest.mark.parametrize(
    "sticky", [StickyAssignor("kafka-4.0"), StickyAssignor("kafka-2.3")], ids=["kafka-4.0", "kafka-2.3"]
)

TOPICS = ["t0", "t1", "Orders", "t10"]
IDS = [f"{letter}{number}" for number in range(3) for letter in "caqzB"]


@st.composite
def drawn_groups(draw: st.DrawFn, alike: bool) -> Drawn:
    """Members of one generation; no two claim the same partition, nobody claims what it does not subscribe to."""
    partitions = Partitions.from_counts(draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)))
    wishes = st.frozensets(st.sampled_from(partitions.topics), min_size=1)
    topics = wishes.map(lambda _: frozenset(partitions.topics)) if alike else wishes
    members = [
        GroupMember(name, draw(topics), generation=1) for name in draw(st.permutations(IDS))[: draw(st.integers(1, 9))]
    ]
    claimants = draw(
        st.lists(st.integers(UNASSIGNED, len(members) - 1), min_size=len(partitions), max_size=len(partitions))
    )
    return partitions, claiming(partitions, members, np.array(claimants, np.int32))


groups = st.booleans().flatmap(drawn_groups)
equal_groups = drawn_groups(alike=True)


def claiming(partitions: Partitions, members: Sequence[GroupMember], owners: Owners) -> tuple[GroupMember, ...]:
    """The members with claims on what they own and subscribe to."""
    topic = partitions.find_topics(np.arange(len(partitions)))
    wanted = [np.array([t in member.topics for t in partitions.topics])[topic] for member in members]
    return tuple(
        member._replace(claim=MemberClaim(np.flatnonzero((owners == m) & wanted[m]), 1))
        for m, member in enumerate(members)
    )


def sizes(owners: Owners, members: Sequence[GroupMember]) -> np.ndarray:
    return np.bincount(owners[owners != UNASSIGNED], minlength=len(members))


def subscribers(partitions: Partitions, members: Sequence[GroupMember], partition: int) -> list[int]:
    topic = partitions.list_names(np.array([partition]))[0].topic
    return [m for m, member in enumerate(members) if topic in member.topics]


@EAGER
@given(groups)
def test_every_partition_of_a_subscribed_topic_goes_to_a_subscriber(sticky, group):
    partitions, members = group
    for partition, owner in enumerate(sticky.assign(partitions, members).tolist()):
        candidates = subscribers(partitions, members, partition)
        assert owner in candidates if candidates else owner == UNASSIGNED


@EAGER
@given(equal_groups)
def test_equal_members_differ_by_one_partition_at_most(sticky, group):
    partitions, members = group
    assert np.ptp(sizes(sticky.assign(partitions, members), members)) <= 1


@given(equal_groups)
def test_equal_members_keep_as_much_as_a_balanced_assignment_can_keep(group):
    partitions, members = group
    owners = StickyAssignor("kafka-4.0").assign(partitions, members)
    quota, extras = divmod(len(partitions), len(members))
    claimed = np.array([len(member.claim.partitions) for member in members])
    kept = sum(int((owners[member.claim.partitions] == m).sum()) for m, member in enumerate(members))
    assert kept == np.minimum(claimed, quota).sum() + min(extras, (claimed > quota).sum())


@EAGER
@given(groups)
def test_no_move_to_another_subscriber_would_balance_better(sticky, group):
    partitions, members = group
    owners = sticky.assign(partitions, members)
    held = sizes(owners, members)
    for partition, owner in enumerate(owners.tolist()):
        assert all(held[owner] <= held[m] + 1 for m in subscribers(partitions, members, partition))


@pytest.mark.parametrize("assignor", [StickyAssignor("kafka-4.0"), StickyAssignor("kafka-2.3"), COOPERATIVE])
@given(groups)
def test_a_complete_and_balanced_claim_comes_back_unchanged(assignor, group):
    partitions, members = group
    balanced = StickyAssignor("kafka-4.0").assign(partitions, members)
    again = assignor.assign(partitions, claiming(partitions, members, balanced))
    assert again.tolist() == balanced.tolist()


@given(groups)
def test_the_cooperative_assignor_withholds_what_others_claim_and_hands_it_on_in_the_next_round(group):
    partitions, members = group
    target = StickyAssignor("kafka-4.0").assign(partitions, members)
    first = COOPERATIVE.assign(partitions, members)
    moving = np.zeros(len(partitions), bool)
    moving[np.concatenate(find_revoked(members, target))] = True

    assert first.tolist() == np.where(moving, UNASSIGNED, target).tolist()
    rounds = count(1)
    owners = first
    while any(len(dead_lettered) for dead_lettered in find_revoked(members, owners)):
        members = claiming(partitions, members, owners)
        owners = COOPERATIVE.assign(partitions, members)
        assert next(rounds) <= 2
    assert (owners != UNASSIGNED).tolist() == (target != UNASSIGNED).tolist()
