"""Anybody's tables, from where they are: looked at, mapped, audited and replayed as our own are."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from subreplay.adapters import ADAPTERS, Adapter, Options, SourceTables
from subreplay.cli.main import main
from subreplay.config import run as config
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline.inputs import read_inputs, scan_inputs
from subreplay.rows.model.tables import INPUTS
from tests.support.audits import KEY_SHARED, Audited, audited, written
from tests.support.history import SUBSCRIPTION, TOPIC, history
from tests.support.recordings import ROOT
from tests.support.tables import table_of

MOVED = history("a1 a2 a3 n1", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3! n1>C1 n1!")
FIRST_MS = 1_760_000_000_000


def unknown_source(folder: Path, rows: int = 600, **changes: Any) -> Path:
    """Messages as somebody else's pipeline writes them: three partitions, offsets, a text key, milliseconds."""
    columns = {
        "evt_partition": pa.array([n % 3 for n in range(rows)], pa.int64()),
        "evt_off": pa.array([n // 3 for n in range(rows)], pa.int64()),
        "customer": pa.array([f"c-{n % 50}" for n in range(rows)]),
        "happened": pa.array([FIRST_MS + n * 40 for n in range(rows)], pa.int64()),
        "amount": pa.array([n * 0.5 for n in range(rows)]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({name: changes.get(name, values) for name, values in columns.items()}), folder / "p.parquet"
    )
    return folder


def mapped(folder: Path, **beside: Any) -> Audited:
    """An audit of ``MOVED``, whose tables have other names for their columns, of other types."""
    run_file = written(folder, MOVED)
    messages, deliveries = MOVED["messages"], MOVED["deliveries"]
    theirs = {
        "k": pa.array([None if key is None else key.hex() for key in messages["key"].to_pylist()]),
        "stream": messages["topic"], "part": messages["partition"].cast(pa.int64()), "led": messages["ledger"],
        "ent": messages["entry"], "ms": messages["publish_time"].cast(pa.int64()),
    }  # fmt: skip
    (folder / "theirs").mkdir()
    pq.write_table(pa.table(theirs), folder / "theirs/messages.parquet")
    pq.write_table(
        deliveries.rename_columns([f"d_{name}" for name in deliveries.column_names]), folder / "theirs/d.parquet"
    )
    columns = {
        "key": {"column": "k", "as": "hex"}, "topic": "stream", "partition": "part", "ledger": "led", "entry": "ent",
        "publish_time": {"column": "ms", "as": "epoch_us"},
    }  # fmt: skip
    named = {name: f"d_{name}" for name in deliveries.column_names if name != "date"}
    run = yaml.safe_load(run_file.read_text()) | beside
    run["traffic"] |= {
        "messages": {"path": str(folder / "theirs/messages.parquet"), "format": "parquet", "columns": columns,
                     "values": {"batch_index": -1}},
        "deliveries": {"path": str(folder / "theirs/d.parquet"), "format": "parquet", "columns": named,
                       **beside.pop("deliveries", {})},
    }  # fmt: skip
    return audited_by(folder, run)


def audited_by(folder: Path, run: dict[str, Any]) -> Audited:
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    code = main(["audit", "--config", str(folder / "run.yaml"), "--out", str(folder)])
    report = folder / "report"
    page, text = ((report / f"report.{form}").read_text() for form in ("html", "txt"))
    return Audited(code, json.loads((report / "report.json").read_text()), " ".join(text.split()), page)


def test_mapped_tables_are_judged_as_our_own_and_what_they_lack_is_said(tmp_path: Path) -> None:
    own, theirs = audited(tmp_path / "own", MOVED), mapped(tmp_path / "mapped")
    assert (theirs.code, theirs.report["verdict"]) == (own.code, own.report["verdict"]) == (1, "invalid")
    lacking = {"PRODUCER_ORDER", "DUP_PUBLISH"}
    assert {theirs.status[code] for code in lacking} == {"not applicable"}
    assert "the messages do not record their producers" in theirs.notes["DUP_PUBLISH"]
    counts = {rule["code"]: rule["count"] for rule in own.report["codes"]}
    assert {rule["code"]: rule["count"] for rule in theirs.report["codes"]} == counts
    assert [row["valid"] for row in theirs.report["inputs"]] == [row["valid"] for row in own.report["inputs"]]


def test_a_membership_inferred_from_deliveries_leaves_rules_that_need_it_unknown(tmp_path: Path) -> None:
    run_file = written(tmp_path, MOVED)
    run = yaml.safe_load(run_file.read_text())
    run["traffic"]["membership"] = {"from": "deliveries"}
    found = audited_by(tmp_path, run)
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    assert {found.status[code] for code in ("KEY_TWO_OWNERS", "WRONG_OWNER", "LOST")} == {"unknown"}
    assert "inferred from their deliveries" in found.notes["LOST"]
    assert {total["consumer"]: total["messages"] for total in found.report["totals"]} == {"C1": 2, "C2": 2}


def test_of_a_sample_nobody_can_say_what_was_lost(tmp_path: Path) -> None:
    run_file = written(tmp_path, MOVED | {"deliveries": MOVED["deliveries"].slice(0, 2)})
    run = yaml.safe_load(run_file.read_text())
    run["traffic"]["deliveries"] = {"path": str(tmp_path / "in/deliveries"), "format": "parquet", "sampled": True}
    found = audited_by(tmp_path, run)
    assert {found.status[code] for code in ("LOST", "UNSEEN", "UNACKED")} == {"not applicable"}
    assert found.notes["LOST"] == "the deliveries are only a sample"
    assert found.status["KEY_TWO_OWNERS"] == "violated"


def test_progress_alone_is_unknown_and_finds_nothing_lost(tmp_path: Path) -> None:
    rows = [row | {"delivered_at": None, "delivered_nanos": None} for row in MOVED["deliveries"].to_pylist()]
    found = audited(tmp_path, MOVED | {"deliveries": pa.Table.from_pylist(rows, INPUTS["deliveries"])})
    assert (found.code, found.report["verdict"]) == (3, "unknown")
    assert found.status["LOST"] == "not applicable"
    assert "the data record acknowledgements but no deliveries" in found.report["headline"]


def test_an_unknown_parquet_file_becomes_a_report_in_two_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, run_file = unknown_source(tmp_path / "orders"), tmp_path / "run.yaml"
    assert main(["inspect", str(source), "--to", str(run_file)]) == 0
    said = capsys.readouterr().out
    assert "messages: 600 rows = 600 valid + 0 quarantined" in said
    assert "topics: orders; 3 partitions" in said
    assert "offset is taken to be evt_off" in said
    assert main(["whatif", "--config", str(run_file), "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out/report/report.json").read_text())
    assert {row["policy"] for row in report["scenarios"]} >= {"kafka.range", "pulsar.key_shared.auto_split"}
    assert (tmp_path / "out/report/report.html").exists()
    assert main(["inspect", str(source), "--to", str(run_file)]) == 0  # nobody has edited the file
    run_file.write_text(run_file.read_text().replace("kafka.range", "kafka.sticky"))
    capsys.readouterr()
    assert main(["inspect", str(source), "--to", str(run_file)]) == 2
    assert "exists already and may have been edited. Name another file with --to" in capsys.readouterr().err
    earlier = "# Written by subreplay inspect orders.\ntraffic: {}\n"  # of a version that left no digest
    run_file.write_text(earlier)
    assert main(["inspect", str(source), "--to", str(run_file)]) == 0
    assert run_file.with_name("run.yaml.old").read_text() == earlier


def test_a_what_if_needs_no_run_file(tmp_path: Path) -> None:
    source = unknown_source(tmp_path / "orders")
    requested = ["--policy", "pulsar.key_shared.auto_split", "--against", "pulsar.failover", "--consumers", "2"]
    assert main(["whatif", "--messages", str(source), *requested, "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out/report/report.json").read_text())
    assert [row["policy"] for row in report["scenarios"]] == ["pulsar.key_shared.auto_split", "pulsar.failover"]
    assert {row["consumers"] for row in report["scenarios"]} == {2}


def test_rows_that_cannot_be_read_are_in_quarantine_with_their_column_and_value(tmp_path: Path) -> None:
    texts = pa.array(["2026-11-20T10:00:00Z"] * 598 + ["yesterday", "2026-02-30T00:00:00Z"])
    source = unknown_source(tmp_path / "orders", happened=texts, evt_partition=pa.array([-5] + [0] * 599, pa.int64()))
    columns = {"offset": "evt_off", "partition": "evt_partition", "key": {"column": "customer", "as": "utf8"},
               "publish_time": {"column": "happened", "as": "iso8601"}}  # fmt: skip
    messages = {"path": str(source), "format": "parquet", "columns": columns, "values": {"topic": TOPIC}}
    run = {"traffic": {"messages": messages}, "subscription": {"name": SUBSCRIPTION, "topic": TOPIC, **KEY_SHARED},
           "scenarios": [{"name": "x", "policy": "pulsar.shared", "members": [{"consumer": "c1"}]}]}  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    assert main(["whatif", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")]) == 0
    report = json.loads((tmp_path / "out/report/report.json").read_text())
    assert (report["inputs"][0]["valid"], report["inputs"][0]["quarantined"]) == (597, 3)
    rejected = table_of(tmp_path / "out", "whatif_quarantine").to_dicts()
    reasons = {(reason["column"], reason["value"]) for row in rejected for reason in row["reasons"]}
    assert reasons == {("happened", "yesterday"), ("happened", "2026-02-30T00:00:00Z"), ("evt_partition", "-5")}


def test_without_keys_a_policy_by_keys_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {
        "offset": "evt_off",
        "partition": "evt_partition",
        "publish_time": {"column": "happened", "as": "epoch_ms"},
    }
    messages = {"path": str(unknown_source(tmp_path / "orders")), "format": "parquet", "columns": columns,
                "values": {"topic": TOPIC}}  # fmt: skip
    for policy, code in (("pulsar.failover", 0), ("pulsar.key_shared.auto_split", 2)):
        run = {"traffic": {"messages": messages}, "subscription": {"topic": TOPIC, "policy": "pulsar.failover"},
               "scenarios": [{"name": "x", "policy": policy, "members": [{"consumer": "c1"}]}]}  # fmt: skip
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
        assert main(["whatif", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")]) == code
    assert (
        "x: under pulsar.key_shared.auto_split the key of a message decides which consumer gets it"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ({"columns": {"key": "concat(customer, 'x')"}}, "the source has no column"),
        ({"columns": {"key": "custome"}}, "Did you mean customer?"),
        ({"from": "kafka-table.spark"}, "kafka-table.spark does not fit: the source has no"),
        ({"path": "/nowhere"}, "/nowhere: no such file or folder in /. Correct the path."),
    ],
)
def test_a_source_that_does_not_fit_is_reported_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: dict[str, Any], why: str
) -> None:
    given = {"path": str(unknown_source(tmp_path / "orders")), "format": "parquet"} | messages
    run = {"traffic": {"messages": given}, "subscription": {"topic": TOPIC},
           "scenarios": [{"name": "x", "policy": "pulsar.shared", "members": [{"consumer": "c1"}]}]}  # fmt: skip
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    assert main(["whatif", "--config", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "traffic.messages" in said


def test_a_look_at_anything_ends_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.parquet").write_text("no table")
    (tmp_path / "words.json").write_text("no table")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("partition,offset,key\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "server.log").write_text("[2026-01-01 00:00:00,000] INFO [GroupCoordinator 1]: started\n")
    for location, code, said in (
        ("empty", 2, "contains no file"),
        ("words.parquet", 2, "not a Parquet file"),
        ("not there", 2, "no such file"),
        ("words.json", 2, "contains no json record"),
        ("empty.csv", 2, "the file is empty"),
        ("header.csv", 2, "has no rows"),
        ("loop", 2, "no such file"),
        ("server.log", 2, "together with a copy of __consumer_offsets"),
        ("pip.whl", 2, "no such file"),
    ):
        assert main(["inspect", str(tmp_path / location), "--to", str(tmp_path / "run.yaml")]) == code, location
        error = capsys.readouterr().err
        assert said in " ".join(error.split()), location
        assert "Traceback" not in error
    assert main(["inspect", "", "--to", str(tmp_path / "run.yaml")]) == 2
    assert not (tmp_path / "run.yaml").exists()


def test_keys_as_text_are_assumed_to_be_utf8_and_times_in_ns_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As pandas writes them, in columns of the names that Spark's Kafka source gives."""
    at = pa.array([FIRST_MS * 1_000_000 + n for n in range(4)], pa.timestamp("ns"))
    columns = {
        "topic": ["orders"] * 4,
        "partition": [0] * 4,
        "offset": range(4),
        "timestamp": at,
        "key": ["a", "b"] * 2,
    }
    pq.write_table(pa.table(columns), tmp_path / "orders.parquet")
    run_file = tmp_path / "run.yaml"
    assert main(["inspect", str(tmp_path / "orders.parquet"), "--to", str(run_file)]) == 0
    said = capsys.readouterr().out
    assert "messages: 4 rows = 4 valid + 0 quarantined" in said
    assert "assumed: key (key) is taken as utf8" in said
    messages = yaml.safe_load(run_file.read_text())["traffic"]["messages"]
    assert messages["columns"]["key"] == {"column": "key", "as": "utf8"}


def test_tables_are_read_straight_from_an_adapters_source_once_with_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the adapter rejects is counted with the rows of its table."""
    copy, recording = tmp_path / "recording", ROOT / "4.0.8/s9b_delayed_failover"
    shutil.copytree(recording, copy)
    with gzip.open(copy / "messages.jsonl.gz", "at") as file:
        file.write('{"cut": \n')
    real, log = ADAPTERS["pulsar-recording"], tmp_path / "asked"
    read = real(copy)

    def reading(path: Path, options: Options) -> SourceTables:
        with log.open("a") as file:
            print(path, options.topic, file=file)
        return real(path)

    adapter = Adapter("pulsar-recording", ("topic",), reading)
    monkeypatch.setitem(ADAPTERS, "pulsar-recording", adapter)
    given = {"from": "pulsar-recording", "path": str(copy), "options": {"topic": "t"}}
    run = {"traffic": dict.fromkeys(INPUTS, given), "subscription": read.run["subscription"]}
    with LocalEngine() as engine:
        inputs = read_inputs(engine, config.parse(run, "run.yaml"))
        for name in INPUTS:
            assert len(inputs.valid(name).to_table()) == read.tables[name].num_rows
        (row,) = scan_inputs(inputs, log=False).by_table["messages"]["quarantine"].to_table().to_pylist()
    assert (row["table"], row["reasons"][0]["rule"]) == ("messages", read.rejected[0].reasons[0].rule)
    assert log.read_text() == f"{copy} t\n"
