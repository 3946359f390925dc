"""The order in which a coordinator handled heartbeats, by their answers."""

import pytest

from subreplay.adapters.kafka_recording.recording_rows import GroupRequest
from subreplay.conformance.fidelity_groups.handling_order import find_handling_times

START = 1_700_000_000_000_000_000


def heartbeat(consumer, received_at, answered_at, *, epoch=0, answer, partitions=()):
    return GroupRequest(
        api="consumer_group_heartbeat",
        consumer=consumer,
        received_at=START + received_at * 1_000,
        answered_at=START + answered_at * 1_000,
        request={"memberEpoch": epoch},
        response={"memberEpoch": answer, "assignment": {"topicPartitions": list(partitions)}},
    )


def join(consumer, received_at, leader):
    return GroupRequest(
        api="join_group",
        consumer=consumer,
        received_at=START + received_at * 1_000,
        answered_at=START + 90_000,
        request={},
        response={"memberId": consumer, "leader": leader},
    )


def order(*rows):
    times = find_handling_times(rows)
    at = {position: times.get(position, row.received_at) for position, row in enumerate(rows)}
    return [rows[position].consumer for position in sorted(at, key=at.__getitem__)]


def test_the_epochs_in_answers_tell_the_order_of_joins():
    joins = [heartbeat("a", 1, 90, answer=3), heartbeat("b", 2, 80, answer=1), heartbeat("c", 3, 85, answer=2)]

    assert order(*joins) == ["b", "c", "a"]


def test_of_joins_in_one_epoch_the_one_that_got_partitions_came_first():
    joins = [heartbeat("a", 1, 90, answer=2), heartbeat("b", 2, 95, answer=2, partitions=["p"])]

    assert order(*joins) == ["b", "a"]


@pytest.mark.parametrize(("answered_at", "expected"), [(90, ["b", "a"]), (70, ["a", "b"]), (1, ["a", "b"])])
def test_other_heartbeats_are_handled_in_the_order_of_their_answers(answered_at, expected):
    rows = [heartbeat("a", 1, answered_at, epoch=4, answer=5), heartbeat("b", 2, 80, answer=5)]

    assert order(*rows) == expected


def test_the_leader_of_the_first_generation_joined_first():
    assert order(*(join(name, at, "c") for at, name in enumerate("abcd"))) == ["c", "a", "b", "d"]
    assert order(*(join(name, at, "a") for at, name in enumerate("abcd"))) == ["a", "b", "c", "d"]
