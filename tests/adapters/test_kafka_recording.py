"""A recorded Kafka group becomes plain tables; whatever does not fit is told, row by row."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from subreplay.adapters.kafka_recording.kafka_recording_adapter import read_recording, read_tables
from subreplay.adapters.kafka_recording.polled_deliveries import build_delivery_table
from subreplay.adapters.kafka_recording.recording_rows import PolledRecord
from subreplay.errors import InputError

RECORDINGS = Path(__file__).parents[1] / "data/kafka_recordings"
ALL = sorted(path for path in RECORDINGS.iterdir() if path.is_dir())
SLOW = RECORDINGS / "k16_slow"


def rows(folder, name):
    return [json.loads(line) for line in gzip.open(folder / f"{name}.jsonl.gz", "rt")]


@pytest.fixture
def changed(tmp_path):
    """Reads a copy of a recording of which rows of one file are changed."""

    def read_with(name, change, folder=SLOW):
        copy = tmp_path / folder.name
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        lines = rows(folder, name)
        change(lines)
        with gzip.open(copy / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
        return read_tables(copy)

    return read_with


@pytest.mark.parametrize("folder", ALL, ids=lambda f: f.name)
def test_every_row_of_a_recording_fits(folder):
    found = read_tables(folder)

    assert found.rejected == ()
    assert found.tables["messages"].num_rows == json.loads((folder / "scenario.json").read_text())["rows"]["records"]
    assert found.tables["polls"].num_rows == len(rows(folder, "polls"))
    assert found.tables["commits"].num_rows == len(rows(folder, "commits"))


def test_a_poll_that_names_another_ones_member_is_of_its_consumer(changed):
    def move(lines):
        line = next(one for one in lines if one["consumer"] == "c1")
        line["consumer"] = "c2"

    found = changed("polls", move)
    before, after = (it.tables["deliveries"]["consumer"].to_pylist() for it in (read_tables(SLOW), found))
    moved = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert [(one[:2], other[:2]) for one, other in moved] == [("c1", "c2")]
    assert found.notes == ("1 polls contain the member id of another consumer, so they get their own consumer's id",)


def test_the_run_names_group_topic_policy_and_profile():
    assert read_tables(SLOW).run["subscription"] == {
        "name": "g", "policy": "kafka.range", "profile": "kafka-4.0", "topic": "orders",
    }  # fmt: skip
    assert read_tables(RECORDINGS / "k32_modern_static").run["subscription"]["policy"] == "kafka.uniform"


def test_offsets_keys_and_times_are_those_of_the_records():
    first, row = read_tables(SLOW).tables["messages"].slice(0, 1).to_pylist()[0], rows(SLOW, "records")[0]

    assert (first["topic"], first["partition"], first["ledger"], first["entry"]) == (
        row["topic"], row["partition"], 0, row["offset"],
    )  # fmt: skip
    assert first["key"] == b"key-" + first["key"].removeprefix(b"key-")
    assert round(first["publish_time"].timestamp() * 1_000) == row["timestamp"]


def test_deliveries_are_of_members_and_acknowledged_by_their_own_commits():
    tables = read_tables(SLOW).tables
    deliveries = [row for row in tables["deliveries"].to_pylist() if row["ack_type"] != "Commit"]
    again = {(d["partition"], d["entry"]) for d in deliveries if d["redelivery_count"]}
    first = [d for d in deliveries if (d["partition"], d["entry"]) in again and not d["redelivery_count"]]

    assert {d["consumer"] for d in deliveries} == {*tables["membership"]["consumer"].to_pylist()}
    assert len(again) == len(first) == 50  # the batch of the member that was out: its commit failed
    assert {d["outcome"] for d in first} == {"redelivered"}
    assert {d["outcome"] for d in deliveries if d not in first} == {"acked"}
    assert all(d["acked_at"] > d["received_at"] for d in deliveries if d["outcome"] == "acked")


def test_a_commit_that_its_crashed_client_did_not_record_is_taken_from_the_log():
    at = 1_800_000_000_000_000_000
    poll = PolledRecord(consumer="c", topic="t", partition=0, offset=4, polled_at=at, processed_at=None, generation=1,
                member_id="m")  # fmt: skip
    logged = pa.table({
        "topic": ["t"], "partition": [0], "offset": [5], "tombstone": [False],
        "committed_at": pa.array([at // 1_000 + 7_000], pa.timestamp("us", tz="UTC")),
    })  # fmt: skip

    assert build_delivery_table("g", [poll], [], logged)["acked_at"].cast(pa.int64()).to_pylist() == [
        at // 1_000 + 7_000
    ]
    assert build_delivery_table("g", [poll], [], logged.slice(1))["outcome"].to_pylist() == ["pending"]


def test_callbacks_name_the_partitions_that_come_and_go():
    happened = read_tables(SLOW).tables["client_events"]
    lost = happened.filter(pc.equal(happened["event"], "lost")).to_pylist()

    assert [[p["partition"] for p in row["partitions"]] for row in lost] == [[2, 3]]


def test_generations_and_owners_are_those_of_the_coordinator():
    tables = read_tables(SLOW).tables

    assert tables["generations"]["generation"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert set(tables["owners"]["state"].to_pylist()) == {"assigned"}


def duplicate(lines):
    lines.append(lines[0])


def diverge(lines):
    lines.append(lines[0] | {"size": lines[0]["size"] + 1})


def set_first(**values):
    def change(lines):
        lines[0] |= values

    return change


WRONG = {
    "an offset twice": ("records", duplicate, "an offset must occur once", 1),
    "one offset, two records": ("records", diverge, "the records at one offset must be equal", 2),
    "a key that is no base64": ("records", set_first(key="%"), "bytes must be base64", 1),
    "a negative partition": ("records", set_first(partition=-5), "", 1),
    "a poll of what nobody produced": (
        "polls",
        set_first(offset=10**9),
        "a polled record must be among the produced ones",
        1,
    ),
    "a poll of a stranger": ("polls", set_first(consumer="c9"), "the consumer must be in the scenario", 1),
    "work that ends before it begins": (
        "polls",
        set_first(processed_at=17 * 10**17),
        "processed_at must not be before polled_at",
        1,
    ),
    "a commit of an unknown kind": ("commits", set_first(kind="never"), "", 1),
    "a partition without a number": (
        "membership",
        lambda lines: lines[6].update(partitions=["orders"]),
        "a partition must be named",
        1,
    ),
    "an unknown event": ("membership", set_first(event="danced"), "", 1),
    "a line that is no JSON": ("commits", lambda lines: lines.append("{\n"), "", 1),
    "a group record cut short": ("consumer_offsets", set_first(value="AAM="), "", 1),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_a_wrong_row_is_in_quarantine_with_its_reason_and_nothing_else_is(case, changed):
    name, change, rule, count = WRONG[case]
    found = changed(name, change)
    mine = [r for r in found.rejected if r.file.startswith(name)]
    counted = next(c for c in found.counts if c.file.startswith(name))

    assert len(mine) == count
    assert rule in str(mine[0])
    assert counted.rows_in == counted.valid + count


def test_a_rejected_row_does_not_contain_its_key(changed):
    found = changed("records", set_first(key="a2V5LTk=", size=-1))

    assert "a2V5LTk=" not in found.rejected[0].raw
    assert "key-9" not in found.rejected[0].raw


def test_a_folder_without_a_scenario_is_no_recording(tmp_path):
    with pytest.raises(InputError, match="a recording of a Kafka group needs it"):
        read_tables(tmp_path)


def test_a_scenario_that_is_not_understood_is_named_by_its_field(tmp_path):
    shutil.copytree(SLOW, tmp_path / "r")
    path = tmp_path / "r/scenario.json"
    path.write_text(path.read_text().replace('"classic"', '"modern"', 1))

    with pytest.raises(InputError, match="protocol"):
        read_recording(tmp_path / "r")
