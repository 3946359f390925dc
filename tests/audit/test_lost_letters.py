"""Findings about dead letters are what the definitions say of all rows, however these are dealt out to tasks."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.adapters.canonical import build_table
from subreplay.audit import lost_letters
from subreplay.audit.definitions.messages import find_late_dead_letters, find_missing_dead_letters
from subreplay.audit.terms import Terms
from subreplay.engine.interface import Dataset
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import missing_dead_letters as pipeline
from subreplay.rows.model.rows import Scope
from subreplay.rows.model.tables import VIOLATIONS
from subreplay.semantics.policies import make_policy
from tests.support.history import history
from tests.support.pure import judge_of, log_of

POSITION = ("ledger", "entry", "batch_index")
DAY = datetime(2026, 1, 2, tzinfo=timezone.utc)


def drawn(draws: Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Messages, deliveries, dead letters."""
    messages, deliveries, letters = [], [], []
    for entry in range(60):
        of = {"topic": "t", "partition": 0, "ledger": 1, "entry": entry, "batch_index": -1}
        key = draws.choice([b"a", b"b", None])
        micros = int(DAY.timestamp() * 1e6) + entry
        messages.append(of | {"date": DAY.date(), "key": key, "publish_time": micros})
        for count in range(draws.randrange(5)):
            at = micros + 1_000 * draws.randrange(90)
            ended = draws.choice([{"acked_at": at + 5}, {"nacked_at": at + 5}, {"refused_at": at + 5}, {}])
            row = of | {"date": DAY.date(), "subscription": "s", "consumer": draws.choice(["c1", "c2"])}
            row |= {"seq": len(deliveries), "acked_at": None, "nacked_at": None, "refused_at": None}
            deliveries.append(row | {"delivered_at": at, "redelivery_count": count, "source": "observed"} | ended)
        if draws.random() < 0.5:
            place = of | {"topic": "dlq", "entry": draws.randrange(1_000)}
            later = DAY.date() + timedelta(days=draws.randrange(-1, 2))
            letters.append(place | {"date": later, "key": key, "publish_time": micros + 9, "origin": of})
    return messages, deliveries, letters


def dealt(engine: LocalEngine, rows: pa.Table) -> Dataset:
    return engine.concat([engine.create_dataset(rows.slice(begin, 11)) for begin in range(0, max(1, len(rows)), 11)])


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_letters_are_judged_as_the_definitions_say(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_letters, "MOST_NAMED", most)
    monkeypatch.setattr(pipeline, "MOST_NAMED", most)
    messages, deliveries, letters = drawn(Random(seed))
    tables = {"messages": build_table("messages", messages), "deliveries": build_table("deliveries", deliveries)}
    of_letters = build_table("messages", letters)
    terms = Terms(max_redeliveries=2)
    judge = replace(
        judge_of(make_policy("pulsar.shared", "pulsar-4.0"), history("a1", "+C1 a1>C1"), terms), terms=terms
    )
    log = log_of(tables["messages"], tables["deliveries"].slice(0, 0))
    with LocalEngine(1) as engine:
        rows = dealt(engine, tables["deliveries"]), dealt(engine, log), dealt(engine, of_letters)
        found = pipeline.find_dead_letter_findings(engine, *rows, judge, "s", DAY.date())
        assert found is not None
        reported = found.to_table()
        arrived = pipeline.build_dead_letters(rows[2], False)
        assert pipeline.find_dead_letter_findings(engine, rows[0], rows[1], None, judge, "s", None) is None
    assert reported.schema == VIOLATIONS
    lost = [row for row in reported.to_pylist() if row["code"] == "DLQ_INCOMPLETE"]
    as_origin = [
        letter | letter["origin"] | {f"origin_{name}": letter["origin"][name] for name in POSITION}
        | {name: letter[name] for name in POSITION}
        for letter in letters
    ]  # fmt: skip
    expected = find_missing_dead_letters(deliveries, as_origin, 2)
    assert {tuple(row[name] for name in POSITION): row["verdict"] == "invalid" for row in lost} == expected
    assert len(lost) == len(expected) > 0
    keys = {tuple(m[name] for name in POSITION): m["key"] for m in messages}
    assert all(row["key"] == judge.words.mask_key(keys[tuple(row[name] for name in POSITION)]) for row in lost)
    until = [letter for letter in as_origin if letter["date"] <= DAY.date() and letter["key"] is not None]
    origin_of = {tuple(letter[name] for name in POSITION): letter for letter in until}
    late = [origin_of[position] for position in find_late_dead_letters(until)]
    assert sorted(row["entry"] for row in reported.to_pylist() if row["code"] == "DLQ_ORDER") == sorted(
        letter["origin_entry"] for letter in late if letter["date"] == DAY.date()
    )
    positions, at = arrived.of_scope[Scope("t", 0)]
    assert {tuple(p): t for p, t in zip(positions.T.tolist(), at.tolist(), strict=True)} == {
        tuple(letter["origin"][name] for name in POSITION): letter["publish_time"] * 1_000 for letter in letters
    }
