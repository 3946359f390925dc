"""Files of brokers' logs as ``ingest`` reads them: beside recordings of the same brokers, and as they come."""

import gzip
import json
from collections import defaultdict
from functools import cache, partial
from pathlib import Path

import pytest

from subreplay.adapters import ADAPTERS, Options
from subreplay.errors import InputError
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP
from tests.adapters.broker_log.test_lines import TOPIC, acked, join, line, removed, sending
from tests.adapters.topic_polls import AT as POLLED
from tests.adapters.topic_polls import SECOND, consumer, poll
from tests.support.source_reading import read_at_once

DATA = Path(__file__).parents[2] / "data"
LOGS = {
    path.name.removesuffix(".log.gz"): path for path in sorted((DATA / "broker_log" / "whole").glob("*.log.gz"))
} | {
    name: DATA / "recordings-with-logs" / name.replace("-", "/", 1) / "broker.log.gz"
    for name in ("4.0.8-l01_key_shared_autosplit", "5.0.1-l11_key_shared_same_name")
}
SHARED = DATA / "broker_log/3.2.3-l08_shared_nack_close_dlq.log.gz"
FAILOVER = DATA / "broker_log/3.2.3-l06_failover_partitioned_priority.log.gz"
LATE = 60_000
"""Between an event and its line (µs), at most, on a busy machine."""
each = pytest.mark.parametrize("name", LOGS)
read = partial(read_at_once, "pulsar-broker-log")


def balanced(found):
    assert all(count.valid >= 0 and count.others >= 0 for count in found.counts)
    assert sum(count.quarantined for count in found.counts) == len(found.rejected)
    return True


# Beside the recording of the same broker


@cache
def of_log(name):
    found = read(LOGS[name], Options(subscription="billing"))
    assert balanced(found)
    return found


@cache
def of_recording(name):
    """Rows of the recording as far as the log goes."""
    folder = DATA / "recordings-with-logs" / name.replace("-", "/", 1)
    reported = json.loads((folder / "scenario.json").read_text())
    found = ADAPTERS["pulsar-recording"](folder)
    rows = {table: found.tables[table].to_pylist() for table in ("membership", "deliveries")}
    until = reported["log_until_ns"] / 1_000
    return found.run, {
        "membership": [row for row in rows["membership"] if micros(row["at"]) <= until],
        "deliveries": [row for row in rows["deliveries"] if row["delivered_at"] and row["subscription"] == "billing"],
    }


def micros(time):
    return round(time.timestamp() * 1_000_000)


def near(one, other):
    return (one is None and other is None) or abs(micros(one) - micros(other)) <= LATE


@each
def test_the_log_gives_the_dispatches_of_the_recording(name):
    """The same positions, consumers and redelivery counts, acknowledged at the same times."""
    reported = defaultdict(list)
    for row in of_recording(name)[1]["deliveries"]:
        reported[row["partition"], row["ledger"], row["entry"], row["batch_index"]].append(row)
    logged = defaultdict(list)
    for row in of_log(name).tables["deliveries"].to_pylist():
        logged[row["partition"], row["ledger"], row["entry"], row["batch_index"]].append(row)
    assert logged.keys() == reported.keys()
    for position, rows in reported.items():
        pairs = zip(
            *(sorted(each, key=lambda row: row["delivered_at"]) for each in (rows, logged[position])), strict=True
        )
        for row, mine in pairs:
            same = ("consumer", "redelivery_count", "ack_type")
            assert [row[column] for column in same] == [mine[column] for column in same]
            assert near(row["delivered_at"], mine["delivered_at"])
            assert near(row["acked_at"], mine["acked_at"])


@each
def test_the_log_gives_the_members_of_the_recording(name):
    def reported(rows):
        return sorted((row["event"], row["partition"], row["consumer"], micros(row["at"])) for row in rows)

    rows = [row for row in of_recording(name)[1]["membership"] if row["subscription"] == "billing"]
    for one, mine in zip(reported(rows), reported(of_log(name).tables["membership"].to_pylist()), strict=True):
        assert one[:3] == mine[:3]
        assert abs(one[3] - mine[3]) <= LATE


def test_priority_levels_of_a_log_explain_the_active_consumers():
    found = read(FAILOVER, Options(subscription="billing"))
    levels = {(row["consumer"], row["priority"]) for row in found.tables["membership"].to_pylist()}
    assert levels == {("a1", 1), ("b0", 0)}  # as they asked
    assert "traffic" not in found.run
    assert any("active consumers: b0 0 (billing), a1 1 (billing)" in note for note in found.notes)


