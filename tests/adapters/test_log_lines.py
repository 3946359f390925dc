"""Logs of brokers as container runtimes, collectors and JSON layouts keep them: the same lines as the broker wrote."""

import gzip
import json
import re
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters import input_files as adapter_files
from subreplay.adapters.format_detection import COORDINATOR_LOG, detect_file_format
from subreplay.adapters.input_files import read_line_batches
from subreplay.adapters.kafka_group.coordinator_log.log_files import read_log
from subreplay.adapters.log_lines import detect_layers, read_log_lines, strip_layers
from subreplay.errors import InputError
from tests.support.source_reading import read_at_once

DATA = Path(__file__).parents[1] / "data"
BROKER = gzip.decompress(next(iter(sorted((DATA / "broker_log/whole").glob("*.log.gz")))).read_bytes()).decode()
LINES = BROKER.splitlines()[:2000]
HEAD = re.compile(r"(\S+?)(?:,|\.)(\d{3})(\S*) \[(.*?)\] (\w+) +(\S+) - (.*)")
read = partial(read_at_once, "pulsar-broker-log")


def docker(text):
    return json.dumps({"log": text + "\n", "stream": "stdout", "time": "2026-11-22T01:38:49.893000000Z"})


def loki(text):
    return json.dumps({"labels": {"pod": "b-0"}, "line": text, "timestamp": "2026-11-22T01:38:49.893Z"})


def journal(text):
    return json.dumps({"__REALTIME_TIMESTAMP": "1795311529891000", "MESSAGE": text, "_HOSTNAME": "node-1"})


PREFIXES = {
    "cri": "2026-11-22T01:38:49.891000000Z stdout F {}",
    "stern": "pulsar-broker-0 pulsar-broker {}",
    "stern of all namespaces, in colours": "\x1b[32mprod\x1b[0m \x1b[32mpulsar-broker-0\x1b[0m broker {}",
    "kubectl logs --prefix": "[pod/pulsar-broker-0/pulsar-broker] {}",
    "kubectl logs --timestamps": "2026-11-22T01:38:49.891000000Z {}",
    "kubectl logs --prefix --timestamps": "[pod/pulsar-broker-0/broker] 2026-11-22T01:38:49.891000000Z {}",
    "docker compose logs": "broker-1  | {}",
    "journald, ISO": "2026-11-22T01:38:49+0000 node-1 pulsar[77]: {}",
    "syslog": "Nov 22 01:38:49 node-1 pulsar[77]: {}",
    "syslog, RFC 5424": "<14>1 2026-11-22T01:38:49.891Z node-1 pulsar 77 - - {}",
    "fluentd": "2026-11-22T01:38:49+00:00\tkube.broker\t{}",
    "grep of several files": "logs/pulsar-broker.log:{}",
}
WRAPS = {name: prefix.format for name, prefix in PREFIXES.items()} | {
    "docker": docker,
    "loki": loki,
    "journald, JSON": journal,
    "loki of cri": lambda text: loki(PREFIXES["cri"].format(text)),
    "fluentd of docker": lambda text: f"2026-11-22T01:38:49+00:00\tkube.broker\t{docker(text)}",
    "elasticsearch": lambda text: json.dumps({"_index": "logs", "_source": {"message": text, "stream": "stdout"}}),
}


