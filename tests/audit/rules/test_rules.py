"""Each rule in a history or two: kept, broken, allowed."""

from __future__ import annotations

import pytest

from subreplay.audit.context import Dispatcher
from subreplay.audit.routing import Routing
from subreplay.audit.rules.flow import UNKNOWN_SIZE
from subreplay.audit.rules.undelivered import MOST_REORDERED
from subreplay.audit.terms import Terms
from subreplay.semantics.policies import make_policy
from tests.support.history import auto_split, findings
from tests.support.joins import fold

KEY_SHARED, UNORDERED = auto_split(), auto_split(allow_out_of_order=True)
SHARED = make_policy("pulsar.shared", "pulsar-4.0")
FAILOVER, PARTITIONED = make_policy("pulsar.failover", "documented"), make_policy("pulsar.failover", "pulsar-4.0")


def test_a_history_that_keeps_every_promise_has_no_findings() -> None:
    assert findings(KEY_SHARED, "a1 n1 a2", "+C1 +C2 a1>C2 n1>C1 a1! a2>C2 n1! a2!") == []


class TestKeyOrder:
    def test_first_deliveries_of_a_key_follow_the_log(self) -> None:
        swapped = "+C1 a2>C1 a1>C1 a1! a2!"
        assert findings(KEY_SHARED, "a1 a2", swapped) == ["KEY_ORDER a1"]
        assert findings(UNORDERED, "a1 a2", swapped) == ["key_order a1"]
        assert findings(SHARED, "a1 a2", swapped) == ["key_order a1"]

    def test_other_keys_may_overtake(self) -> None:
        assert findings(KEY_SHARED, "a1 n1", "+C1 n1>C1 a1>C1 a1! n1!") == []

    def test_one_application_takes_them_in_order_too(self) -> None:
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 a2>C1 a1^ a2^ a1! a2!") == []
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 a2>C1 a2^ a1^ a1! a2!") == ["KEY_ORDER a2"]

    def test_a_delayed_message_may_be_overtaken(self) -> None:
        late = "+C1 a2>C1 a2! ~200 a1>C1 a1!"
        assert findings(KEY_SHARED, "a1+200 a2", late) == ["key_order a1"]


class TestPartitionOrder:
    def test_one_active_consumer_serves_its_partition_in_order(self) -> None:
        assert findings(FAILOVER, "a1 n1", "+C1 n1>C1 a1>C1 a1! n1!") == ["PARTITION_ORDER a1"]
        assert findings(FAILOVER, "a1 n1", "+C1 a1>C1 n1>C1 a1! n1!") == []

    def test_a_new_active_consumer_begins_again(self) -> None:
        story = "+C1 +C2 a1>C1 a2>C1 -C1 a1>C2 a2>C2 a1! a2!"
        assert findings(FAILOVER, "a1 a2", story) == ["redelivered a1", "redelivered a2", "redelivery_order a1"]


class TestRedeliveryOrder:
    @pytest.mark.parametrize("end", ["a1?", "-C1 +C1"])
    def test_a_redelivery_may_be_overtaken(self, end: str) -> None:
        story = f"+C1 a1>C1 {end} a2>C1 a1>C1 a1! a2!"
        assert findings(KEY_SHARED, "a1 a2", story) == ["redelivered a1", "redelivery_order a1"]

    def test_it_need_not_be(self) -> None:
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 a1? a1>C1 a2>C1 a1! a2!") == ["redelivered a1"]


