"""Every golden generation of the sticky assignors, from its members, topics and racks alone."""

import numpy as np
import pytest

from subreplay.semantics.policies.kafka.cooperative_sticky import CooperativeStickyAssignor, find_revoked
from subreplay.semantics.policies.kafka.sticky import StickyAssignor
from tests.policies.kafka.golden import expected_owners, generations

ASSIGNORS = {assignor.name: assignor("kafka-4.0") for assignor in (StickyAssignor, CooperativeStickyAssignor)}


@pytest.mark.parametrize(("name", "at_least"), [("sticky", 600), ("cooperative_sticky", 700), ("quirks", 9)])
def test_every_partition_goes_to_the_member_that_the_real_class_chose(name, at_least):
    replayed, wrong = 0, []
    for case, generation, partitions, members in generations(name):
        owners = ASSIGNORS[f"kafka.{case['assignor']}"].assign(partitions, members)
        replayed += 1
        if owners.tolist() != expected_owners(generation, partitions, members).tolist():
            wrong.append((case["case"], generation["generation"], generation["assert"]))

    assert replayed >= at_least
    assert wrong == []


def test_members_have_to_give_up_what_the_real_class_took_from_them():
    """A member that never heard of its assignment gives nothing up; a deleted topic has no partitions to speak of."""
    giving, wrong = 0, []
    for case, generation, partitions, members in generations("cooperative_sticky"):
        missed = {event.get("member") for event in generation["events"] if event["type"] == "missed_sync"}
        owners = ASSIGNORS["kafka.cooperative_sticky"].assign(partitions, members)
        for member, dead_lettered in zip(members, find_revoked(members, owners), strict=True):
            taken = generation["revoked"].get(member.member_id, ())
            expected = {name for name in taken if name.rpartition("-")[0] in partitions.topics}
            actual = {f"{topic}-{number}" for topic, number in partitions.list_names(dead_lettered)}
            if member.member_id not in missed and actual != expected:
                wrong.append((case["case"], generation["generation"], member.member_id))
            giving += bool(expected)

    assert giving > 150
    assert wrong == []


def test_nobody_waits_for_a_partition_that_nobody_has():
    for _, generation, partitions, members in generations("cooperative_sticky"):
        owners = ASSIGNORS["kafka.cooperative_sticky"].assign(partitions, members)
        claimed = {number for member in members for number in member.claim.partitions.tolist()}
        subscribed = frozenset().union(*(member.topics for member in members))
        waiting = {
            n for n in np.flatnonzero(owners == -1).tolist() if partitions.list_names(np.array([n]))[0][0] in subscribed
        }
        assert waiting <= claimed, generation