def layouts(text):
    """A line by each JSON layout: of a line that is none in the stock layout, nothing."""
    found = HEAD.fullmatch(text)
    if found is None:
        return {}
    date, millis, zone, thread, level, logger, message = found.groups()
    iso = f"{date}.{millis}{zone}"
    at = datetime.strptime(iso, "%Y-%m-%dT%H:%M:%S.%f%z").astimezone(timezone.utc)
    utc = f"{at:%Y-%m-%dT%H:%M:%S}.{millis}Z"
    seconds, nanos = int(at.timestamp()), int(millis) * 1_000_000
    epoch = round(at.timestamp() * 1_000)
    return {
        "ECS": {"@timestamp": utc, "log.level": level, "message": message, "ecs.version": "1.2.0",
                "process.thread.name": thread, "log.logger": logger},
        "ECS, nested": {"@timestamp": utc, "message": message, "log": {"level": level, "logger": logger},
                        "process": {"thread": {"id": 7, "name": thread}}},
        "logstash": {"@version": 1, "message": message, "thread_name": thread, "@timestamp": iso, "level": level,
                     "logger_name": logger},
        "JsonLayout": {"instant": {"epochSecond": seconds, "nanoOfSecond": nanos}, "thread": thread, "level": level,
                       "loggerName": logger, "message": message, "endOfBatch": False, "threadId": 7},
        "JsonLayout of old": {"timeMillis": epoch, "thread": thread, "level": level, "loggerName": logger,
                              "message": message},
        "GELF": {"version": "1.1", "host": "b", "short_message": message, "timestamp": epoch / 1_000, "level": 6,
                 "_thread": thread, "_logger": logger},
        "in microseconds": {"ts": iso.replace(f".{millis}", f".{millis}456"), "msg": message, "logger": logger,
                            "thread": thread, "level": level},
    }  # fmt: skip


def written(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def texts(path):
    return [text.decode() for part in read_log_lines(path) for text in part["text"].to_pylist()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return read(written(tmp_path_factory.mktemp("plain") / "x.log", LINES))


@pytest.mark.parametrize("name", WRAPS)
def test_what_is_put_around_lines_is_taken_off(name, tmp_path, plain):
    path = written(tmp_path / "x.log", map(WRAPS[name], LINES))
    assert detect_file_format(path) == "pulsar-broker-log"
    assert [text.rstrip() for text in texts(path)] == [line.rstrip() for line in LINES]
    found = read(path)
    assert (found.tables, found.rejected, found.run) == (plain.tables, plain.rejected, plain.run)


@pytest.mark.parametrize("name", layouts("2026-11-22T01:38:49,891+0000 [t] INFO  a.B - x"))
@pytest.mark.parametrize("outer", [str, docker, PREFIXES["cri"].format], ids=["alone", "docker", "cri"])
def test_all_layouts_of_json_yield_the_same_lines(name, outer, tmp_path, plain):
    lines = [json.dumps(shown[name]) if (shown := layouts(line)) else line for line in LINES]
    path = written(tmp_path / "x.log", map(outer, lines))
    assert detect_file_format(path) == "pulsar-broker-log"
    assert read(path).tables == plain.tables


def test_a_plain_log_is_read_as_it_is(tmp_path):
    path = written(tmp_path / "x.log", LINES)
    assert detect_layers(path.read_bytes()) == ()
    assert list(read_log_lines(path)) == list(read_line_batches(path))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n\n",
        b"no log at all\n" * 9,
        b'{"topic": "t", "payload": "2026-11-22"}\n' * 9,
        b'{"message": "no time"}\n' * 9,
        b"[2026-11-20 10:00:00,123] INFO [GroupCoordinator 1]: Stabilized group g generation 3 {a} (kafka.X)\n" * 9,
    ],
)
def test_other_files_have_nothing_around_their_lines(head):
    assert detect_layers(head) == ()
    assert strip_layers(head) == head


def test_parts_of_lines_are_joined_also_where_another_stream_is_between(tmp_path):
    lines = [
        "2026-11-22T01:38:49.1Z stdout P 2026-11-22T01:38:49,891+0000 [t] INF",
        "2026-11-22T01:38:49.1Z stderr F   of another stream",
        "2026-11-22T01:38:49.1Z stdout P O  a.B -",
        "2026-11-22T01:38:49.1Z stdout F  one",
        "2026-11-22T01:38:49.1Z stdout F ",
        "2026-11-22T01:38:49.1Z stdout P the rest is missing",
    ]
    path = written(tmp_path / "x.log", lines)
    assert texts(path) == [
        "2026-11-22T01:38:49,891+0000 [t] INFO  a.B - one\n", "  of another stream\n", "\n", "the rest is missing\n",
    ]  # fmt: skip
    assert [number for part in read_log_lines(path) for number in part["line"].to_pylist()] == [1, 2, 5, 6]