class TestSkip:
    def test_a_stream_does_not_jump_over_a_message(self) -> None:
        assert findings(FAILOVER, "a1 n1 a2", "+C1 a1>C1 a2>C1 a1! a2!") == ["LOST n1", "SKIP a2"]

    def test_not_even_over_one_that_another_consumer_left_behind(self) -> None:
        story = "+C2 a1>C2 a1! +C1 a2>C1 (C1 -C1 a3>C2 a3!"  # C1 goes before C2
        assert findings(PARTITIONED, "a1 a2 a3", story, partition=0) == ["SKIP a3", "unacked a2"]

    def test_a_new_consumer_begins_with_what_one_that_left_had_not_acknowledged(self) -> None:
        exclusive = make_policy("pulsar.exclusive", "pulsar-4.0")
        log, left = "a1 a2 a3 a4", "+C1 a1>C1 a2>C1 a1! -C1 +C2"
        for policy in (exclusive, FAILOVER):
            assert findings(policy, log, f"{left} a3>C2 a3! a4>C2 a4!") == ["SKIP a3", "unacked a2"]
            assert findings(policy, log, f"{left} a2>C2 a2! a3>C2 a3! a4>C2 a4!") == ["redelivered a2"]
            assert findings(policy, log, f"{left} a4>C2 a4!") == ["LOST a3", "SKIP a4", "unacked a2"]

    def test_unless_nothing_acknowledges_or_it_expired(self) -> None:
        assert findings(FAILOVER, "a1 a2", "+C1 a1>C1 -C1 +C2 a2>C2") == ["unacked a1", "unacked a2"]
        assert findings(FAILOVER, "a1 a2", "+C1 a1>C1 -C1 +C2 a2>C2 a2!") == ["SKIP a2", "unacked a1"]
        story, expires = "+C1 a1>C1 -C1 +C2 a2>C2 a2!", Terms(ttl=1_000_000_000)
        assert findings(FAILOVER, "a1 a2", story, expires) == ["unacked a1"]

    def test_what_was_acknowledged_elsewhere_need_not_come(self) -> None:
        story = "+C2 a1>C2 a1! +C1 a2>C1 a2! -C1 a3>C2 a3!"
        assert findings(PARTITIONED, "a1 a2 a3", story, partition=0) == []

    def test_key_shared_streams_have_gaps(self) -> None:
        assert findings(KEY_SHARED, "n1 a1 n2", "+C1 +C2 n1>C1 n2>C1 a1>C2 n1! n2! a1!") == []


class TestOwnership:
    def test_the_owner_of_the_slot_gets_the_message(self) -> None:
        assert findings(KEY_SHARED, "a1", "+C1 +C2 a1>C1 a1!") == ["WRONG_OWNER a1"]
        assert findings(KEY_SHARED, "a1", "+C1 +C2 a1>C2 a1!") == []
        assert findings(SHARED, "a1", "+C1 +C2 a1>C1 a1!") == []

    def test_while_a_consumer_closes_both_owners_are_right(self) -> None:
        story = "+C1 +C2 a1>C2 a1! (C2 a2>C1 a2! a3>C2 -C2 a3>C1 a3!"
        assert findings(KEY_SHARED, "a1 a2 a3", story) == ["redelivered a3"]

    def test_only_connected_consumers_are_served(self) -> None:
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C9 a1! a2>C1 a2!") == ["NOT_CONNECTED a1"]
        assert findings(KEY_SHARED, "a1", "+C1 +C2 -C2 a1>C2 a1!") == ["NOT_CONNECTED a1"]

    def test_an_unknown_consumer_exempts_deliveries_that_would_be_right_if_it_was_connected(self) -> None:
        """Of two consumers the second has partition 3, of three the first."""
        failover = make_policy("pulsar.failover", "documented")
        for log, story in (("a1 a2", "a1>C9 a1! a2>C1 a2!"), ("a2 a1", "a2>C1 a2! a1>C9 a1!")):
            found = findings(failover, log, f"+C1 +C2 {story}", partition=3)
            assert found == ["NOT_CONNECTED a1", "wrong_owner a2"]

    def test_an_unknown_consumer_exempts_nothing_else(self) -> None:
        story = "+C1 +C2 a1>C9 a1! a2>C1 a2!"
        assert findings(KEY_SHARED, "a1 a2", story) == ["NOT_CONNECTED a1", "WRONG_OWNER a2"]

    def test_one_stray_delivery_to_a_consumer_that_left_is_no_proof_that_it_is_back(self) -> None:
        once, twice = "a1>C3 a1!", "a1>C3 a1! a2>C3 a2!"
        members, wrong = "+C3 -C3 +C1 +C2", "a3>C1 a3!"
        assert findings(KEY_SHARED, "a1 a3", f"{members} {once} {wrong}") == ["NOT_CONNECTED a1", "WRONG_OWNER a3"]
        assert findings(KEY_SHARED, "a1 a2 a3", f"{members} {twice} {wrong}") == [
            "NOT_CONNECTED a1", "NOT_CONNECTED a2", "wrong_owner a3",
        ]  # fmt: skip

    def test_a_slot_that_no_connected_consumer_owns_is_reported(self) -> None:
        sticky = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
        assert findings(sticky, "a1", "+C1") == ["unseen a1"]  # rejected without ranges: nobody is connected
        assert findings(sticky, "a1", "+C1[40000-65535]") == ["unseen a1"]  # no delivery tells which epoch counts
        assert findings(sticky, "n1 a1", "+C1[33000-65535] n1>C1 n1!") == ["unroutable a1"]

    def test_what_a_reader_of_some_slots_skips_is_counted_and_is_no_loss(self) -> None:
        reader = make_policy("pulsar.key_hash_range", "pulsar-4.0")
        joins = "+C1[0-32767] a1>C1 a1! "
        assert findings(reader, "n1 a1", joins) == ["unseen n1"]
        assert findings(reader, "n1 a1 a2 a3", joins + "a3>C1 a3!!") == ["LOST a2", "unseen n1"]
        assert findings(reader, "n1 a1", joins + "n1>C1 n1!") == ["WRONG_OWNER n1"]

    def test_a_newcomer_may_be_let_in_while_its_predecessor_closes(self) -> None:
        exclusive = make_policy("pulsar.exclusive", "pulsar-4.0")
        assert findings(exclusive, "a1 a2", "+C1 a1>C1 a1! (C1 +C2 -C1 a2>C2 a2!") == []
        assert findings(exclusive, "a1 a2", "+C1 a1>C1 a1! +C2 a2>C2 a2!") == ["NOT_CONNECTED a2"]


