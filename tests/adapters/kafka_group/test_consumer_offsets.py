"""Records of ``__consumer_offsets``, decoded as Kafka's own classes decode them."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.group_records import RECORD_TABLES
from subreplay.adapters.kafka_group.offset_commits import decode_commits
from tests.adapters.kafka_group import encoding as encode
from tests.adapters.kafka_group.copies import decoded
from tests.adapters.kafka_group.encoding import AT, Writer, key, modern_member, records
from tests.adapters.kafka_group.scenarios import NAMES, plain, scenario
from tests.adapters.kafka_group.scenarios import records as recorded

ID = "DE0CW3PeSPOY0aX9QnSACg"
POSITION = {"record_partition", "record_offset", "record_time", "tombstone", "group"}


def only_row(*pairs):
    """The table and the row of a single record, without its position; it must not be rejected."""
    found = decoded(*pairs)
    assert found.rejected == ()
    [(name, table)] = [(name, table) for name, table in found.tables.items() if table.num_rows]
    [row] = plain(table)
    return name, {column: value for column, value in row.items() if column not in POSITION}


# what a real broker wrote


@pytest.mark.parametrize("name", NAMES)
def test_every_group_record_says_what_kafka_reads(name):
    by_offset = {row["offset"]: row for row in scenario(name)["consumer_offsets"]}
    found = decode_records(recorded(name))
    assert found.rejected == ()
    seen = 0
    for table in set(RECORD_TABLES) - {"offset_commits"}:
        for row in plain(found.tables[table]):
            wrote = by_offset[row["record_offset"]]
            assert as_kafka(table, row) == as_recorded(wrote["decoded_value"])
            keyed = wrote["decoded_key"]
            assert (row["group"], row.get("member_id")) == (
                keyed.get("group") or keyed["groupId"],
                keyed.get("memberId"),
            )
            assert row["record_time"] == wrote["timestamp"] * 1_000
            seen += 1
    assert seen == sum(row["type"] != "OffsetCommit" for row in by_offset.values()) > 0
    assert sum(table.num_rows for table in found.tables.values()) == len(by_offset)


def as_kafka(table, row):
    """A row in the words of the specification."""
    if row["tombstone"]:
        return None
    if table == "classic_groups":
        return {
            "protocolType": row["protocol_type"], "generation": row["generation"], "protocol": row["protocol"],
            "leader": row["leader"], "currentStateTimestamp": row["state_since"] // 1_000,
            "members": [classic_member(member) for member in row["members"]],
        }  # fmt: skip
    if table == "topic_metadata":
        return {"topics": [(t["topic_id"], t["topic"], t["partitions"]) for t in row["topics"]]}
    if table == "members":
        return {
            "instanceId": row["instance_id"], "rackId": row["rack"], "clientId": row["client_id"],
            "clientHost": row["client_host"], "subscribedTopicNames": row["topics"],
            "subscribedTopicRegex": row["regex"] or "", "rebalanceTimeoutMs": row["rebalance_timeout_ms"],
            "serverAssignor": row["server_assignor"], "classicMemberMetadata": row["session_timeout_ms"],
        }  # fmt: skip
    if table == "targets":
        return {"topicPartitions": topic_partitions(row["assignment"])}
    if table == "current_assignments":
        states = ["stable", "unrevoked partitions", "unreleased partitions"]
        return {
            "memberEpoch": row["epoch"], "previousMemberEpoch": row["previous_epoch"],
            "state": states.index(row["state"]), "assignedPartitions": topic_partitions(row["assigned"]),
            "partitionsPendingRevocation": topic_partitions(row["revoking"]),
        }  # fmt: skip
    if table == "group_epochs":
        return {"epoch": row["epoch"]}
    computed_at = row["computed_at"]
    return {"assignmentEpoch": row["epoch"], "assignmentTimestamp": computed_at and computed_at // 1_000}


def classic_member(member):
    return {
        "memberId": member["member_id"], "groupInstanceId": member["instance_id"], "clientId": member["client_id"],
        "clientHost": member["client_host"], "rebalanceTimeout": member["rebalance_timeout_ms"],
        "sessionTimeout": member["session_timeout_ms"], "topics": member["topics"],
        "owned": named(member["owned"]), "generation": member["owned_generation"],
        "assignment_decoded": named(member["assignment"]),
    }  # fmt: skip


def as_recorded(value):
    """What Kafka's classes read, in comparable shape."""
    if value is None:
        return None
    reported = {name: part for name, part in value.items() if name != "metadataHash"}
    if "assignmentEpoch" in reported:
        reported.setdefault("assignmentTimestamp", None)
    for name in ("topicPartitions", "assignedPartitions", "partitionsPendingRevocation"):
        if name in reported:
            reported[name] = sorted((t["topicId"], p) for t in reported[name] for p in t["partitions"])
    if "topics" in reported:
        reported["topics"] = [(t["topicId"], t["topicName"], t["numPartitions"]) for t in reported["topics"]]
    if "members" in reported:
        reported["members"] = [recorded_member(member) for member in reported["members"]]
    return reported


