"""Whole runs, from files to report: both engines leave the same rows of every table and the same report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date as Date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from subreplay.adapters import ADAPTERS, Options
from subreplay.config import run as config
from subreplay.engine.interface import Engine, TableSource
from subreplay.engine.local.engine import LocalEngine
from subreplay.engine.spark.engine import SparkEngine
from subreplay.pipeline import adapter_sources, ingest, story
from subreplay.pipeline.inputs import read_inputs, scan_inputs
from subreplay.reports.json_report import to_json
from tests.adapters import test_sources as files
from tests.engine import test_source_columns as source_rows
from tests.support import large_keys
from tests.support.audits import changed
from tests.support.clocks import OWN_LOG, off
from tests.support.days import dates, drawn_out
from tests.support.drawn import DAY, drawn
from tests.support.history import START, STEP, SUBSCRIPTION, TOPIC, History, history
from tests.support.quick_session import RunSession
from tests.support.recordings import ROOT, Recording
from tests.support.tables import OF_ONE_ENGINE, OF_ONE_RUN

pytestmark = pytest.mark.spark

Sections = dict[str, Any]
Make = Callable[[Engine, Path], Sections]
"""Makes what a run reads, below a folder, by an engine; returns the sections of its run file."""

DATA = ROOT.parent
KEYED = {"name": SUBSCRIPTION, "topic": TOPIC, "policy": "pulsar.key_shared.auto_split", "profile": "pulsar-4.0"}
FAILOVER = KEYED | {"policy": "pulsar.failover"}
EXCLUSIVE = KEYED | {"policy": "pulsar.exclusive"}
TWO = [{"consumer": "a"}, {"consumer": "b"}]
TEN_MINUTES = 600_000_000
OF_TWO = history("a1 a2 a3 n1", "+C1 a1>C1 +C2 a2>C2 a1! a2! a3>C2 a3! n1>C1 n1!")
"""The messages of a key go to another consumer before the first one is acknowledged."""
PATIENT = dict.fromkeys(("stalled_after", "stuck_after", "late_after"))
SLOW = {"consumers": {"service": {"model": "fixed", "time": "5ms"}, "receiver_queue_size": 50}}
STUCK = SLOW | {"others": {"b": {"stuck": {"start": "1s", "end": "3s"}}}}


class Case(NamedTuple):
    """A run. ``finds`` are rules that find something in it; ``days`` those that it is run for, one after the other."""

    make: Make
    finds: Sequence[str] = ()
    command: str = "audit"
    days: Sequence[str | None] = (None,)


class Outcome(NamedTuple):
    """What the runs of a case leave: the rows of each table, in some order, and the report of each run."""

    tables: Mapping[str, list[str]]
    reports: list[dict[str, Any]]


def tables_of(tables: History, **sections: Any) -> Make:
    """A run over tables of rows written by hand."""

    def make(_: Engine, folder: Path) -> Sections:
        for name, rows in tables.items():
            (folder / name).mkdir(parents=True)
            pq.write_table(rows, folder / name / "part.parquet")
        return {"traffic": {"path": str(folder), "format": "parquet"}, "subscription": KEYED, **sections}

    return make


def ingested(adapter: str, made: Callable[[Path], Path], options: Options | None = None, **sections: Any) -> Make:
    """A run over the tables that an engine makes of files."""

    def make(engine: Engine, folder: Path) -> Sections:
        folder.mkdir(parents=True)
        path = made(folder.with_name("source"))
        read = adapter_sources.read(engine, adapter, path, options or Options())
        ingest.write(engine, read, str(folder), "delta", str(path))
        known = {name: part for name, part in read.summary.run.items() if name != "traffic"}
        named = {
            name: part if "from" in part else {"path": f"{folder}/{name}", "format": "delta", **part}
            for name, part in read.summary.run.get("traffic", {}).items()
        }
        return {**known, **sections, "traffic": {"path": str(folder), **named},
                "subscription": known.get("subscription", {}) | sections.get("subscription", {})}  # fmt: skip

    return make


def recorded(name: str, **sections: Any) -> Make:
    """A run over a recording."""
    adapter = "pulsar-recording" if name.startswith("recordings/") else "kafka-recording"
    return ingested(adapter, lambda _: DATA / name, **sections)


def lost_letter(folder: Path) -> Path:
    """A recording whose dead letter topic lacks one message."""
    recording = Recording.load("3.2.3/s7b_shared_dlq")
    recording.files["dlq"].pop(70)
    return recording.save(folder)


def of_partitions(count: int) -> History:
    """One message of each of many partitions; each seventh was given to the consumer that does not own it."""
    reported = []
    for number in range(count):
        owner = "C1" if number % 2 == 0 else "C2"
        to = owner if number % 7 else "C2" if owner == "C1" else "C1"
        reported.append(history("a1", f"+C1 +C2 a1>{to} a1!", number))
    return {name: pa.concat_tables([one[name] for one in reported]) for name in reported[0]}


def of_hot_key() -> History:
    """Five hundred of six hundred messages have one key; a consumer joins in their middle."""
    names = [f"{'a' if n % 6 else chr(ord('b') + n // 6 % 20)}{n}" for n in range(600)]
    served = [f"{name}>{'C1' if n < 300 or name[0] > 'm' else 'C2'} {name}!" for n, name in enumerate(names)]
    served[300] = f"+C2 {served[300]}"
    return history(" ".join(names), f"+C1 {' '.join(served)}")


def twice(tables: History) -> History:
    return {name: pa.concat_tables([rows, rows]) for name, rows in tables.items()}


def source_columns(_: Engine, folder: Path) -> Sections:
    """Messages in CSV and deliveries in Parquet, whose columns have other names and types; one row is rejected."""
    tables = OF_TWO
    folder.mkdir(parents=True)
    pq.write_table(tables["membership"], folder / "members.parquet")
    messages, deliveries = tables["messages"], tables["deliveries"]
    times = messages["publish_time"].cast(pa.int64()).to_pylist()
    lines = [
        f"{row['key'].decode()},{row['topic']},{row['ledger']},{row['entry']},{at}"
        for row, at in zip(messages.to_pylist(), times, strict=True)
    ]
    (folder / "messages.csv").write_text("\n".join(["k,stream,led,ent,us", *lines]))
    counts = pa.array(["many", *["0"] * (len(deliveries) - 1)])
    served = deliveries.set_column(deliveries.column_names.index("redelivery_count"), "redelivery_count", counts)
    pq.write_table(served.rename_columns([f"d_{n}" for n in served.column_names]), folder / "deliveries.parquet")
    columns = {"key": {"column": "k", "as": "utf8"}, "topic": "stream",
               "ledger": {"column": "led", "as": "integer"}, "entry": {"column": "ent", "as": "integer"},
               "publish_time": {"column": "us", "as": "epoch_us"}}  # fmt: skip
    named = {name: f"d_{name}" for name in deliveries.column_names if name != "date"}
    named["redelivery_count"] = {"column": "d_redelivery_count", "as": "integer"}
    return {
        "subscription": KEYED,
        "traffic": {
            "messages": {"path": f"{folder}/messages.csv", "format": "csv", "columns": columns,
                         "options": {"header": True}, "values": {"partition": -1, "batch_index": -1}},
            "membership": {"path": f"{folder}/members.parquet", "format": "parquet"},
            "deliveries": {"path": f"{folder}/deliveries.parquet", "format": "parquet", "columns": named},
        },
        "tolerate": {"deliveries": 0.5},
    }  # fmt: skip


def clock_off(_: Engine, folder: Path) -> Sections:
    """A recording in which one consumer's clock is five seconds ahead."""
    recording = ADAPTERS["pulsar-recording"](ROOT / "4.0.8/s1_key_shared_autosplit")
    tables = off(recording.tables, "c2", 5_000_000, OWN_LOG[1:])
    return tables_of(tables, subscription=recording.run["subscription"])(_, folder)