class TestTwoActive:
    def test_between_two_membership_events_one_consumer_is_served(self) -> None:
        both = "+C1 +C2 a1>C1 a1! a2>C2 a2! a3>C2 a3! a4>C1 a4!"
        assert findings(FAILOVER, "a1 a2 a3 a4", both) == ["TWO_ACTIVE a3", "WRONG_OWNER a2", "WRONG_OWNER a3"]

    def test_one_stray_delivery_makes_nobody_active(self) -> None:
        assert findings(FAILOVER, "a1 a2", "+C1 +C2 a1>C1 a1! a2>C2 a2!") == ["WRONG_OWNER a2"]

    def test_a_switch_comes_with_an_event(self) -> None:
        assert findings(FAILOVER, "a1 a2", "+C1 +C2 a1>C1 a1! -C1 a2>C2 a2!") == []

    def test_inside_a_change_either_may_be_served(self) -> None:
        assert findings(FAILOVER, "a1 a2", "+C1 +C2 a1>C1 a1! (C1 a2>C2 -C1 a2!") == []

    def test_several_are_active_on_key_shared(self) -> None:
        assert findings(KEY_SHARED, "a1 n1", "+C1 +C2 a1>C2 n1>C1 a1! n1!") == []


class TestHolding:
    MOVED = "+C1 a1>C1 +C2 a2>C2 a1! a2!"

    def test_a_key_moves_to_another_consumer_only_if_none_of_its_messages_is_outstanding(self) -> None:
        assert findings(KEY_SHARED, "a1 a2", self.MOVED) == ["BEFORE_PREDECESSOR_ACK a2", "KEY_TWO_OWNERS a2"]
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 +C2 a1! a2>C2 a2!") == []
        assert findings(UNORDERED, "a1 a2", self.MOVED) == ["before_predecessor_ack a2", "key_two_owners a2"]

    def test_two_owners_at_once_may_also_be_of_one_message(self) -> None:
        story = "+C1 a1>C1 +C2 a1>C2 a1!"
        assert findings(KEY_SHARED, "a1", story) == ["DUP_OUTSTANDING a1", "KEY_TWO_OWNERS a1", "redelivered a1"]

    def test_a_disconnect_ends_outstanding_deliveries(self) -> None:
        assert findings(KEY_SHARED, "n1 n2", "+C1 +C2 n1>C1 -C1 n1>C2 n2>C2 n1! n2!") == ["redelivered n1"]

    def test_the_older_profile_holds_back_only_what_was_not_read_before_the_join(self) -> None:
        story = "+C1 a1>C1 n1>C1 +C2 a2>C2 a1! a2! n1!"
        both = ["before_predecessor_ack a2", "key_two_owners a2"]
        assert findings(auto_split("pulsar-3.2"), "a1 a2 n1", story) == both
        assert findings(auto_split("pulsar-3.2"), "a1 n1 a2", story) == [
            word.upper().replace(" A", " a") for word in both
        ]

    def test_a_redelivery_during_a_close_is_exempt(self) -> None:
        story = "+C1 +C2 a1>C2 (C2 a1>C1 -C2 a1!"
        assert findings(KEY_SHARED, "a1", story) == ["dup_outstanding a1", "key_two_owners a1", "redelivered a1"]


