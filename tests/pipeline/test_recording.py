"""The whole way: ingest a real recording, audit it, look at the tables."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from subreplay.audit.checkpoint import Checkpoint, make_checkpoints
from subreplay.cli.main import main
from subreplay.hashing.key_identity import compute_key_identities
from subreplay.hashing.murmur3 import murmur3_32_array
from subreplay.reports.assemble.report import GUESSABLE_KEYS
from subreplay.rows.model.tables import INPUTS
from tests.support import recordings
from tests.support.recordings import ROOT, Recording
from tests.support.snapshots import snapshot
from tests.support.tables import table_of

DAY = "2026-11-21"  # of the recordings, UTC
Explained = Callable[..., tuple[int, str, str]]


def contents(out: Path, name: str) -> list[str]:
    return sorted(map(repr, table_of(out, name).to_dicts()))


def stored(folder: Path, name: str) -> pa.Table:
    return DeltaTable(folder / name).to_pyarrow_table()


def report_of(out: Path) -> dict:  # type: ignore[type-arg]
    return json.loads((out / "report" / "report.json").read_text())


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The 4.0.8 Key_Shared recording, ingested and audited for its day."""
    folder = tmp_path_factory.mktemp("steady")
    assert main(["ingest", str(ROOT / "4.0.8/s1_key_shared_autosplit"), "--to", str(folder / "in")]) == 0
    assert audit_day(folder) == 0
    return folder


def audit_day(folder: Path) -> int:
    return main(["audit", "--config", str(folder / "in/audit.yaml"), "--date", DAY, "--out", str(folder)])


def test_a_kept_promise_is_valid_and_every_delivery_is_at_its_owner(steady: Path) -> None:
    steadily = table_of(steady, "audited").filter(pl.col("delivered") & ~pl.col("in_transition"))
    assert steadily.height == 3998
    assert (steadily["expected"] == steadily["consumer"]).all()
    found = report_of(steady)
    assert found["verdict"] == "valid"
    assert [i["rows_in"] for i in found["inputs"]] == [4000, 10, 4002]
    assert table_of(steady, "epochs").height == 10
    assert table_of(steady, "assignments")["messages"].sum() == 4002


TOPIC = "persistent://public/default/s1_key_shared_autosplit-1795231493"


@pytest.fixture
def explained(steady: Path, capsys: pytest.CaptureFixture[str]) -> Explained:
    """Run ``explain`` on that audit; what it returned, and what it said."""

    def run(*arguments: str, out: Path = steady, day: str = DAY) -> tuple[int, str, str]:
        capsys.readouterr()
        where = ["--config", str(steady / "in/audit.yaml"), "--date", day, "--out", str(out)]
        code = main(["explain", *where, *arguments])
        said, complaint = capsys.readouterr()
        return code, said.replace(str(out), "OUT"), complaint

    return run


def test_the_trace_of_a_blocked_message_names_the_messages_that_block_it(explained: Explained) -> None:
    code, said, _ = explained("--message", f"{TOPIC}:5:760")
    assert code == 0
    assert "5:760  blocked by 3 others, last by 5:" in said
    assert "delivered to c3\n" in said
    snapshot("explain_message.txt", said)


def test_the_trace_of_a_key_ends_with_the_requested_number_of_deliveries(explained: Explained) -> None:
    code, said, _ = explained("--key", "Order-8505596", "--last", "2")
    assert code == 0
    assert said.count(" delivered to ") == 2
    snapshot("explain_key.txt", said)
    assert explained("--key", "never seen")[1].endswith("\nno message of this key on 2026-11-21 in OUT/in\n")


def test_without_the_tables_of_an_audit_its_findings_are_the_same(
    explained: Explained, steady: Path, tmp_path: Path
) -> None:
    message = f"{TOPIC}:5:2243"
    written, now = (explained("--message", message, out=out)[1].splitlines() for out in (steady, tmp_path))
    assert (
        written[0] == now[0] == f"message {message}: stored 1, delivered 2, of these again 1; findings: REDELIVERED 1"
    )
    assert (written[1], now[1][:26]) == ("judged by the audit that wrote OUT/tables", "judged by this command: no")
    assert written[2:] == now[2:]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (f"{TOPIC}:5:999999", "was neither stored nor delivered on 2026-11-21"),
        (f"{TOPIC}-partition-1:5:760", "a partitioned topic needs the suffix -partition-N"),
        ("persistent://public/default/other:5:760", f"the run audits topic {TOPIC}"),
    ],
)
def test_a_message_that_is_not_there(explained: Explained, message: str, complaint: str) -> None:
    code, said, err = explained("--message", message)
    assert (code, said) == (2, "")
    assert complaint in err