def wide_keys(_: Engine, folder: Path) -> Sections:
    return dict(json.loads(large_keys.write(folder, 40, 100_000).read_text()))


def drawn_rows(_: Engine, folder: Path) -> Sections:
    """Rows of which about half break a rule of their table."""
    draws = random.Random(7)
    tables = {name: drawn(name, draws, 300) for name in ("messages", "membership", "deliveries")}
    return tables_of(tables, subscription=KEYED | {"topic": "t"}, tolerate=dict.fromkeys(tables, 1.0))(_, folder)


SCENARIOS = [
    {"name": policy, "policy": f"pulsar.{policy}", "profile": "pulsar-4.0", "members": TWO}
    for policy in ("key_shared.auto_split", "key_shared.consistent_hash", "failover", "shared")
]
GROUPS = [
    {"name": policy, "policy": f"kafka.{policy}", "profile": "kafka-4.0",
     "members": [{"consumer": "a"}, {"consumer": "b", "leave": "50ms", "restart": "20ms"}],
     "dispatch": {"consumers": {"service": {"model": "lognormal", "time": "3ms", "sigma": 0.5}}, "seed": 7}}
    for policy in ("range", "cooperative_sticky")
]  # fmt: skip
CAME_LATE = drawn_out(history("a1 a2 a3", "+C1 a1>C1 a1! a3>C1 a3! ~60 a2>C1 a2! ~60 -C1"), START, TEN_MINUTES // STEP)

CASES = {
    "Key_Shared, a consumer stuck": Case(
        recorded("recordings/4.0.8/s1b_key_shared_stuck", windows={"width": "2s", "slide": "500ms"}), ["REDELIVERED"]
    ),
    "mixed batches": Case(recorded("recordings/4.0.8/s1f_key_shared_default_batching"), ["MIXED_BATCH"]),
    "findings alone are kept": Case(
        recorded("recordings/3.2.3/s1f_key_shared_default_batching", output={"audited": "findings"}), ["MIXED_BATCH"]
    ),
    "cumulative acknowledgements": Case(recorded("recordings/4.0.8/s8_exclusive_cumulative")),
    "delayed messages": Case(recorded("recordings/3.2.3/s9b_delayed_failover")),
    "dead letters": Case(ingested("pulsar-recording", lost_letter), ["DLQ_INCOMPLETE"], days=("2026-11-21",)),
    "Kafka, commits": Case(recorded("kafka_groups/k44_grow_latest"), ["LOST", "KEY_TWO_PARTITIONS"]),
    "Kafka, a share group": Case(recorded("kafka_share_recordings/s36_hang_limit"), ["LATE_ACK", "REDELIVERED"]),
    "daily runs, a finding is retracted": Case(
        tables_of(CAME_LATE, subscription=EXCLUSIVE, liveness=PATIENT),
        days=dates(3),
    ),
    "quarantine": Case(
        tables_of(
            changed(changed(OF_TWO, "membership", 1, event="joined"), "deliveries", 2, redelivery_count=-1),
            tolerate={"membership": 0.5, "deliveries": 0.5},
        )
    ),
    "rows of every kind": Case(drawn_rows),
    "rows given twice": Case(tables_of(twice(OF_TWO)), ["KEY_TWO_OWNERS"]),
    "a clock that is off": Case(clock_off),
    "many partitions": Case(
        tables_of(of_partitions(60), subscription=FAILOVER, windows={"width": "1s"}), ["WRONG_OWNER"]
    ),
    "a hot key": Case(tables_of(of_hot_key(), scenarios=SCENARIOS, windows={"width": "1s"})),
    "wide keys": Case(wide_keys),
    "source columns": Case(source_columns),
    "adapter capture": Case(ingested("capture", files.captures, subscription={"policy": "pulsar.exclusive"})),
    "adapter otlp-spans": Case(ingested("otlp-spans", files.traces, Options(subscription="otel4"))),
    "adapter pulsar-broker-log": Case(ingested("pulsar-broker-log", files.brokers_logs)),
    "adapter pulsar-stats": Case(ingested("pulsar-stats", files.polls)),
    "adapter kafka-group": Case(ingested("kafka-group", files.copies)),
    "adapter kafka-text": Case(
        ingested("kafka-text", files.printed, Options(topic="orders"), scenarios=SCENARIOS), command="whatif"
    ),
    "what-if, dispatch": Case(
        tables_of(of_hot_key(), scenarios=[SCENARIOS[0] | {"name": "stuck", "dispatch": STUCK}, *SCENARIOS]),
        command="whatif",
    ),
    "what-if, consumer groups": Case(
        tables_of(of_partitions(6), subscription=FAILOVER, scenarios=GROUPS), command="whatif"
    ),
    "plan": Case(
        tables_of(of_hot_key(), plan={"consumers": 3, "window": "1s", "service": {"model": "fixed", "time": "5ms"}}),
        command="plan",
    ),
}  # fmt: skip


def outcome(engine: Engine, case: Case, folder: Path) -> Outcome:
    """What an engine leaves below a folder."""
    sections = case.make(engine, folder / "in")
    reports = []
    for day in case.days:
        output = {"tables": f"{folder}/tables", "report": f"{folder}/report"} | sections.get("output", {})
        run = config.parse(sections | {"output": output}, "run.yaml", date=day)
        if case.command == "plan":
            found = story.plan(engine, run, ("ranges",))
        else:
            found = {"audit": story.audit, "whatif": story.whatif}[case.command](engine, run)
        report = json.loads(to_json(found.report).replace(str(folder), "FOLDER"))
        assert report["run"].pop("engine")["name"] == engine.name
        reports.append(report)
    written = [path.parent for path in sorted(folder.rglob("_delta_log")) if "source" not in path.parts]
    return Outcome({str(path.relative_to(folder)): rows_of(path, folder) for path in written}, reports)


def rows_of(path: Path, folder: Path) -> list[str]:
    """The rows of a table, in order; which engine wrote them, in which attempt, and where, is left out."""
    rows = DeltaTable(path).to_pyarrow_table()
    names = sorted({*rows.column_names} - OF_ONE_RUN - OF_ONE_ENGINE)
    return sorted(repr(row).replace(str(folder), "FOLDER") for row in rows.select(names).to_pylist())


@pytest.mark.parametrize("name", CASES)
def test_both_engines_leave_the_same_rows_and_the_same_report(
    of_the_run: RunSession, tmp_path: Path, name: str
) -> None:
    case = CASES[name]
    with LocalEngine(cores=2) as local, SparkEngine(of_the_run()) as of_spark:
        expected = outcome(local, case, tmp_path / "local")
        found = outcome(of_spark, case, tmp_path / "spark")
    assert any(rows for table, rows in expected.tables.items() if table.startswith("tables/"))
    assert found.tables.keys() == expected.tables.keys()
    for table, rows in expected.tables.items():
        assert found.tables[table] == rows, table
    assert found.reports == expected.reports
    counts = {rule["code"]: rule["count"] for report in expected.reports for rule in report["codes"]}
    assert [code for code in case.finds if not counts[code]] == []


@pytest.mark.parametrize(
    ("nested", "day"), [(True, None), (False, DAY)], ids=["every row, with nested columns", "a day, as they are"]
)
def test_both_engines_read_the_same_rows_under_other_names(
    of_the_run: RunSession, tmp_path: Path, nested: bool, day: Date | None
) -> None:
    """Messages and deliveries, valid or not, of one topic and of others, on a day and on others."""
    given: dict[str, Any] = {}
    for name in ("messages", "deliveries"):
        table = drawn(name, random.Random(1), 200).drop_columns("date")
        if not nested:
            table = table.select([field.name for field in table.schema if not pa.types.is_struct(field.type)])
        other = {column: f"{column}_of_source" for column in table.column_names}
        pq.write_table(table.rename_columns([*other.values()]), tmp_path / f"{name}.parquet", row_group_size=60)
        given[name] = {"path": f"{tmp_path}/{name}.parquet", "format": "parquet", "columns": other}
    run = config.parse(
        {"traffic": given, "subscription": {"topic": "t", "name": "sub"}, "date": day}, "run.yaml"
    )  # fmt: skip
    with LocalEngine(cores=2) as local, SparkEngine(of_the_run()) as of_spark:
        expected, found = (looked_at(engine, run) for engine in (local, of_spark))
    assert min(map(len, expected.values())) > 3
    assert found == expected


def looked_at(engine: Engine, run: config.RunConfig) -> dict[str, list[str]]:
    """The valid rows of each table, and those in quarantine."""
    inputs = read_inputs(engine, run, messages_only=True)
    look = scan_inputs(inputs, log=False, only=("messages", "deliveries")).by_table
    tables = {name: inputs.valid(name).to_table() for name in look}
    tables |= {f"{name}, quarantine": outputs["quarantine"].to_table() for name, outputs in look.items()}
    return {
        name: sorted(repr(sorted(row.items())) for row in rows.to_pylist()) for name, rows in tables.items()
    }  # fmt: skip


@pytest.mark.parametrize("old_times", [False, True], ids=["", "instants of 96 bits"])
def test_both_engines_read_columns_as_the_same_types(of_the_run: RunSession, tmp_path: Path, old_times: bool) -> None:
    pq.write_table(source_rows.rows(), tmp_path / "rows.parquet", use_deprecated_int96_timestamps=old_times)
    source = TableSource("traffic.messages", str(tmp_path), format="parquet")
    with LocalEngine(cores=2) as local, SparkEngine(of_the_run()) as of_spark:
        found, expected = (
            [(field.name, str(field.type).replace("element", "item")) for field in engine.scan(source).schema]
            for engine in (local, of_spark)
        )
    assert found == expected
