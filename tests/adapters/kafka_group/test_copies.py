"""Copies of ``__consumer_offsets`` as they come: twice, cut, beside other files, of several topics and groups."""

import gzip
import json
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters import Options
from subreplay.errors import InputError
from tests.adapters import delta_logs
from tests.adapters.kafka_group.copies import as_files, balanced, committed, group, json_lines, reported, text
from tests.adapters.kafka_group.encoding import records as made
from tests.adapters.kafka_group.scenarios import records
from tests.adapters.topic_polls import AT as POLLED
from tests.adapters.topic_polls import consumer as shown
from tests.adapters.topic_polls import poll
from tests.support.source_reading import read_at_once

read = partial(read_at_once, "kafka-group")
CRASH = "k06_crash"
BUSY = "k26_close_no_commit"  # its commits are bundled, too


def test_a_record_that_was_copied_twice_counts_once(tmp_path):
    table = made(group(("m", 0)), committed(3), committed(5))
    pq.write_table(table, tmp_path / "monday.parquet")
    (tmp_path / "tuesday.jsonl").write_text(json_lines(table))
    found = read(tmp_path)
    assert [(count.valid, count.others) for count in found.counts] == [(3, 0), (0, 3)]
    assert reported(found) == ([3, 4], [3, 5])


def test_two_contents_at_one_place_are_one_too_many(tmp_path):
    pq.write_table(made(group(("m", 0)), committed(3), committed(5)), tmp_path / "one.parquet")
    pq.write_table(made(group(("m", 0)), committed(3), committed(6)), tmp_path / "two.parquet")
    found = read(tmp_path)
    assert [(row.file, row.row, row.reasons[0].value) for row in found.rejected] == [("two.parquet", 3, "7:2")]
    assert reported(found) == ([3, 4], [3, 5])
    assert balanced(found)


def test_lines_that_are_no_records_are_quarantined(tmp_path):
    good = json_lines(made(group(("m", 0)), committed(3), committed(5))).splitlines()
    wrong = [
        good[1][: len(good[1]) // 2], "5", good[1].replace('"key": "', '"key": "*'),
        good[1].replace('"offset": 1', '"offset": 1.5'),
    ]  # fmt: skip
    (tmp_path / "copy.jsonl").write_bytes("\n".join([good[0], *wrong, "", *good[1:]]).encode() + b'\n{"key": "\xff"}\n')
    found = read(tmp_path)
    assert sorted(row.row for row in found.rejected) == [2, 3, 4, 5, 9]
    assert all(row.reasons[0].remedy for row in found.rejected)
    assert reported(found) == ([3, 4], [3, 5])
    assert (found.counts[0].rows_in, found.counts[0].valid) == (8, 3)
    assert balanced(found)


def test_records_that_cannot_be_decoded_are_quarantined(tmp_path):
    pq.write_table(made(group(("m", 0)), committed(3), committed(5), (b"\0\7xyz", b"?")), tmp_path / "copy.parquet")
    found = read(tmp_path)
    assert [(row.file, row.row) for row in found.rejected] == [("copy.parquet: __consumer_offsets-7", 3)]
    assert balanced(found)


def test_a_cut_file_gives_what_precedes_the_cut(tmp_path):
    packed = gzip.compress(json_lines(records(BUSY)).encode())
    (tmp_path / "copy.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found = read(tmp_path)
    (rest,) = found.rejected
    assert rest.reasons[0].remedy == "copy it again"
    assert 0 < found.counts[0].valid < len(records(BUSY))
    assert balanced(found)


def test_a_cut_parquet_file_is_an_error(tmp_path):
    pq.write_table(records(CRASH), tmp_path / "copy.parquet")
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "copy.parquet").read_bytes()[:-100])
    with pytest.raises(InputError, match="Copy it again"):
        read(tmp_path)


