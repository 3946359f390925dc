"""Polls of topic statistics in every form they come in, and what becomes of those that do not fit."""

import gzip
import json
import os
from copy import deepcopy
from dataclasses import astuple
from functools import partial

import pytest

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.pulsar_stats.stats_adapter import PLACEHOLDER_TOPIC, read_stats
from subreplay.errors import ConfigError, InputError
from subreplay.rows.model.rows import Consumer, Scope
from subreplay.semantics.policies import make_policy
from subreplay.semantics.policies.pulsar.key_consistent_hash import RULES
from tests.adapters.topic_polls import AT, SECOND, TOPIC, answer, balanced, consumer, make_reader, poll, rows, story
from tests.support.source_reading import read_at_once


@pytest.fixture
def read_polls(tmp_path):
    """What polls tell, as one file."""
    return make_reader(tmp_path)


# Where time and topic are


def test_printed_answers_are_read_one_after_the_other(tmp_path):
    path = tmp_path / "stats.txt"
    answers = [answer(consumer()) | {"time": AT}, answer() | {"time": AT + SECOND}]
    path.write_text("WARNING: an old JVM\n" + "\n".join(json.dumps(each, indent=2) for each in answers) + "\n")
    found = read_stats(path, topic=TOPIC)
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 1)]
    assert astuple(found.counts["stats.txt"]) == (2, 2, 0, 0, 1, 0)


