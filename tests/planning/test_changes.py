"""Questions about what changes: partitions, policies, rollouts and rebalances."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.errors import ConfigError
from subreplay.rows.model.rows import Instant, MembershipEvent, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.kafka.assignor import Partitions
from subreplay.whatif.planning.growing_membership import Membership, build_key_membership, build_partition_membership
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.partition_counts import ANY, compare_partitions
from subreplay.whatif.planning.policy_comparison import evaluate_policy, find_front
from subreplay.whatif.planning.questions.layout_questions import RecordedRouting, answer_partitions
from subreplay.whatif.planning.rollout import plan_restart, plan_scaling
from subreplay.whatif.planning.static_membership import plan_static

ORDERS = Scope("persistent://t/ns/orders")
HASHES = np.random.default_rng(1).integers(0, 2**32, 200, dtype=np.uint32)
SECOND = 10**9
SELECTORS = ("pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split")


def even(things: int, windows: int = 1) -> WorkLoads:
    thing, at = np.divmod(np.arange(things * windows), windows)
    return WorkLoads.from_messages(thing, at, np.ones(things * windows, np.int64), things, 1)


def members(policy: str) -> Membership:
    return build_key_membership(make_policy(policy, "pulsar-4.0"), HASHES, ORDERS)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 9)), min_size=1), st.integers(1, 12))
def test_no_partitions_are_better_balanced_than_their_bound(rows: list[tuple[int, int, int]], count: int) -> None:
    thing, window, work = np.array(rows, np.int64).T
    hashes = np.array([11, 5, 8, 3, ANY, 40, 7, 6, 2, 9])
    (found,) = compare_partitions(WorkLoads.from_messages(thing, window, work, 10, 1), hashes, 4, [count], consumers=6)
    assert found.bound <= found.worst
    assert (found.idle, found.empty <= count) == (max(6 - count, 0), True)
    if count == 4:
        assert found.keys_moved == found.moved == 0


def test_keys_move_to_another_partition_unless_both_numbers_send_them_to_the_same() -> None:
    (found,) = compare_partitions(even(20), np.arange(20), 5, [10], consumers=3)
    assert (found.keys_moved, found.moved) == (10, 0.5)


def test_the_present_number_of_partitions_uses_recorded_partitions_not_hashes() -> None:
    loads = WorkLoads.from_messages(np.arange(4), np.zeros(4, np.int64), np.array([5, 1, 1, 1]), 4, 1)
    keys, recorded = np.array([0, 0, 1, 2]), np.array([1, 0, 1, 1])  # the first key is in two partitions
    found = compare_partitions(loads, np.array([3, 3, 4, ANY]), 2, [2, 4], 1, keys=keys, recorded=recorded)
    assert [(one.worst, one.keys_moved) for one in found] == [(7, 0), (7, 2)]
    assert found[1].moved == 7 / 8  # the key in two partitions moves from both; what has no key does not count
    assert found[0].bound == 6


@pytest.mark.parametrize(("recorded", "best"), [([0, 1, 0, 1], "2 partitions, as now"), ([0, 0, 0, 0], "4 partitions")])
def test_the_present_number_of_partitions_stays_if_no_other_is_better(recorded: list[int], best: str) -> None:
    hashes = np.array([0, 4, 8, 2])  # three of four in one of 4 partitions
    routed = (even(4), np.arange(4), np.array(recorded), hashes)
    traffic: Any = SimpleNamespace(
        load_by_routing=lambda *_: routed, profile=SimpleNamespace(scopes=[Scope("t", 0), Scope("t", 1)])
    )
    assert answer_partitions(traffic, "messages", [4], 1, RecordedRouting("murmur2")).best == best


def test_keyless_messages_go_to_all_partitions() -> None:
    loads = WorkLoads.from_messages(np.zeros(9, np.int64), np.zeros(9, np.int64), np.ones(9, np.int64), 1, 1)
    (found,) = compare_partitions(loads, np.array([ANY]), 1, [3], consumers=3)
    assert (found.worst, found.bound, found.keys_moved, found.empty) == (3, 3, 0, 0)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_the_pareto_front_has_the_rows_that_no_row_dominates(rows: list[tuple[int, int, int]]) -> None:
    def dominates(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
        return one != two and all(a <= b for a, b in zip(one, two, strict=True))

    assert find_front(rows) == tuple(not any(dominates(other, row) for other in rows) for row in rows)


@pytest.mark.parametrize("policy", SELECTORS)
def test_a_policy_is_never_better_balanced_than_its_bound(policy: str) -> None:
    row = evaluate_policy(policy, "pulsar-4.0", True, even(200, 3), members(policy), 4)
    assert 1 <= row.bound <= row.skew
    assert 0 < row.moved_on_join < 0.6
    assert 0 < row.moved_on_leave < 0.9


def test_a_hash_ring_moves_only_the_keys_of_the_new_consumer() -> None:
    row = evaluate_policy(SELECTORS[0], "pulsar-4.0", True, even(200), members(SELECTORS[0]), 4)
    assert row.moved_on_join == pytest.approx(1 / 5, abs=0.12)


@pytest.mark.parametrize("policy", SELECTORS)
def test_no_restart_that_leaves_nothing_unowned_hands_over_less_than_its_bound(policy: str) -> None:
    plan = plan_restart(even(200), lambda: members(policy), 4, 10 * SECOND, 5 * SECOND)
    owned = [way for way in plan.ways if not way.unowned]
    assert all(way.handed_over >= plan.bound for way in owned)
    assert plan.best.handed_over == min(way.handed_over for way in owned)
    assert len([way for way in plan.ways if len(way.batches) == 4]) == len([*permutations(range(4))])


def test_all_at_once_leaves_everything_unowned_and_is_over_first() -> None:
    plan = plan_restart(even(200), lambda: members(SELECTORS[0]), 4, 10 * SECOND, 5 * SECOND)
    (at_once,) = [way for way in plan.ways if way.name == "all at once"]
    assert (at_once.unowned, at_once.lasts, plan.ways[-1]) == (1.0, 15 * SECOND, at_once)
    (one_by_one,) = [way for way in plan.ways if way.name == "one by one, in the order of joining"]
    assert one_by_one.lasts == 60 * SECOND


@pytest.mark.parametrize("policy", SELECTORS)
@pytest.mark.parametrize("to", [2, 7])
def test_scaling_hands_over_at_least_what_the_two_assignments_differ_by(policy: str, to: int) -> None:
    plan = plan_scaling(even(200), lambda: members(policy), 4, to, SECOND)
    assert 0 <= plan.bound <= plan.best.handed_over + 1e-9
    assert plan.best.unowned == 0


def test_a_group_hands_over_partitions() -> None:
    scopes = [Scope("orders", partition) for partition in range(6)]
    policy = make_policy("kafka.cooperative_sticky", "kafka-4.0")
    plan = plan_scaling(even(6), lambda: build_partition_membership(policy, scopes), 2, 3, SECOND)
    assert plan.best.handed_over == pytest.approx(1 / 3)


def story(*changes: tuple[int, str, str]) -> list[MembershipEvent]:
    scope = Scope("orders", 0)
    return [
        MembershipEvent(scope, event, name, Instant(at * SECOND, n), Instant(at * SECOND, n))  # type: ignore[arg-type]
        for n, (at, event, name) in enumerate(changes)
    ]


GROUP = Partitions.from_counts({"orders": 6})


@pytest.mark.parametrize("policy", ["kafka.range", "kafka.cooperative_sticky"])
def test_a_static_member_back_before_its_session_timeout_causes_no_rebalance(policy: str) -> None:
    events = story((0, "join", "a"), (10, "join", "b"), (60, "leave", "b"), (80, "join", "b"))
    plan = plan_static(make_policy(policy, "kafka-4.0"), GROUP, events, [10 * SECOND, 30 * SECOND])
    short, long = plan.timeouts
    assert plan.count_spared(long) > plan.count_spared(short)
    assert long.rebalances == plan.bound
    assert (long.away, long.longest) == (20 * SECOND, 20 * SECOND)
    assert (short.away, short.moved > long.moved) == (10 * SECOND, True)


def test_no_timeout_avoids_more_rebalances_than_an_endless_one() -> None:
    events = story((0, "join", "a"), (5, "join", "b"), *((t, e, "b") for t, e in
                   ((20, "leave"), (25, "join"), (50, "leave"), (90, "join"), (95, "crash"))))  # fmt: skip
    plan = plan_static(make_policy("kafka.range", "kafka-4.0"), GROUP, events, [t * SECOND for t in (1, 6, 45, 300)])
    assert all(plan.bound <= one.rebalances <= plan.before.rebalances for one in plan.timeouts)


def test_only_groups_have_static_membership() -> None:
    with pytest.raises(ConfigError, match="no static membership"):
        plan_static(make_policy("pulsar.failover", "pulsar-4.0"), GROUP, [], [SECOND])