@each
def test_the_run_file_equals_that_of_the_recording_except_for_the_version(name):
    reported = of_recording(name)[0]["subscription"]
    known = ("name", "topic", "policy", *(["profile"] if name.startswith("5") else []))  # by the form of its lines
    assert of_log(name).run["subscription"] == {key: reported[key] for key in known}
    assert any("version" in note for note in of_log(name).notes)


def test_tables_are_canonical_and_every_line_is_counted():
    found = read(SHARED)
    assert (found.tables["membership"].schema, found.tables["deliveries"].schema) == (MEMBERSHIP, DELIVERIES)
    (count,) = found.counts
    with gzip.open(SHARED) as file:
        assert count.rows_in == sum(1 for _ in file)
    assert balanced(found)


def test_a_dispatch_to_an_unknown_consumer_is_quarantined_with_its_line():
    with gzip.open(SHARED, "rt") as file:
        lines = file.read().splitlines()
    rejected = read(SHARED).rejected
    assert len(rejected) > 100
    for row in rejected:
        assert row.reasons[0].column == "consumer"
        reported = json.loads(row.raw)
        assert f"msg id {reported['ledger']}-{reported['entry']} " in lines[row.row - 1]
        assert reported["topic"] in row.raw


def test_every_subscription_of_a_log_is_listed_and_one_can_be_selected():
    every = read(SHARED)
    pairs = {(every.run["subscription"]["name"], every.run["subscription"]["topic"]), *every.others}
    assert {name for name, _ in pairs} == {"billing", "other"}
    chosen = read(SHARED, Options(subscription="billing"))
    assert chosen.others == ()
    assert set(chosen.tables["deliveries"]["subscription"].to_pylist()) == {"billing"}
    mine = [row for row in every.tables["deliveries"].to_pylist() if row["subscription"] == "billing"]
    assert chosen.tables["deliveries"].num_rows == len(mine)
    assert chosen.counts[0].others > every.counts[0].others


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            Options(subscription="biling"),
            "the source contains no row of subscription 'biling'; did you mean 'billing'?",
        ),
        (Options(topic="persistent://a/b/c"), "the source contains no row of topic 'persistent://a/b/c'; it has topic"),
    ],
)
def test_what_the_log_does_not_have_is_an_error_that_names_what_it_has(options, message):
    with pytest.raises(InputError) as error:
        read(SHARED, options)
    assert message in str(error.value)


# As strangers have them


def story(*entries, address="10.0.0.9:5000", hour="12"):
    """A consumer joins, gets entries and acknowledges them, and leaves."""
    lines = [*join(f"{hour}:00:00,000", address)]
    for entry in entries:
        lines += [sending(entry, f"{hour}:00:01,{entry:03d}"), acked(f"7:{entry}", f"{hour}:00:02,{entry:03d}")]
    return [*lines, removed(f"{hour}:00:09,000", address=address)]


def write(folder, name, lines, packed=False):
    raw = b"".join((text if isinstance(text, bytes) else text.encode()) + b"\n" for text in lines)
    (folder / name).write_bytes(gzip.compress(raw) if packed else raw)


def entries(found):
    return sorted((row["entry"], row["consumer"]) for row in found.tables["deliveries"].to_pylist())


def test_rotated_and_packed_files_are_one_log(tmp_path):
    lines = story(*range(20))
    write(tmp_path, "broker.log.2026-03-04.gz", lines[:15], packed=True)
    write(tmp_path, "broker.log", lines[15:])
    found = read(tmp_path)
    assert entries(found) == [(entry, "c1") for entry in range(20)]
    assert [count.valid for count in found.counts] == [len(lines) - 15, 15]
    assert found.tables["membership"]["event"].to_pylist() == ["join", "crash"]


def test_logs_of_two_brokers_are_one_story(tmp_path):
    write(tmp_path, "broker-b.log", story(4, 5, hour="13", address="10.0.0.9:6000"))
    write(tmp_path, "broker-a.log", story(1, 2, hour="12"))
    found = read(tmp_path)
    assert [entry for entry, _ in entries(found)] == [1, 2, 4, 5]
    assert found.tables["membership"]["event"].to_pylist() == ["join", "crash", "join", "crash"]