class TestStuck:
    SOON = Terms(stuck_after=50 * 10_000_000)

    def test_a_consumer_that_holds_a_slot_for_long_is_stuck(self) -> None:
        long, short = (f"+C1 a1>C1 +C2 ~{pause} a1! a2>C2 a2!" for pause in (100, 10))
        assert findings(KEY_SHARED, "a1 a2", long, self.SOON) == ["STUCK a2"]
        assert findings(KEY_SHARED, "a1 a2", short, self.SOON) == []

    def test_of_the_same_slot_in_newer_profiles_and_of_any_in_older_ones(self) -> None:
        other = "+C1 n1>C1 +C2 ~100 n1! a2>C2 a2!"
        assert findings(KEY_SHARED, "n1 a2", other, self.SOON) == []
        assert findings(auto_split("pulsar-3.2"), "n1 a2", other, self.SOON) == ["STUCK a2"]

    def test_at_the_end_too(self) -> None:
        story = "+C1 a1>C1 +C2 ~100 n1>C1 n1!"
        assert findings(KEY_SHARED, "a1 a2 n1", story, self.SOON) == ["STUCK a2", "unacked a1", "unseen a2"]

    def test_nobody_waits_where_order_is_lifted(self) -> None:
        story = "+C1 a1>C1 +C2 ~100 a1! a2>C2 a2!"
        assert findings(UNORDERED, "a1 a2", story, self.SOON) == []


class TestRedelivery:
    def test_an_acknowledged_message_does_not_come_again(self) -> None:
        assert findings(KEY_SHARED, "a1", "+C1 a1>C1 a1! a1>C1") == ["DUP_DELIVERY a1", "redelivered a1"]

    def test_batch_redelivery_keeps_unacked_messages_outstanding(self) -> None:
        story = "+C1 a1>C1 a2>C1 a1! a2? a1>C1 a2>C1 a2!"
        assert findings(KEY_SHARED, "a1,a2", story) == ["dup_delivery a1", "redelivered a1", "redelivered a2",
                                                        "redelivery_order a1"]  # fmt: skip

    @pytest.mark.parametrize("end", ["a1?", "-C1 +C1"])
    def test_a_nack_or_a_disconnect_explains_a_redelivery(self, end: str) -> None:
        assert findings(KEY_SHARED, "a1", f"+C1 a1>C1 {end} a1>C1 a1!") == ["redelivered a1"]

    def test_an_outstanding_message_is_not_redelivered(self) -> None:
        again = "+C1 a1>C1 a1>C1 a1!"
        assert findings(KEY_SHARED, "a1", again) == ["DUP_OUTSTANDING a1", "redelivered a1"]
        assert findings(auto_split("pulsar-3.2"), "a1", again) == ["dup_outstanding a1", "redelivered a1"]

    def test_redeliveries_without_a_cause_are_counted(self) -> None:
        found = findings(KEY_SHARED, "a1", "+C1 a1>C1 a1>C1*1 a1!")
        assert found == ["redelivered a1", "redelivered_unasked a1"]
        assert findings(KEY_SHARED, "a1", "+C1 a1>C1 a1? a1>C1*1 a1!") == ["redelivered a1"]

    def test_nobody_acknowledges_cumulatively_where_many_share(self) -> None:
        story = "+C1 a1>C1 a1!!"
        assert findings(KEY_SHARED, "a1", story) == ["CUM_ACK_MISUSE a1"]
        assert findings(SHARED, "a1", story) == ["CUM_ACK_MISUSE a1"]
        assert findings(SHARED, "a1", "+C1 a1>C1 a1!") == []
        assert findings(FAILOVER, "a1", story) == []

    def test_the_broker_ignores_such_an_acknowledgement_so_the_message_may_come_again(self) -> None:
        story = "+C1 +C2 a1>C1 a1!! -C1 a1>C2 a1!"
        assert findings(SHARED, "a1", story) == ["CUM_ACK_MISUSE a1", "redelivered a1"]
        assert findings(SHARED, "a1", story.replace("!!", "!")) == ["DUP_DELIVERY a1", "redelivered a1"]

    def test_without_an_acknowledgement_a_message_is_counted(self) -> None:
        assert findings(KEY_SHARED, "a1", "+C1 a1>C1") == ["unacked a1"]