@pytest.mark.parametrize(
    "names",
    [
        ("stats-2026-11-22T01-25-00Z.json", "stats-2026-11-22T01-25-01Z.json"),
        ("orders-20261122_012500.json", "orders-20261122_012501.json"),
        ("20261122T022500+0100.json", "20261122T022501+0100.json"),
        ("1795310700.json", "1795310701.json"),
        ("orders-7.1795310700000.json.gz", "orders-7.1795310701000.json.gz"),
    ],
)
def test_a_file_name_may_contain_the_time(tmp_path, names):
    for name, text in zip(names, (json.dumps(answer(consumer()), indent=1), json.dumps(answer())), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert story(read_stats(tmp_path, topic=TOPIC, times="name")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_a_files_modification_may_be_the_time(tmp_path):
    for i, each in enumerate((answer(consumer()), answer())):
        (tmp_path / f"{i}.json").write_text(json.dumps(each))
        os.utime(tmp_path / f"{i}.json", ns=(AT + i * SECOND,) * 2)
    assert story(read_stats(tmp_path, topic=TOPIC, times="modified")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_a_field_may_be_named(read_polls):
    polls = [{"when": AT // 10**9 + i, "at": 0, **answer(*who)} for i, who in enumerate([(consumer(),), ()])]
    assert story(read_polls(*polls, topic=TOPIC, field="when")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_partitioned_statistics_are_of_each_partition(read_polls):
    parts = {f"{TOPIC}-partition-{i}": answer(consumer(f"c{i}")) for i in range(3)}
    found = read_polls({"at": AT, "metadata": {"partitions": 3}, "partitions": parts})
    assert [(row["topic"], row["partition"], row["consumer"]) for row in rows(found)] == [
        (TOPIC, i, f"c{i}") for i in range(3)
    ]


def test_other_topics_are_counted(read_polls):
    other = poll(AT, consumer()) | {"topic": "persistent://public/default/parcels"}
    found = read_polls(poll(AT, consumer()), other, topics=[TOPIC])
    assert len(rows(found)) == 1
    assert found.counts["stats.jsonl"].others == 1


# Polls that do not fit


def changed(path, value):
    """A poll with one value of its consumer or answer changed; ``...`` leaves it out."""
    found = deepcopy(poll(AT + SECOND, consumer()))
    *way, last = path
    place = found
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return found


CONSUMER = ("stats", "subscriptions", "billing", "consumers", 0)


@pytest.mark.parametrize(
    ("path", "value", "column"),
    [
        (("at_ns",), "soon", "at_ns"),
        (("at_ns",), ..., "at_ns"),
        (("at_ns",), True, "at_ns"),
        (("at_ns",), "2026-11-22T01:25:00", "at_ns"),  # of no zone
        (("at_ns",), "2026-13-22T01:25:00Z", "at_ns"),
        (("at_ns",), 10**400, "at_ns"),
        (("topic",), ..., "topic"),
        (("topic",), f"{TOPIC}-partition-1000000", "topic"),
        (("stats",), [], "stats"),
        (("stats", "subscriptions"), ..., "subscriptions"),
        (("stats", "subscriptions"), 7, "subscriptions"),
        (("stats", "metadata"), {"partitions": 4}, "partitions"),
        (("stats", "subscriptions", "billing"), None, "subscriptions.billing"),
        (("stats", "subscriptions", "billing", "consumers"), {}, "subscriptions.billing"),
        (CONSUMER, "c1", "subscriptions.billing.consumers[0]"),
        ((*CONSUMER, "consumerName"), "", "subscriptions.billing.consumers[0].consumerName"),
        ((*CONSUMER, "connectedSince"), ..., "subscriptions.billing.consumers[0].connectedSince"),
        ((*CONSUMER, "connectedSince"), "1970-01-01T00:00:00Z", "subscriptions.billing.consumers[0].connectedSince"),
        ((*CONSUMER, "keyHashRangeArrays"), [[9, 1]], "subscriptions.billing.consumers[0].keyHashRangeArrays"),
        ((*CONSUMER, "keyHashRangeArrays"), [[1, 2, 3]], "subscriptions.billing.consumers[0].keyHashRangeArrays"),
        ((*CONSUMER, "keyHashRanges"), ["1-9"], "subscriptions.billing.consumers[0].keyHashRanges"),
    ],
)
def test_a_poll_that_does_not_fit_is_rejected_and_makes_nobody_leave(read_polls, path, value, column):
    found = read_polls(poll(AT, consumer()), changed(path, value), poll(AT + 2 * SECOND, consumer()))
    (rejected,) = found.rejected
    assert (rejected.file, rejected.row) == ("stats.jsonl", 2)
    assert [reason.column for reason in rejected.reasons] == [column]
    assert all(rejected.reasons[0])
    assert story(found) == [("join", "c1", -1)]
    assert balanced(found)


@pytest.mark.parametrize(
    "bad",
    [
        json.dumps(poll(AT + SECOND, consumer()))[:-30],
        json.dumps(poll(AT + SECOND, consumer()))[30:],
        json.dumps(poll(AT + SECOND, consumer())) + " and }",
        json.dumps(poll(AT + SECOND, consumer("~"))).encode().replace(b"~", b"\xff"),
        json.dumps(poll(AT + SECOND, consumer("\ud800"))),
        '{"stats":' + "[" * 100_000 + "}",
        json.dumps(poll(AT + SECOND, consumer()), indent=1)[:-5],
        "{}",
    ],
)
def test_a_broken_answer_is_rejected_alone(read_polls, bad):
    found = read_polls(poll(AT, consumer()), bad, poll(AT + 2 * SECOND))
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 2)]
    assert [rejected.row for rejected in found.rejected] == [2]
    assert balanced(found)


def test_a_copied_file_changes_nothing(tmp_path):
    text = "".join(json.dumps(each) + "\n" for each in (poll(AT, consumer()), poll(AT + SECOND)))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(text)
    found = read_stats(tmp_path)
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 1)]
    assert astuple(found.counts["b.jsonl"])[:4] == (2, 0, 2, 0)


def test_two_answers_at_one_time_are_one_too_many(read_polls):
    found = read_polls(poll(AT, consumer()), poll(AT))
    assert story(found) == [("join", "c1", -1)]
    assert found.rejected[0].reasons[0].column == "at"


def test_what_a_cut_gzip_file_still_holds_is_read(tmp_path):
    text = "".join(json.dumps(poll(AT + i * SECOND, consumer(msgOutCounter=i))) + "\n" for i in range(1_000))
    packed = gzip.compress(text.encode())
    (tmp_path / "stats.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found = read_stats(tmp_path)
    assert 100 < found.counts["stats.jsonl.gz"].valid < 900
    assert found.rejected[0].reasons[0].remedy == "copy it again"
    assert balanced(found)


@pytest.mark.parametrize("content", [None, "", "no statistics\n", "{}\n"])
def test_a_folder_without_polls_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "stats.jsonl").write_text(content)
    with pytest.raises(InputError, match="contains no data file" if content is None else "none of the polls"):
        read_stats(tmp_path)


def test_rows_in_are_valid_or_quarantined(tmp_path):
    (tmp_path / "stats.jsonl").write_text("\n".join([json.dumps(poll(AT, consumer())), "{}"]))
    found = read_at_once("pulsar-stats", tmp_path)
    assert [(count.rows_in, count.valid, count.quarantined) for count in found.counts] == [(2, 1, 1)]
    assert found.run == {"subscription": {"name": "billing", "topic": TOPIC, "policy": "pulsar.shared"}}


def test_options_select_polls_and_say_where_topic_and_time_are(tmp_path):
    folder = tmp_path / "polls"
    folder.mkdir()
    read = partial(read_at_once, "pulsar-stats")
    (folder / f"{AT // SECOND}.json").write_text(json.dumps(answer(consumer(), kind="Failover")))
    (folder / "copy of broker.log").write_text("no poll\n")
    found = read(folder, Options(topic=TOPIC, times="name"))
    assert [row["topic"] for row in found.tables["membership"].to_pylist()] == [TOPIC]
    assert found.run["subscription"]["policy"] == "pulsar.failover"
    assert [(count.rows_in, count.valid, count.others) for count in found.counts] == [(1, 1, 0), (1, 0, 1)]
    with pytest.raises(InputError, match="contain no consumer of topic"):
        read(folder, Options(topic=TOPIC, subscription="other", times="name"))
    with pytest.raises(ConfigError, match=r"option 'times' is 'clock'\. Write one of field, name, modified"):
        read(folder, Options(times="clock"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"kind": "Shared"}, {"policy": "pulsar.shared"}),
        ({"kind": "Exclusive"}, {"policy": "pulsar.exclusive"}),
        ({"kind": "Key_Shared", "keySharedMode": "STICKY"}, {"policy": "pulsar.key_shared.sticky"}),
        (
            {"kind": "Key_Shared", "keySharedMode": "AUTO_SPLIT", "allowOutOfOrderDelivery": True},
            {"policy": "pulsar.key_shared.consistent_hash", "options": {"allow_out_of_order": True}},
        ),
        ({"kind": "Of a later release"}, {}),
    ],
)
def test_the_policy_is_that_of_the_type(tmp_path, more, expected):
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(AT, consumer(), **more)))
    run = read_at_once("pulsar-stats", tmp_path).run["subscription"]
    assert run == {"name": "billing", "topic": TOPIC} | expected