def recorded_member(member):
    names = ("memberId", "groupInstanceId", "clientId", "clientHost", "rebalanceTimeout", "sessionTimeout")
    requested = member["subscription_decoded"]
    return {name: member[name] for name in names} | {
        "topics": requested["topics"], "owned": sorted(requested["owned"]), "generation": requested.get("generation"),
        "assignment_decoded": sorted(member["assignment_decoded"]),
    }  # fmt: skip


def named(owned):
    return sorted(f"{one['topic']}-{one['partition']}" for one in owned)


def topic_partitions(owned):
    return sorted((one["topic_id"], one["partition"]) for one in owned)


# round trips

TEXT = st.text(max_size=20)
NAME = st.text(min_size=1, max_size=200)
NUMBER = st.integers(0, 999_999)
MILLIS = st.integers(AT, AT + 10**9)
COMMITS = st.builds(
    dict,
    version=st.integers(0, 4),
    offset=st.integers(0, 2**41),
    epoch=st.integers(-1, 2**31 - 1),
    metadata=st.one_of(TEXT, st.just("m" * 200), st.just("m" * 20_000)),
    at=MILLIS,
    expires=st.one_of(st.just(-1), MILLIS),
)


@given(st.lists(st.tuples(st.integers(0, 1), NAME, NAME, NUMBER, st.one_of(st.none(), COMMITS)), max_size=20))
def test_commits_come_back_whatever_their_versions(wrote):
    pairs = [
        (key(kind, group, topic, partition=number), None if value is None else encode.commit(**value))
        for kind, group, topic, number, value in wrote
    ]
    found = decoded(*pairs)
    rows = sorted(plain(found.tables["offset_commits"]), key=lambda row: row["record_offset"])
    assert found.rejected == ()
    assert [(r["group"], r["topic"], r["partition"]) for r in rows] == [(g, t, n) for _, g, t, n, _ in wrote]
    for row, (*_, value) in zip(rows, wrote, strict=True):
        assert row["tombstone"] == (value is None)
        assert [row[name] for name in ("offset", "leader_epoch", "metadata", "committed_at", "expires_at")] == (
            [None] * 5 if value is None else reported(**value)
        )


def reported(version, offset, epoch, metadata, at, expires):
    has_epoch, has_expiry = version >= 3 and epoch >= 0, version == 1 and expires >= 0
    return [offset, epoch if has_epoch else None, metadata, at * 1_000, expires * 1_000 if has_expiry else None]


TOPIC_PARTITIONS = st.lists(st.fixed_dictionaries({"topic": NAME, "partition": NUMBER}), max_size=4)
MEMBER = st.fixed_dictionaries(
    {
        "member_id": TEXT,
        "instance_id": st.one_of(st.none(), TEXT),
        "client_id": TEXT,
        "client_host": TEXT,
        "rebalance_timeout_ms": NUMBER,
        "session_timeout_ms": NUMBER,
        "topics": st.lists(TEXT, max_size=3),
        "owned": TOPIC_PARTITIONS,
        "owned_generation": st.one_of(st.none(), NUMBER),
        "rack": st.one_of(st.none(), TEXT),
        "user_data": st.one_of(st.none(), st.binary(max_size=9)),
        "assignment": TOPIC_PARTITIONS,
    }
)
GROUP = st.fixed_dictionaries(
    {
        "protocol_type": st.just("consumer"),
        "generation": st.integers(0, 2**31 - 1),
        "protocol": st.one_of(st.none(), TEXT),
        "leader": st.one_of(st.none(), TEXT),
        "state_since": MILLIS,
        "members": st.lists(MEMBER, max_size=3),
    }
)
LATER = {"rebalance_timeout_ms": 1, "instance_id": 3}
ASKED_LATER = {"owned": 1, "owned_generation": 2, "rack": 3}


@given(st.integers(0, 4), st.integers(0, 3), GROUP)
def test_classic_groups_come_back_whatever_their_versions(version, requested, group):
    name, row = only_row((key(2, "g"), encode.classic_group(version, requested, group)))
    expected = group | {"state_since": group["state_since"] * 1_000 if version >= 2 else None}
    expected["members"] = [
        {
            field: None if version < LATER.get(field, 0) or requested < ASKED_LATER.get(field, 0) else value
            for field, value in member.items()
        }
        for member in group["members"]
    ]
    assert (name, row) == ("classic_groups", expected)


