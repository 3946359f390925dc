"""Two consumers of one name at once: a delivery is to the one with its instance, or to whichever may have it."""

from __future__ import annotations

import pytest

from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.base import Policy
from tests.support.history import auto_split, findings, history
from tests.support.pure import audit_by, judge_of

SHARED = make_policy("pulsar.shared", "pulsar-4.0")
FAILOVER = make_policy("pulsar.failover", "pulsar-4.0")
TWINS = "+C@x +C@y"  # the second has the lower half, and key a with it


def of(policy: Policy, log: str, story: str) -> list[str]:
    """Findings but those about messages that are open at the end."""
    return [found for found in findings(policy, log, story) if not found.startswith(("unacked", "unseen"))]


class TestWhoWasServed:
    def test_the_owner_is_right_and_the_other_of_its_name_is_not(self) -> None:
        assert of(auto_split(), "a1 n1", f"{TWINS} a1>C@y n1>C@x") == []
        assert of(auto_split(), "a1 n1", f"{TWINS} a1>C@x n1>C@y") == ["WRONG_OWNER a1", "WRONG_OWNER n1"]

    def test_a_delivery_without_an_instance_counts_as_the_owners(self) -> None:
        assert of(auto_split(), "a1 n1", f"{TWINS} a1>C n1>C") == []
        assert of(auto_split(), "a1 n1", "+C +C a1>C@y n1>C@x") == []  # nor does the membership

    def test_but_not_if_another_name_owns_it(self) -> None:
        assert of(auto_split(), "a1", "+C@x +D@y a1>C") == ["WRONG_OWNER a1"]

    def test_an_instance_that_never_joined_is_not_connected(self) -> None:
        assert of(auto_split(), "a1", f"{TWINS} a1>C@z") == ["NOT_CONNECTED a1"]

    def test_nor_is_one_that_has_left(self) -> None:
        assert of(auto_split(), "n1", f"{TWINS} -C@y n1>C@y") == ["NOT_CONNECTED n1"]

    def test_an_instance_of_another_consumer_says_nothing_the_name_counts(self) -> None:
        assert of(auto_split(), "n1 a1", "+D@z +C@x n1>D@x a1>D@x") == ["WRONG_OWNER a1"]


class TestLeaves:
    def test_one_of_two_leaves_and_the_other_stays(self) -> None:
        assert of(auto_split(), "a1 a2", f"{TWINS} a1>C@y -C@x a2>C@y") == []
        assert of(auto_split(), "a1 a2", f"{TWINS} a1>C@y a1! -C@y a2>C@x") == []

    def test_a_leave_without_an_instance_is_the_oldest_s(self) -> None:
        assert of(auto_split(), "a1 n1", f"{TWINS} -C a1>C@y n1>C@y") == []
        assert of(auto_split(), "a1 n1", f"{TWINS} -C n1>C@x") == ["NOT_CONNECTED n1"]

    def test_outstanding_messages_of_one_of_two_equal_names_are_redelivered_when_it_left(self) -> None:
        assert of(SHARED, "a1", f"{TWINS} a1>C@x -C@x a1>C@y") == ["redelivered a1"]
        assert of(SHARED, "a1", f"{TWINS} a1>C@x -C@y a1>C@x") == ["DUP_OUTSTANDING a1", "redelivered a1"]

    def test_without_instances_the_leave_of_either_consumer_explains_a_redelivery(self) -> None:
        assert of(SHARED, "a1", "+C@x +C@y a1>C -C@x a1>C") == ["redelivered a1"]
        assert of(SHARED, "a1", "+C@x +C@y a1>C -C@y a1>C") == ["redelivered a1"]


class TestRulesOfTwoConsumers:
    def test_a_key_at_two_of_one_name_at_once(self) -> None:
        story = "+C@x a1>C@x +C@y a2>C@y"
        assert "KEY_TWO_OWNERS a2" in of(auto_split(), "a1 a2", story)

    def test_one_of_two_is_active_the_one_that_came_later(self) -> None:
        assert of(FAILOVER, "a1 a2", f"{TWINS} a1>C@y a2>C@y") == []
        assert "WRONG_OWNER a2" in of(FAILOVER, "a1 a2", f"{TWINS} a1>C@y a2>C@x")

    @pytest.mark.parametrize(("first", "second", "found"), [("@x", "@x", True), ("@x", "@y", False), ("", "", False)])
    def test_whose_queue_is_full_must_be_known(self, first: str, second: str, found: bool) -> None:
        story = f"+C@x:1 +C@y:1 a1>C{first} a2>C{second} a3>C{first} a1^ a2^ a3^ a1! a2! a3!"
        assert ("OVER_PERMITS a3" in of(SHARED, "a1 a2 a3", story)) is found


def test_results_number_equal_names_if_all_deliveries_contain_their_instance() -> None:
    def called(story: str) -> list[tuple[str, str]]:
        tables = history("a1 n1", story)
        rows = audit_by(judge_of(auto_split(), tables), tables).sort_by("at")
        return list(zip(rows["consumer"].to_pylist(), rows["expected"].to_pylist(), strict=True))

    assert called(f"{TWINS} a1>C@y n1>C@y") == [("C (2)", "C (2)"), ("C (2)", "C")]
    assert called(f"{TWINS} a1>C@y n1>C@z") == [("C (2)", "C (2)"), ("C (z)", "C")]  # an unknown consumer of that name
    assert called(f"{TWINS} a1>C@y n1>C") == [("C", "C"), ("C", "C")]
    assert called("+C@x -C@x +C@y a1>C@y n1>C@y") == [("C", "C"), ("C", "C")]
