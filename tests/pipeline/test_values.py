"""Every extreme value of every input column, through the real commands: what a contract does not allow stands in
quarantine with its reason, and whatever it allows is computed with."""

from __future__ import annotations

import json
from datetime import date as Date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from subreplay.adapters.canonical import utc_date
from subreplay.cli.main import main
from subreplay.rows.model.contracts import FIRST_TIME, LARGEST, LAST_TIME, LEGAL, NumberRange, TextValues, TimeRange
from subreplay.rows.model.tables import INPUTS
from tests.support.history import SUBSCRIPTION, TOPIC, history
from tests.support.tables import table_of

YEAR_1, YEAR_2300, END_OF_9999 = -62_135_596_800_000_000, 10_413_792_000_000_000, 253_402_300_799_999_999  # µs
OF_ROWS = {"messages": "publish_time", "membership": "at", "deliveries": "delivered_at"}  # what date is the day of


class Trial(NamedTuple):
    """A row with one value changed, and whether the contract allows it."""

    table: str
    column: str
    value: Any
    legal: bool


def trials() -> list[Trial]:
    found = [
        Trial(table, name, value, legal)
        for table, columns in LEGAL.items()
        for name, contract in columns.items()
        for value, legal in extremes(table, name, contract)
    ]
    for table, schema in INPUTS.items():
        found += [Trial(table, field.name, None, False) for field in schema if not field.nullable]
        found += [Trial(table, "date", value, False) for value in (Date.min, Date.max)]
    found += [Trial("messages", "event_time", value, True) for value in (YEAR_1, END_OF_9999, LARGEST, -LARGEST)]
    return found


def extremes(table: str, name: str, contract: NumberRange | TimeRange | TextValues) -> list[tuple[Any, bool]]:
    if isinstance(contract, TextValues):
        return [("", False)] + [("something else", False)] * bool(contract.known)
    if isinstance(contract, TimeRange):
        wrong = [YEAR_1, -1, 0, FIRST_TIME - 1, LAST_TIME + 1, YEAR_2300, END_OF_9999, LARGEST, -LARGEST]
        return [(FIRST_TIME, True), (LAST_TIME, True)] + [(value, False) for value in wrong]
    bits = type_of(table, name).bit_width - 1
    outside = {contract.least - 1, contract.most + 1, -(2**bits), 2**bits - 1} - {contract.least, contract.most}
    wrong = [value for value in sorted(outside) if -(2**bits) <= value < 2**bits]
    return [(contract.least, True), (contract.most, True)] + [(value, False) for value in wrong]


def type_of(table: str, name: str) -> pa.DataType:
    column, _, field = name.partition(".")
    kind = INPUTS[table].field(column).type
    return kind if not field else (kind.value_type if pa.types.is_list(kind) else kind).field(field).type


def changed(row: dict[str, Any], trial: Trial) -> dict[str, Any]:
    """The row, with what has to go with the changed value."""
    column, _, field = trial.column.partition(".")
    if column == "origin":
        position = {"topic": "t", "partition": -1, "ledger": 0, "entry": 0, "batch_index": -1}
        return row | {"origin": position | {field: trial.value}}
    if column == "ranges":
        ends = {"start": 0, "end": 65_535} | {field: trial.value}
        return row | {"ranges": [ends | ({"end": ends["start"]} if field == "start" and trial.legal else {})]}
    row = row | {column: trial.value}
    if column == "entry" and trial.value is not None and trial.value > 2**31 - 1:
        row |= {"ledger": 0}  # as a Kafka offset
    if column in ("chunk_id", "chunk_count"):
        row |= {"chunk_id": trial.value, "chunk_count": 2**20} if column == "chunk_id" else {"chunk_id": 0}
    if column in ("since", "nacked_at") and trial.value == FIRST_TIME:
        row |= {"at": FIRST_TIME} if column == "since" else {"delivered_at": FIRST_TIME}
    if column in ("since", "at") and trial.legal:
        row |= {"at": trial.value, "since": trial.value}
    when = row.get(OF_ROWS[trial.table])
    return row | ({"date": utc_date(when)} if trial.legal and isinstance(when, int) else {})


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a history that is valid, with a changed row of every trial; audited and played through scenarios."""
    folder = tmp_path_factory.mktemp("values")
    tables = history("a1 b2 a3 b4 a5", "+C1 +C2 a1>C1 a1! b2>C2 b2! a3>C1 a3! b4>C2 b4! a5>C1 a5!")
    for name, table in tables.items():
        loose = pa.schema([pa.field(f.name, nullable(f.type)) for f in INPUTS[name]])
        rows = [plain(row) for row in table.to_pylist()]
        of_table = [trial for trial in trials() if trial.table == name]
        rows += [changed(rows[0] | fresh(name, number), trial) for number, trial in enumerate(of_table)]
        (folder / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows, schema=loose), folder / name / "part.parquet")
    (folder / "run.yaml").write_text(json.dumps(run(folder)))
    return folder


def nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable(f.type)) for f in kind])
    return pa.list_(nullable(kind.value_type)) if pa.types.is_list(kind) else kind


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times in µs."""
    return {name: round(v.timestamp() * 1e6) if hasattr(v, "timestamp") else v for name, v in row.items()}


def fresh(table: str, number: int) -> dict[str, Any]:
    return {"consumer": f"T{number}"} if table == "membership" else {"entry": 1_000 + number}


def run(folder: Path) -> dict[str, Any]:
    scenario = {"policy": "pulsar.key_shared.auto_split", "members": [{"consumer": "a"}]}
    return {
        "traffic": {"path": str(folder), "format": "parquet"},
        "subscription": {"name": SUBSCRIPTION, "topic": TOPIC, "policy": "pulsar.key_shared.auto_split"},
        "windows": {"width": "365d"},
        "scenarios": [{"name": "one", **scenario, "dispatch": {}}, {"name": "recorded", "policy": "pulsar.shared"}],
    }


@pytest.mark.parametrize("command", ["audit", "whatif"])
def test_what_a_contract_does_not_allow_is_in_quarantine_and_nothing_else(
    tried: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([command, "--config", str(tried / "run.yaml"), "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert code in ((1, 3) if command == "audit" else (0, 3)), said.err
    report = json.loads((tmp_path / "report/report.json").read_text())
    counts = {row["table"]: row for row in report["inputs"]}
    for table in INPUTS:
        of_table = [trial for trial in trials() if trial.table == table]
        stored = pq.read_metadata(tried / table / "part.parquet").num_rows
        found = counts[table]
        assert found["rows_in"] == stored == found["valid"] + found["quarantined"]
        assert found["quarantined"] == sum(not trial.legal for trial in of_table), table
    name = "quarantine" if command == "audit" else "whatif_quarantine"
    rejected = table_of(tmp_path, name).to_dicts()
    reported = {(row["table"], reason["column"]) for row in rejected for reason in row["reasons"]}
    assert {(t.table, t.column) for t in trials() if not t.legal} <= reported
    assert all(r["value"] and r["rule"] and r["remedy"] for row in rejected for r in row["reasons"])


def test_a_sentinel_of_never_is_to_be_null() -> None:
    assert "write null where it never happened" in LEGAL["deliveries"]["acked_at"].remedy
