"""Canonical rows of groups: members, generations, owners and commits are those that the applications saw."""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subreplay.adapters.kafka_group.commit_progress import build_progress
from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.coordinator_log.log_events import COORDINATOR_EVENTS, parse_lines
from subreplay.adapters.kafka_group.group_rows import build_group_rows
from subreplay.rows.model.tables import MEMBERSHIP
from tests.adapters.kafka_group import encoding as encode
from tests.adapters.kafka_group.encoding import Writer
from tests.adapters.kafka_group.scenarios import NAMES, log, plain, records, scenario, text

MS = 1_000
FULL = [name for name in NAMES if scenario(name)["commits"]]
BUSY = 9_000 * MS
"""No application of the recordings was stuck for longer before its client left for it."""


@cache
def rows(name, with_records=True, with_log=True):
    """Tables of a scenario by name, as rows."""
    decoded = decode_records(records(name) if with_records else records(name).slice(0, 0)).tables
    events = parse_lines(log(name)).events if with_log else COORDINATOR_EVENTS.empty_table()
    found = build_group_rows(decoded, events)
    tables = dict(zip(found._fields, map(plain, found), strict=True))
    return tables | {"progress": plain(build_progress(decoded["offset_commits"], found.owners))}


def polls(name):
    names = ("consumer", "member_id", "topic", "partition", "generation", "polled_at")
    return [dict(zip(names, row, strict=True)) for row in scenario(name)["polls"]]


