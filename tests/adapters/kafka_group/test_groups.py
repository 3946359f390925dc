"""Copies of ``__consumer_offsets`` as ``ingest`` reads them: real groups, and what their commits acknowledge."""

import gzip
import json
from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters import Options
from subreplay.adapters.kafka_group.acknowledged_records import MAX_RECORDS, build_commit_rows, find_acknowledged
from subreplay.adapters.kafka_group.commit_progress import COMMIT_PROGRESS
from subreplay.adapters.kafka_group.consumer_offsets import decode_records
from subreplay.adapters.kafka_group.coordinator_log.log_events import parse_lines
from subreplay.adapters.kafka_group.group_rows import build_group_rows
from subreplay.adapters.kafka_group.group_stream import choose_topic_names, infer_topic_names
from subreplay.config.run import Subscription
from subreplay.errors import ConfigError
from subreplay.rows.model.tables import DELIVERIES, MEMBERSHIP
from tests.adapters.kafka_group.copies import as_files, balanced, committed, group, json_lines, reported, text
from tests.adapters.kafka_group.encoding import AT
from tests.adapters.kafka_group.encoding import records as made
from tests.adapters.kafka_group.scenarios import NAMES, log, records, scenario
from tests.support.source_reading import read_at_once

read = partial(read_at_once, "kafka-group")
FULL = [name for name in NAMES if scenario(name)["commits"]]
MODERN = "k04_modern_uniform"
CRASH = "k06_crash"
BUSY = "k26_close_no_commit"  # its commits are bundled, too
ASSIGNORS = {
    "cooperative_sticky": ("k02", "k30", "k38"),
    "roundrobin": ("k08", "k26"),
    "sticky": ("k10", "k14"),
    "uniform": ("k04", "k22", "k32", "k34", "y02"),
    "server_range": ("k20", "k36", "k42"),
}
"""Of the scenarios, by their README; of all others range."""
MS = 1_000


# Real groups