class TestUndelivered:
    def test_a_skipped_message_is_lost_and_a_waiting_one_is_only_unseen(self) -> None:
        assert findings(KEY_SHARED, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!") == ["LOST a1"]
        assert findings(KEY_SHARED, "a1 a2", "+C1 a1>C1 a1!") == ["unseen a2"]

    def test_what_may_still_come_when_the_data_end_is_not_lost(self) -> None:
        assert findings(KEY_SHARED, "n1 b1 a2", "+C1 n1>C1 n1! a2>C1") == ["unacked a2", "unseen b1"]
        assert findings(KEY_SHARED, "n1 b1 a2", "+C1 n1>C1 n1! a2>C1 ~10 +C2") == ["LOST b1", "unacked a2"]
        assert findings(KEY_SHARED, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1") == ["LOST a1", "unacked a2"]  # of its own key
        assert findings(SHARED, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1") == ["unacked a2", "unseen a1"]
        assert findings(SHARED, "n1 a1 a2", "+C1 n1>C1 n1^ n1! a2>C1 ~10 a2^") == ["LOST a1", "unacked a2"]
        assert findings(FAILOVER, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1") == ["LOST a1", "SKIP a2", "unacked a2"]

    def test_but_what_was_read_long_before_it_is(self) -> None:
        log = "n0 b0 " + " ".join(f"a{i}" for i in range(MOST_REORDERED + 1))
        for last, found in ((MOST_REORDERED - 1, "unseen b0"), (MOST_REORDERED, "LOST b0")):
            assert found in findings(SHARED, log, f"+C1 n0>C1 n0! a{last}>C1")

    def test_a_message_that_waits_for_a_stuck_consumer_is_late_not_lost(self) -> None:
        assert findings(KEY_SHARED, "a1 a2 b1", "+C1 a1>C1 +C2 b1>C2 b1!") == ["unacked a1", "unseen a2"]

    def test_what_was_published_before_a_subscription_began_is_not_lost(self) -> None:
        assert findings(KEY_SHARED, "a1 a2 a3", "+C1 a3>C1 a3!") == ["unseen a1", "unseen a2"]

    def test_a_nacked_message_that_did_not_come_back_holds_its_slot(self) -> None:
        assert findings(KEY_SHARED, "a1 a2 b1", "+C1 a1>C1 a1? b1>C1 b1!") == ["unacked a1", "unseen a2"]

    @pytest.mark.parametrize(
        "terms", [Terms(ttl=500_000_000), Terms(compacted=True)], ids=["expired", "compacted away"]
    )  # fmt: skip
    def test_an_exempt_message_is_not_lost(self, terms: Terms) -> None:
        assert findings(KEY_SHARED, "n1 a1 a2", "+C1 n1>C1 n1! a2>C1 a2!", terms) == ["lost a1"]

    def test_chunks_come_as_one_message(self) -> None:
        assert findings(SHARED, "a1%0/2 a2#0%1/2 a3#1", "+C1 a2>C1 a2! a3>C1 a3!") == ["unseen a1"]
        assert findings(FAILOVER, "n1 a1#1%0/2 a2#1%1/2 a3#2", "+C1 n1>C1 n1! a2>C1 a2! a3>C1 a3!") == ["lost a1"]

    def test_no_application_receives_what_was_acknowledged_unreceived(self) -> None:
        assert findings(SHARED, "a1 a2", "+C1 a1>C1 a1^ a1! a2>C1 a2!") == ["LOST a2"]
        assert findings(SHARED, "a1 a2", "+C1 a1>C1 a1^ a1! a2>C1 a2^ a2!") == []

    def test_a_client_acknowledges_a_chunked_message_that_expired_incomplete(self) -> None:
        story = "+C1 a1>C1 a1^ a1! a2>C1 a3>C1 a2! a3!"
        assert findings(SHARED, "a1 a2#1%0/2 a3#1%1/2", story) == ["lost a2", "lost a3"]
        assert findings(SHARED, "a1 a2#1%0/1", "+C1 a1>C1 a1^ a1! a2>C1 a2!") == ["LOST a2"]  # one chunk is no chunk
        skipped = "+C1 a1>C1 a1! a2>C1 a2! a4>C1 ~10 a4!"
        assert findings(SHARED, "a1 a2#1%0/2 a3#1%1/2 a4", skipped) == ["LOST a3"]


class TestFlow:
    def test_a_delayed_message_comes_at_most_a_tick_early(self) -> None:
        early, within = (f"+C1 ~{pause} a1>C1 a1!" for pause in (80, 110))
        assert findings(SHARED, "a1+300", early) == ["EARLY a1"]
        assert findings(SHARED, "a1+300", within) == []

    def test_what_holds_a_slot_later_does_not_hide_what_was_passed_by_while_it_was_free(self) -> None:
        """A delayed message of the slot comes later, and is never acknowledged."""
        assert findings(KEY_SHARED, "a0+300 a1 n2", "+C1 n2>C1 n2! ~400 a0>C1") == ["LOST a1", "unacked a0"]
        held = "+C1 a0>C1 n2>C1 n2! a0! ~400 a3>C1"  # while it was held, nothing proves anything
        assert "LOST a1" not in findings(KEY_SHARED, "a3+300 a0 a1 n2", held)

    def test_one_active_consumer_ignores_delays(self) -> None:
        assert findings(FAILOVER, "a1+300", "+C1 a1>C1 a1!") == []
        assert findings(FAILOVER, "n1 a1+300 n2", "+C1 n1>C1 n1! n2>C1 n2!") == ["LOST a1", "SKIP n2"]

    def test_a_consumer_gets_what_its_queue_holds_and_one_more_in_hand(self) -> None:
        assert findings(SHARED, "a1 b1 n1", "+C1:1 a1>C1 b1>C1 n1>C1 a1^ b1^ n1^ a1! b1! n1!") == ["OVER_PERMITS n1"]
        assert findings(SHARED, "a1 b1 n1", "+C1:1 a1>C1 b1>C1 a1^ n1>C1 b1^ n1^ a1! b1! n1!") == []
        assert findings(SHARED, "a1 b1 n1", "+C1:2 a1>C1 b1>C1 n1>C1 a1^ b1^ n1^ a1! b1! n1!") == []

    def test_on_a_partition_a_second_queue_stands_behind_the_first(self) -> None:
        story = "+C1:1 a1>C1 b1>C1 n1>C1 c1>C1 a1^ b1^ n1^ c1^ a1! b1! n1! c1!"
        assert findings(SHARED, "a1 b1 n1 c1", story, partition=0) == ["OVER_PERMITS c1"]
        assert findings(SHARED, "a1 b1 n1 c1", story) == ["OVER_PERMITS c1", "OVER_PERMITS n1"]
        assert findings(SHARED, "a1 b1 n1 c1", story.replace(":1", ":2"), partition=0) == []

    def test_a_chunk_that_is_not_the_last_takes_no_place(self) -> None:
        story = "+C1:1 a1>C1 a2>C1 a3>C1 a4>C1 a3^ a4^ a1! a2! a3! a4!"
        assert findings(SHARED, "a1#0%0/3 a2#0%1/3 a3#0%2/3 a4", story) == ["lost a1", "lost a2"]
        assert findings(SHARED, "a1 a2 a3#0%0/2 a4", story)[:2] == ["LOST a1", "LOST a2"]
        assert "OVER_PERMITS a4" in findings(SHARED, "a1 a2 a3#0%0/2 a4", story)

    def test_the_permit_rule_is_unknown_without_a_queue_size(self) -> None:
        log = " ".join(f"a{i}" for i in range(1100))
        story = " ".join(f"a{i}>C1" for i in range(1100)) + " a0^"
        assert not any("OVER" in found for found in findings(SHARED, log, f"+C1 {story}"))
        assert "OVER_PERMITS a1099" in findings(SHARED, log, f"+C1:1000 {story}")
        assert "OVER_PERMITS a2" in findings(SHARED, "a0 a1 a2", "+C1:0 a0>C1 a1>C1 a2>C1 a0^")

    def test_a_batch_is_sent_whole(self) -> None:
        story = "+C1:1 a1>C1 a2>C1 a3>C1 a1^ a2^ a3^ a1! a2! a3!"
        assert findings(SHARED, "a1,a2,a3", story) == ["over_permits a3"]

    def test_the_permit_rule_is_unknown_without_receipts(self) -> None:
        assert findings(SHARED, "a1 b1 n1", "+C1:1 a1>C1 b1>C1 n1>C1 a1! b1! n1!") == []

    def test_all_that_acknowledge_must_record_receipts(self) -> None:
        log, full = "a1 b1 n1 c1", "a1>C1 b1>C1 n1>C1 a1^ b1^ n1^ a1! b1! n1!"
        assert findings(SHARED, log, f"+C1:1 +C2 {full} c1>C2 c1!") == []
        assert findings(SHARED, log, f"+C1:1 +C2 {full} c1>C2 c1^ c1!") == ["OVER_PERMITS n1"]
        assert findings(SHARED, log, f"+C1:1 +C2 {full} c1>C2") == ["OVER_PERMITS n1", "unacked c1"]  # it is stuck


class TestPublication:
    ALL = "+C1 a1>C1 a2>C1 a3>C1 a1! a2! a3!"

    def test_sequence_ids_of_a_producer_rise(self) -> None:
        assert findings(KEY_SHARED, "a1#0 a2#5 a3#4", self.ALL) == ["PRODUCER_ORDER a3"]
        assert findings(KEY_SHARED, "a1#0 a2#5 a3@q#4", self.ALL) == []

    def test_a_producer_may_start_anew(self) -> None:
        assert findings(KEY_SHARED, "a1#0 a2#5 a3#0", self.ALL) == []

    def test_batches_by_key_overtake_one_another(self) -> None:
        story = "+C1 n1>C1 n2>C1 a1>C1 a2>C1 n1! n2! a1! a2!"
        assert findings(KEY_SHARED, "n1#1,n2#3 a1#0,a2#2", story) == []
        story = "+C1 n1>C1 n2>C1 n3>C1 n4>C1 n1! n2! n3! n4!"
        assert findings(KEY_SHARED, "n1#0,n2#3 n3#1,n4#4", story) == ["PRODUCER_ORDER n3"]

    def test_a_sequence_id_stands_once(self) -> None:
        twice = "a1#0 a2#5 a3#5"
        assert findings(KEY_SHARED, twice, self.ALL) == ["DUP_PUBLISH a3"]
        assert findings(KEY_SHARED, twice, self.ALL, Terms(deduplication=False)) == ["dup_publish a3"]
        assert findings(KEY_SHARED, "a1#0%0/3 a2#0%1/3 a3#0%2/3", self.ALL) == []

    def test_a_batch_holds_one_key(self) -> None:
        story = "+C1 +C2 a1>C2 n1>C2 a1! n1!"
        assert findings(KEY_SHARED, "a1,n1", story) == ["MIXED_BATCH n1"]
        assert findings(KEY_SHARED, "a1,a2", "+C1 +C2 a1>C2 a2>C2 a1! a2!") == []
        assert findings(SHARED, "a1,n1", story) == []

    def test_a_key_is_where_its_hash_says(self) -> None:
        where = {p for p in range(2) if not findings(SHARED, "a1", "+C1 a1>C1 a1!", Terms(routing=Routing(2)), p)}
        assert len(where) == 1
        wrong = findings(SHARED, "a1", "+C1 a1>C1 a1!", Terms(routing=Routing(2)), 1 - where.pop())
        assert wrong == ["ROUTING_MISMATCH a1"]

    def test_custom_routing_may_choose_any(self) -> None:
        for partition in range(2):
            terms = Terms(routing=Routing(2, "CustomPartition"))
            assert findings(SHARED, "a1", "+C1 a1>C1 a1!", terms, partition) == []


def test_assumed_receiver_queues_stand_for_those_of_the_membership() -> None:
    timeline = fold(KEY_SHARED, "+C1 +C2")
    assert Dispatcher.of(timeline, {"C1": 7}).queue_sizes.tolist() == [7, UNKNOWN_SIZE]
