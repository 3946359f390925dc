"""Each rule in a history or two: kept, broken, allowed."""

from __future__ import annotations

import pytest

from subreplay.policies import make
from tests.support.history import auto_split, findings

KEY_SHARED = auto_split()
SHARED = make("pulsar.shared", "pulsar-4.0")
FAILOVER = make("pulsar.failover", "documented")


def test_a_history_that_keeps_every_promise_has_no_findings() -> None:
    assert findings(KEY_SHARED, "a1 n1 a2", "+C1 +C2 a1>C2 n1>C1 a1! a2>C2 n1! a2!") == []


def test_first_deliveries_of_a_key_follow_the_log() -> None:
    swapped = "+C1 a2>C1 a1>C1 a1! a2!"
    assert findings(KEY_SHARED, "a1 a2", swapped) == ["KEY_ORDER a1"]
    assert findings(auto_split(allow_out_of_order=True), "a1 a2", swapped) == ["key_order a1"]
    assert findings(SHARED, "a1 a2", swapped) == ["key_order a1"]


def test_other_keys_may_overtake() -> None:
    assert findings(KEY_SHARED, "a1 n1", "+C1 n1>C1 a1>C1 a1! n1!") == []


def test_one_active_consumer_serves_its_partition_in_order() -> None:
    assert findings(FAILOVER, "a1 n1", "+C1 n1>C1 a1>C1 a1! n1!") == ["PARTITION_ORDER a1"]


def test_the_owner_of_the_slot_gets_the_message() -> None:
    assert findings(KEY_SHARED, "a1", "+C1 +C2 a1>C1 a1!") == ["WRONG_OWNER a1"]
    assert findings(SHARED, "a1", "+C1 +C2 a1>C1 a1!") == []


def test_while_a_consumer_closes_both_owners_are_right() -> None:
    assert findings(KEY_SHARED, "a1 a2 a3", "+C1 +C2 a1>C2 a1! (C2 a2>C1 a2! a3>C2 -C2 a3>C1 a3!") == ["redelivered a3"]


def test_only_connected_consumers_are_served() -> None:
    assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C9 a1! a2>C1 a2!") == ["NOT_CONNECTED a1"]
    assert findings(KEY_SHARED, "a1", "+C1 +C2 -C2 a1>C2 a1!") == ["NOT_CONNECTED a1"]


def test_owners_prove_nothing_once_the_membership_is_known_to_be_incomplete() -> None:
    story = "+C1 +C2 a1>C9 a1! a2>C1 a2!"
    assert findings(KEY_SHARED, "a1 a2", story) == ["NOT_CONNECTED a1", "wrong_owner a2"]


def test_a_key_changes_hands_only_when_nothing_of_it_is_outstanding() -> None:
    assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 a2>C2 a1! a2!") == ["KEY_TWO_OWNERS a2"]
    assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 a1! a2>C2 a2!") == []
    assert findings(auto_split(allow_out_of_order=True), "a1 a2", "+C1 a1>C1 +C2 a2>C2 a1! a2!") == [
        "key_two_owners a2"
    ]


def test_a_disconnect_ends_what_was_outstanding() -> None:
    assert findings(KEY_SHARED, "n1 n2", "+C1 +C2 n1>C1 -C1 n1>C2 n2>C2 n1! n2!") == ["redelivered n1"]


def test_the_older_profile_holds_back_only_what_was_not_read_before_the_join() -> None:
    story = "+C1 a1>C1 n1>C1 +C2 a2>C2 a1! a2! n1!"
    assert findings(auto_split("pulsar-3.2"), "a1 a2 n1", story) == ["key_two_owners a2"]
    assert findings(auto_split("pulsar-3.2"), "a1 n1 a2", story) == ["KEY_TWO_OWNERS a2"]


def test_an_acknowledged_message_does_not_come_again() -> None:
    assert findings(KEY_SHARED, "a1", "+C1 a1>C1 a1! a1>C1") == ["DUP_DELIVERY a1", "redelivered a1"]


@pytest.mark.parametrize("end", ["a1?", "-C1 +C1"])
def test_a_nack_or_a_disconnect_explains_a_redelivery(end: str) -> None:
    assert findings(KEY_SHARED, "a1", f"+C1 a1>C1 {end} a1>C1 a1!") == ["redelivered a1"]


def test_a_message_still_outstanding_does_not_come_again() -> None:
    again = "+C1 a1>C1 a1>C1 a1!"
    assert findings(KEY_SHARED, "a1", again) == ["DUP_OUTSTANDING a1", "redelivered a1"]
    assert findings(auto_split("pulsar-3.2"), "a1", again) == ["dup_outstanding a1", "redelivered a1"]


def test_a_skipped_message_is_lost_and_a_waiting_one_is_only_unseen() -> None:
    assert findings(KEY_SHARED, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!") == ["LOST a1"]
    assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 a1!") == ["unseen a2"]


def test_a_message_that_waits_for_a_stuck_consumer_is_late_not_lost() -> None:
    assert findings(KEY_SHARED, "a1 a2 b1", "+C1 a1>C1 +C2 b1>C2 b1!") == ["unacked a1", "unseen a2"]


def test_without_an_acknowledgement_a_message_is_counted() -> None:
    assert findings(KEY_SHARED, "a1", "+C1 a1>C1") == ["unacked a1"]


def test_a_slot_that_no_connected_consumer_owns_is_reported() -> None:
    sticky = make("pulsar.key_shared.sticky", "pulsar-4.0")
    assert findings(sticky, "a1", "+C1") == ["unseen a1"]  # rejected without ranges: nobody is connected


def test_a_newcomer_may_be_let_in_while_its_predecessor_closes() -> None:
    exclusive = make("pulsar.exclusive", "pulsar-4.0")
    assert findings(exclusive, "a1 a2", "+C1 a1>C1 a1! (C1 +C2 -C1 a2>C2 a2!") == []
    assert findings(exclusive, "a1 a2", "+C1 a1>C1 a1! +C2 a2>C2 a2!") == ["NOT_CONNECTED a2"]


def test_a_redelivery_inside_a_close_is_excused() -> None:
    story = "+C1 +C2 a1>C2 (C2 a1>C1 -C2 a1!"
    assert findings(KEY_SHARED, "a1", story) == ["dup_outstanding a1", "key_two_owners a1", "redelivered a1"]


def test_what_was_published_before_a_subscription_began_is_not_lost() -> None:
    assert findings(KEY_SHARED, "a1 a2 a3", "+C1 a3>C1 a3!") == ["unseen a1", "unseen a2"]


def test_a_nacked_message_that_did_not_come_back_holds_its_slot() -> None:
    assert findings(KEY_SHARED, "a1 a2 b1", "+C1 a1>C1 a1? b1>C1 b1!") == ["unacked a1", "unseen a2"]
