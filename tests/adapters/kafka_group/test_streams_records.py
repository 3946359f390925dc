"""Records of streams groups (KIP-1071), as their specifications have them: no broker wrote these."""

from __future__ import annotations

import pytest

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.group_rows import build_group_rows
from subreplay.adapters.kafka_group.group_run import build_run, list_assignors
from tests.adapters.kafka_group.encoding import Writer, key, records
from tests.adapters.kafka_group.scenarios import plain


def value() -> Writer:
    return Writer(True).integer(0, 2)


def tasks(writer, owned):
    writer.array(owned.items(), lambda one: writer.string(one[0]).array(one[1], lambda n: writer.integer(n, 4)).tags())


def topic(writer, name):
    writer.string(name).integer(0, 4).integer(1, 2).array(
        [("k", "v")], lambda one: writer.string(one[0]).string(one[1]).tags()
    )
    writer.tags()


def topology(subtopologies):
    writer = value().integer(1, 4)

    def one(item):
        name, sources, repartitions = item
        writer.string(name).array(sources, writer.string).array([], writer.string)
        writer.array(["changelog"], lambda t: topic(writer, t)).array(["sink"], writer.string)
        writer.array(repartitions, lambda t: topic(writer, t))
        writer.array(
            [[0]],
            lambda numbers: [writer.array(numbers, lambda n: writer.integer(n, 2)) for _ in range(3)] and writer.tags(),
        )
        writer.tags()

    return writer.array(subtopologies, one).tags().data


def member(client, endpoint):
    writer = value().string(None).string("rack").string(client).string("/10.0.0.1").integer(5_000, 4).integer(1, 4)
    writer.string("process")
    writer.integer(1, 1).string("host").integer(9_000, 2).tags() if endpoint else writer.integer(-1, 1)
    return writer.array([("zone", "a")], lambda one: writer.string(one[0]).string(one[1]).tags()).tags().data


def target(active):
    writer = value()
    for owned in (active, {"0": [9]}, {}):
        tasks(writer, owned)
    return writer.tags().data


def assignment(epoch, active, revoking):
    writer = value().integer(epoch, 4).integer(epoch - 1, 4).integer(1 if revoking else 0, 1)
    for owned in (active, {"0": [9]}, {}, revoking, {}, {}):
        tasks(writer, owned)
    return writer.tags().data


def epoch(number):
    return value().integer(number, 4).integer(99, 8).tags({0: b"\0\0\0\1"}).data


GROUP = (
    (key(19, "g", "m1"), member("c1", endpoint=True)),
    (key(23, "g"), topology([("0", ["orders"], []), ("1", [], ["g-sums-repartition"])])),
    (key(17, "g"), epoch(1)),
    (key(21, "g", "m1"), target({"0": [0, 1], "1": [0]})),
    (key(20, "g"), value().integer(1, 4).tags().data),
    (key(22, "g", "m1"), assignment(1, {"0": [0, 1], "1": [0]}, {})),
    (key(19, "g", "m2"), member("c2", endpoint=False)),
    (key(17, "g"), epoch(2)),
    (key(21, "g", "m1"), target({"0": [0], "1": [0]})),
    (key(21, "g", "m2"), target({"0": [1]})),
    (key(20, "g"), value().integer(2, 4).tags().data),
    (key(22, "g", "m1"), assignment(1, {"0": [0], "1": [0]}, {"0": [1]})),
    (key(22, "g", "m2"), assignment(2, {"0": [1]}, {})),
    (key(19, "g", "m1"), None),
)


@pytest.fixture(scope="module")
def found():
    decoded = decode_records(records(*GROUP))
    assert decoded.rejected == ()
    return build_group_rows(decoded.tables), decoded.tables


def test_members_read_the_source_topics_of_their_sub_topologies(found):
    rows = [(row["consumer"], row["event"], row["topic"], row["type"]) for row in plain(found[0].membership)]

    every = [("orders", "streams"), ("g-sums-repartition", "streams")]
    assert set(rows) == {
        (name, event, *topic) for topic in every for name, event in (("m1", "join"), ("m2", "join"), ("m1", "leave"))
    }


def test_active_tasks_are_partitions_of_source_topics(found):
    owners = [(r["topic"], r["partition"], r["consumer"], r["state"]) for r in plain(found[0].owners)]

    assert {one for one in owners if one[0] == "orders"} == {
        ("orders", 0, "m1", "assigned"),
        ("orders", 1, "m1", "assigned"),
        ("orders", 1, "m1", "revoking"),
        ("orders", 1, "m2", "assigned"),
    }
    assert ("g-sums-repartition", 0, "m1", "assigned") in owners
    assert all(partition != 9 for _, partition, *_ in owners)  # a standby task reads no source topic


def test_targets_are_decisions_and_epochs_generations(found):
    decided = [(r["generation"], r["topic"], r["partition"], r["consumer"]) for r in plain(found[0].decisions)]

    assert decided[:3] == [(1, "g-sums-repartition", 0, "m1"), (1, "orders", 0, "m1"), (1, "orders", 1, "m1")]
    assert decided[3] == (2, "orders", 1, "m2")
    assert [(r["protocol"], r["generation"], r["members"]) for r in plain(found[0].generations)] == [
        ("streams", 1, 1),
        ("streams", 2, 2),
    ]


def test_the_run_says_what_is_not_read(found):
    (assignors,) = list_assignors(*found)
    run, notes = build_run(assignors, "g", "orders")

    assert run["subscription"]["policy"] == "kafka.uniform"
    assert "Standby and warm-up tasks" in notes[0]
