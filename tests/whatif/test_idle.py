"""Every consumer without a message, and every message without a consumer, has a reason."""

import pytest

from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.idle_consumers import idle, unowned
from subreplay.whatif.message_assignment import Plan
from subreplay.whatif.scenario import PlannedMember, plan, planned_events
from tests.support.joins import TOPIC, fold

FIRST, LAST = 25, 45  # of the traffic; event i of a history is at 10 * i µs


@pytest.mark.parametrize(
    ("policy", "history", "reasons"),
    [
        ("pulsar.failover", "+A +B", {"B": "another consumer was active all the time"}),
        ("pulsar.exclusive", "+A +B", {"B": "was refused: Exclusive consumer is already connected"}),
        ("pulsar.key_shared.auto_split", "+A +B", {"B": "its ranges hold no key"}),
        ("pulsar.key_shared.auto_split", "+A +B -B +C", {"B": "its ranges hold no key", "C": "its ranges hold no key"}),
        ("pulsar.key_shared.auto_split", "+B -B +A", {"B": "left before the first message"}),
        ("pulsar.key_shared.auto_split", "+A +x -x +y -y +B", {"B": "joined after the last message"}),
        ("pulsar.key_shared.sticky", "+A[0-9] +B[10-19]", {"B": "its ranges hold no key"}),
        ("pulsar.shared", "+A +B", {"B": "its turn never came"}),
    ],
)
def test_why_a_consumer_was_given_nothing(policy, history, reasons):
    made = make_policy(policy, "pulsar-4.0")
    one = Plan("s", made, {TOPIC: fold(made, history)})
    found = idle(one, {"A", "x", "y"}, FIRST, LAST)
    assert found == reasons


def test_more_members_than_partitions():
    members = [PlannedMember(name, 0, None) for name in "abc"]
    scopes = [Scope("t", 0), Scope("t", 1)]
    group = plan("s", make_policy("kafka.range", "kafka-4.0"), {s: planned_events(members, s, 0) for s in scopes})
    assert idle(group, {"a", "b"}, 0, 10**12) == {"c": "no partition was left for it"}


def test_why_messages_had_no_owner():
    made = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
    one = Plan("s", made, {TOPIC: fold(made, "+A[0-9] -A")})
    rows = [
        {"topic": TOPIC.topic, "partition": -1, "epoch": epoch, "consumer": who, "messages": n}
        for epoch, who, n in ((0, None, 3), (1, "A", 50), (1, None, 20), (2, None, 1))
    ]
    assert unowned(one, rows) == "20 in a gap between the ranges, 4 while nobody was connected"
    assert unowned(one, rows[1:2]) == ""