def ring(policy, profile, joins, gone=(), **options):
    """A poll of consumers with the ranges that a policy gives them."""
    policy = make_policy(policy, profile, **options)
    state = policy.start(Scope(TOPIC))
    members = [Consumer(i, name) for i, name in enumerate(joins)]
    for member in members:
        state = policy.join(state, member)
    for i in gone:
        state = policy.leave(state, members[i])
    listed = policy.list_reported_ranges(state)
    shown = [consumer(member.name, AT - SECOND + member.index, address=f"/10.0.0.1:{member.index}",
                      keyHashRanges=[f"[{start}, {end}]" for start, end in listed[member.index]])
             for member in members if member.index not in gone]  # fmt: skip
    return poll(AT, *shown, kind="Key_Shared", keySharedMode="AUTO_SPLIT")


def run_of(folder, shown):
    (folder / "polls.jsonl").write_text(json.dumps(shown))
    found = read_at_once("pulsar-stats", folder)
    return {name: found.run["subscription"].get(name) for name in ("policy", "profile", "options")}, found.notes


CH, AS = "pulsar.key_shared.consistent_hash", "pulsar.key_shared.auto_split"


@pytest.mark.parametrize("profile", [each for each in RULES if each != "documented"])
@pytest.mark.parametrize("joins", [["a"], ["a", "b", "c"], ["same", "same", "other"], [f"c{i}" for i in range(20)]])
def test_the_hash_ring_in_the_polls_determines_the_profile(tmp_path, profile, joins):
    shown = ring(CH, profile, joins)
    run, notes = run_of(tmp_path, shown)
    assert run["policy"] == CH
    assert run["options"] is None
    same = make_policy(CH, run["profile"])
    assert type(same.start(Scope(TOPIC))) is type(make_policy(CH, profile).start(Scope(TOPIC)))
    assert ring(CH, run["profile"], joins) == shown
    assert any("polls show the hash ranges that" in note for note in notes)


