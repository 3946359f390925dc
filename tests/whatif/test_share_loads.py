"""Loads of share groups without a dispatch replay: the members that share a partition divide its records equally."""

import numpy as np
import pytest

from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.policy_comparison import evaluate_share_group
from subreplay.whatif.scenario import build_plan
from subreplay.whatif.traffic.share_owners import count_sharers, find_sharers

POLICY = make_policy("kafka.share", "kafka-4.4")


def scopes(partitions, topic="t"):
    return [Scope(topic, number) for number in range(partitions)]


def history(words, partitions):
    """Events of all partitions: ``+a`` joins and ``-a`` leaves, one second apart."""
    kinds = {"+": "join", "-": "leave"}
    return {
        scope: tuple(
            MembershipEvent(scope, kinds[word[0]], word[1:], Instant(n * 10**9), Instant(n * 10**9))
            for n, word in enumerate(words.split(), 1)
        )
        for scope in scopes(partitions)
    }


@pytest.mark.parametrize(("members", "partitions", "each"), [(5, 2, 3), (3, 2, 2), (2, 4, 1), (5, 1, 5)])
def test_each_partition_has_as_many_members_as_give_everyone_one(members, partitions, each):
    found = count_sharers(POLICY, scopes(partitions), [f"c{n}" for n in range(members)])
    assert max(map(len, found)) == each
    assert {member for sharers in found for member in sharers} == set(range(members))


def test_members_share_partitions_from_their_join_to_their_leave():
    plan = build_plan("s", POLICY, history("+a +b -a", 1))
    timelines = [plan.timelines[scope] for scope in scopes(1)]
    since, (sharers,) = find_sharers(POLICY, timelines, scopes(1))
    assert since[1:].tolist() == [10**9, 2 * 10**9, 3 * 10**9]
    assert [len(members) for members in sharers] == [0, 1, 2, 1]


def test_members_of_different_topics_do_not_share():
    events = history("+a", 1) | {
        Scope("u", 0): (MembershipEvent(Scope("u", 0), "join", "b", Instant(10**9), Instant(10**9)),)
    }
    plan = build_plan("s", POLICY, events)
    every = [*events]
    _, sharers = find_sharers(POLICY, [plan.timelines[scope] for scope in every], every)
    assert [len(states[-1]) for states in sharers] == [1, 1]


def test_a_plan_says_that_nobody_is_idle_nothing_moves_and_order_is_lost():
    loads = WorkLoads.from_messages(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3]), np.ones(4, np.int64), 2, 10)
    row = evaluate_share_group(POLICY, scopes(2), loads, ["a", "b", "c", "d"])
    assert (row.skew, row.idle, row.moves, row.ordered) == (1.0, 0, 0.0, False)
