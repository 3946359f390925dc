"""What ``subreplay ingest`` says and writes, without Spark."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from subreplay.adapters import ADAPTERS, Adapter, FileCount, Reason, RejectedRow, SourceTables
from subreplay.cli import main
from subreplay.config.run import load
from subreplay.pipeline import adapter_sources, engines, ingest
from subreplay.pipeline.adapter_sources import Read
from tests.support.source_reading import read_at_once

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def nobody_has_a_session(monkeypatch):
    """Whatever ran before in this process."""
    monkeypatch.setattr(engines, "has_session_elsewhere", lambda: False)


def in_one_go(engine, name, path, options):
    """What an adapter reads, as ``adapter_sources.read`` has it, without its rows."""
    adapter = ADAPTERS[name]
    found = read_at_once(name, path, options) if adapter.read is None else adapter(path, options)
    return Read({}, None, found.summary)


@pytest.fixture
def some_rows(monkeypatch, tmp_path):
    """An adapter that reads a dozen wrong rows; what would be written is kept."""
    rejected = tuple(
        RejectedRow("messages", "m.jsonl", row, "{}", (Reason("key", "7", "a string", "quote it"),))
        for row in range(1, 13)
    )
    table = pa.table({"entry": list(range(1_500))})
    counts = (FileCount("m.jsonl", 1_512, 12),)
    run = {"subscription": {"name": "подписка", "policy": "pulsar.shared"}}
    reported = Adapter(
        "pulsar-recording", read=lambda folder, options: SourceTables({"messages": table}, rejected, counts, run)
    )
    monkeypatch.setitem(ADAPTERS, "pulsar-recording", reported)
    monkeypatch.setattr(adapter_sources, "read", in_one_go)
    monkeypatch.setattr(ingest, "write", lambda *arguments: (tmp_path / "to").mkdir())


def test_ingest_counts_rows_shows_the_first_wrong_ones_and_names_the_next_command(some_rows, tmp_path, capsys):
    code = main.main(["ingest", ".", "--from", "pulsar-recording", "--to", str(tmp_path / "to")])
    out, err = capsys.readouterr()
    assert code == 0
    assert out.splitlines() == [
        "m.jsonl: 1,512 rows in = 1,500 valid + 12 quarantined",
        "tables: messages 1,500",
        f"next: subreplay audit --config {tmp_path}/to/audit.yaml",
    ]
    reported = err.splitlines()[2:]  # after the stages
    assert reported[0] == "quarantined: m.jsonl, row 1: key = 7: a string (quote it)"
    assert reported[-1] == "… and 2 more in table quarantine"
    assert len(reported) == 11


def test_a_name_is_neither_markup_nor_steers_the_terminal(some_rows, tmp_path, capsys, monkeypatch):
    read = ADAPTERS["pulsar-recording"]
    reported = Adapter(
        "pulsar-recording", read=lambda *requested: replace(read(*requested), others=(("[/red]\x1b[31m", "t\r"),))
    )
    monkeypatch.setitem(ADAPTERS, "pulsar-recording", reported)
    assert main.main(["ingest", ".", "--from", "pulsar-recording", "--to", str(tmp_path / "to")]) == 0
    assert "also recorded: [/red]\\x1b[31m on t\\x0d; name it in a run of its own" in capsys.readouterr().out


def test_json_output_of_ingest_contains_counts_and_paths(some_rows, tmp_path, capsys):
    assert main.main(["ingest", ".", "--from", "pulsar-recording", "--to", str(tmp_path / "to"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["files"] == [{"file": "m.jsonl", "rows_in": 1_512, "quarantined": 12, "others": 0, "valid": 1_500}]
    assert (reported["rows"], reported["run_file"]) == ({"messages": 1_500}, f"{tmp_path}/to/audit.yaml")


def test_the_run_file_that_ingest_writes_is_legal(some_rows, tmp_path):
    main.main(["ingest", ".", "--from", "pulsar-recording", "--to", str(tmp_path / "to"), "--format", "parquet"])
    run = load(tmp_path / "to" / "audit.yaml")
    assert (run.subscription.name, run.subscription.policy) == ("подписка", "pulsar.shared")
    assert (run.traffic.path, run.traffic.format) == (f"{tmp_path}/to", "parquet")


@pytest.fixture
def nothing_written(monkeypatch, tmp_path):
    """Adapters are real; what would be written is kept."""
    kept = []

    def write(engine, ingested, root, form, source):
        Path(root).mkdir()
        kept.append(ingested)

    monkeypatch.setattr(adapter_sources, "read", in_one_go)
    monkeypatch.setattr(ingest, "write", write)
    return kept


SPANS = str(ROOT / "tests/data/otlp")


def test_ingest_hands_options_to_the_adapter(nothing_written, tmp_path, capsys):
    command = ["ingest", SPANS, "--from", "otlp-spans", "--subscription", "otel4", "--with", "sampled=false"]
    assert main.main([*command, "--to", str(tmp_path / "to")]) == 0
    out = capsys.readouterr().out
    assert "kafka_agent_default.jsonl.gz: 500 rows in = 0 valid + 0 quarantined + 500 others" in out
    assert "note: spans do not contain the published messages" in out
    run = load(tmp_path / "to" / "audit.yaml")
    assert (run.subscription.name, run.traffic.infers_membership()) == ("otel4", True)
    assert (run.traffic.deliveries.sampled, run.traffic.deliveries.path) == (False, f"{tmp_path}/to/deliveries")


def test_the_run_file_says_what_its_source_does_not_contain(nothing_written, tmp_path):
    main.main(["ingest", SPANS, "--from", "otlp-spans", "--subscription", "otel4", "--to", str(tmp_path / "to")])
    lines = (tmp_path / "to" / "audit.yaml").read_text().splitlines()
    comment = " ".join(line.removeprefix("# ").strip() for line in lines if line.startswith("#"))
    assert all(note in comment for note in nothing_written[0].summary.notes)
    assert len(max(lines, key=len)) < 120
    assert load(tmp_path / "to" / "audit.yaml").traffic.deliveries.sampled is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topic", "t"], "option 'topic' has no effect: adapter capture has no options"),
        (["--with", "topic=t"], "option 'topic' has no effect: adapter capture has no options"),
        (["--with", "sampled"], "--with sampled: write NAME=VALUE; adapter capture has no options"),
        (["--with", "clock=UTC"], "option 'clock' does not exist. The options are topic, subscription,"),
    ],
)
def test_an_option_that_is_not_taken_is_an_error(nothing_written, tmp_path, capsys, words, message):
    assert main.main(["ingest", SPANS, "--from", "capture", "--to", str(tmp_path / "to"), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert nothing_written == []


def test_a_note_that_would_break_the_run_file_does_not(some_rows, tmp_path, monkeypatch):
    read = ADAPTERS["pulsar-recording"]
    reported = Adapter(
        "pulsar-recording",
        read=lambda *requested: replace(read(*requested), notes=("not read: a\x1b\nsubscription: 7\x85",)),
    )
    monkeypatch.setitem(ADAPTERS, "pulsar-recording", reported)
    assert main.main(["ingest", ".", "--from", "pulsar-recording", "--to", str(tmp_path / "to")]) == 0
    assert load(tmp_path / "to" / "audit.yaml").subscription.name == "подписка"


def test_a_folder_that_is_no_recording(nothing_written, tmp_path, capsys):
    code = main.main(["ingest", str(tmp_path), "--from", "pulsar-recording", "--to", str(tmp_path)])
    err = capsys.readouterr().err
    assert code == 2
    assert err.splitlines()[-1] == (
        f"subreplay: {tmp_path}: the recording has no file broker_events.jsonl.gz or broker_events.jsonl. "
        "Copy the file into the folder, or record the run again"
    )


def test_the_format_of_the_files_decides_which_adapter_reads_them(nothing_written, tmp_path):
    recording = ROOT / "tests/data/kafka_recordings/k16_slow"
    for to, command in (("one", []), ("two", ["--from", "kafka-recording"])):
        assert main.main(["ingest", str(recording), "--to", str(tmp_path / to), *command]) == 0

    first, second = nothing_written
    assert first.summary.rows == second.summary.rows