@given(st.lists(st.fixed_dictionaries({"topic_id": st.just(ID), "partition": NUMBER}), max_size=5), st.integers(-2, 9))
def test_current_assignments_come_back(assigned, epoch):
    value = Writer(True).integer(0, 2).integer(epoch, 4).integer(3, 4).integer(1, 1)
    encode.partitions(value, assigned, "topic_id")
    encode.partitions(value, assigned[:1], "topic_id")
    name, row = only_row((key(8, "g", "m"), value.tags({3: b"of a later release"}).data))
    assert name == "current_assignments"
    assert row == {
        "member_id": "m", "epoch": epoch, "previous_epoch": 3, "state": "unrevoked partitions",
        "assigned": assigned, "revoking": assigned[:1],
    }  # fmt: skip


def test_a_member_that_speaks_the_classic_protocol_has_its_session_timeout():
    classic = Writer(True).varint(1).integer(45_000, 4).varint(1).tags().data
    timeouts = [
        only_row((key(5, "g", "m"), modern_member(tags)))[1]["session_timeout_ms"]
        for tags in ({0: classic}, {0: b"\0"}, {})
    ]
    assert timeouts == [45_000, None, None]


def test_a_regular_expression_has_its_topics():
    value = Writer(True).integer(0, 2)
    value.array(["a1", "a2"], value.string).integer(5, 8).integer(AT, 8).tags()
    assert only_row((key(16, "g", "a.*"), value.data)) == ("regexes", {"regex": "a.*", "topics": ["a1", "a2"]})


def test_what_is_no_consumer_has_bytes_of_its_own():
    writer = Writer().integer(3, 2).string("connect").integer(1, 4).string("default").string("w1").integer(AT, 8)

    def worker(name):
        writer.string(name).string(None).string("c").string("/h").integer(1, 4).integer(2, 4).bytes(b"\1url").bytes(
            b"x"
        )

    _, row = only_row((key(2, "connect-1"), writer.array(["w1"], worker).data))
    assert row["members"][0]["member_id"] == "w1"
    assert (row["members"][0]["topics"], row["members"][0]["assignment"]) == (None, None)


def test_a_later_subscription_is_read_as_the_latest_known():
    requested = {"topics": ["t"], "user_data": None, "owned": [], "owned_generation": 4, "rack": "r"}
    later = (5).to_bytes(2, "big") + encode.subscription(3, requested)[2:] + b"more"
    writer = Writer().integer(3, 2).string("consumer").integer(1, 4).string("range").string("m").integer(AT, 8)

    def one(name):
        writer.string(name).string(None).string("c").string("/h").integer(1, 4).integer(2, 4).bytes(later).bytes(b"")

    _, row = only_row((key(2, "g"), writer.array(["m"], one).data))
    assert (row["members"][0]["rack"], row["members"][0]["assignment"]) == ("r", [])


# however they are cut


def test_slices_and_batches_are_decoded_as_the_whole():
    table = recorded(NAMES[9])
    whole = decode_records(table)
    cuts = np.linspace(0, table.num_rows, 5).astype(int).tolist()
    parts = pa.concat_tables([table.slice(a, b - a) for a, b in pairwise(cuts)])
    assert {name: sorted(map(str, plain(t))) for name, t in decode_records(parts).tables.items()} == {
        name: sorted(map(str, plain(t))) for name, t in whole.tables.items()
    }
    assert decode_records(table.slice(0, 0)).counts == ()


def test_the_topic_id_of_a_commit_is_read_in_both_ways():
    tags = {0: Writer().uuid(ID).data}
    values = [
        encode.commit(4, 9, 2, "é", AT, tags=tags),
        encode.commit(4, 9, 2, "", AT),
        encode.commit(4, 9, 2, "", AT, tags=tags | {7: b"of a later release"}),
    ]
    table = records(*((key(1, "g", "t", partition=1), value) for value in values))
    found = decode_commits(*(table.column(name).combine_chunks() for name in ("key", "value")))
    rows = plain(decode_records(table).tables["offset_commits"])

    assert found.usual.tolist() == [True, True, False]
    assert [row["topic_id"] for row in sorted(rows, key=lambda row: row["record_offset"])] == [ID, None, ID]


def test_usual_commits_are_all_read_by_columns():
    pairs = [(key(kind, "g", "t", partition=1), encode.commit(v, 9, 2, "é", AT)) for kind in (0, 1) for v in range(5)]
    table = records(*pairs, (key(1, "g", "t", partition=1), None))
    found = decode_commits(*(table.column(name).combine_chunks() for name in ("key", "value")))
    assert found.usual.all()
