"""Every recording of a real broker is read whole: nothing in quarantine, every event accounted for."""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from subreplay.config import run as config
from subreplay.rows.model.tables import INPUTS
from tests.support.recordings import ROOT, ingested

FOLDERS = sorted(path.parent for path in ROOT.glob("*/*/broker_events.jsonl.gz"))
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")


@cache
def events(folder: Path) -> list[dict]:
    with gzip.open(folder / "broker_events.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def column(folder: Path, table: str, name: str) -> list:
    return ingested(folder).tables[table][name].to_pylist()


def test_there_are_recordings_of_both_brokers():
    assert {folder.parent.name for folder in FOLDERS} >= {"3.2.3", "4.0.8"}


@each
def test_nothing_is_rejected(folder):
    made = ingested(folder)
    assert [str(rejected) for rejected in made.rejected] == []
    assert all(count.rows_in == count.valid for count in made.counts)


@each
def test_every_message_and_every_change_of_membership_is_a_row(folder):
    kinds = Counter(event["ev"] for event in events(folder))
    rows = Counter(column(folder, "membership", "event"))
    refused = kinds["subscribe"] - kinds["consumer_created"]
    assert (rows["join"], rows["rejected"]) == (kinds["consumer_created"], refused)
    assert rows["leave"] + rows["crash"] == kinds["consumer_closed"]
    dead_letters = sum(origin is not None for origin in column(folder, "messages", "origin"))
    assert len(column(folder, "messages", "origin")) - dead_letters == lines(folder / "messages.jsonl.gz")
    assert dead_letters == (lines(folder / "dlq.jsonl.gz") if "dlq" in folder.name else 0)


def lines(path: Path) -> int:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return sum(1 for _ in file)


@each
def test_every_dispatch_is_a_delivery_of_each_message_of_its_entry(folder):
    messages = ingested(folder).tables["messages"].select(["partition", "ledger", "entry"]).to_pylist()
    sizes = Counter((m["partition"], m["ledger"], m["entry"]) for m in messages)
    made = ingested(folder).tables["deliveries"].to_pylist()
    given = Counter((d["seq"], d["partition"], d["ledger"], d["entry"]) for d in made if d["delivered_at"])
    assert {seq for seq, *_ in given} == {e["seq"] for e in events(folder) if e["ev"] == "dispatch"}
    whole = [size == sizes[place] for (_, *entry), size in given.items() if (place := tuple(entry)) in sizes]
    assert all(whole)  # no batch was dispatched again after a part of it was acknowledged


@each
def test_the_acknowledgements_of_the_deliveries_equal_those_the_broker_received(folder):
    outcomes = Counter(column(folder, "deliveries", "outcome"))
    acked = sum(a is not None for a in column(folder, "deliveries", "acked_at"))
    assert outcomes["acked"] == acked > 0
    assert None not in column(folder, "deliveries", "delivered_at")
    assert set(column(folder, "deliveries", "source")) == {"observed"}


@each
def test_applications_never_receive_before_the_broker_delivers(folder):
    rows = ingested(folder).tables["deliveries"].to_pylist()
    late = [r for r in rows if r["received_at"] is not None and r["received_at"] < r["delivered_at"]]
    assert late == []


@each
def test_tables_have_the_canonical_columns(folder):
    assert {name: table.schema for name, table in ingested(folder).tables.items()} == INPUTS


@each
def test_the_suggested_run_is_the_one_that_was_recorded(folder):
    run = config.parse(ingested(folder).run, "suggested").subscription
    scenario = json.loads((folder / "scenario.json").read_text(encoding="utf-8"))
    assert (run.name, run.topic) == (scenario["subscription"], scenario["topic"])
    assert run.profile == f"pulsar-{scenario['version'].rsplit('.', 1)[0]}"
    assert run.make_policy().name == run.policy
