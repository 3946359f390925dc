"""The life of a subscription: row L-SUB-1."""

import pytest

from subreplay.errors import ConsumerRejected
from subreplay.rows.model.subscription import SubscriptionState, find_first_kept, find_type_conflicts
from tests.support.joins import events

pytestmark = pytest.mark.row("L-SUB-1")


def test_l_sub_1_it_starts_at_the_first_message_or_after_the_last():
    assert SubscriptionState("earliest").join("A", "Shared", end=7).cursor == 0
    assert SubscriptionState("latest").join("A", "Shared", end=7).cursor == 7


def test_l_sub_1_it_keeps_its_cursor_while_nobody_is_connected():
    left = SubscriptionState("earliest").join("A", "Shared", end=7).acknowledge_until(3).leave("A")
    assert left.consumers == ()
    assert left.join("B", "Shared", end=50).cursor == 3


def test_l_sub_1_a_readers_cursor_is_gone_with_the_reader():
    left = SubscriptionState("latest", durable=False).join("A", "Exclusive", end=7).acknowledge_until(9).leave("A")
    assert left.join("A", "Exclusive", end=50).cursor == 50


def test_l_sub_1_the_first_consumer_sets_the_type_and_another_one_is_refused():
    shared = SubscriptionState().join("A", "Shared", end=0).join("B", "Shared", end=0)
    with pytest.raises(ConsumerRejected, match="Subscription is of different type") as refusal:
        shared.leave("A").join("C", "Failover", end=0)
    assert refusal.value.kind == "SubscriptionBusyException"


def test_l_sub_1_the_type_may_change_once_all_have_left():
    empty = SubscriptionState().join("A", "Shared", end=0).leave("A")
    assert empty.type is None
    assert empty.join("B", "Failover", end=0).type == "Failover"


def test_l_sub_1_conflicts_of_type_in_a_history_are_found():
    history = events("+A +B +C -B -A +B -B")
    types = ["Shared", "Failover", "Shared", "Failover", "Shared", "Failover", "Failover"]
    refused = find_type_conflicts(zip(history, types, strict=True))
    assert refused == [history[1], history[5]]  # C is still there when B tries again


def test_l_sub_1_a_message_is_kept_until_every_subscription_acknowledged_it():
    slow, fast = (SubscriptionState("earliest").join("A", "Shared", end=0).acknowledge_until(n) for n in (4, 9))
    assert find_first_kept([fast, slow], end=10) == 4
    assert find_first_kept([fast, slow.acknowledge_until(12)], end=12) == 9
    assert find_first_kept([], end=10) == 10


def test_l_sub_1_acknowledging_never_goes_back():
    joined = SubscriptionState("earliest").join("A", "Shared", end=9)
    assert joined.acknowledge_until(5).acknowledge_until(2).cursor == 5
