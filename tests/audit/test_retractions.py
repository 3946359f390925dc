"""Findings of earlier runs are retracted as plain loops would, however rows are dealt out to tasks."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.canonical import build_table
from subreplay.audit import retractions
from subreplay.engine.interface import Dataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import retractions as pipeline
from subreplay.rows.model.tables import RETRACTED_FINDINGS, VIOLATIONS
from subreplay.rows.model.text_format import format_position

FIRST, ORIGIN = date(2026, 1, 1), datetime(2026, 1, 2, tzinfo=timezone.utc)
POSITION = ("partition", "ledger", "entry", "batch_index")
Row = dict[str, Any]


def moment(micros: int) -> datetime:
    return ORIGIN + timedelta(microseconds=micros)


def place(draws: Random) -> Row:
    return dict(zip(POSITION, (draws.randrange(2), 1, draws.randrange(12), draws.choice([-1, 0])), strict=True))


def drawn(draws: Random) -> dict[str, list[Row]]:
    at = lambda: moment(draws.choice([draws.randrange(5_000_000), 1_000_000 * draws.randrange(5)]))  # noqa: E731
    of, day = {"topic": "t", "subscription": "s"}, {"date": ORIGIN.date()}
    found = []
    for number in range(80):
        code = draws.choice(["LOST", "UNKNOWN_MESSAGE", "SKIP"])
        skipped = format_position(1, draws.randrange(12), draws.choice([-1, 0]))
        evidence = ["delivery", skipped, "others"][: draws.choice([1, 2, 2, 2, 3])] if code == "SKIP" else []
        when = {"date": FIRST - timedelta(days=draws.randrange(2)), "moment": at(), "at": at() - timedelta(seconds=2)}
        said = {"cause": "", "explanation": str(number), "slot": 0, "epoch": 0, "witness": evidence}
        whose = {"code": code, "consumer": draws.choice(["c1", "c2"]), "verdict": draws.choice(["valid", "invalid"])}
        found.append(of | place(draws) | when | said | whose)
    deliveries = [
        of | day | place(draws) | {"consumer": draws.choice(["c1", "c2"]), "seq": n, "redelivery_count": 0}
        | {"delivered_at": draws.choice([None, at(), at()]), "source": "observed"}
        for n in range(40)
    ]  # fmt: skip
    messages = [
        of | day | place(draws) | {"producer": draws.choice([None, "p1", "p2"]), "publish_time": at()}
        for _ in range(20)
    ]
    joins = [
        of | day | {"type": "Shared", "seq": n, "partition": draws.choice([None, 0, 1]), "consumer": "c2", "at": at()}
        | {"event": draws.choice(["join", "leave"])}
        for n in range(3)
    ]  # fmt: skip
    return {"violations": found, "deliveries": deliveries, "messages": messages, "membership": joins}


def expected(tables: dict[str, list[Row]], before: list[Row]) -> set[tuple[Any, ...]]:
    found = set()
    given = [row for row in tables["deliveries"] if row["delivered_at"] is not None]
    for row in tables["violations"]:
        about = *(row[name] for name in POSITION), row["code"], row["date"]
        known = {(*(old[name] for name in POSITION), old["code"], old["told"]) for old in before}
        if row["verdict"] == "valid" or about in known:
            continue
        for at, what in corrections(row, given, tables):
            shown = str(at.replace(tzinfo=None)).rstrip("0") if at.microsecond else str(at.replace(tzinfo=None))
            words = f"{format_position(*about[1:4])} was reported as {row['code']} on {row['date']} {what} at {shown}"
            found.add((*about, at, words))
    return found


def corrections(row: Row, given: list[Row], tables: dict[str, list[Row]]) -> list[tuple[datetime, str]]:
    here = tuple(row[name] for name in POSITION)
    mine = [d for d in given if tuple(d[name] for name in POSITION) == here]
    if row["code"] == "LOST" and mine:
        first = min(mine, key=lambda d: (d["delivered_at"], d["consumer"]))
        return [(first["delivered_at"], f"and was delivered to {first['consumer']}")]
    stored = [m for m in tables["messages"] if tuple(m[name] for name in POSITION) == here]
    if row["code"] == "UNKNOWN_MESSAGE" and stored:
        named = min((m["producer"] for m in stored if m["producer"]), default=None)
        return [(min(m["publish_time"] for m in stored), "and was published" + (f" by {named}" if named else ""))]
    if row["code"] != "SKIP" or len(row["witness"]) != 2:
        return []
    joins = [m for m in tables["membership"] if m["event"] == "join" and m["partition"] in (None, row["partition"])]
    return [
        (d["delivered_at"], f"and {row['witness'][1]}, which it had jumped over, was delivered to {row['consumer']}")
        for d in given
        if (d["partition"], d["consumer"]) == (row["partition"], row["consumer"])
        and format_position(d["ledger"], d["entry"], d["batch_index"]) == row["witness"][1]
        and not any(j["consumer"] == row["consumer"] and row["at"] < j["at"] <= d["delivered_at"] for j in joins)
    ]


def dealt(engine: LocalEngine, rows: pa.Table) -> Dataset:
    return engine.concat([engine.create_dataset(rows.slice(begin, 17)) for begin in range(0, len(rows), 17)])


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(3))
def test_findings_are_retracted_as_by_loops(
    seed: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_POSITIONS", most)
    rows = drawn(Random(seed))
    every = expected(rows, [])
    names = [*POSITION, "code", "told", "at", "explanation"]
    before = [dict(zip(names, row, strict=True)) for row in sorted(every)[::5]]
    mine = expected(rows, before)
    assert {row[4] for row in mine} == {"LOST", "UNKNOWN_MESSAGE", "SKIP"}
    with LocalEngine(1) as engine:
        day = [build_table(name, rows[name]) for name in ("deliveries", "messages", "membership")]
        reported = dealt(engine, pa.Table.from_pylist(rows["violations"], VIOLATIONS))
        retracted = engine.create_dataset(pa.Table.from_pylist(before, RETRACTED_FINDINGS))
        tables = engine.open_tables(str(tmp_path))
        new = tables.begin_write("withdrawn", RETRACTED_FINDINGS, {"subscription": "s"})
        given = dealt(engine, day[0]), dealt(engine, day[1]), day[2]
        counted = pipeline.retract(engine, reported, retracted, *given, new)
        tables.commit(new)
        written = tables.find("withdrawn")
        assert written is not None
        found = written.select(names).to_table().to_pylist()
        assert {tuple(row[name] for name in names) for row in found} == mine
        assert len(found) == len(mine)
        none = pipeline.retract(engine, reported.map(retractions_of_none, VIOLATIONS), None, *given, new)
    assert none == []
    of_each = sorted({row[4:6] for row in mine})
    assert [(row["code"], row["told"]) for row in counted] == of_each
    for row in counted:
        positions = sorted(about[:4] for about in mine if about[4:6] == (row["code"], row["told"]))
        assert row["count"] == len(positions)
        assert [tuple(p.values()) for p in row["positions"]] == positions[: retractions.MOST_SHOWN_POSITIONS]


def retractions_of_none(batches: Any) -> Any:
    return iter(())
