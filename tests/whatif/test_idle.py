"""Every consumer without a message, and every message without a consumer, has a reason."""

import pytest

from subreplay.rows.model.rows import Scope
from subreplay.semantics.policies import make_policy
from subreplay.whatif.idle_consumers import explain_idle_consumers, explain_messages_without_owner
from subreplay.whatif.message_assignment import ScenarioPlan
from subreplay.whatif.scenario import PlannedMember, build_plan, build_planned_events
from tests.support.joins import TOPIC, fold

FIRST, LAST = 25, 45  # of the traffic; event i of a history is at 10 * i µs


@pytest.mark.parametrize(
    ("policy", "history", "reasons"),
    [
        ("pulsar.failover", "+A +B", {"B": "another consumer was active all the time (single active consumer)"}),
        ("pulsar.exclusive", "+A +B", {"B": "the broker rejected it: Exclusive consumer is already connected"}),
        ("pulsar.key_shared.auto_split", "+A +B", {"B": "no key falls in its ranges"}),
        (
            "pulsar.key_shared.auto_split",
            "+A +B -B +C",
            {"B": "no key falls in its ranges", "C": "no key falls in its ranges"},
        ),
        ("pulsar.key_shared.auto_split", "+B -B +A", {"B": "it left before the first message was published"}),
        ("pulsar.key_shared.auto_split", "+A +x -x +y -y +B", {"B": "it joined after the last message was published"}),
        ("pulsar.key_shared.sticky", "+A[0-9] +B[10-19]", {"B": "no key falls in its ranges"}),
        ("pulsar.shared", "+A +B", {"B": "the round robin never reached it"}),
    ],
)
def test_why_a_consumer_received_nothing(policy, history, reasons):
    made = make_policy(policy, "pulsar-4.0")
    one = ScenarioPlan("s", made, {TOPIC: fold(made, history)})
    found = explain_idle_consumers(one, {"A", "x", "y"}, FIRST, LAST)
    assert found == reasons


def test_members_beyond_the_partitions_are_explained():
    members = [PlannedMember(name, 0, None) for name in "abc"]
    scopes = [Scope("t", 0), Scope("t", 1)]
    group = build_plan(
        "s", make_policy("kafka.range", "kafka-4.0"), {s: build_planned_events(members, s, 0) for s in scopes}
    )
    assert explain_idle_consumers(group, {"a", "b"}, 0, 10**12) == {"c": "there were fewer partitions than consumers"}


def test_why_messages_had_no_owner():
    made = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
    one = ScenarioPlan("s", made, {TOPIC: fold(made, "+A[0-9] -A")})
    rows = [
        {"topic": TOPIC.topic, "partition": -1, "epoch": epoch, "consumer": who, "messages": n}
        for epoch, who, n in ((0, None, 3), (1, "A", 50), (1, None, 20), (2, None, 1))
    ]
    assert (
        explain_messages_without_owner(one, rows)
        == "20 whose slot is in no consumer's range, 4 while no consumer was connected"
    )
    assert explain_messages_without_owner(one, rows[1:2]) == ""
