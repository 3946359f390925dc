"""Daily runs: a recording drawn out over several days, audited day by day and at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date as Date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from subreplay.audit import topic_findings
from subreplay.audit.context import Dispatcher
from subreplay.audit.judge import Judge
from subreplay.config import run as config
from subreplay.config.run import Output
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import story
from subreplay.pipeline.topic_findings import find_keys_in_two_partitions
from subreplay.rows.model.columns import UNKNOWN
from subreplay.rows.model.rows import Scope, Verdict
from subreplay.rows.model.tables import LOG, TIME, VIOLATIONS
from subreplay.semantics.policies import make_policy
from tests.audit.definitions.test_definitions import histories
from tests.audit.test_daily_audits import published_just_in_time
from tests.support import days
from tests.support.days import DAY, FIRST, dates, drawn_out, save
from tests.support.history import START, STEP, SUBSCRIPTION, history
from tests.support.joins import fold
from tests.support.tables import table_of

DAYS = 3
DATES = dates(DAYS)
COMMAND = "import sys; from subreplay.cli.main import main; sys.exit(main(sys.argv[1:]))"
AS_OF_THE_END = ("UNSEEN", "UNACKED", "UNROUTABLE", "STUCK")


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stuck consumer of 3.2.3, whose hours last days: what it holds crosses midnight."""
    folder = tmp_path_factory.mktemp("month")
    days.over_days("3.2.3/s1b_key_shared_stuck", DAYS, folder)
    return folder


def audit(folder: Path, out: Path, date: str | None = None) -> int:
    return days.audit(folder / "audit.yaml", out, date)


def counts(out: Path) -> dict[str, int]:
    return dict(table_of(out, "finding_counts").group_by("code").agg(pl.sum("count")).iter_rows())


def contents(out: Path, name: str) -> list[str]:
    return sorted(map(repr, table_of(out, name).to_dicts()))


@pytest.fixture(scope="module")
def daily_runs(month: Path) -> Path:
    out = month / "nightly"
    for date in DATES:
        assert audit(month, out, date) in (0, 1)
    return out


def test_a_month_of_daily_runs_finds_what_one_run_finds(month: Path, daily_runs: Path) -> None:
    assert audit(month, month / "whole") in (0, 1)
    by_night, at_once = counts(daily_runs), counts(month / "whole")
    lasting = {code for code in by_night | at_once if code not in AS_OF_THE_END}
    assert {c: by_night.get(c) for c in lasting} == {c: at_once.get(c) for c in lasting}
    assert "REDELIVERED" in lasting
    received = pl.read_parquet(month / "in/deliveries")["delivered_at"].count()
    facts = {
        fact["label"]: fact["value"] for fact in json.loads((daily_runs / "report/report.json").read_text())["facts"]
    }
    assert facts["Continues from the audit of"] == DATES[1]
    for out in (daily_runs, month / "whole"):
        audited = table_of(out, "audited")
        assert audited.filter(pl.col("delivered")).height == received


SHARED = {"name": SUBSCRIPTION, "policy": "pulsar.shared", "profile": "pulsar-4.0"}
KEYED = SHARED | {"policy": "pulsar.key_shared.auto_split"}
TEN_MINUTES = 600_000_000  # of a step of a story, µs: it begins with step 100, at 16:40 of the first day