def happened(name, consumer, event):
    return [at // 1_000 for who, what, at in scenario(name)["membership"] if (who, what) == (consumer, event)]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_polled_was_its_members(name):
    owned = defaultdict(list)
    for row in rows(name)["owners"]:
        owned[row["topic"], row["partition"], row["consumer"]].append(row)
    for poll in polls(name):
        at = poll["polled_at"] // 1_000
        mine = owned[poll["topic"], poll["partition"], poll["member_id"]]
        assert any(row["from"] - MS <= at and (row["to"] is None or at <= row["to"]) for row in mine)
        assert poll["generation"] in {row["generation"] for row in mine}


@pytest.mark.parametrize("name", NAMES)
def test_no_partition_has_two_owners(name):
    owned = defaultdict(list)
    for row in rows(name)["owners"]:
        owned[row["topic"], row["partition"]].append((row["from_offset"], row["to_offset"] or 2**62))
    for spans in owned.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize("name", FULL)
def test_each_commit_is_its_members(name):
    who = {poll["member_id"]: poll["consumer"] for poll in polls(name)}
    reported = rows(name)["progress"]
    assert len(reported) == sum(row["type"] == "OffsetCommit" for row in scenario(name)["consumer_offsets"]) > 40
    by_place = defaultdict(list)
    for row in reported:
        by_place[row["topic"], row["partition"], row["offset"]].append(row)
    for consumer, topic, partition, offset, at, done in scenario(name)["commits"]:
        near = min(by_place[topic, partition, offset], key=lambda row: abs(row["at"] - (at or done) // 1_000))
        assert who[near["consumer"]] == consumer


@pytest.mark.parametrize("name", NAMES)
def test_members_come_and_go_when_the_log_says(name):
    who = {poll["member_id"]: poll["consumer"] for poll in polls(name)}
    first = {poll["member_id"]: poll["polled_at"] // 1_000 for poll in reversed(polls(name))}
    reported = rows(name)["member_events"]
    assert {row["consumer"] for row in reported if row["event"] == "join"} >= set(who)
    assert all("log" in row["evidence"] for row in reported)
    seen = set()
    for row in reported:
        consumer, since = who.get(row["consumer"]), row["since"]
        assert since <= row["at"]
        if consumer is None:  # it was never given a record
            continue
        if row["event"] == "join" and row["consumer"] not in seen:
            seen.add(row["consumer"])
            subscribed = [*happened(name, consumer, "subscribe"), *happened(name, consumer, "lost")]
            assert min(subscribed) <= since + MS
            assert row["at"] <= first[row["consumer"]]
        elif row["event"] == "crash":
            ended = [*happened(name, consumer, "killed"), *happened(name, consumer, "close_begin")]
            assert any(at <= since <= at + 12_000 * MS for at in ended)
        elif row["cause"] == "left":
            begin, end = happened(name, consumer, "close_begin"), happened(name, consumer, "close_end")
            closed = any(a - MS <= since <= b + MS for a, b in zip(begin, end, strict=True))
            assert closed or any(at <= since <= at + BUSY for at in happened(name, consumer, "stall_begin"))


def test_the_killed_have_crashed_and_the_closed_have_left():
    for name, kinds in {
        "k06_crash": {("crash", "failed"): 1, ("leave", "left"): 2},
        "k12_static_quick": {("leave", "static member replaced"): 1},
        "k14_static_late": {("crash", "failed"): 2},
        "k16_slow": {("leave", "left"): 4},
        "k22_modern_crash_slow": {("crash", "the member session expired"): 1, ("leave", "left"): 4},
        "k32_modern_static": {("leave", "static member away"): 5},
    }.items():
        reported = rows(name)["member_events"]
        assert Counter((row["event"], row["cause"]) for row in reported if row["event"] != "join") == kinds


@pytest.mark.parametrize("name", NAMES)
def test_records_alone_know_the_same_members_and_say_what_they_do_not_know(name):
    alone, both = rows(name, with_log=False), rows(name)
    assert alone["owners"] == [
        row | {"to": other["to"]} for row, other in zip(both["owners"], alone["owners"], strict=True)
    ]
    reported = alone["member_events"]
    assert all(row["evidence"] == "records" and row["since"] is None for row in reported)
    joins = {(row["consumer"], row["at"]) for row in both["member_events"] if row["event"] == "join"}
    assert {(row["consumer"], row["at"]) for row in reported if row["event"] == "join"} == joins
    causes = {row["cause"] for row in reported if row["event"] != "join"}
    assert causes <= {"left or failed", "static member away", "static member replaced"}
    assert not any(row["event"] == "crash" for row in reported)


def test_records_alone_know_which_static_member_will_be_back():
    for name, cause, count in (
        ("k32_modern_static", "static member away", 5),
        ("k12_static_quick", "static member replaced", 1),
    ):
        assert Counter(row["cause"] for row in rows(name, with_log=False)["member_events"])[cause] == count


@pytest.mark.parametrize("name", NAMES)
def test_only_the_log_contains_joins_and_leaves(name):
    alone, both = rows(name, with_records=False), rows(name)
    assert alone["membership"] == alone["owners"] == alone["members"] == []  # it tells no topic

    def changes(tables):
        return Counter((row["consumer"], row["event"], row["since"]) for row in tables["member_events"])

    missing = changes(both) - changes(alone)
    # the new id of a classic static member that comes back stands in the records only
    assert missing.total() == (1 if name == "k12_static_quick" else 0)
    assert not changes(alone) - changes(both)


@pytest.mark.parametrize("name", NAMES)
def test_generations_have_their_instants_in_order(name):
    reported = rows(name)["generations"]
    numbers = [row["generation"] for row in reported]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for row in reported:
        times = [row[at] for at in ("prepared_at", "stabilized_at", "at") if row[at] is not None]
        assert times == sorted(times)
        assert row["evidence"] == "log and records" or row["generation"] <= 1
    assert {poll["generation"] for poll in polls(name)} <= set(numbers)


def test_the_reason_of_a_rebalance_is_recorded():
    reasons = [row["client_reason"] for row in rows("k30_resubscribe")["generations"]]
    assert "subscription has changed" in reasons


@pytest.mark.parametrize("name", NAMES)
def test_membership_is_canonical(name):
    reported = rows(name)["membership"]
    assert [row["seq"] for row in reported] == sorted(row["seq"] for row in reported)
    assert all(row[f.name] is not None for row in reported for f in MEMBERSHIP if not f.nullable)
    assert {row["type"] for row in reported} == {"consumer" if "modern" in name else "classic"}
    here = Counter()
    for row in reported:
        here[row["consumer"], row["topic"]] += 1 if row["event"] == "join" else -1
        assert here[row["consumer"], row["topic"]] in (0, 1)


def test_another_subscription_leaves_a_topic_and_comes_back():
    reported = rows("k30_resubscribe")["membership"]
    [changed] = [c for c, n in Counter(row["consumer"] for row in reported).items() if n > 4]
    story = [(row["event"], row["topic"]) for row in reported if row["consumer"] == changed]
    assert story[:2] == [("join", "a"), ("join", "b")]
    assert story[2][0] == "leave"
    assert story[3] == ("join", story[2][1])
    periods = [row["topics"] for row in rows("k30_resubscribe")["members"] if row["consumer"] == changed]
    assert len(periods) == 3
    assert periods[0] == periods[2] == ["a", "b"]
    assert len(periods[1]) == 1


def test_members_have_what_the_canonical_table_lacks():
    [first, *_] = rows("k14_static_late")["members"]
    assert (first["instance_id"], first["client_id"], first["session_timeout_ms"]) == ("i1", "c1", 6_000)
    assert first["topics"] == ["orders"]


def test_a_record_that_was_copied_twice_counts_once():
    decoded = decode_records(records("k02_cooperative")).tables
    twice = decode_records(_doubled(records("k02_cooperative"))).tables
    assert build_group_rows(twice).owners.equals(build_group_rows(decoded).owners)


def _doubled(table):
    return type(table).from_batches([*table.to_batches(), *table.to_batches()])


def test_topic_ids_without_a_record_take_the_configured_names():
    decoded = dict(decode_records(records("k04_modern_uniform")).tables)
    [known] = {topic["topic_id"] for row in plain(decoded["topic_metadata"]) for topic in row["topics"]}
    decoded["topic_metadata"] = decoded["topic_metadata"].slice(0, 0)
    assert set(build_group_rows(decoded).owners.column("topic").to_pylist()) == {None}
    assert set(build_group_rows(decoded, topic_names={known: "orders"}).owners.column("topic").to_pylist()) == {
        "orders"
    }


# any story, whether a coordinator could write it or not

WHO = st.sampled_from(["a", "b", "c"])
TOPIC_PARTITIONS = st.lists(
    st.fixed_dictionaries({"topic": st.sampled_from("tu"), "partition": st.integers(0, 2)}), max_size=3
)
MEMBER = st.builds(
    dict,
    member_id=WHO,
    instance_id=st.sampled_from([None, "i"]),
    client_id=st.just("c"),
    client_host=st.just("/h"),
    rebalance_timeout_ms=st.just(1),
    session_timeout_ms=st.just(2),
    topics=st.lists(st.sampled_from("tu"), max_size=2),
    owned=TOPIC_PARTITIONS,
    owned_generation=st.none(),
    rack=st.none(),
    user_data=st.none(),
    assignment=TOPIC_PARTITIONS,
)
NUMBER = st.integers(0, 4)


def classic(generation, members):
    group = {"protocol_type": "consumer", "generation": generation, "protocol": "range", "leader": None}
    return encode.key(2, "g"), encode.classic_group(3, 3, group | {"state_since": encode.AT, "members": members})


def described(member, topics):
    value = Writer(True).integer(0, 2).string(None).string(None).string("c").string("/h")
    value.array(topics, value.string).string("").integer(1, 4).string(None).tags()
    return encode.key(5, "g", member), value.data


def current(member, epoch, numbers):
    value = Writer(True).integer(0, 2).integer(epoch, 4).integer(0, 4).integer(0, 1)
    owned = [{"topic_id": "DE0CW3PeSPOY0aX9QnSACg", "partition": number} for number in numbers]
    encode.partitions(value, owned, "topic_id")
    encode.partitions(value, [], "topic_id")
    return encode.key(8, "g", member), value.tags().data


def test_a_commit_is_the_owners_of_its_time():
    def commit(offset):
        return encode.key(1, "g", "t", partition=0), encode.commit(3, offset, 1, "", encode.AT)

    def owner(member):
        described = {"instance_id": None, "client_id": "c", "client_host": "/h", "rebalance_timeout_ms": 1}
        requested = {"session_timeout_ms": 2, "topics": ["t"], "owned": [], "owned_generation": None, "rack": None}
        given = {"user_data": None, "assignment": [{"topic": "t", "partition": 0}]}
        return {"member_id": member} | described | requested | given

    story = [
        commit(1),
        classic(1, [owner("a")]),
        commit(2),
        classic(2, [owner("b")]),
        commit(3),
        classic(3, []),
        commit(4),
    ]
    decoded = decode_records(encode.records(*story, (story[0][0], None))).tables
    reported = plain(build_progress(decoded["offset_commits"], build_group_rows(decoded).owners))
    assert [(row["offset"], row["consumer"], row["generation"]) for row in reported] == [
        (1, None, None), (2, "a", 1), (3, "b", 2), (4, None, None),
    ]  # fmt: skip


RECORD = st.one_of(
    st.builds(classic, NUMBER, st.lists(MEMBER, max_size=3, unique_by=lambda member: member["member_id"])),
    st.builds(described, WHO, st.lists(st.sampled_from("tu"), max_size=2)),
    st.builds(current, WHO, st.integers(-2, 4), st.lists(NUMBER, max_size=3, unique=True)),
    st.builds(lambda kind, member: (encode.key(kind, "g", member), None), st.sampled_from([5, 7, 8]), WHO),
    st.builds(lambda kind: (encode.key(kind, "g"), None), st.sampled_from([2, 3, 4, 6])),
    st.builds(lambda n: (encode.key(3, "g"), Writer(True).integer(0, 2).integer(n, 4).tags().data), NUMBER),
)
LINE = st.builds(
    lambda at, text, who, number: f"[2023-11-14 22:13:{at:02d},000] INFO {text.format(who=who, number=number)}",
    st.integers(18, 22),
    st.sampled_from(
        [
            "Pending dynamic member with id {who} joins group g in Empty state. Adding to the group now.",
            "Static member with groupInstanceId=i and unknown member id joins group g in Stable state. Replacing "
            "previously mapped member {who} with this groupInstanceId.",
            "Member {who} in group g has failed, removing it from the group.",
            "[GroupId g] Member {who} left the consumer group.",
            "[GroupId g] Member {who} joins the consumer group using the consumer protocol.",
            "[GroupId g] Bumped group epoch to {number}.",
            "Stabilized group g generation {number} with 1 members.",
        ]
    ),
    WHO,
    NUMBER,
)


@given(st.lists(RECORD, max_size=12), st.lists(LINE, max_size=8))
def test_any_sequence_of_records_is_decoded(pairs, lines):
    decoded = decode_records(encode.records(*pairs))
    assert decoded.rejected == ()
    found = build_group_rows(decoded.tables, parse_lines(text(*lines)).events)
    for table in found:
        for row in plain(table):
            assert all(row[f.name] is not None for f in table.schema if not f.nullable)
    joins = {row["consumer"] for row in plain(found.membership) if row["event"] == "join"}
    leaves = {row["consumer"] for row in plain(found.membership) if row["event"] != "join"}
    assert leaves <= joins  # nobody leaves a topic that it never joined
