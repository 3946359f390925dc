"""Findings across partitions are those of plain loops over all messages, however these are dealt out to tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from subreplay.audit import topic_findings
from subreplay.audit.routing import Routing
from subreplay.audit.rules.partitions import FIRST_MESSAGES, find_keyless_strays, find_keys_in_two_partitions
from subreplay.audit.topic_findings import MESSAGE_COLUMNS, FindingRows
from subreplay.engine.local.engine import LocalEngine
from subreplay.pipeline import topic_findings as pipeline
from subreplay.rows import groups
from subreplay.rows.model.tables import LOG, VIOLATIONS
from tests.support.faults import Capture
from tests.support.pure import judge_of

FIELDS = pa.schema([LOG.field(name) for name in MESSAGE_COLUMNS])
CAPTURE = "4.0.8/s5_failover_partitioned"


def judge() -> Any:
    capture = Capture.load(CAPTURE)
    made = judge_of(capture.policy, capture.tables, capture.terms)
    return replace(made, terms=replace(made.terms, routing=Routing(4, "SinglePartition")))


def messages(draws: Random, keys: int, spread: float) -> list[dict[str, Any]]:
    """Messages of some keys and producers, some of which are in several partitions; some of earlier days."""
    rows = []
    for entry in range(300):
        key = draws.choice([*[None] * keys, *range(keys)])
        producer = draws.choice([None, "p1", "p2", "p3"])
        home = (3 if producer is None else int(producer[1])) if key is None else key % 4
        partition = draws.randrange(4) if draws.random() < spread else home
        rows.append(
            {"topic": "t", "partition": partition, "ledger": draws.randrange(2), "entry": entry, "batch_index": -1}
            | {"at": 1_000_000 * entry, "producer": producer, "before": draws.random() < 0.2}
            | {"key": None if key is None else f"k{key}".encode()}
        )  # fmt: skip
    return rows


def firsts(rows: list[dict[str, Any]], whose: str, words: Any, reported: set[tuple[str, int]]) -> pa.Table:
    """``FIRST_MESSAGES`` by a loop."""
    mine = [row for row in rows if row[whose] is not None and (whose == "key" or row["key"] is None)]
    first: dict[tuple[Any, int], dict[str, Any]] = {}
    for row in sorted(mine, key=lambda row: (row["ledger"], row["entry"])):
        first.setdefault((row[whose], row["partition"]), row)
    several, count = Counter(of for of, _ in first), Counter((row[whose], row["partition"]) for row in mine)
    before = {(row[whose], row["partition"]) for row in mine if row["before"]}
    found = []
    for (of, partition), row in first.items():
        if several[of] > 1:
            key = words.mask_key(row["key"])
            known = (of, partition) in before or (key, partition) in reported
            added = {"published": row["at"], "key": key, "messages": count[of, partition], "known": known}
            found.append({name: row.get(name) for name in FIRST_MESSAGES.names} | added)
    return pa.Table.from_pylist(found, FIRST_MESSAGES)


def rows_of(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


@pytest.mark.parametrize(("held", "most"), [(1 << 17, 1 << 20), (3, 2)])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.9])
def test_keys_and_strays_are_found_as_by_loops(
    spread: float, held: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "MOST_PENDING", held)
    monkeypatch.setattr(topic_findings, "MOST_SPREAD", most)
    monkeypatch.setattr(pipeline, "MOST_SPREAD", most)
    draws, mine = Random(int(spread * 10)), judge()
    rows = messages(draws, 40, spread)
    reported = {(mine.words.mask_key(b"k1"), 2), (mine.words.mask_key(b"k2"), 3)}
    in_partitions = pa.array([partition for _, partition in reported], pa.int32())
    earlier = pa.table({"topic": ["t"] * 2, "partition": in_partitions, "key": [key for key, _ in reported]})
    expected = FindingRows("s", mine.rule_statuses)
    with LocalEngine(1) as engine:
        parts = [pa.Table.from_pylist(rows[begin::3], FIELDS) for begin in range(3)]
        log = engine.concat([engine.create_dataset(part) for part in parts])
        keys = pipeline.find_keys_in_two_partitions(engine, log, mine, "s", engine.create_dataset(earlier)).to_table()
        strays = pipeline.find_keyless_strays(engine, log, mine, "s").to_table()
    of_keys = find_keys_in_two_partitions(firsts(rows, "key", mine.words, reported))
    assert keys.schema == strays.schema == VIOLATIONS
    assert rows_of(keys) == rows_of(expected.make_table(of_keys))
    of_producers = firsts(rows, "producer", mine.words, set())
    assert rows_of(strays) == rows_of(expected.make_table(find_keyless_strays(mine.terms.routing, of_producers)))
    assert bool(len(keys)) == bool(len(strays)) == bool(spread)
