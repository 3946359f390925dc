"""What a file looks like by its first bytes, and which files of a folder an adapter reads."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters import ADAPTERS
from subreplay.adapters.format_detection import (
    COORDINATOR_LOG,
    FORMAT_TITLES,
    detect_adapter,
    detect_file_format,
    select_files,
)
from subreplay.adapters.input_files import HEAD_BYTES
from subreplay.capture.file_format import EVENTS, METADATA
from subreplay.errors import InputError
from tests.adapters.kafka_group.copies import json_lines
from tests.adapters.kafka_group.encoding import key
from tests.adapters.kafka_group.encoding import records as made
from tests.adapters.kafka_group.scenarios import NAMES, log, records
from tests.adapters.otlp_exports import kafka, line
from tests.adapters.topic_polls import AT, consumer, poll
from tests.support.source_reading import read_at_once

DATA = Path(__file__).parents[1] / "data"
RECORDINGS = [*(DATA / "recordings").glob("*/*/"), *(DATA / "recordings-with-logs").glob("*/*/")]


def test_every_adapter_has_its_title():
    assert set(FORMAT_TITLES) - {COORDINATOR_LOG} == set(ADAPTERS)


@pytest.mark.parametrize("path", sorted((DATA / "broker_log").rglob("*.log.gz")), ids=lambda path: path.name)
def test_logs_of_brokers(path):
    assert detect_adapter(path) == "pulsar-broker-log"


@pytest.mark.parametrize("path", sorted((DATA / "topic_stats").glob("*")), ids=lambda path: path.name)
def test_topic_statistics(path):
    assert detect_adapter(path) == "pulsar-stats"


@pytest.mark.parametrize("path", sorted((DATA / "otlp").glob("*")), ids=lambda path: path.name)
def test_spans(path):
    assert detect_adapter(path) == "otlp-spans"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_recordings_also_with_their_logs(path):
    assert detect_adapter(path) == "pulsar-recording"


@pytest.mark.parametrize("path", sorted((DATA / "kafka_recordings").glob("k*")), ids=lambda path: path.name)
def test_recordings_of_groups(path):
    assert detect_adapter(path) == "kafka-recording"


@pytest.mark.parametrize("name", NAMES)
def test_groups(tmp_path, name):
    (tmp_path / "copy.jsonl").write_text(json_lines(records(name)))
    (tmp_path / "server.log").write_text("\n".join(log(name)["text"].to_pylist()))
    pq.write_table(records(name), tmp_path / "part-0.parquet")
    assert (
        detect_adapter(tmp_path)
        == detect_adapter(tmp_path / "copy.jsonl")
        == detect_adapter(tmp_path / "part-0.parquet")
        == "kafka-group"
    )
    assert detect_file_format(tmp_path / "server.log") == COORDINATOR_LOG
    assert detect_adapter(tmp_path / "server.log") is None  # nothing reads it alone


@pytest.mark.parametrize("name", NAMES)
def test_one_object_with_many_records_of_a_group(name, tmp_path):
    """As the recorded groups are kept: the records are those of one a line."""
    path = DATA / f"kafka_group/{name}.json.gz"
    assert detect_adapter(path) == "kafka-group"
    (tmp_path / "lines.jsonl").write_text(json_lines(records(name)))
    kept, lines = read_at_once("kafka-group", path), read_at_once("kafka-group", tmp_path)
    assert kept.tables == lines.tables
    assert kept.counts[0][1:] == lines.counts[0][1:]


def test_records_of_other_topics_are_no_groups(tmp_path):
    orders = made((b"customer-7", b"{}"), (b"customer-8", b"{}"))
    pq.write_table(orders, tmp_path / "orders.parquet")
    (tmp_path / "orders.jsonl").write_text(json_lines(orders))
    named = made((key(2, "g"), b"{}")).append_column("topic", pa.array(["orders"]))
    pq.write_table(named, tmp_path / "named.parquet")
    assert [detect_file_format(each) for each in sorted(tmp_path.iterdir())] == [None] * 3


def test_a_table_without_statistics_is_known_by_its_name(tmp_path):
    for name, looks in (("__consumer_offsets.parquet", "kafka-group"), ("orders.parquet", None)):
        pq.write_table(records(NAMES[0]), tmp_path / name, write_statistics=False)
        assert detect_file_format(tmp_path / name) == looks


def test_captures(tmp_path):
    schema = EVENTS.with_metadata({METADATA: b'{"version": 1}'})
    pq.write_table(schema.empty_table(), tmp_path / "c1.parquet")
    assert detect_adapter(tmp_path) == "capture"


def test_a_line_of_a_poll_or_an_export_may_be_longer_than_what_is_looked_at(tmp_path):
    many = [consumer(f"c{n}", AT + n) for n in range(2_000)]
    (tmp_path / "polls.jsonl").write_text(json.dumps(poll(AT, *many)))
    (tmp_path / "spans.jsonl.gz").write_bytes(gzip.compress(line(*(kafka(n) for n in range(500))).encode()))
    assert (tmp_path / "polls.jsonl").stat().st_size > HEAD_BYTES
    assert (detect_file_format(tmp_path / "polls.jsonl"), detect_file_format(tmp_path / "spans.jsonl.gz")) == (
        "pulsar-stats",
        "otlp-spans",
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"hello\n", b"\xff\xfe\0\1", b"{", b"[1, 2]", b"\x1f\x8b\x08broken", b"PAR1", b"PAR1" + bytes(100) + b"PAR1",
     b'{"key": "AAA=", "value": null, "offset": 1}', b'{"key": "***", "value": null, "offset": 1}',
     b'{"a":' * 5_000, b"\xff" * 200_000],
)  # fmt: skip
def test_what_is_nothing_resembles_nothing(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert detect_adapter(tmp_path / "file") is detect_adapter(tmp_path) is None


def test_what_is_not_there_resembles_nothing(tmp_path):
    assert detect_adapter(tmp_path) is detect_adapter(tmp_path / "nowhere") is None


def test_no_more_than_the_head_of_a_file_is_read(tmp_path):
    (tmp_path / "late.log").write_bytes(b"x\n" * HEAD_BYTES + gzip.decompress((DATA / LOG).read_bytes())[:10_000])
    assert detect_file_format(tmp_path / "late.log") is None


LOG = "broker_log/4.0.8-l03_key_shared_sticky.log.gz"


def test_a_folder_of_several_kinds_is_read_by_kind(tmp_path):
    (tmp_path / "a.log.gz").write_bytes((DATA / LOG).read_bytes())
    (tmp_path / "b.txt").write_text("notes")
    (tmp_path / "c.jsonl").write_text(json.dumps(poll(AT, consumer())))
    (tmp_path / "d.jsonl").write_text(line(kafka()))
    found = select_files(tmp_path, "pulsar-broker-log", companions=("pulsar-stats",))
    assert [path.name for path in found.files] == ["a.log.gz", "b.txt"]
    assert [path.name for path in found.companions["pulsar-stats"]] == ["c.jsonl"]
    assert found.skipped == {"d.jsonl": "otlp-spans"}
    assert found.notes == (
        "d.jsonl: skipped, because it looks like spans as OTLP JSON lines. Read it with --from otlp-spans",
    )
    assert [path.name for path in select_files(tmp_path, "pulsar-stats", certain=True).files] == ["c.jsonl"]


@pytest.mark.parametrize("name", ["pulsar-broker-log", "pulsar-stats", "otlp-spans", "kafka-group"])
def test_each_adapter_names_the_adapter_that_reads_a_file_instead(tmp_path, name):
    kinds = {
        "pulsar-broker-log": gzip.decompress((DATA / LOG).read_bytes())[:20_000],
        "pulsar-stats": json.dumps(poll(AT, consumer())).encode(),
        "otlp-spans": line(kafka()).encode(),
        "kafka-group": json_lines(records(NAMES[0])).encode(),
    }
    for other, content in kinds.items():
        if other != name:
            (tmp_path / "given").write_bytes(content)
            with pytest.raises(
                InputError, match=rf"given, because it looks like {FORMAT_TITLES[other]}\. Read it with --from {other}"
            ):
                read_at_once(name, tmp_path)