def test_a_hash_ring_with_another_number_of_points_is_recognised(tmp_path):
    run, _ = run_of(tmp_path, ring(CH, "pulsar-3.2", ["a", "b"], points=40))
    assert run == {"policy": CH, "profile": "pulsar-3.2", "options": {"points": 40}}


def test_a_ring_of_no_known_profile_is_the_nearest_by_its_size(tmp_path):
    ranges = [f"[{i * 10_000_019}, {(i + 1) * 10_000_019 - 1}]" for i in range(100)]
    run, notes = run_of(tmp_path, poll(AT, consumer(keyHashRanges=ranges), kind="Key_Shared"))
    assert run == {"policy": CH, "profile": "pulsar-3.2", "options": None}
    assert any("no known profile" in note for note in notes)


@pytest.mark.parametrize(("joins", "gone"), [("a", ()), ("ab", ()), ("abcde", ()), ("abcde", (1, 3)), ("abc", (0,))])
def test_one_range_for_each_consumer_is_auto_split(tmp_path, joins, gone):
    run, _ = run_of(tmp_path, ring(AS, "pulsar-3.2", joins, gone))
    assert (run["policy"], run["profile"]) == (AS, "pulsar-4.0")  # ``consumer`` shows draining hashes, as of 4.x


@pytest.mark.parametrize(
    "ranges", [[[[0, 65535]]], [[[0, 20_000]], [[40_001, 65_535]]], [[[0, 32_767]], [[32_768, 65_535]]]]
)
def test_ranges_that_consumers_may_have_requested_determine_no_selector(tmp_path, ranges):
    members = [consumer(f"c{i}", address=f"/10.0.0.1:{i}", keyHashRangeArrays=each) for i, each in enumerate(ranges)]
    run, _ = run_of(tmp_path, poll(AT, *members, kind="Key_Shared"))
    assert run == {"policy": CH, "profile": None, "options": None}


def test_draining_hashes_are_reported_with_the_consumer_that_blocks_them(tmp_path):
    hashes = [{"hash": 7, "unackMsgs": 2, "blockedAttempts": 5}, {"hash": 9, "unackMsgs": 1, "blockedAttempts": 0}]
    lines = [
        poll(AT, consumer("c1", drainingHashes=hashes), consumer("c2", drainingHashes=[]), kind="Key_Shared"),
        poll(AT + SECOND, consumer("c1", drainingHashes=hashes[:1]), consumer("c2"), kind="Key_Shared"),
        poll(AT + 2 * SECOND, consumer("c1", drainingHashes=[]), consumer("c2"), kind="Key_Shared"),
    ]
    (tmp_path / "polls.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (note,) = (note for note in read_at_once("pulsar-stats", tmp_path).notes if "blocked" in note)
    assert note.endswith("consumer c1 (10.0.0.1:5000) blocked 1 hashes for others with 2 unacknowledged messages at "
                         "2026-11-22 01:25:01 UTC: 7 (2 unacknowledged, 5 blocked attempts)")  # fmt: skip


@pytest.mark.parametrize("hashes", [None, 7, [1], [{"hash": "x"}], [{}]])
def test_hashes_that_are_none_are_no_matter(tmp_path, hashes):
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(AT, consumer(drainingHashes=hashes))))
    found = read_at_once("pulsar-stats", tmp_path)
    assert len(found.rejected) == 0
    assert not any("blocked" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "first", "arguments"),
    [
        ("stats-20261122T012508Z.json", answer(consumer()), f"--topic {PLACEHOLDER_TOPIC} --with times=name"),
        ("stats.json", answer(consumer()), f"--topic {PLACEHOLDER_TOPIC} --with times=modified"),
        ("stats.json", {"at": AT, "stats": answer(consumer())}, f"--topic {PLACEHOLDER_TOPIC}"),
        ("stats.json", {"partitions": {TOPIC: answer(consumer())}}, "--with times=modified"),
        ("stats-20261122T012508Z.json", poll(AT, consumer()), ""),
    ],
)
def test_a_first_look_goes_by_what_answers_lack(tmp_path, name, first, arguments):
    (tmp_path / name).write_text(json.dumps(first, indent=2))
    read = partial(read_at_once, "pulsar-stats")
    options = ADAPTERS["pulsar-stats"].assume_options(tmp_path / name)
    assert options.arguments == arguments
    assert read(tmp_path / name, options).tables["membership"].num_rows == 1
