"""How fragile a plan is, and what another release does: figures that a reader can check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from subreplay.rows.model.columns import DAY
from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.planning.consumer_count import UtilisationLimit
from subreplay.whatif.planning.growing_membership import build_key_membership
from subreplay.whatif.planning.loads import WorkLoads
from subreplay.whatif.planning.profile_comparison import compare_profiles
from subreplay.whatif.planning.sensitivity import find_worst_loss, leave_one_out, measure_under_traffic
from subreplay.whatif.planning.sticky_ranges import find_worst_load, plan_ranges, sum_loads_before
from subreplay.whatif.scenario import PlannedMember, build_planned_events

SCOPE = Scope("persistent://t/ns/orders")
HASHES = np.random.default_rng(2).integers(0, 2**32, 300, dtype=np.uint32)
EVEN = WorkLoads.from_messages(np.arange(300), np.zeros(300, np.int64), np.ones(300, np.int64), 300, 1_000)


def test_a_plan_is_evaluated_on_a_day_it_was_not_made_from() -> None:
    days = np.array([[9, 0, 1], [0, 9, 1], [0, 0, 1]])  # slot by day: each day has another hot slot
    found = leave_one_out(
        days,
        np.arange(3) * DAY,
        lambda loads: plan_ranges(loads, 2).cuts,
        lambda loads, cuts: float(find_worst_load(sum_loads_before(loads), cuts, (1, 1))),
    )
    assert [(one.day // DAY, one.own) for one in found] == [(0, 9), (1, 9), (2, 2)]
    assert all(one.achieved >= one.own and one.regret >= 0 for one in found)


def test_leave_one_out_needs_two_days() -> None:
    assert leave_one_out(np.ones((2, 2), np.int64), np.array([0, 1]), lambda loads: loads[0], lambda *_: 0.0) == ()


def test_more_traffic_breaks_a_limit_and_less_keeps_it() -> None:
    owners = np.arange(300) % 2
    scaled = lambda times: UtilisationLimit(WorkLoads.from_messages(np.arange(300), np.zeros(300, np.int64),  # noqa: E731
                                                np.full(300, round(4 * times)), 300, 1_000), 0.7)  # fmt: skip
    more, less = measure_under_traffic(scaled, owners, 2, (0.5, -0.5))
    assert (more.measured, more.kept) == (0.9, False)
    assert (less.measured, less.kept) == (0.3, True)


def test_losing_a_consumer_is_never_better_than_having_it() -> None:
    members = build_key_membership(make_policy("pulsar.key_shared.consistent_hash", "pulsar-4.0"), HASHES, SCOPE)
    for number in range(3):
        members.change_members((), (number,))
    limit, owners = UtilisationLimit(EVEN, 1.0), members.find_owners()
    lost = find_worst_loss(limit, EVEN, members, 3)
    assert lost is not None
    assert lost.measured > limit.measure(owners, 3)
    assert (members.find_owners() == owners).all()


@pytest.mark.parametrize("policy", ["pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split", "kafka.range"])
def test_a_profile_moves_nothing_beside_itself_and_what_it_moves_is_counted(policy: str) -> None:
    now = "kafka-4.0" if policy.startswith("kafka") else "pulsar-4.0"
    members = [PlannedMember(name, 0, None) for name in ("a", "b", "c")]
    events = {SCOPE: build_planned_events(members, SCOPE, 0)}
    rows = compare_profiles(policy, {}, now, events, EVEN, lambda _: (np.zeros(300, np.int64), HASHES))
    supported = {row.profile: row for row in rows if row.refused is None}
    assert (rows[0].profile, rows[0].keys, rows[0].of) == (now, 0, 300)
    assert all(row.traffic == pytest.approx(row.keys / 300) for row in supported.values())
    if policy.endswith("consistent_hash"):
        assert supported["pulsar-3.2"].keys > 100  # another ring
        assert supported["pulsar-4.2"].keys == 0


def test_an_unsupported_option_of_a_release_is_reported() -> None:
    members = [PlannedMember(name, 0, None) for name in ("a", "b")]
    events = {SCOPE: build_planned_events(members, SCOPE, 0)}
    things = lambda _: (np.zeros(300, np.int64), HASHES)  # noqa: E731
    rows = compare_profiles("pulsar.failover", {"consistent_hashing": True}, "pulsar-4.0", events, EVEN, things)
    refused = {row.profile: row.refused for row in rows if row.refused}
    assert list(refused) == ["pulsar-2.10", "pulsar-3.2"]
    assert all("consistent_hashing" in str(why) for why in refused.values())