def test_tables_are_partitioned_by_what_a_run_finds_its_rows_by(steady: Path) -> None:
    columns = DeltaTable(steady / "tables/audited").metadata().partition_columns
    assert sorted(columns) == ["attempt", "date", "subscription", "topic"]


def test_keys_leave_as_digests_only(steady: Path) -> None:
    for path in (steady / "report").iterdir():
        assert "Order-" not in path.read_text(encoding="utf-8")
    audited = table_of(steady, "audited")
    assert not audited["key"].str.starts_with("Order").any()
    keys = {*DeltaTable(steady / "in/messages").to_pyarrow_table(columns=["key"])["key"].to_pylist()}
    state = make_checkpoints(DeltaTable(steady / "tables/state").to_pyarrow_table())
    numbers = {number for array in Checkpoint([state]).read_arrays().values() for number in array.flatten().tolist()}
    for known in (compute_key_identities(pa.array(sorted(keys))), murmur3_32_array(pa.array(sorted(keys)))):
        assert not numbers & set(known.tolist())


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ("{secret: another}", "keys.secret or keys.show differs from the audit that wrote"),
        ("{show: true}", "keys.secret or keys.show differs from the audit that wrote"),
    ],
)
def test_explain_with_another_secret_says_so(
    steady: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, complaint: str
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((steady / "in/audit.yaml").read_text() + f"\nkeys: {keys}\n")
    where = ["--config", str(other), "--date", DAY, "--out", str(steady)]
    assert main(["explain", *where, "--key", "Order-8505596"]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_a_daily_run_continues_only_under_the_same_secret(
    steady: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text((steady / "in/audit.yaml").read_text() + "\nkeys: {secret: another}\n")
    assert main(["audit", "--config", str(other), "--date", "2026-11-22", "--out", str(steady)]) == 2
    reported = " ".join(capsys.readouterr().err.split())
    assert f"keys.secret differs from the audit of {DAY}, from which this run continues" in reported


def test_the_default_secret_is_warned_about(steady: Path) -> None:
    warned = [fact["note"] for fact in report_of(steady)["facts"] if fact["label"] == "Keys"]
    assert warned == [GUESSABLE_KEYS]
    assert GUESSABLE_KEYS in " ".join((steady / "report/report.txt").read_text(encoding="utf-8").split())


def test_a_second_run_replaces_its_date_with_identical_content_and_leaves_others(steady: Path) -> None:
    names = (
        "audited",
        "violations",
        "violations_by_window",
        "assignments",
        "finding_counts",
        "epochs",
        "range_tables",
        "moves",
        "runs",
    )
    first = {name: contents(steady, name) for name in names}
    pages = {name: (steady / "report" / name).read_bytes() for name in ("report.html", "report.json", "report.txt")}
    foreign = stored(steady / "tables", "audited").slice(0, 3)
    dates = pa.array([date(2001, 1, 1)] * 3)
    foreign = foreign.set_column(foreign.column_names.index("date"), "date", dates)
    write_deltalake(steady / "tables/audited", foreign, mode="append")
    assert audit_day(steady) == 0
    assert pages == {name: (steady / "report" / name).read_bytes() for name in pages}
    for name in names:
        again = table_of(steady, name).filter(pl.col("date") == date.fromisoformat(DAY)).to_dicts()
        assert sorted(map(repr, again)) == first[name], name
    assert stored(steady / "tables", "audited")["date"].to_pylist().count(date(2001, 1, 1)) == 3


def test_mixed_batches_are_the_one_true_catch(tmp_path: Path) -> None:
    assert main(["ingest", str(ROOT / "4.0.8/s1f_key_shared_default_batching"), "--to", str(tmp_path / "in")]) == 0
    assert main(["audit", "--config", str(tmp_path / "in/audit.yaml"), "--out", str(tmp_path)]) == 1
    codes = {c["code"]: c for c in report_of(tmp_path)["codes"] if c["status"] in ("violated", "unknown")}
    assert set(codes) == {"MIXED_BATCH"}
    assert "118 of 118 batches" in codes["MIXED_BATCH"]["note"]
    assert "287 of 300 keys" in codes["MIXED_BATCH"]["note"]
    assert (table_of(tmp_path, "violations")["verdict"] == "invalid").sum() == 118


@pytest.mark.parametrize("scenario", ["4.0.8/s1f_key_shared_default_batching", "3.2.3/s5_failover_partitioned"])
def test_an_audit_that_stores_only_findings_reports_the_same(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", str(ROOT / scenario), "--to", str(tmp_path / "in")]) == 0
    run_file = tmp_path / "in/audit.yaml"
    requested = run_file.read_text()
    codes = set()
    for kept in ("all", "findings"):
        run_file.write_text(f"{requested}\noutput: {{audited: {kept}}}\n")
        codes.add(main(["audit", "--config", str(run_file), "--out", str(tmp_path / kept)]))
    assert len(codes) == 1
    assert (tmp_path / "all/report/report.json").read_bytes() == (tmp_path / "findings/report/report.json").read_bytes()
    every, few = (table_of(tmp_path / kept, "audited") for kept in ("all", "findings"))
    found = every.filter(pl.col("codes") != 0)
    assert sorted(map(repr, few.to_dicts())) == sorted(map(repr, found.to_dicts()))
    assert 0 < few.height < every.height
    for name in ("assignments", "finding_counts", "violations", "moves"):
        assert contents(tmp_path / "all", name) == contents(tmp_path / "findings", name), name
    other = every.filter(pl.col("codes") == 0).sort("partition", "ledger", "entry").row(0, named=True)
    partition = f"-partition-{other['partition']}" if other["partition"] >= 0 else ""
    message = f"{other['topic']}{partition}:{other['ledger']}:{other['entry']}"
    lives = []
    for kept in ("all", "findings"):
        capsys.readouterr()
        assert main(["explain", "--config", str(run_file), "--out", str(tmp_path / kept), "--message", message]) == 0
        lives.append(capsys.readouterr().out.splitlines())
    assert ["only deliveries with findings" in life[1] for life in lives] == [False, True]
    assert lives[0][:1] + lives[0][2:] == lives[1][:1] + lives[1][2:]


def test_a_moved_delivery_fails_the_run_with_its_evidence(tmp_path: Path) -> None:
    recording = Recording.load("3.2.3/s5_failover_partitioned")
    code, evidence = recordings.move_a_delivery(recording, random.Random(5))
    assert (
        main(
            ["ingest", str(recording.save(tmp_path / "recording")), "--to", str(tmp_path / "in"), "--format", "parquet"]
        )
        == 0
    )
    assert main(["audit", "--config", str(tmp_path / "in/audit.yaml"), "--out", str(tmp_path)]) == 1
    (row,) = table_of(tmp_path, "violations").filter(pl.col("verdict") == "invalid").to_dicts()
    assert (row["code"], f"{row['ledger']}:{row['entry']}") == (code, evidence)
    assert row["explanation"].startswith(evidence)
    assert "its owner was" in row["explanation"]


def test_a_missing_table_is_bad_input(steady: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.yaml"
    run.write_text(f"traffic: {{path: '{steady / 'in'}'}}\nsubscription: {{name: nobody}}\n")
    assert main(["audit", "--config", str(run), "--tables", str(tmp_path / "no"), "--out", str(tmp_path)]) == 2
    assert "Run subreplay ingest first" in capsys.readouterr().err


def test_quarantined_rows_leave_at_best_an_unknown_verdict(steady: Path, tmp_path: Path) -> None:
    for name in INPUTS:
        rows = stored(steady / "in", name)
        if name == "deliveries":
            counts = pa.array([-1], rows.schema.field("redelivery_count").type)
            again = rows.slice(0, 1).set_column(rows.column_names.index("redelivery_count"), "redelivery_count", counts)
            rows = pa.concat_tables([rows, again.cast(rows.schema)])
        write_deltalake(tmp_path / "in" / name, rows)
    run = (steady / "in/audit.yaml").read_text()
    (tmp_path / "run.yaml").write_text(run)
    args = ["audit", "--config", str(tmp_path / "run.yaml"), "--tables", str(tmp_path / "in"), "--out", str(tmp_path)]
    assert main(args) == 3
    assert report_of(tmp_path)["inputs"][2] == {
        "table": "deliveries",
        "rows_in": 4003,
        "valid": 4002,
        "quarantined": 1,
        "note": "",
    }
    assert table_of(tmp_path, "quarantine").height == 1


def test_a_table_without_a_needed_column_says_which(
    steady: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in INPUTS:
        rows = stored(steady / "in", name)
        if name == "messages":
            entries = rows["entry"].cast(pa.string())
            rows = rows.drop_columns("publish_time").set_column(rows.column_names.index("entry"), "entry", entries)
        write_deltalake(tmp_path / name, rows)
    assert (
        main(["audit", "--config", str(steady / "in/audit.yaml"), "--tables", str(tmp_path), "--out", str(tmp_path)])
        == 2
    )
    message = " ".join(capsys.readouterr().err.split())
    assert "missing columns: publish_time" in message
    assert "entry is string and must be bigint" in message