def written_dates(out: Path) -> dict[str, set[str]]:
    """The dates of the rows of each output table."""
    tables = {path.name: DeltaTable(path).to_pyarrow_table(columns=["date"]) for path in (out / "tables").iterdir()}
    return {name: set(map(str, rows["date"].unique().to_pylist())) for name, rows in tables.items()}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run file about three messages, of which the last is delivered two days after the others."""
    story = history("a1 a2 n3+390", "+C1 a1>C1 a2>C1 a1! a2! ~300 n3>C1 n3!")
    return save(drawn_out(story, START, TEN_MINUTES // STEP), tmp_path_factory.mktemp("waiting"), subscription=SHARED)


@pytest.fixture(scope="module")
def of_first_run(waiting: Path) -> Path:
    """What the audit of its first night left."""
    assert days.audit(waiting, waiting.parent / "first", dates(1)[0]) == 0
    return waiting.parent / "first"


@pytest.fixture
def out(of_first_run: Path, tmp_path: Path) -> Path:
    """The same, to go on from."""
    return shutil.copytree(of_first_run, tmp_path / "out")


def test_a_message_that_waits_for_days_does_not_stop_daily_audits(waiting: Path, out: Path) -> None:
    daily_runs = dates(3)
    for i, date in enumerate(daily_runs):
        assert not i or days.audit(waiting, out, date) in (0, 3)  # on the second of these days nothing happened
        written = written_dates(out)
        assert written["runs"] == {*daily_runs[: i + 1]}
        assert all(found <= written["runs"] for found in written.values())
    unseen = table_of(out, "violations").filter(pl.col("code") == "UNSEEN")
    assert sorted(map(str, unseen["date"])) == daily_runs[:2]


def test_audits_of_several_subscriptions_run_at_once_into_one_new_output(waiting: Path, tmp_path: Path) -> None:
    names = ["sub", "a'b/c", "x" * 300]
    tables = {name: pq.read_table(waiting.parent / "in" / name) for name in ("messages", "membership", "deliveries")}
    for name in ("membership", "deliveries"):
        rows = tables[name]
        index = rows.schema.get_field_index("subscription")
        of_all = [rows.set_column(index, rows.schema.field(index), pa.repeat(n, rows.num_rows)) for n in names]
        tables[name] = pa.concat_tables(of_all)
    run = config.load(save(tables, tmp_path, subscription=SHARED), date=dates(1)[0])
    out = Output(tables=str(tmp_path / "tables"), report=str(tmp_path / "report"))

    def audited(name: str) -> Verdict:
        mine = run.subscription.model_copy(update={"name": name})
        return story.audit(LocalEngine(), run.model_copy(update={"subscription": mine, "output": out})).verdict

    with ThreadPoolExecutor(len(names)) as pool:
        assert {*pool.map(audited, names)} == {Verdict.VALID}
    for table in ("audited", "finding_counts", "runs"):
        assert {*table_of(tmp_path, table)["subscription"]} == {*names}


def test_the_verdict_reports_a_missing_day(waiting: Path, out: Path) -> None:
    first, _, last = dates(3)
    assert days.audit(waiting, out, last) == 0
    detail = json.loads((out / "report/report.json").read_text())["detail"]
    assert f"No day between {first} and {last} was audited" in detail


def test_a_daily_run_under_another_policy_than_the_earlier_run_is_an_error(
    waiting: Path, of_first_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(waiting.read_text().replace("pulsar.shared", "pulsar.key_shared.auto_split"))
    capsys.readouterr()
    assert days.audit(other, of_first_run, dates(2)[1]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"continues from the audit of {dates(1)[0]}" in said
    assert "policy 'pulsar.shared' instead of 'pulsar.key_shared.auto_split'" in said
    assert "set another output.tables" in said


def test_the_finding_of_a_message_that_is_delivered_later_is_retracted_by_name(tmp_path: Path) -> None:
    """One active consumer is given the second message the day after the third: LOST and jumped over (SKIP) at first, in
    truth out of order."""
    story = history("a1 a2 a3", "+C1 a1>C1 a1! a3>C1 a3! ~60 a2>C1 a2!")
    active = {"name": SUBSCRIPTION, "policy": "pulsar.exclusive", "profile": "pulsar-4.0"}
    run = save(drawn_out(story, START, TEN_MINUTES // STEP), tmp_path, subscription=active)
    first, second = dates(2)
    assert [days.audit(run, tmp_path / "nightly", date) for date in (first, second)] == [1, 1]
    report = json.loads((tmp_path / "nightly/report/report.json").read_text())
    assert days.audit(run, tmp_path / "whole") == 1
    by_night, at_once = counts(tmp_path / "nightly"), counts(tmp_path / "whole")
    assert (by_night.pop("LOST"), by_night.pop("SKIP")) == (1, 1)
    assert not {"LOST", "SKIP"} & {*at_once}
    assert by_night["PARTITION_ORDER"] == at_once["PARTITION_ORDER"] == 1
    rows = table_of(tmp_path / "nightly", "withdrawn").to_dicts()
    assert {(row["code"], row["entry"], str(row["told"]), str(row["date"])) for row in rows} == {
        ("LOST", 1, first, second), ("SKIP", 2, first, second),
    }  # fmt: skip
    why = {row["code"]: row["explanation"] for row in rows}
    assert why["LOST"].startswith(f"1:1 was reported as LOST on {first} and was delivered to C1 at {second}")
    jumped = f"1:2 was reported as SKIP on {first} and 1:1, which it had jumped over, was delivered to C1 at {second}"
    assert why["SKIP"].startswith(jumped)
    facts = {fact["label"]: (fact["value"], fact["note"]) for fact in report["facts"]}
    assert facts[f"Retracted: LOST of {first}"] == ("1", "delivered later after all: 1:1")


def test_a_message_of_tomorrow_by_its_producers_clock_is_known_today(tmp_path: Path) -> None:
    story = history("a1 a2 b3", "+C1 a1>C1 a1! a2>C1 a2! ~60 b3>C1 b3!")
    tables = drawn_out(story, START, TEN_MINUTES // STEP)
    ends = FIRST + DAY
    tables["messages"] = of_second(tables["messages"], publish_time=ends + 3_000, date=ends)
    tables["deliveries"] = of_second(tables["deliveries"], delivered_at=ends - 1_000, acked_at=ends + 5_000)
    run = save(tables, tmp_path, subscription=KEYED)
    assert [days.audit(run, tmp_path / "out", date) for date in dates(2)] == [0, 0]
    assert not {"UNKNOWN_MESSAGE", "LOST"} & {*counts(tmp_path / "out")}


def of_second(rows: pa.Table, **given: int) -> pa.Table:
    """The same rows with other times (µs) in the second one."""
    for name, micros in given.items():
        of = rows.schema.field(name)
        values = rows[name].to_pylist()
        values[1] = pa.scalar(micros, TIME).cast(of.type).as_py()
        rows = rows.set_column(rows.schema.get_field_index(name), of, pa.array(values, of.type))
    return rows


@settings(max_examples=2, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(recorded=histories(), hours=st.just(1))
def test_daily_runs_cut_at_any_time_write_only_their_dates_and_find_what_one_run_finds(
    tmp_path_factory: pytest.TempPathFactory, recorded: tuple[str, str], hours: int
) -> None:
    folder, (log, story) = tmp_path_factory.mktemp("cut"), recorded
    tables = published_just_in_time(history(log, f"{story} ~12 +C8"))
    assume(tables["deliveries"].num_rows > 0)
    tables = drawn_out(tables, START + 100 * STEP, hours * 3_600_000_000 // STEP)
    run = save(tables, folder, lookback_days=9, subscription=KEYED)
    last = max(pc.max(rows["date"]).as_py() for rows in tables.values()).isoformat()
    daily_runs = [date for date in dates(9) if date <= last]
    for date in daily_runs:
        assert days.audit(run, folder / "nightly", date) in (0, 1, 2, 3)  # 2: nothing happened yet
    assert all(found <= {*daily_runs} for found in written_dates(folder / "nightly").values())
    assert days.audit(run, folder / "whole") in (0, 1, 3)
    by_night, at_once = counts(folder / "nightly"), counts(folder / "whole")
    for code in table_of(folder / "nightly", "withdrawn")["code"]:
        by_night[code] -= 1
    lasting = {code for code in by_night | at_once if code not in AS_OF_THE_END}
    assert {c: by_night.get(c, 0) for c in lasting} == {c: at_once.get(c, 0) for c in lasting}


@pytest.mark.long
def test_a_killed_daily_run_that_is_repeated_writes_the_same_tables(month: Path, daily_runs: Path) -> None:
    names = ("audited", "violations", "assignments", "finding_counts", "runs")
    before = {name: contents(daily_runs, name) for name in names}
    run = [sys.executable, "-c", COMMAND, "audit", "--config", str(month / "audit.yaml"), "--out", str(daily_runs)]
    killed = subprocess.Popen([*run, "--date", DATES[1]], start_new_session=True, stdout=subprocess.DEVNULL)
    versions = _versions(daily_runs)
    while _versions(daily_runs) == versions and killed.poll() is None:  # until the first table is written
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert audit(month, daily_runs, DATES[1]) in (0, 1)
    assert {name: contents(daily_runs, name) for name in names} == before


def test_a_day_without_messages_and_deliveries_ends_what_was_open(month: Path, daily_runs: Path) -> None:
    assert audit(month, daily_runs, "2026-09-24") == 3  # the run does not say that quiet days are valid
    assert open_at_the_end(daily_runs, DATES[-1])  # acknowledged after midnight
    assert not open_at_the_end(daily_runs, "2026-09-24")
    report = json.loads((daily_runs / "report/report.json").read_text())
    facts = {fact["label"]: fact["value"] for fact in report["facts"]}
    assert (facts["Continues from the audit of"], facts["Messages in the log"]) == (DATES[-1], "0")
    assert audit(month, month / "nothing before", "2026-09-24") == 3


def open_at_the_end(out: Path, daily_run: str) -> bool:
    """Whether a night hands on positions that are open."""
    of_night = table_of(out, "state").filter(pl.col("date") == Date.fromisoformat(daily_run))
    rows = of_night.filter(pl.col("name") == "open")["rows"].to_list()
    assert rows  # it hands on its state
    return any(rows)


def _versions(out: Path) -> Any:
    return sorted(path.name for path in (out / "tables").glob("*/_delta_log/*.json"))


def test_a_key_in_two_partitions_and_a_gap_are_reported_by_the_first_run_that_sees_them() -> None:
    sticky = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
    dispatchers = {Scope("t", i): Dispatcher.of(fold(sticky, "+C1[0-65535] -C1 +C2[0-9]")) for i in range(2)}
    judge = Judge(sticky, dispatchers)
    gap = dispatchers[Scope("t", 0)].timeline.epochs[-1].start.at

    def recorded(keys: str, *known: tuple[str, int], since: int = UNKNOWN) -> list[tuple[str, int]]:
        """Keys by partition; a capital: of an earlier day."""
        rows = [
            {"topic": "t", "partition": index, "ledger": 5, "entry": entry, "batch_index": -1, "kind": 0, "at": entry,
             "seq": 0, "key": key.lower().encode(), "producer": "p", "before": key.isupper()}
            for index, of_one in enumerate(keys.split()) for entry, key in enumerate(of_one)
        ]  # fmt: skip
        engine = LocalEngine()
        log = engine.create_dataset(pa.Table.from_pylist(rows, LOG))
        reported = [{"topic": "t", "key": key, "partition": partition} for key, partition in known]
        columns = pa.schema([VIOLATIONS.field(name) for name in ("topic", "partition", "key")])
        earlier = engine.create_dataset(pa.Table.from_pylist(reported, columns)) if known else None
        ranges = topic_findings.find_range_violations(judge, "sub", since).to_pylist()
        found = [*ranges, *find_keys_in_two_partitions(engine, log, judge, "sub", earlier).to_table().to_pylist()]
        return sorted((row["key"] or row["code"], row["partition"]) for row in found)

    gaps = [("STICKY_GAP", -1)] * 2  # the same timeline stands for both partitions
    assert recorded("kkl k") == [*gaps, ("k", 1)]
    assert recorded("K kkl", since=gap + 1) == [("k", 1)]
    assert recorded("Kk Kkk", since=gap) == gaps
    assert recorded("k kk", ("k", 0), since=gap + 1) == [("k", 1)]


def test_all_keys_in_two_partitions_are_reported() -> None:
    sticky = make_policy("pulsar.key_shared.sticky", "pulsar-4.0")
    judge = Judge(sticky, {Scope("t", i): Dispatcher.of(fold(sticky, "+C1[0-65535]")) for i in range(2)})
    lines = pa.Table.from_pylist(
        [
            {"topic": "t", "partition": i % 2, "ledger": 5, "entry": i, "batch_index": -1, "kind": 0, "at": i, "seq": 0,
             "key": str(i // 2).encode(), "producer": "p", "before": i < 5_000}
            for i in range(5_600)
        ], LOG)  # fmt: skip
    engine = LocalEngine()
    assert len(find_keys_in_two_partitions(engine, engine.create_dataset(lines), judge, "sub").to_table()) == 300
    before = lines.schema.get_field_index("before")
    of_one_day = lines.set_column(before, "before", pa.repeat(False, len(lines)))
    assert len(find_keys_in_two_partitions(engine, engine.create_dataset(of_one_day), judge, "sub").to_table()) == 2_800
