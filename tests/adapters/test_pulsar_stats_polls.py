"""Polls of topic statistics in every form they come in, and what becomes of those that do not fit."""

import gzip
import json
import os
from copy import deepcopy
from dataclasses import astuple

import pytest

from subreplay.adapters import ADAPTERS, Options
from subreplay.adapters.pulsar_stats.adapter import read, stats
from subreplay.errors import ConfigError, InputError
from tests.adapters.topic_polls import AT, SECOND, TOPIC, answer, balanced, consumer, poll, rows, story, tell_from


@pytest.fixture
def told(tmp_path):
    """What polls tell, as one file."""
    return tell_from(tmp_path)


# Where time and topic are


def test_printed_answers_are_read_one_after_the_other(tmp_path):
    path = tmp_path / "stats.txt"
    answers = [answer(consumer()) | {"time": AT}, answer() | {"time": AT + SECOND}]
    path.write_text("WARNING: an old JVM\n" + "\n".join(json.dumps(each, indent=2) for each in answers) + "\n")
    found = stats(path, topic=TOPIC)
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
def test_a_files_name_may_tell_the_time(tmp_path, names):
    for name, text in zip(names, (json.dumps(answer(consumer()), indent=1), json.dumps(answer())), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert story(stats(tmp_path, topic=TOPIC, times="name")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_a_files_modification_may_be_the_time(tmp_path):
    for i, each in enumerate((answer(consumer()), answer())):
        (tmp_path / f"{i}.json").write_text(json.dumps(each))
        os.utime(tmp_path / f"{i}.json", ns=(AT + i * SECOND,) * 2)
    assert story(stats(tmp_path, topic=TOPIC, times="modified")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_a_field_may_be_named(told):
    polls = [{"when": AT // 10**9 + i, "at": 0, **answer(*who)} for i, who in enumerate([(consumer(),), ()])]
    assert story(told(*polls, topic=TOPIC, field="when")) == [("join", "c1", -1), ("leave", "c1", 1)]


def test_partitioned_statistics_are_of_each_partition(told):
    parts = {f"{TOPIC}-partition-{i}": answer(consumer(f"c{i}")) for i in range(3)}
    found = told({"at": AT, "metadata": {"partitions": 3}, "partitions": parts})
    assert [(row["topic"], row["partition"], row["consumer"]) for row in rows(found)] == [
        (TOPIC, i, f"c{i}") for i in range(3)
    ]


def test_other_topics_are_counted(told):
    other = poll(AT, consumer()) | {"topic": "persistent://public/default/parcels"}
    found = told(poll(AT, consumer()), other, topics=[TOPIC])
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
def test_a_poll_that_does_not_fit_is_rejected_and_makes_nobody_leave(told, path, value, column):
    found = told(poll(AT, consumer()), changed(path, value), poll(AT + 2 * SECOND, consumer()))
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
def test_a_broken_answer_is_rejected_alone(told, bad):
    found = told(poll(AT, consumer()), bad, poll(AT + 2 * SECOND))
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 2)]
    assert [rejected.row for rejected in found.rejected] == [2]
    assert balanced(found)


def test_a_copied_file_changes_nothing(tmp_path):
    text = "".join(json.dumps(each) + "\n" for each in (poll(AT, consumer()), poll(AT + SECOND)))
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(text)
    found = stats(tmp_path)
    assert story(found) == [("join", "c1", -1), ("leave", "c1", 1)]
    assert astuple(found.counts["b.jsonl"])[:4] == (2, 0, 2, 0)


def test_two_answers_at_one_time_are_one_too_many(told):
    found = told(poll(AT, consumer()), poll(AT))
    assert story(found) == [("join", "c1", -1)]
    assert found.rejected[0].reasons[0].column == "at"


def test_what_a_cut_gzip_file_still_holds_is_read(tmp_path):
    text = "".join(json.dumps(poll(AT + i * SECOND, consumer(msgOutCounter=i))) + "\n" for i in range(1_000))
    packed = gzip.compress(text.encode())
    (tmp_path / "stats.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found = stats(tmp_path)
    assert 100 < found.counts["stats.jsonl.gz"].valid < 900
    assert found.rejected[0].reasons[0].remedy == "copy it again"
    assert balanced(found)


@pytest.mark.parametrize("content", [None, "", "no statistics\n", "{}\n"])
def test_a_folder_without_polls_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "stats.jsonl").write_text(content)
    with pytest.raises(InputError, match="no file there" if content is None else "no poll of topic statistics"):
        stats(tmp_path)


def test_rows_in_are_valid_or_quarantined(tmp_path):
    (tmp_path / "stats.jsonl").write_text("\n".join([json.dumps(poll(AT, consumer())), "{}"]))
    found = read(tmp_path, Options())
    assert [(count.rows_in, count.valid, count.quarantined) for count in found.counts] == [(2, 1, 1)]
    assert found.run == {"subscription": {"name": "billing", "topic": TOPIC, "policy": "pulsar.shared"}}


def test_options_choose_and_tell_where_topic_and_time_are(tmp_path):
    folder = tmp_path / "polls"
    folder.mkdir()
    read = ADAPTERS["pulsar-stats"]
    (folder / f"{AT // SECOND}.json").write_text(json.dumps(answer(consumer(), kind="Failover")))
    (folder / "copy of broker.log").write_text("no poll\n")
    found = read(folder, Options(topic=TOPIC, times="name"))
    assert [row["topic"] for row in found.tables["membership"].to_pylist()] == [TOPIC]
    assert found.run["subscription"]["policy"] == "pulsar.failover"
    assert [(count.rows_in, count.valid, count.others) for count in found.counts] == [(1, 1, 0), (1, 0, 1)]
    with pytest.raises(InputError, match="show no consumer of topic"):
        read(folder, Options(topic=TOPIC, subscription="other", times="name"))
    with pytest.raises(ConfigError, match="option 'times': write field, name, modified"):
        read(folder, Options(times="clock"))


@pytest.mark.parametrize(
    ("more", "told"),
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
def test_the_policy_is_that_of_the_type(tmp_path, more, told):
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(AT, consumer(), **more)))
    run = ADAPTERS["pulsar-stats"](tmp_path).run["subscription"]
    assert run == {"name": "billing", "topic": TOPIC} | told