def test_a_file_that_is_there_twice_counts_once(tmp_path):
    lines = [*story(1, 2), sending(3)[:-5]]
    write(tmp_path, "broker.log", lines)
    write(tmp_path, "copy.log.gz", lines, packed=True)
    found = read(tmp_path)
    assert entries(found) == [(1, "c1"), (2, "c1")]
    assert [(count.file, count.valid, count.others) for count in found.counts] == [
        ("broker.log", 7, 0), ("copy.log.gz", 0, 8),
    ]  # fmt: skip
    assert [row.file for row in found.rejected] == ["broker.log"]
    assert "copy.log.gz has the same lines as broker.log, so it is read once" in found.notes


def test_lines_of_other_topics_are_counted(tmp_path):
    other = [text.replace("orders", "invoices") for text in story(1, 2, 3, address="10.0.0.8:5000")]
    mixed = [text for pair in zip(story(1, 2, 3), other, strict=True) for text in pair]
    write(tmp_path, "broker.log", ["Exception in thread main", *mixed])
    found = read(tmp_path, Options(topic=TOPIC))
    assert [(count.rows_in, count.valid, count.others) for count in found.counts] == [(19, 9, 10)]
    assert set(found.tables["deliveries"]["topic"].to_pylist()) == {TOPIC}
    both = read(tmp_path)
    assert len(both.others) == 1
    assert both.counts[0].valid == 18


def test_a_cut_file_gives_what_precedes_the_cut_and_its_rest_is_quarantined(tmp_path):
    write(tmp_path, "broker.log.gz", story(*range(900)), packed=True)
    path = tmp_path / "broker.log.gz"
    path.write_bytes(path.read_bytes()[:-2_000])
    found = read(tmp_path)
    assert 100 < len(entries(found)) + len(found.rejected) < 900
    assert found.rejected[0].reasons[0].remedy == "copy it again"
    assert balanced(found)


def test_bytes_that_are_no_text_are_quarantined_where_a_name_should_be(tmp_path):
    broken = sending(5).encode().replace(b"name=billing", b"name=bill\xff")
    write(tmp_path, "broker.log", [b"\xfe\xff what is this", *story(1), broken])
    found = read(tmp_path)
    assert [(row.row, row.reasons[0].column) for row in found.rejected] == [(7, "subscription")]
    assert balanced(found)


def test_a_clock_that_goes_back_is_reported(tmp_path):
    write(
        tmp_path,
        "broker.log",
        [*join(), sending(1, "12:00:05,000"), acked("7:1", "11:59:00,000"), removed("11:59:09,000")],
    )
    assert any("goes back by 65.000 s" in note for note in read(tmp_path).notes)


@pytest.mark.parametrize("zone", ["", "a log of something else\n"])
def test_a_folder_without_a_brokers_log_says_so(tmp_path, zone):
    if zone:
        (tmp_path / "some.log").write_text(zone)
    with pytest.raises(InputError, match="no line is about a subscription" if zone else "contains no data file"):
        read(tmp_path)


def test_the_error_about_another_kind_of_file_names_its_adapter(tmp_path):
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(POLLED, consumer())))
    with pytest.raises(
        InputError,
        match=r"polls\.jsonl, because it looks like topic statistics of Pulsar. Read it with --from pulsar-stats",
    ):
        read(tmp_path / "polls.jsonl", Options(subscription="billing"))


# What the log tells of the subscription


def test_the_version_is_what_the_broker_says_when_it_starts(tmp_path):
    start = line("Starting Pulsar Broker service; version: '4.2.1'", "PulsarService", level="INFO")
    write(tmp_path, "broker.log", [start, *story(1)])
    assert read(tmp_path).run["subscription"]["profile"] == "pulsar-4.2"
    write(tmp_path, "broker.log", [start.replace("4.2.1", "4.1.0"), *story(1)])
    found = read(tmp_path)
    assert found.run["subscription"]["profile"] == "pulsar-4.0"
    assert any("pulsar 4.1.0 has no profile of its own" in note for note in found.notes)


def test_lines_of_release_3_2_are_recognised():
    assert read(SHARED).run["subscription"]["profile"] == "pulsar-3.2"