def test_rows_of_other_topics_groups_and_files_are_counted_or_reported(tmp_path):
    table = made(group(("m", 0)), committed(3), committed(5), committed(9, name="other"), committed(9, topic="u"))
    topics = ["__consumer_offsets"] * len(table)
    both = pa.concat_tables(
        [
            table.append_column("topic", pa.array(topics)),
            table.slice(0, 2).append_column("topic", pa.array(["orders"] * 2)),
        ]
    )
    pq.write_table(both, tmp_path / "__consumer_offsets.parquet")
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(POLLED, shown())))
    (tmp_path / "readme.txt").write_text("copied by hand")
    found = read(tmp_path, Options(subscription="g", topic="t"))
    assert [(count.rows_in, count.valid, count.others) for count in found.counts] == [(7, 3, 4)]
    assert any(note.startswith("polls.jsonl: skipped, because it looks like topic statistics") for note in found.notes)
    assert any(note.startswith("readme.txt: skipped") for note in found.notes)


def test_hidden_files_are_passed_over(tmp_path):
    as_files(tmp_path, CRASH)
    for name in ("_SUCCESS", ".part-0.parquet.crc"):
        (tmp_path / name).write_bytes(b"\0")
    assert len(read(tmp_path).counts) == 2


def test_a_log_that_was_copied_twice_yields_each_event_once(tmp_path):
    as_files(tmp_path, CRASH)
    once = read(tmp_path)
    lines = (tmp_path / "server.log").read_bytes()
    (tmp_path / "server.log.1").write_bytes(lines[: len(lines) // 2] + b"\n\xff\xfe Group g\n")
    twice = read(tmp_path)
    assert twice.tables["membership"].equals(once.tables["membership"])
    copied = next(count for count in twice.counts if count.file == "server.log.1")
    assert (copied.valid, copied.quarantined > 0) == (0, True)
    assert balanced(twice)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(subscription="h"), "the source contains no row of subscription 'h'; it has subscription 'g'"),
        (Options(topic="order"), "the source contains no row of topic 'order'; did you mean 'orders'?"),
    ],
)
def test_what_the_copy_does_not_have_is_an_error_that_names_what_it_has(tmp_path, options, message):
    as_files(tmp_path, BUSY)
    with pytest.raises(InputError) as error:
        read(tmp_path, options)
    assert message in str(error.value)


def test_an_empty_folder_and_records_without_groups_are_reported(tmp_path):
    with pytest.raises(InputError, match="contains no data file"):
        read(tmp_path)
    (tmp_path / "copy.jsonl").write_text("")
    with pytest.raises(InputError, match="0 records of __consumer_offsets contain no member"):
        read(tmp_path)


def test_a_table_of_another_topic_is_refused(tmp_path):
    pq.write_table(pa.table({"key": [1], "value": [2]}), tmp_path / "orders.parquet")
    with pytest.raises(InputError, match="no column partition, offset, timestamp"):
        read(tmp_path)


def test_of_a_delta_table_the_files_of_its_latest_version_are_read(tmp_path):
    """A night's copy that was written again is there twice, and counts once."""
    every = records(CRASH)
    half, added = len(every) // 2, []
    for name, rows in (
        ("first", every.slice(0, half)),
        ("again", every.slice(0, half)),
        ("rest", every.slice(half)),
    ):
        pq.write_table(rows.append_column("run", pa.array([name] * len(rows))), tmp_path / f"{name}.parquet")
        added.append(delta_logs.add(f"{name}.parquet"))
    delta_logs.committed(
        tmp_path, [*delta_logs.begun(), added[0]], [delta_logs.remove("first.parquet"), added[1]], [added[2]]
    )
    found = read(tmp_path)
    assert {count.file: count.others for count in found.counts} == {"again.parquet": 0, "rest.parquet": 0}
    (tmp_path / "plain").mkdir()
    pq.write_table(every, tmp_path / "plain/all.parquet")
    assert found.tables == read(tmp_path / "plain").tables


def test_a_log_without_records_is_refused(tmp_path):
    (tmp_path / "server.log").write_text(text(CRASH))
    with pytest.raises(InputError, match="Pass it together with a copy of __consumer_offsets"):
        read(tmp_path)