def in_parts(text, size=60):
    """As docker writes lines that are longer than its buffer, which is of 16 kB."""
    pieces = [text[i : i + size] for i in range(0, len(text), size)] or [""]
    return "\n".join([*(json.dumps({"log": piece, "stream": "stdout"}) for piece in pieces[:-1]), docker(pieces[-1])])


@pytest.mark.parametrize("block", [2**10, 2**24])
def test_parts_are_joined_from_block_to_block(block, tmp_path, plain, monkeypatch):
    monkeypatch.setattr(adapter_files, "BLOCK_BYTES", block)
    short = [line for line in LINES[:300] if line]
    of_docker = written(tmp_path / "docker.log", [in_parts(line) if i % 9 == 0 else docker(line)
                                                  for i, line in enumerate(short)])  # fmt: skip
    of_cri = written(tmp_path / "cri.log", [f"2026-11-22T01:38:49.1Z stdout {flag} {part}" for line in short
                                            for flag, part in (("P", line[:50]), ("F", line[50:]))])  # fmt: skip
    assert texts(of_docker) == texts(of_cri) == [f"{line}\n" for line in short]


def test_an_object_that_is_cut_spoils_no_other(tmp_path):
    lines = [*map(docker, LINES[:40]), '{"log": "cut', docker("one"), '{"log": 7}', "no object", docker("two")]
    found = texts(written(tmp_path / "x.log", lines))
    assert found[:40] == [f"{line}\n" for line in LINES[:40]]
    assert found[40:] == ['{"log": "cut\n', "one\n", '{"log": 7}\n', "no object\n", "two\n"]


def test_lines_that_are_newest_first_are_refused(tmp_path):
    path = written(tmp_path / "x.log", map(loki, reversed(LINES)))
    with pytest.raises(InputError, match=r"newest first\. Export them oldest first"):
        read(path)


STABLE = "[GroupCoordinator id=1] Stabilized group g generation 3 (__consumer_offsets-7) with 2 members."
EMPTY = "[GroupCoordinator id=1] Group g with generation 4 is now empty (__consumer_offsets-7)"


@pytest.mark.parametrize("name", WRAPS)
def test_logs_of_kafka_are_read_behind_the_same_prefixes(name, tmp_path):
    shown = [f"[2026-11-20 10:00:0{i},123] INFO {text} (kafka.X)" for i, text in enumerate((STABLE, EMPTY))]
    path = written(tmp_path / "server.log", map(WRAPS[name], shown))
    assert detect_file_format(path) == COORDINATOR_LOG
    (part,) = read_log(path, "server.log", "UTC")
    assert part.rejected == ()
    assert part.events["event"].to_pylist() == ["stabilized", "empty"]
    assert [at.isoformat() for at in part.events["at"].to_pylist()] == [
        "2026-11-20T10:00:00.123000+00:00", "2026-11-20T10:00:01.123000+00:00",
    ]  # fmt: skip


def test_lines_of_kafka_without_a_logger_behind_them_are_read_from_files(tmp_path):
    path = written(tmp_path / "server.log", [f"[2026-11-20 10:00:00,123] INFO {STABLE}"])
    (part,) = read_log(path, "server.log", "UTC")
    assert (part.events.num_rows, part.rejected) == (1, ())


@pytest.mark.parametrize("name", layouts("2026-11-22T01:38:49,891+0000 [t] INFO  a.B - x"))
def test_kafka_in_layouts_of_json(name, tmp_path):
    shown = layouts(f"2026-11-22T01:38:49,891+0000 [data-plane-1] INFO  kafka.X - {STABLE}")[name]
    (part,) = read_log(written(tmp_path / "server.log", [json.dumps(shown)]), "server.log", "UTC")
    assert part.rejected == ()
    assert part.events["at"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist() == [1795311529891]