@pytest.mark.parametrize("name", NAMES)
def test_the_membership_combines_records_and_log(tmp_path, name):
    found = read(as_files(tmp_path, name))
    reported = build_group_rows(decode_records(records(name)).tables, parse_lines(log(name)).events)
    assert found.tables["membership"].equals(pa.concat_tables([reported.membership, reported.decisions]))
    assert found.tables["deliveries"].schema == DELIVERIES
    assert found.rejected == ()
    lines, rows = (next(c for c in found.counts if c.file == file) for file in ("server.log", "part-0.parquet"))
    assert (rows.rows_in, rows.valid) == (len(records(name)),) * 2
    assert lines.others >= 1
    assert balanced(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_is_that_of_the_scenario(tmp_path, name):
    subscription = read(as_files(tmp_path, name)).run["subscription"]
    policy = next((policy for policy, names in ASSIGNORS.items() if name[:3] in names), "range")
    assert subscription == {
        "name": "g",
        "topic": subscription["topic"],
        "policy": f"kafka.{policy}",
        "profile": "kafka-4.0" if "modern" in name and name.startswith("k") else "kafka-4.4",
        # the coordinator has waited already
        "options": {"session.timeout.ms": 0, "group.initial.rebalance.delay.ms": 0},
    }
    assert Subscription.model_validate(subscription).make_policy().name == f"kafka.{policy}"  # a run file takes it


@pytest.mark.parametrize("name", FULL)
def test_what_a_commit_acknowledges_is_its_members(tmp_path, name):
    """Beside the commits as the clients saw them."""
    who = {row[1]: row[0] for row in scenario(name)["polls"]}
    rows = read(as_files(tmp_path, name)).tables["deliveries"].to_pylist()
    by_place = {}
    for row in rows:
        assert row["delivered_at"] is row["received_at"] is None
        by_place.setdefault((row["topic"], row["partition"], row["entry"]), []).append(row)
    first = set()
    compared = 0
    for consumer, topic, partition, offset, at, done in sorted(
        scenario(name)["commits"], key=lambda row: row[4] or row[5]
    ):
        if (topic, partition) not in first:
            first.add((topic, partition))
            continue
        near = [
            row for row in by_place.get((topic, partition, offset - 1), ())
            if abs(round(row["acked_at"].timestamp() * 1e6) - (at or done) // 1_000) < 2_000 * MS
        ]  # fmt: skip
        compared += len(near)
        assert all(who[row["consumer"]] == consumer for row in near)
    assert compared > 20


@pytest.mark.parametrize("name", FULL)
def test_between_the_first_commit_and_the_last_nothing_is_left_out(tmp_path, name):
    rows = read(as_files(tmp_path, name)).tables["deliveries"].to_pylist()
    offsets = {}
    for row in rows:
        offsets.setdefault((row["topic"], row["partition"]), set()).add(row["entry"])
    assert all(entries == set(range(min(entries), max(entries) + 1)) for entries in offsets.values())


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines_give_what_parquet_gives(tmp_path, packed):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    raw = json_lines(records(BUSY)).encode()
    (tmp_path / "a" / "copy.jsonl").write_bytes(gzip.compress(raw) if packed else raw)
    pq.write_table(records(BUSY), tmp_path / "b" / "copy.parquet")
    one, other = read(tmp_path / "a"), read(tmp_path / "b" / "copy.parquet")
    assert one.tables["membership"].equals(other.tables["membership"])
    assert one.tables["deliveries"].equals(other.tables["deliveries"])
    assert balanced(one)


def test_times_may_be_iso_8601(tmp_path):
    rows = [json.loads(row) for row in json_lines(records(CRASH)).splitlines()]
    for row, at in zip(rows, records(CRASH)["timestamp"].to_pylist(), strict=True):
        row["timestamp"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    (tmp_path / "copy.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(records(CRASH), tmp_path / "copy.parquet")
    one, other = (read(tmp_path / name) for name in ("copy.jsonl", "copy.parquet"))
    assert one.tables["membership"].equals(other.tables["membership"])


def test_without_the_log_a_crash_is_a_leave_and_a_note_says_so(tmp_path):
    pq.write_table(records(CRASH), tmp_path / "copy.parquet")
    alone = read(tmp_path)
    assert set(alone.tables["membership"]["event"].to_pylist()) == {"join", "leave", "owner", "withdrawn"}
    assert any("coordinator_log" in note for note in alone.notes)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "server.log").write_text(text(CRASH))
    found = read(tmp_path / "copy.parquet", Options(coordinator_log=tmp_path / "logs"))
    assert "crash" in found.tables["membership"]["event"].to_pylist()
    assert not any("coordinator_log" in note for note in found.notes)


def test_the_logs_of_recordings_are_read(tmp_path):
    rows = [{"at": row["at"], "level": "INFO", "text": row["text"]} for row in scenario(CRASH)["coordinator_log"]]
    (tmp_path / "coordinator_log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "copy.jsonl").write_text(json_lines(records(CRASH)))
    beside = as_files(tmp_path / "other", CRASH) if (tmp_path / "other").mkdir() is None else None
    assert (
        read(tmp_path / "copy.jsonl", Options(coordinator_log=tmp_path / "coordinator_log.jsonl"))
        .tables["membership"]
        .equals(read(beside).tables["membership"])
    )


def test_the_log_is_read_in_the_configured_time_zone(tmp_path):
    found = read(as_files(tmp_path, CRASH), Options(time_zone="Europe/Berlin"))
    assert not found.tables["membership"].equals(read(tmp_path).tables["membership"])
    with pytest.raises(ConfigError, match="does not exist"):
        read(tmp_path, Options(time_zone="Nowhere"))


# What commits acknowledge


def commits(*reported):
    """Rows (partition, offset, seq, consumer) of one group and topic, a millisecond apart."""
    rows = [
        {
            "subscription": "g",
            "topic": "t",
            "partition": p,
            "offset": o,
            "seq": s,
            "consumer": c,
            "at": AT * MS + s * MS,
        }
        for p, o, s, c in reported
    ]
    return pa.Table.from_pylist([row | {"date": row["at"] // 86_400_000_000} for row in rows], schema=COMMIT_PROGRESS)


def deliveries(found):
    return pa.concat_tables([DELIVERIES.empty_table(), *found.build_deliveries()])


def acked(found):
    rows = deliveries(found).sort_by([("seq", "ascending"), ("entry", "ascending")]).to_pylist()
    return [(row["partition"], row["entry"], row["consumer"]) for row in rows]


def test_a_commit_acknowledges_the_records_since_the_commit_before():
    found = find_acknowledged(
        commits((0, 10, 1, "a"), (1, 5, 2, "b"), (0, 12, 3, "a"), (0, 13, 4, "c"), (1, 5, 5, "b"))
    )
    assert acked(found) == [(0, 10, "a"), (0, 11, "a"), (0, 12, "c")]
    assert found.first.tolist() == [0, 1]
    assert deliveries(found).schema == DELIVERIES


def test_a_group_that_is_moved_back_acknowledges_again():
    found = find_acknowledged(commits((0, 10, 1, "a"), (0, 8, 2, "a"), (0, 11, 3, "a")))
    assert acked(found) == [(0, 8, "a"), (0, 9, "a"), (0, 10, "a")]
    assert found.back.tolist() == [1]


def test_a_commit_of_nobody_and_a_leap_are_no_deliveries():
    found = find_acknowledged(
        commits((0, 10, 1, "a"), (0, 12, 2, None), (0, 13, 3, "a"), (0, 14 + MAX_RECORDS, 4, "a"))
    )
    assert acked(found) == [(0, 12, "a")]
    assert (found.unowned.tolist(), found.leaps.tolist()) == ([1], [3])


def test_each_commit_of_an_owner_is_a_row_of_its_own():
    reported = commits((0, 10, 2, "a"), (0, 12, 3, None), (0, 8, 1, "b"), (0, 14 + MAX_RECORDS, 4, "a"))
    rows = build_commit_rows(reported, np.array([3]))
    assert rows.schema == DELIVERIES
    assert [(row["seq"], row["consumer"], row["entry"], row["ack_type"]) for row in rows.to_pylist()] == [
        (2, "a", 10, "Commit"),
        (1, "b", 8, "Commit"),
    ]


def test_no_commits_acknowledge_nothing():
    assert deliveries(find_acknowledged(COMMIT_PROGRESS.empty_table())).num_rows == 0


def test_a_commit_whose_owner_nobody_knows_is_quarantined(tmp_path):
    pq.write_table(made(committed(3), committed(5), group(("m", 0)), committed(7)), tmp_path / "copy.parquet")
    found = read(tmp_path)
    assert [(row.table, row.row, row.reasons[0].column) for row in found.rejected] == [("deliveries", 2, "consumer")]
    assert reported(found) == ([5, 6], [7])
    assert balanced(found)


# Topic ids


def test_the_topic_of_an_id_is_known_where_its_member_asks_for_one_only():
    tables = dict(decode_records(records(MODERN)).tables)
    names = {
        row["topic_id"]: row["topic"]
        for reported in tables["topic_metadata"].to_pylist()
        for row in reported["topics"] or ()
    }
    assert choose_topic_names(infer_topic_names(tables)) == names != {}


def test_a_copy_of_4_1_which_names_no_ids_gives_the_same_deliveries(tmp_path):
    table = records("k42_modern_backlog")
    kinds = [row[:2] for row in table["key"].to_pylist()]
    pq.write_table(table, tmp_path / "copy.parquet")
    reported = read(tmp_path)
    pq.write_table(table.filter(pa.array([kind != b"\0\4" for kind in kinds])), tmp_path / "copy.parquet")
    found = read(tmp_path)
    assert found.tables["membership"].equals(reported.tables["membership"])
    assert found.tables["deliveries"].equals(reported.tables["deliveries"])
    assert found.tables["deliveries"].num_rows > 2_000
    assert found.counts[0].rows_in == reported.counts[0].rows_in - Counter(kinds)[b"\0\4"] < reported.counts[0].rows_in


def test_the_schema_of_members_is_canonical(tmp_path):
    assert read(as_files(tmp_path, MODERN)).tables["membership"].schema == MEMBERSHIP
