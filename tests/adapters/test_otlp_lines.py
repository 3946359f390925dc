"""Lines and files of OTLP JSON: whatever stands around, between or inside of exports, every other span is read."""

import gzip
import json

import pytest

from subreplay.adapters.input_files import read_line_batches
from subreplay.adapters.otlp.otlp_json import parse_lines
from subreplay.errors import InputError
from tests.adapters.otlp_exports import BEGIN, balanced, export, kafka, line, make_reader, nanos, only, rows
from tests.support.spans import spans


@pytest.fixture
def read_lines(tmp_path):
    """What lines tell, as one file."""
    return make_reader(tmp_path)


def test_numbers_may_be_numbers(read_lines):
    text = line(kafka(41)).replace('"intValue":"41"', '"intValue":41')
    text = text.replace(f'"startTimeUnixNano":"{BEGIN}"', f'"startTimeUnixNano": {BEGIN}')
    row = only(read_lines(text))
    assert (row["entry"], nanos(row["received_at"])) == (41, BEGIN)


def test_a_text_that_resembles_a_number_of_a_field_is_left_alone(read_lines):
    odd = kafka(values={"messaging.client_id": '"intValue":5'})
    text = line(odd, kafka()).replace('"intValue":"7"', '"intValue":7')
    assert {row["consumer"] for row in rows(read_lines(text))} == {'"intValue":5', "consumer-billing-1"}


def test_the_spans_of_one_resource_are_an_export(read_lines):
    (one,) = export(kafka())["resourceSpans"]
    assert len(rows(read_lines(json.dumps(one)))) == 1


def test_text_around_exports_is_skipped(read_lines):
    found = read_lines(
        "Nov 22, 2026 1:23:45 AM io.opentelemetry.exporter export",
        "INFO: " + line(kafka(1)),
        "2026-11-22T01:23:45.123456789Z stdout F " + line(kafka(2)),
        "",
        '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"spanId":"0a","body":{"stringValue":"hi"}}]}]}]}',
        b"\xff\xfe no text at all",
    )
    assert [row["entry"] for row in rows(found)] == [1, 2]
    assert vars(found.lines["traces.jsonl"]) == {
        "lines": 6, "exports": 2, "skipped": 4, "quarantined": 0, "spans": 2, "others": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        (line(kafka())[:-40], "complete JSON export"),
        (line(kafka())[40:], "inside one JSON object"),
        (line(kafka()).encode().replace(b"billing-1", b"billing-\xff"), "UTF-8"),
        (line(kafka()) + line(kafka()), "one JSON object"),
        (line(kafka()) + " and more", "complete JSON export"),
        ('{"resourceSpans": 3}', "complete JSON export"),
        ('{"resourceSpans": [3]}', "complete JSON export"),
        ('  "resourceSpans": [', "inside one JSON object"),
        (json.dumps({"log": line(kafka()), "stream": "stdout"}), "inside one JSON object"),
        ('{"resourceSpans":' + "[" * 100_000, "complete JSON export"),
        ('{"x":' + "[" * 100_000 + ',"resourceSpans"', "inside one JSON object"),
        ('{"resourceSpans":[],"x":' + "[" * 100_000, "complete JSON export"),
    ],
)
def test_a_broken_line_is_rejected_alone(read_lines, bad, rule):
    found = read_lines(line(kafka(1)), bad, line(kafka(2)))
    assert [row["entry"] for row in rows(found)] == [1, 2]
    (rejected,) = found.rejected
    assert (rejected.file, rejected.row) == ("traces.jsonl", 2)
    assert rule in rejected.reasons[0].rule
    assert rejected.raw.endswith("bytes)")  # keys and bodies stay where they are
    assert balanced(found)


def test_a_line_cut_in_two_is_rejected_twice(read_lines):
    text = line(kafka(1), kafka(2))
    found = read_lines(line(kafka(0)), text[:300], text[300:], line(kafka(3)))
    assert [row["entry"] for row in rows(found)] == [0, 3]
    assert [rejected.row for rejected in found.rejected] == [2, 3]


# Files


def test_what_a_cut_gzip_file_still_holds_is_read(tmp_path):
    text = "".join(line(kafka(offset)) + "\n" for offset in range(2_000))
    packed = gzip.compress(text.encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    found = spans(tmp_path / "cut.jsonl.gz")
    entries = [row["entry"] for row in rows(found)]
    assert entries == [*range(len(entries))]
    assert 500 < len(entries) < 1_500
    (rejected,) = found.rejected
    assert (rejected.row, rejected.reasons[0].remedy) == (len(entries) + 1, "copy it again")
    assert balanced(found)


def test_a_file_compressed_by_the_collector_is_rejected(tmp_path):
    (tmp_path / "a.jsonl").write_text(line(kafka()) + "\n")
    (tmp_path / "b.jsonl").write_bytes(b"\x00\x00\x01\x00\x28\xb5\x2f\xfd and more")
    found = spans(tmp_path)
    assert [(rejected.file, rejected.reasons[0].remedy) for rejected in found.rejected] == [
        ("b.jsonl", "unpack it, or set compression: none")
    ]
    assert balanced(found)


def test_blocks_end_anywhere(tmp_path, monkeypatch):
    path = tmp_path / "traces.jsonl"
    path.write_text("".join(line(kafka(offset)) + "\n" for offset in range(20)).rstrip("\n"))
    whole = rows(spans(path))
    monkeypatch.setattr("subreplay.adapters.input_files.BLOCK_BYTES", 1_000)
    assert rows(spans(path)) == whole
    assert [number for batch in read_line_batches(path) for number in batch.column("line").to_pylist()] == [
        *range(1, 21)
    ]


def test_a_batch_is_parsed_by_itself(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_text(line(kafka(5)))
    (batch,) = read_line_batches(path, "named.jsonl")
    parsed = parse_lines(batch)
    assert parsed.spans.select(["file", "line", "offset"]).to_pylist() == [
        {"file": "named.jsonl", "line": 1, "offset": "5"}
    ]


@pytest.mark.parametrize("content", [None, "", "nothing of the kind\n", '{"resourceSpans":[]}\n'])
def test_a_folder_without_spans_says_so(tmp_path, content):
    if content is not None:
        (tmp_path / "traces.jsonl").write_text(content)
    with pytest.raises(InputError, match="contains no data file" if content is None else "no span of Kafka or Pulsar"):
        spans(tmp_path)


def test_an_empty_file_beside_others_is_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.jsonl").write_text(line(kafka()))
    assert len(spans(tmp_path).deliveries) == 1
