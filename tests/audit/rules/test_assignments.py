"""Coordinators decide what their assignors must. (The uniform one goes by ids of topics, which nothing tells.)"""

from dataclasses import replace
from uuid import UUID

import pytest

from subreplay.audit.needs import Need
from subreplay.audit.rules.assignments import GroupEvents, find_assignment_findings, find_assignor_differences
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import GroupMember, Partitions
from subreplay.semantics.policies.kafka.group import ConsumerGroup

UNIFORM = make_policy("kafka.uniform", "kafka-4.0")
COUNTS = {"bills": 3, "orders": 4}
IDS = [{"bills": UUID(int=one << 64), "orders": UUID(int=other << 64)} for one, other in ((1, 2), (2, 1), (17, 1))]


def event(kind, name, at, topic, partition=-1):
    instant = Instant(at, at)
    return MembershipEvent(Scope(topic, partition), kind, name, instant, instant, generation=at)


def test_decisions_about_tasks_of_a_streams_group_are_not_compared_with_an_assignor():
    wrong = story(IDS[0], swap=True)

    assert list(find_assignment_findings(UNIFORM, wrong))
    assert not list(find_assignment_findings(UNIFORM, wrong._replace(has_tasks=True)))
    assert Need.DECISIONS in wrong._replace(has_tasks=True).lacking


def story(ids, swap=False):
    """Members a and b join, each followed by a decision under these ids; in the last one two partitions are swapped."""
    group = ConsumerGroup(UNIFORM).with_partitions(Partitions.from_counts(COUNTS, topic_ids=ids))
    members, decided, before = [], [], {}
    for at, name in enumerate("ab", 1):
        group = group.join(GroupMember(name, frozenset(COUNTS))).rebalance()
        members += [event("join", name, at, topic) for topic in COUNTS]
        owners = {p: m.member_id for m in group.assigned for p in group.partitions.list_names(m.claim.partitions)}
        if swap and name == "b":
            one, other = (next(p for p in sorted(owners) if owners[p] == who) for who in "ab")
            owners |= {one: "b", other: "a"}
        decided += [event("owner", owners[p], at, *p) for p in owners if owners[p] != before.get(p)]
        before = owners
    scopes = {Scope(topic, n): () for topic, count in COUNTS.items() for n in range(count)}
    return GroupEvents(scopes, {}, tuple(members), tuple(decided))


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.row("K-OWNER-3")
def test_k_owner_3_whatever_ids_were_drawn_they_explain_a_true_story(ids):
    assert list(find_assignor_differences(UNIFORM, story(ids))) == []


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.row("K-OWNER-3")
def test_k_owner_3_no_order_of_ids_explains_a_swap(ids):
    assert len(list(find_assignor_differences(UNIFORM, story(ids, swap=True)))) >= 1


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.row("K-OWNER-3")
def test_k_owner_3_a_static_member_that_comes_back_without_a_rebalance_gets_what_it_had(swap):
    def member(kind, name, at):
        return replace(event(kind, name, at, "orders"), instance_id=name[0])

    members = [member("join", "a1", 1), member("join", "b1", 1), member("leave", "b1", 2), member("join", "b2", 2)]
    first = [event("owner", owner, 1, "orders", n) for n, owner in enumerate(("a1", "a1", "b1", "b1"))]
    later = [replace(event("owner", who, 2, "orders", n), generation=1) for n, who in ((2, "b2"), (3, "b2"))]
    if swap:
        later[1] = replace(later[1], consumer="a1")
    scopes = {Scope("orders", n): () for n in range(4)}
    reported = GroupEvents(scopes, {}, tuple(members), (*first, *later))
    assert len(list(find_assignor_differences(make_policy("kafka.range", "kafka-4.0"), reported))) == swap