def test_an_unknown_type_is_left_to_the_user(tmp_path):
    write(tmp_path, "broker.log", story(1))
    found = read(tmp_path)
    assert "policy" not in found.run["subscription"]
    assert "the source does not record the subscription type. Set subscription.policy" in found.notes


def test_batches_of_one_message_are_reported_as_unknown(tmp_path):
    batch = sending(3).replace("batchSize 1", "batchSize 4")
    write(tmp_path, "broker.log", [*story(1), batch])
    assert any(note.startswith("1 deliveries of entries with one message") for note in read(tmp_path).notes)


# With topic statistics


def polled(folder, *consumers, name="polls.jsonl", **more):
    at = 1_772_625_600 * SECOND  # 2026-03-04T12:00:00Z
    reported = [poll(at + second * SECOND, *consumers, **more) | {"topic": TOPIC} for second in (1, 5)]
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in reported))
    return folder / name


BEGIN = 1_772_625_600 * SECOND


def test_statistics_beside_a_log_name_the_consumers_that_stay_connected(tmp_path):
    write(tmp_path, "broker.log", story(1)[:-1])
    alone = read(tmp_path / "broker.log")
    assert {row.table for row in alone.rejected} == {"membership", "deliveries"}
    polled(tmp_path, consumer("c9", BEGIN, "/10.0.0.9:5000"), kind="Shared")
    found = read(tmp_path)
    assert entries(found) == [(1, "c9")]
    assert found.tables["membership"].select(["event", "consumer", "type"]).to_pylist() == [
        {"event": "join", "consumer": "c9", "type": "Shared"}
    ]
    assert found.run["subscription"]["policy"] == "pulsar.shared"
    assert {count.file: count.valid for count in found.counts} == {"broker.log": 4, "polls.jsonl": 2}
    assert balanced(found)


def test_statistics_may_come_from_another_folder(tmp_path):
    (tmp_path / "log").mkdir()
    write(tmp_path / "log", "broker.log", story(1)[:-1])
    path = polled(tmp_path, consumer("c9", BEGIN, "/10.0.0.9:5000"))
    assert entries(read(tmp_path / "log", Options(statistics=path))) == [(1, "c9")]


def test_a_consumer_that_joined_before_the_log_begins_joined_when_the_statistics_say(tmp_path):
    write(tmp_path, "broker.log", story(1)[2:])
    polled(
        tmp_path, consumer("c1", BEGIN - 3_600 * SECOND, "/10.0.0.9:5000"), kind="Key_Shared", keySharedMode="STICKY"
    )
    found = read(tmp_path)
    rows = found.tables["membership"].to_pylist()
    assert [(row["event"], row["at"].hour, row["instance"]) for row in rows] == [
        ("join", 11, "10.0.0.9:5000#0"), ("crash", 12, "10.0.0.9:5000#0"),
    ]  # fmt: skip
    assert found.run["subscription"]["policy"] == "pulsar.key_shared.sticky"


def test_ranges_and_modes_of_a_join_come_from_statistics(tmp_path):
    write(tmp_path, "broker.log", story(1))
    ranges = {"keyHashRangeArrays": [[0, 99]]}
    polled(tmp_path, consumer("c1", BEGIN, "/10.0.0.9:5000", **ranges), kind="Key_Shared", keySharedMode="STICKY")
    joined, left = read(tmp_path).tables["membership"].to_pylist()
    assert (joined["ranges"], joined["key_shared_mode"]) == ([{"start": 0, "end": 99}], "STICKY")
    assert (left["event"], left["type"]) == ("crash", "Key_Shared")


def test_a_consumer_that_left_before_the_log_begins_is_not_a_member(tmp_path):
    write(tmp_path, "broker.log", story(1, hour="13"))
    gone = consumer("c0", BEGIN - 3_600 * SECOND, "/10.0.0.1:1")
    here = consumer("c1", BEGIN + 3_600 * SECOND, "/10.0.0.9:5000")
    polls = ((0, [gone]), (5, []), (3_601, [here]))
    reported = [poll(BEGIN + second * SECOND, *who) | {"topic": TOPIC} for second, who in polls]
    (tmp_path / "polls.jsonl").write_text("".join(json.dumps(one) + "\n" for one in reported))
    rows = read(tmp_path).tables["membership"].to_pylist()
    assert [(row["consumer"], row["event"], row["type"]) for row in rows] == [
        ("c1", "join", "Shared"), ("c1", "crash", "Shared"),
    ]  # fmt: skip
